// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "warm_start.hpp"

#include "description.hpp"

#include <tessera/checkpoint/agreement.hpp>
#include <tessera/checkpoint/contents.hpp>
#include <tessera/checkpoint/load.hpp>
#include <tessera/checkpoint/manifest.hpp>
#include <tessera/checkpoint/reader.hpp>
#include <tessera/checkpoint/vocabulary.hpp>
#include <tessera/checkpoint/warm_start.hpp>
#include <tessera/core/error.hpp>
#include <tessera_serving/key_lists.hpp>
#include <tessera_serving/model_description.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dlrm {
namespace {

using tessera::CategoryInput;
using tessera::KeyList;
using tessera::KeyRows;
using tessera::ModelDescription;
using tessera::NumberInput;
using tessera::TableInput;

std::string how(const TableInput& table) {
  constexpr std::array<std::string_view, 4> rows{"a list of the training data's keys", "a hash",
                                                 "a vocabulary", "the keys themselves"};
  return fmt::format("rows by {}, keys {}", rows[static_cast<std::size_t>(table.rows_by)],
                     tessera::detail::kCategoryKeys[static_cast<std::size_t>(table.keys)]);
}

/// Why no row of a table means what it meant before; "": they do, or a list tells which.
std::string difference(const TableInput& before, const TableInput& now) {
  if (before.keys != now.keys || before.rows_by != now.rows_by)
    return fmt::format("{} in the checkpoint, {} here", how(before), how(now));
  if (now.rows_by == KeyRows::hash && before.rows != now.rows)
    return fmt::format("hashed to {} rows in the checkpoint, to {} here", before.rows, now.rows);
  if (now.rows_by == KeyRows::hash && before.hash_seed != now.hash_seed)
    return "hashed by another seed in the checkpoint";
  if (before.hash_seed != 0 && before.hash_seed != now.hash_seed)
    return "its ids stood for other texts in the checkpoint";
  return {};
}

/// For each row of a table whose keys are listed, the row that its key had; -1: none.
std::vector<std::int64_t> rows_of(const TableInput& before, const KeyList& keys_before,
                                  const TableInput& now, const KeyList& keys) {
  std::vector<std::int64_t> rows = tessera::detail::rows_of_keys(keys_before, keys, now.rows);
  for (const auto& [to, from] :
       {std::pair(now.empty_row, before.empty_row), std::pair(now.unknown_row, before.unknown_row)})
    if (to && from) rows[static_cast<std::size_t>(*to)] = *from;
  return rows;
}

template <class Inputs>
std::vector<std::string> names_of(const Inputs& inputs) {
  std::vector<std::string> names;
  for (const auto& input : inputs) names.push_back(input.name);
  return names;
}

/// What a model can take from a checkpoint, as far as the inputs of both tell.
class Comparison {
 public:
  tessera::LoadOptions load;
  std::vector<std::string> lines;  ///< why tables and layers begin anew
  /// by table of the model: that of the checkpoint whose vocabulary's keys it takes, -1: none
  std::vector<int> vocabulary;

  Comparison(const std::filesystem::path& checkpoint, const tessera::CheckpointContents& contents,
             const ModelDescription& model, const std::map<std::string, KeyList>& lists)
      : contents_(contents), model_(model) {
    tessera::CheckpointReader newest(checkpoint);
    const std::string& base = newest.manifest().base;
    tessera::CheckpointReader reader(base.empty() ? checkpoint : checkpoint.parent_path() / base);
    const ModelDescription before = read_model_description(reader);
    load.extra = {"vocabulary.*", "cold_rows.*"};
    compare_tables(before, tessera::detail::read_key_lists(reader, before), lists);
    compare_inputs(before);
    compare_layers(reader.manifest());
  }

  /// Rows of a table, and of its second one in a wide part.
  void take_rows(const std::string& table, std::vector<std::int64_t> rows) {
    const std::string wide = tessera::wide_table(table);
    for (const auto& [first, end] : contents_.tables())
      if (contents_.tensors()[static_cast<std::size_t>(first)].group == wide)
        load.rows[wide] = rows;
    load.rows[table] = std::move(rows);
  }

 private:
  void compare_tables(const ModelDescription& before,
                      const std::map<std::string, KeyList>& lists_before,
                      const std::map<std::string, KeyList>& lists) {
    for (const TableInput& table : model_.tables) {
      vocabulary.push_back(-1);
      const auto found = std::ranges::find(before.tables, table.name, &TableInput::name);
      if (found == before.tables.end()) continue;  // it is new
      if (const std::string why = difference(*found, table); !why.empty()) {
        lines.push_back(fmt::format("table {}: {}: begins anew", table.name, why));
        for (const std::string& name : {table.name, tessera::wide_table(table.name)}) {
          load.keep.push_back(name + ".*");
          load.extra.push_back(name + ".*");
        }
      } else if (table.rows_by == KeyRows::vocabulary) {
        vocabulary.back() = static_cast<int>(found - before.tables.begin());
      } else if (table.rows_by == KeyRows::list) {
        take_rows(table.name,
                  rows_of(*found, lists_before.at(table.name), table, lists.at(table.name)));
      }
    }
  }

  void compare_inputs(const ModelDescription& before) {
    const auto compare = [&](std::string_view what, const std::vector<std::string>& had,
                             const std::vector<std::string>& has,
                             const std::vector<std::string>& layers) {
      if (had == has) return;
      lines.push_back(fmt::format("{} were {}, and are {}: {} begins anew", what,
                                  fmt::join(had, ", "), fmt::join(has, ", "),
                                  fmt::join(layers, ", ")));
      load.keep.insert(load.keep.end(), layers.begin(), layers.end());
    };
    compare("numbers", names_of(before.numeric), names_of(model_.numeric),
            {model_.bottom_mlp.empty() ? "top.0.*" : "bottom.0.*"});
    std::vector<std::string> first{"top.0.*"};
    if (model_.interaction == "cross") first.push_back("cross.*");
    compare("categories", names_of(before.features), names_of(model_.features), first);
  }

  /// The dense optimizer's state is one list over all layers.
  void compare_layers(const tessera::detail::Manifest& manifest) {
    std::vector<bool> of_table(contents_.tensors().size());
    for (const auto& [begin, end] : contents_.tables())
      std::fill(of_table.begin() + begin, of_table.begin() + end, true);
    for (std::size_t t = 0; t < contents_.tensors().size(); ++t) {
      const tessera::detail::TensorSpec& tensor = contents_.tensors()[t];
      if (of_table[t] || tensor.name.starts_with("dense.")) continue;
      const tessera::detail::StoredTensor* const source = manifest.find(tensor.name);
      if (source != nullptr && source->shape == tensor.shape &&
          !tessera::detail::matches_any(load.keep, tensor.name))
        continue;
      lines.push_back("the dense optimizer's state begins anew, as a layer does");
      load.keep.push_back("dense.*");
      load.extra.push_back("dense.*");
      return;
    }
  }

  const tessera::CheckpointContents& contents_;
  const ModelDescription& model_;
};

}  // namespace

void start_from(const Options& options, const Clicks& clicks,
                tessera::AnyCommunicator& communicator, RankModel& model,
                std::optional<tessera::Vocabulary<tessera::AnyCommunicator>>& vocabulary) {
  tessera::CheckpointContents contents;
  model.add_to(contents);
  std::filesystem::path checkpoint;
  tessera::LoadOptions load;
  std::vector<std::string> lines;
  tessera::detail::on_all_ranks(communicator, [&] {
    checkpoint = checkpoint_to_start_from(options.start_from);
    if (!options.synthetic_model.empty()) return;  // its tables have the names of their sizes
    const ModelDescription description = description_of(options, clicks.shape(), clicks.inputs());
    Comparison comparison(checkpoint, contents, description, clicks.inputs().lists);
    if (vocabulary && std::ranges::any_of(comparison.vocabulary, [](int t) { return t >= 0; })) {
      const auto rows = tessera::adopt_vocabulary(checkpoint, *vocabulary, comparison.vocabulary);
      for (std::size_t t = 0; t < rows.size(); ++t)
        if (!rows[t].empty()) comparison.take_rows(description.tables[t].name, rows[t]);
    }
    load = std::move(comparison.load);
    lines = std::move(comparison.lines);
  });
  const std::vector<std::string> changes =
      tessera::start_from(communicator, checkpoint, contents, load);
  if (communicator.rank() != 0) return;
  fmt::print("started from {}\n", checkpoint.string());
  for (const auto& list : {lines, changes})
    for (const std::string& line : list) fmt::print("  {}\n", line);
}

}  // namespace dlrm
