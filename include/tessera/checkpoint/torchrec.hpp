// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/checkpoint/agreement.hpp>
#include <tessera/checkpoint/comparison.hpp>
#include <tessera/checkpoint/contents.hpp>
#include <tessera/checkpoint/file.hpp>
#include <tessera/checkpoint/file_plan.hpp>
#include <tessera/checkpoint/folder.hpp>
#include <tessera/checkpoint/load.hpp>
#include <tessera/checkpoint/row_writer.hpp>
#include <tessera/checkpoint/torch_dcp.hpp>
#include <tessera/checkpoint/torch_dcp_file.hpp>
#include <tessera/checkpoint/torch_state.hpp>
#include <tessera/concepts/communicator.hpp>
#include <tessera/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// How tables and the tensors of a PyTorch program's state dict go together.
struct TorchrecOptions {
  /// What is before "embedding_bags.NAME.weight", as "sparse_arch.ebc". A load finds any where
  /// it is empty.
  std::string prefix{};
  /// Of a save: the list of the module, "embedding_bags" (pooled), "embeddings" (sequences), or
  /// none: "NAME.weight". A load knows all three.
  std::string modules = "embedding_bags";
  /// Also read or write optimizers' states, and what is before "embedding_bags.NAME.weight" in
  /// their names, as "optim.state.sparse_arch.ebc"; of a load also "*": any. Empty: they stay
  /// unchanged.
  std::string states{};
  /// Tables in the model -> tables in the state dict; or tensors ("C1.weight", "C1.sum") -> whole
  /// names of tensors there.
  std::map<std::string, std::string> rename{};
  /// Of a load: tables of the model that may be missing and then keep the values they have; '*'
  /// matches any text.
  std::vector<std::string> missing{};
  /// Of a save as a folder: larger rectangles are cut by rows into archives of about this size,
  /// which PyTorch takes into memory whole.
  std::uint64_t max_chunk_bytes = std::uint64_t{256} << 20;
};

namespace detail {

/// Returns how TorchRec's fused optimizers name a state ("sum", ...), of which the first is
/// written; none if they have no such state.
inline std::vector<std::string_view> torchrec_states(std::string_view state) {
  if (state == "sum") return {"momentum1"};
  if (state == "m") return {"momentum1", "exp_avg"};
  if (state == "v") return {"exp_avg_sq", "momentum2"};
  return {};
}

/// Finds the model's tables in a state dict.
class TorchTables {
 public:
  TorchTables(const CheckpointContents& model, const TorchState& state,
              const TorchrecOptions& options)
      : sources(model.tensors().size()), options_(options), state_(state) {
    const std::string prefix = prefix_of(options);
    std::string differences;
    std::size_t count = 0;
    const auto add = [&](const std::string& line) {
      if (++count <= kShown) differences += "\n  " + line;
    };
    for (const auto& [first, end] : model.tables()) {
      const TensorSpec& table = model.tensors()[static_cast<std::size_t>(first)];
      const std::vector<std::string> names = find(table, prefix);
      if (names.size() > 1) {
        add(formatted("table '{}' may be '{}' or '{}': give prefix, or rename", table.group,
                      names[0], names[1]));
      } else if (names.empty()) {
        if (!matches_any(options.missing, table.group))
          add(formatted("table '{}' is not there: its tensor would be {}", table.group,
                        wanted(table, prefix)));
      } else {
        const TorchTensor& tensor = state.tensors.at(names[0]);
        if (tensor.known && tensor.shape == table.shape && convertible(tensor.type, table.type))
          sources[static_cast<std::size_t>(first)] = names[0];
        else
          add(formatted("'{}' is {} {}, table '{}' in the model {} {}", names[0], tensor.type_name,
                        shape_text(tensor.shape), table.group, tensor_type_name(table.type),
                        shape_text(table.shape)));
        for (int t = first + 1; t < end && !options.states.empty(); ++t)
          if (const std::string fault = find_state(table, t, model.tensors()); !fault.empty())
            add(fault);
      }
    }
    if (count > kShown) differences += formatted("\n  and {} more", count - kShown);
    require<DataError>(count == 0, "the state dict and the model differ:{}", differences);
  }

  /// By tensor of the model, its name in the state dict; empty: none is read.
  std::vector<std::string> sources;

  static std::string prefix_of(const TorchrecOptions& options) {
    return options.prefix.empty() || options.prefix.ends_with('.') ? options.prefix
                                                                   : options.prefix + '.';
  }
  /// Returns a state's tensor in a state dict, as "embedding_bags.C1.weight.C1.momentum1" after
  /// `prefix`, for a table's tensor and the name there of a state.
  static std::string state_name(const TensorSpec& table, std::string_view modules,
                                std::string_view state, const TorchrecOptions& options) {
    std::string weight = name_of(table, options);
    if (options.rename.contains(table.name)) weight = table.name;
    std::string own = weight.substr(0, weight.rfind('.'));
    return formatted("{}{}{}.{}.{}", modules, modules.empty() ? "" : ".", weight, own, state);
  }
  /// Returns what follows "embedding_bags." in the name of a table's tensor, or the whole name that
  /// `rename` gives it.
  static std::string name_of(const TensorSpec& table, const TorchrecOptions& options) {
    LoadOptions names;
    names.rename = options.rename;
    return name_in_checkpoint(names, table.name);
  }

 private:
  static constexpr std::size_t kShown = 20;

  /// Finds the state of a table's optimizer that is tensor `t` of the model. Returns what is wrong.
  std::string find_state(const TensorSpec& table, int t, const std::vector<TensorSpec>& tensors) {
    const TensorSpec& state = tensors[static_cast<std::size_t>(t)];
    const std::string own = state.name.substr(state.name.rfind('.') + 1);
    const auto names = torchrec_states(own);
    std::set<std::string> found;
    const bool any = options_.states == "*";
    std::string begin =
        any || options_.states.ends_with('.') ? options_.states : options_.states + '.';
    if (any) begin += '.';
    std::string wanted;
    if (const auto renamed = options_.rename.find(state.name); renamed != options_.rename.end()) {
      wanted = renamed->second;
      if (state_.tensors.contains(wanted)) found.insert(wanted);
    } else if (names.empty()) {
      return formatted(
          "'{}': TorchRec's optimizers have no state '{}'; rename it, or load no "
          "states",
          state.name, own);
    } else {
      for (const std::string_view modules : {"embedding_bags", "embeddings", ""})
        for (const std::string_view name : names) {
          const std::string rest = state_name(table, modules, name, options_);
          if (wanted.empty()) wanted = begin + rest;
          for (const auto& [tensor, unused] : state_.tensors)
            if (any ? !modules.empty() && (tensor == rest || tensor.ends_with('.' + rest))
                    : tensor == begin + rest)
              found.insert(tensor);
        }
    }
    if (found.size() > 1)
      return formatted("'{}' may be '{}' or '{}': give states, or rename", state.name,
                       *found.begin(), *found.rbegin());
    if (found.empty())
      return formatted("'{}' is not there: its tensor would be '{}'", state.name, wanted);
    const TorchTensor& tensor = state_.tensors.at(*found.begin());
    const bool one_a_row = state.shape[1] == 1 && tensor.shape == std::vector{state.shape[0]};
    if (!tensor.known || !(one_a_row || tensor.shape == state.shape) ||
        !convertible(tensor.type, state.type))
      return formatted("'{}' is {} {}, '{}' in the model {} {}", *found.begin(), tensor.type_name,
                       shape_text(tensor.shape), state.name, tensor_type_name(state.type),
                       shape_text(state.shape));
    sources[static_cast<std::size_t>(t)] = *found.begin();
    return {};
  }

  /// Returns for a message what `find` looks for.
  std::string wanted(const TensorSpec& table, const std::string& prefix) const {
    const std::string name = name_of(table, options_);
    if (options_.rename.contains(table.name)) return '\'' + name + '\'';
    const std::string any = prefix.empty() ? "*." : prefix;
    return formatted("'{0}embedding_bags.{2}', '{0}embeddings.{2}' or '{1}{2}'", any, prefix, name);
  }

  std::vector<std::string> find(const TensorSpec& table, const std::string& prefix) const {
    const std::string name = name_of(table, options_);
    if (options_.rename.contains(table.name)) {
      if (state_.tensors.contains(name)) return {name};
      return {};
    }
    std::vector<std::string> found;
    for (const std::string_view modules : {"embedding_bags.", "embeddings."}) {
      const std::string end = std::string(modules) + name;
      if (!prefix.empty()) {
        if (state_.tensors.contains(prefix + end)) found.push_back(prefix + end);
        continue;
      }
      for (const auto& [tensor, unused] : state_.tensors)
        if (tensor == end || tensor.ends_with('.' + end)) found.push_back(tensor);
    }
    if (found.empty() && state_.tensors.contains(prefix + name)) found.push_back(prefix + name);
    return found;
  }

  const TorchrecOptions& options_;
  const TorchState& state_;
};

/// Reads this rank's part of a matrix from the pieces that it is stored in.
class TorchRows {
 public:
  explicit TorchRows(const TorchState& state) : state_(state) {}

  void load(const CheckpointRows& rows, const CheckpointRows::Part& part, const TorchTensor& tensor,
            TensorType type) {
    const auto from_size = static_cast<std::int64_t>(tensor_type_size(tensor.type)),
               to_size = static_cast<std::int64_t>(tensor_type_size(type));
    WritableRows model(rows, part, type, copied_);
    for (const TorchPiece& piece : tensor.pieces) {
      const std::int64_t begin = std::max(rows.row_begin, piece.row_begin),
                         end = std::min(rows.row_begin + rows.rows, piece.row_end),
                         left = std::max(part.column_begin, piece.column_begin),
                         right = std::min(part.column_begin + part.columns, piece.column_end);
      if (begin >= end || left >= right) continue;
      const std::int64_t row_bytes = (piece.column_end - piece.column_begin) * from_size,
                         step = std::max<std::int64_t>(1, (1 << 20) / row_bytes);
      const File file(state_.folder / piece.file, File::Mode::read);
      for (std::int64_t first = begin; first < end; first += step) {
        const std::int64_t count = std::min(step, end - first);
        block_.resize(static_cast<std::size_t>(count * row_bytes));
        file.read_at(
            piece.offset + static_cast<std::uint64_t>((first - piece.row_begin) * row_bytes),
            block_);
        for (std::int64_t r = 0; r < count; ++r)
          convert_elements(block_.data() + r * row_bytes + (left - piece.column_begin) * from_size,
                           tensor.type,
                           model(first + r - rows.row_begin) + (left - part.column_begin) * to_size,
                           type, right - left);
      }
    }
    model.put_back();
  }

 private:
  const TorchState& state_;
  std::vector<std::byte> block_, copied_;
};

}  // namespace detail

/// Reads the weights of a model's tables from a state dict of TorchRec, or of any
/// torch.nn.EmbeddingBag: a safetensors file, a folder of such files with
/// model.safetensors.index.json, or a folder of torch.distributed.checkpoint. Under any layout and
/// of float, half or bfloat16. Collective. All other tensors stay unchanged, and optimizers'
/// states unless `states` is given. Returns how many tables were read. Throws DataError on all
/// ranks, the model as it was, for a file that is missing or truncated, and for tables that are
/// missing or have other shapes (it lists the first 20).
template <Communicator<detail::kCheckpointCollectives> Comm>
int load_torchrec_checkpoint(Comm& communicator, const std::filesystem::path& path,
                             const CheckpointContents& model, const TorchrecOptions& options = {}) {
  detail::TorchState state;
  std::vector<std::string> sources;
  detail::on_all_ranks(communicator, [&] {
    require(!model.tables().empty(), "load_torchrec_checkpoint: the model has no tables");
    state = detail::read_torch_state(path);
    try {
      sources = detail::TorchTables(model, state, options).sources;
      for (const std::string& name : sources)
        if (!name.empty()) detail::place_torch_pieces(state.folder, state.tensors.at(name));
    } catch (const DataError& error) {
      throw DataError(detail::formatted("'{}': {}", path.string(), error.what()));
    }
  });
  detail::on_all_ranks(communicator, [&] {
    model.flush_to_write();
    detail::TorchRows loader(state);
    for (const detail::CheckpointRows& rows : model.rows())
      for (const detail::CheckpointRows::Part& part : rows.parts) {
        const auto t = static_cast<std::size_t>(part.tensor);
        if (!sources[t].empty())
          loader.load(rows, part, state.tensors.at(sources[t]), model.tensors()[t].type);
      }
  });
  return static_cast<int>(std::count_if(
      model.tables().begin(), model.tables().end(),
      [&](const auto& table) { return !sources[static_cast<std::size_t>(table.first)].empty(); }));
}

namespace detail {

/// The tensors of a state dict that is to be written, and which of the model's they are.
struct TorchTensors {
  /// Throws InvalidArgument for a name that cannot be, or that two have.
  TorchTensors(const CheckpointContents& model, const TorchrecOptions& options) {
    require(!model.tables().empty(), "a state dict of tables: the model has no tables");
    require(options.states != "*",
            "a state dict of tables: states '*' is for a load; give what their names begin with");
    const std::string prefix =
        TorchTables::prefix_of(options) + options.modules + (options.modules.empty() ? "" : ".");
    const std::string states =
        options.states.ends_with('.') ? options.states : options.states + '.';
    std::set<std::string> names;
    const auto add = [&](int t, const std::string& name) {
      of_model.push_back(static_cast<std::size_t>(t));
      tensors.push_back(model.tensors()[of_model.back()]);
      TensorSpec& tensor = tensors.back();
      const auto renamed = options.rename.find(tensor.name);
      tensor.name = renamed == options.rename.end() ? name : renamed->second;
      tensor.group = "tables";
      check_name("name of a state dict's tensor", tensor.name);
      require(names.insert(tensor.name).second,
              "a state dict of tables: two tensors would be '{}': rename one", tensor.name);
    };
    for (const auto& [first, end] : model.tables()) {
      const TensorSpec& table = model.tensors()[static_cast<std::size_t>(first)];
      add(first, prefix + TorchTables::name_of(table, options));
      for (int t = first + 1; t < end && !options.states.empty(); ++t) {
        const std::string& name = model.tensors()[static_cast<std::size_t>(t)].name;
        const auto own = torchrec_states(name.substr(name.rfind('.') + 1));
        require(!own.empty() || options.rename.contains(name),
                "a state dict of tables: TorchRec's optimizers have no state like '{}'; rename it, "
                "or save no states",
                name);
        add(t, own.empty()
                   ? name
                   : states + TorchTables::state_name(table, options.modules, own[0], options));
        // one number a row: TorchRec's have one dimension
        if (auto& shape = tensors.back().shape; shape[1] == 1) shape.pop_back();
      }
    }
  }

  std::vector<TensorSpec> tensors;
  std::vector<std::size_t> of_model;  ///< indices into the model's tensors
};

/// Throws DataError if there is something at `path`; removes what an earlier save left half done.
inline void clear_way(const std::filesystem::path& path, const std::filesystem::path& partial) {
  require_new("a state dict of tables", path);
  std::filesystem::remove_all(partial);
}

}  // namespace detail

/// Writes the weights of a model's tables, and their optimizers' states if `states` is given, as
/// one safetensors file, with TorchRec's names, for safetensors.torch.load_file and
/// load_state_dict(..., strict=False): whole tables, by all ranks, whatever the layout. Collective.
/// The file must not exist; it appears when it is complete. Throws DataError on all ranks.
template <Communicator<detail::kCheckpointCollectives> Comm>
void save_torchrec_checkpoint(Comm& communicator, const std::filesystem::path& path,
                              const CheckpointContents& model,
                              const TorchrecOptions& options = {}) {
  std::filesystem::path partial = path;
  partial += ".partial";
  detail::FilePlan plan({}, 1);
  plan.pieces.resize(model.tensors().size());
  detail::on_all_ranks(communicator, [&] {
    const detail::TorchTensors dict(model, options);
    detail::FilePlan file(dict.tensors, std::uint64_t{1} << 62);
    for (std::size_t i = 0; i < dict.of_model.size(); ++i)
      plan.pieces[dict.of_model[i]] = std::move(file.pieces[i]);
    plan.files = std::move(file.files);
    plan.files[0].name = partial.filename().string();
    if (communicator.rank() != 0) return;
    detail::clear_way(path, partial);
    detail::File(partial, detail::File::Mode::create).reserve(plan.files[0].bytes);
  });
  detail::RowWriter writer(path.parent_path(), model.tensors(), plan);
  detail::on_all_ranks(communicator, [&] {
    model.flush();
    if (communicator.rank() == 0) writer.write_header(0);
    for (const detail::CheckpointRows& rows : model.rows()) writer.write(rows, detail::LiveRows{});
    writer.sync();
  });
  detail::on_all_ranks(communicator, [&] {
    if (communicator.rank() != 0) return;
    detail::require_new("a state dict of tables", path);
    std::filesystem::rename(partial, path);
  });
}

/// Writes the same tensors as a folder of torch.distributed.checkpoint, for its `load` into a model
/// that is cut in any way: each rank a file of the rectangles that it holds. PyTorch 2.0 and later
/// read it, and so does load_torchrec_checkpoint. Collective; all ranks see the folder, which must
/// not exist, and appears when it is complete. Throws DataError on all ranks.
template <Communicator<detail::kCheckpointCollectives> Comm>
void save_torchrec_dcp(Comm& communicator, const std::filesystem::path& folder,
                       const CheckpointContents& model, const TorchrecOptions& options = {}) {
  const std::filesystem::path path = folder.has_filename() ? folder : folder.parent_path();
  std::filesystem::path partial = path;
  partial += ".partial";
  std::optional<detail::TorchTensors> dict;
  std::optional<FolderLock> lock;
  detail::on_all_ranks(communicator, [&] {
    dict.emplace(model, options);
    for (const detail::TensorSpec& tensor : dict->tensors)
      require(detail::torch_type(tensor.type) != nullptr, "'{}': PyTorch's tables are not of {}",
              tensor.name, detail::tensor_type_name(tensor.type));
    if (communicator.rank() != 0) return;
    lock.emplace(detail::begin_folder("a state dict of tables", path, partial));
  });
  std::vector<detail::DcpChunk> own;
  detail::on_all_ranks(communicator, [&] {
    model.flush();
    detail::DcpFile file(partial, communicator.rank(), options.max_chunk_bytes);
    for (const detail::CheckpointRows& rows : model.rows())
      for (const detail::CheckpointRows::Part& part : rows.parts)
        for (std::size_t i = 0; i < dict->tensors.size(); ++i)
          if (dict->of_model[i] == static_cast<std::size_t>(part.tensor))
            file.write(rows, part, dict->tensors[i], i);
    own = file.finish();
  });
  const std::vector<detail::DcpChunk> all =
      detail::gather_on_first(communicator, std::span<const detail::DcpChunk>(own));
  detail::on_all_ranks(communicator, [&] {
    if (communicator.rank() != 0) return;
    const std::string text = detail::dcp_metadata(dict->tensors, all);
    detail::File file(partial / detail::DcpMetadata::kFile, detail::File::Mode::create);
    file.write_at(0, std::as_bytes(std::span(text)));
    file.sync();
    detail::sync_folder(partial);
    detail::require_new("a state dict of tables", path);
    std::filesystem::rename(partial, path);
  });
}

}}  // namespace tessera::v0
