// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "description.hpp"

#include <tessera/checkpoint/reader.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/random.hpp>
#include <tessera/io/safetensors.hpp>
#include <tessera/io/text.hpp>
#include <tessera_serving/key_lists.hpp>
#include <tessera_serving/model_description.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

namespace sequence {

using namespace tessera;

namespace {

constexpr std::string_view kHistory = "history", kLabels = "history_labels",
                           kCandidate = "candidate", kTable = "item";

std::string name_of(const Data& data, std::int32_t item) {
  if (data.file() == nullptr) return fmt::format("{}", item);
  return data.file()->item_key(item);
}

/// Of the file's items; made-up ones have the rows of their numbers.
std::map<std::string, KeyList> lists_of(const Data& data) {
  std::map<std::string, KeyList> lists;
  if (data.file() == nullptr) return lists;
  KeyList& list = lists[std::string(kTable)];
  for (std::int64_t item = 0; item < data.file()->items(); ++item) {
    list.keys.push_back(static_cast<std::int64_t>(
        std::max(detail::name_key(data.file()->item_key(item)), std::uint64_t{1})));
    list.rows.push_back(static_cast<std::int32_t>(item));
  }
  return lists;
}

}  // namespace

void name_items(CheckpointContents& contents, const Data& data) {
  detail::add_key_lists(contents, lists_of(data));
}

LoadOptions items_of(const std::filesystem::path& checkpoint, const Data& data) {
  LoadOptions load;
  CheckpointReader reader(checkpoint);
  const std::map<std::string, KeyList> lists = lists_of(data);
  require<DataError>(lists.empty() == !reader.has_file(ModelDescription::kKeysFile),
                     "--start-from: of '{}' and these data one names its items and the other does "
                     "not: it is of made-up histories, or of an earlier version",
                     checkpoint.string());
  if (lists.empty()) return load;
  const std::string bytes = reader.read_file(ModelDescription::kKeysFile);
  const SafetensorsReader file(std::as_bytes(std::span(bytes)),
                               (checkpoint / ModelDescription::kKeysFile).string());
  const std::string table(kTable);
  require<DataError>(file.contains(table + ".keys"),
                     "--start-from: '{}' is of another program's model, without a table '{}'; give "
                     "a folder of train_sequence --save",
                     checkpoint.string(), table);
  const KeyList before{file.read<std::int64_t>(table + ".keys"),
                       file.read<std::int32_t>(table + ".rows")};
  require<DataError>(before.keys.size() == before.rows.size(),
                     "checkpoint '{}': {} keys of {} rows", checkpoint.string(), before.keys.size(),
                     before.rows.size());
  load.rows[table] = detail::rows_of_keys(before, lists.at(table), data.histories().items);
  return load;
}

void describe_model(CheckpointContents& contents, const Options& options, const Data& data) {
  ModelDescription model{
      .interaction = "hstu",
      .vector_width = options.width,
      .top_mlp = {options.width, 1},
      .history = HistoryLayers{options.blocks, options.heads, options.max_length,
                               options.longest_sequence()},
      .tables = {{.name = std::string(kTable),
                  .rows = data.histories().items,
                  .width = options.width}},
      .features = {{std::string(kHistory), std::string(kTable), Pooling::none, true},
                   {std::string(kCandidate), std::string(kTable), Pooling::none, false}}};
  if (data.has_labels())
    model.numeric.push_back({.name = std::string(kLabels),
                             .transform = NumberTransform::at_least,
                             .shift = static_cast<float>(options.label_threshold),
                             .may_be_empty = false,
                             .list = true});
  if (data.file() == nullptr) {
    model.tables[0].keys = CategoryKey::integer;
    model.tables[0].rows_by = KeyRows::key;
  }
  add_model_description(contents, model, lists_of(data));
}

std::string prediction_header(const Data& data) {
  for (std::int64_t item = 0; data.file() != nullptr && item < data.file()->items(); ++item)
    require<DataError>(
        data.file()->item_key(item).find_first_of("\t\"|\n\r") == std::string::npos,
        "--predictions: the item {} has a tab, a quote, '|' or an end of line in its "
        "name",
        detail::quoted(data.file()->item_key(item)));
  return fmt::format("{}\t{}{}{}\tlabel\tlogit\n", kHistory, data.has_labels() ? kLabels : "",
                     data.has_labels() ? "\t" : "", kCandidate);
}

void add_prediction(std::string& lines, const Data& data, std::span<const HistoryEvent> history,
                    std::int32_t candidate, float label, float logit) {
  std::string items, labels;
  for (const HistoryEvent& event : history) {
    items += (items.empty() ? "" : "|") + name_of(data, event.item);
    labels += fmt::format("{}{}", labels.empty() ? "" : "|", event.label);
  }
  lines += items + '\t';
  if (data.has_labels()) lines += labels + '\t';
  lines += fmt::format("{}\t{}\t{}\n", name_of(data, candidate), label, logit);
}

}  // namespace sequence
