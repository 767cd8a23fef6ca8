// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/checkpoint/load.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

namespace detail {

/// Compares a model with a checkpoint of another one, table by table and layer by layer.
class WarmStart {
 public:
  LoadOptions options;
  std::vector<std::string> lines;  ///< what is not taken unchanged

  WarmStart(const CheckpointContents& contents, const Manifest& manifest, LoadOptions given)
      : options(std::move(given)), contents_(contents), manifest_(manifest) {
    options.allow_missing = options.allow_extra = options.allow_shapes = true;
    for (const auto& [first, end] : contents.tables()) compare_table(first, end);
    for (std::size_t t = 0; t < contents.tensors().size(); ++t)
      if (!seen_.contains(contents.tensors()[t].name) && !contents.ragged(t))
        compare(contents.tensors()[t]);
    list_what_is_left();
  }

 private:
  template <class... Args>
  void say(detail::FormatText<Args...> text, const Args&... args) {
    lines.push_back(formatted<Args...>(text, args...));
  }

  void compare_table(int first, int end) {
    const auto tensor = [&](int t) -> const TensorSpec& {
      return contents_.tensors()[static_cast<std::size_t>(t)];
    };
    const TensorSpec& weight = tensor(first);
    const std::string& table = weight.group;
    for (int t = first; t < end; ++t) seen_.insert(tensor(t).name);
    const std::string name = name_in_checkpoint(options, weight.name);
    const StoredTensor* const source = manifest_.find(name);
    if (source != nullptr) tables_.insert(name.substr(0, name.rfind('.') + 1));
    if (matches_any(options.keep, weight.name)) return;
    const auto begin_anew = [&] {
      for (int t = first; t < end; ++t) options.keep.push_back(tensor(t).name);
      options.rows.erase(table);
    };
    if (source == nullptr) {
      begin_anew();
      return say("table {}: is new", table);
    }
    const std::int64_t width = weight.shape[1], rows = weight.shape[0];
    if (source->shape.size() != 2 || source->columns() != width ||
        !convertible(source->type, weight.type)) {
      begin_anew();
      return say("table {}: {} {} in the checkpoint, {} {} here: begins anew", table,
                 shape_text(source->shape), tensor_type_name(source->type),
                 shape_text(weight.shape), tensor_type_name(weight.type));
    }
    const auto chosen = options.rows.find(table);
    const std::int64_t taken =
        chosen == options.rows.end()
            ? std::min(rows, source->rows())
            : rows - std::count(chosen->second.begin(), chosen->second.end(), -1);
    if (taken < rows || taken < source->rows())
      say("table {}: {} of its {} rows come from the checkpoint's {}", table, taken, rows,
          source->rows());
  }

  void compare(const TensorSpec& tensor) {
    if (matches_any(options.keep, tensor.name)) return;
    const StoredTensor* const source = manifest_.find(name_in_checkpoint(options, tensor.name));
    if (source != nullptr && source->shape == tensor.shape &&
        convertible(source->type, tensor.type))
      return;
    options.keep.push_back(tensor.name);
    if (source == nullptr) return say("{}: is new", tensor.name);
    say("{}: {} in the checkpoint, {} here: begins anew", tensor.name, shape_text(source->shape),
        shape_text(tensor.shape));
  }

  /// Says which tables and tensors of the checkpoint the model does not have.
  void list_what_is_left() {
    std::set<std::string> used;
    for (const TensorSpec& tensor : contents_.tensors())
      used.insert(name_in_checkpoint(options, tensor.name));
    for (const StoredTensor& tensor : manifest_.tensors) {
      if (used.contains(tensor.name) || matches_any(options.extra, tensor.name)) continue;
      const std::string prefix = tensor.name.substr(0, tensor.name.rfind('.') + 1);
      // its states go, or begin anew, with it: LoadOptions::new_optimizers says so
      if (tables_.contains(prefix)) continue;
      say("{}: is left in the checkpoint", tensor.name);
    }
  }

  const CheckpointContents& contents_;
  const Manifest& manifest_;
  std::set<std::string> seen_;    ///< tensors of the model's tables
  std::set<std::string> tables_;  ///< of the checkpoint, that the model has: their names and a dot
};

}  // namespace detail

/// Takes for a new model what a checkpoint of an earlier one has: tables by their names, layers of
/// the same shapes, optimizers' states and steps. What the checkpoint lacks, or has in another width
/// or shape, keeps the values it has; a table with more rows or fewer takes those that both have,
/// or those of `rows`; a table with another optimizer takes its weights. Returns a line for each of
/// these. What `keep` and `extra` name is passed over without one. Collective. Throws
/// DataError on all ranks, the model as it was, for a missing, truncated or damaged file.
template <Communicator<detail::kCheckpointCollectives> Comm>
std::vector<std::string> start_from(Comm& communicator, const std::filesystem::path& folder,
                                    const CheckpointContents& contents,
                                    const LoadOptions& options = {}) {
  std::optional<detail::WarmStart> start;
  detail::on_all_ranks(communicator, [&] {
    const detail::StoredModel stored(folder);
    start.emplace(contents, stored.manifest(), options);
  });
  std::vector<std::string> begun_anew;
  start->options.new_optimizers = &begun_anew;
  load_checkpoint(communicator, folder, contents, start->options);
  for (const std::string& table : begun_anew)
    start->lines.push_back(
        detail::formatted("table {}: takes its weights; its optimizer's state begins anew", table));
  return std::move(start->lines);
}

}}  // namespace tessera::v0
