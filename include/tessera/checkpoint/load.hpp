// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/checkpoint/agreement.hpp>
#include <tessera/checkpoint/contents.hpp>
#include <tessera/checkpoint/reader.hpp>
#include <tessera/concepts/communicator.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

struct LoadOptions {
  /// Names in the model -> names in the checkpoint, of tensors ("C1.weight") or of tables ("C1":
  /// all its tensors).
  std::map<std::string, std::string> rename{};
  /// tensors and numbers that the checkpoint lacks keep the values they have
  bool allow_missing = false;
  bool allow_extra = false;  ///< what the model lacks is passed over
  /// of tensors with other extents, the rows and columns that both have are read
  bool allow_shapes = false;
  /// Where it is given, a table whose optimizer has other states than the checkpoint's keeps the
  /// state it has, which in a new collection is the first, and its name is put here.
  std::vector<std::string>* new_optimizers = nullptr;
  /// The same for some names of the checkpoint only; '*' matches any text: {"*.sum", "dense.*"}.
  std::vector<std::string> missing{}, extra{};
};

namespace detail {

constexpr bool convertible(TensorType a, TensorType b) {
  const auto floating = [](TensorType t) {
    return t == TensorType::f32 || t == TensorType::f16 || t == TensorType::bf16;
  };
  return a == b || (floating(a) && floating(b));
}

/// Copies elements, from one storage precision to another where they differ (rounded to nearest,
/// ties to even). Throws DataError for types that cannot be converted.
inline void convert_elements(const std::byte* from, TensorType from_type, std::byte* to,
                             TensorType to_type, std::int64_t count) {
  if (from_type == to_type) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * tensor_type_size(to_type));
    return;
  }
  require<DataError>(convertible(from_type, to_type), "{} cannot be converted to {}",
                     tensor_type_name(from_type), tensor_type_name(to_type));
  const auto with = [](TensorType type, auto&& visit) {
    type == TensorType::f32   ? visit(float{})
    : type == TensorType::f16 ? visit(Half{})
                              : visit(BFloat16{});
  };
  with(from_type, [&]<class From>(From) {
    with(to_type, [&]<class To>(To) {
      for (std::int64_t i = 0; i < count; ++i) {
        From value;
        std::memcpy(&value, from + i * static_cast<std::int64_t>(sizeof(From)), sizeof(From));
        const To converted = from_float<To>(to_float(value));
        std::memcpy(to + i * static_cast<std::int64_t>(sizeof(To)), &converted, sizeof(To));
      }
    });
  });
}

/// Returns whether a name is of a pattern's form, in which '*' matches any text.
constexpr bool matches(std::string_view pattern, std::string_view name) {
  std::size_t star = std::string_view::npos, after = 0, p = 0, n = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p, ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++after;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}
static_assert(matches("*.sum", "C1.sum") && matches("C1.*", "C1.m") && matches("a*b*c", "aXbbYc") &&
              !matches("*.sum", "C1.sums") && !matches("C1.*", "C11.m") && matches("*", "") &&
              !matches("", "a"));

/// Where the values of one of the model's tensors come from: a whole tensor, then rows that changed
/// since.
struct TensorSource {
  CheckpointReader* reader = nullptr;  ///< null: nothing is read
  const StoredTensor* whole = nullptr;
  CheckpointReader* increment = nullptr;  ///< null: no rows changed
  const StoredTensor* changed = nullptr;
  const StoredTensor* changed_rows = nullptr;  ///< their numbers, ascending
};

/// The rows of a part as the host may write them: the part itself, or a copy of a block of them,
/// which goes back when another block is asked for and at the end.
class WritableRows {
 public:
  WritableRows(const CheckpointRows& rows, const CheckpointRows::Part& part, TensorType type,
               std::vector<std::byte>& memory)
      : rows_(rows),
        part_(part),
        row_bytes_(part.columns * static_cast<std::int64_t>(tensor_type_size(type))),
        memory_(memory) {}

  std::byte* operator()(std::int64_t row) {
    if (!rows_.copy) return part_.data + row * part_.stride;
    if (row < first_ || row >= first_ + count_) {
      put_back();
      count_ = std::min(
          std::max<std::int64_t>(1, (1 << 20) / std::max<std::int64_t>(row_bytes_, 1)), rows_.rows);
      first_ = row / count_ * count_;
      count_ = std::min(count_, rows_.rows - first_);
      memory_.resize(static_cast<std::size_t>(count_ * row_bytes_));
      rows_.copy(memory_.data(), part_.data + first_ * part_.stride, memory_.size());
    }
    return memory_.data() + (row - first_) * row_bytes_;
  }
  void put_back() {
    if (count_ > 0) rows_.copy(part_.data + first_ * part_.stride, memory_.data(), memory_.size());
    count_ = 0;
  }

 private:
  const CheckpointRows& rows_;
  const CheckpointRows::Part& part_;
  std::int64_t row_bytes_, first_ = 0, count_ = 0;
  std::vector<std::byte>& memory_;
};

/// Reads this rank's rows: for each tensor of the model from its source.
class RowLoader {
 public:
  RowLoader(const std::vector<TensorSpec>& tensors, const std::vector<TensorSource>& sources)
      : tensors_(tensors), sources_(sources) {}

  void load(const CheckpointRows& rows) {
    for (const CheckpointRows::Part& part : rows.parts) {
      const TensorSource& source = sources_[static_cast<std::size_t>(part.tensor)];
      if (source.reader != nullptr) load_whole(rows, part, source);
      if (source.increment != nullptr) load_changed(rows, part, source);
    }
  }

 private:
  static constexpr std::int64_t kBlockBytes = 1 << 20;

  TensorType type_of(const CheckpointRows::Part& part) const {
    return tensors_[static_cast<std::size_t>(part.tensor)].type;
  }
  /// Returns the columns of a part that a stored tensor has, too.
  static std::int64_t common_columns(const CheckpointRows::Part& part, const StoredTensor& source) {
    return std::min(part.column_begin + part.columns, source.columns()) - part.column_begin;
  }

  /// Copies one row as it is stored to the model.
  void deliver(const std::byte* row, const StoredTensor& source, const CheckpointRows::Part& part,
               std::byte* to, std::int64_t columns) const {
    convert_elements(
        row + part.column_begin * static_cast<std::int64_t>(tensor_type_size(source.type)),
        source.type, to, type_of(part), columns);
  }

  void load_whole(const CheckpointRows& rows, const CheckpointRows::Part& part,
                  const TensorSource& from) {
    const StoredTensor& source = *from.whole;
    const std::int64_t end = std::min(rows.row_begin + rows.rows, source.rows()),
                       columns = common_columns(part, source);
    if (columns <= 0) return;
    const std::int64_t row_bytes = source.row_bytes(),
                       step = std::max<std::int64_t>(1, kBlockBytes / row_bytes);
    const bool direct = !rows.copy && source.type == type_of(part) && columns == source.columns() &&
                        part.stride == row_bytes;
    WritableRows model(rows, part, type_of(part), copied_);
    for (std::int64_t first = rows.row_begin; first < end; first += step) {
      const std::int64_t count = std::min(step, end - first);
      if (direct) {
        from.reader->read_rows(source, first, count,
                               part.data + (first - rows.row_begin) * part.stride);
        continue;
      }
      block_.resize(static_cast<std::size_t>(count * row_bytes));
      from.reader->read_rows(source, first, count, block_.data());
      for (std::int64_t r = 0; r < count; ++r)
        deliver(block_.data() + r * row_bytes, source, part, model(first - rows.row_begin + r),
                columns);
    }
    model.put_back();
  }

  void load_changed(const CheckpointRows& rows, const CheckpointRows::Part& part,
                    const TensorSource& from) {
    const StoredTensor& source = *from.changed;
    const std::int64_t columns = common_columns(part, source), row_bytes = source.row_bytes();
    if (columns <= 0) return;
    const std::int64_t step =
        std::max<std::int64_t>(1, kBlockBytes / std::max<std::int64_t>(row_bytes, 8));
    WritableRows model(rows, part, type_of(part), copied_);
    for (std::int64_t first = 0; first < source.rows(); first += step) {
      numbers_.resize(static_cast<std::size_t>(std::min(step, source.rows() - first)));
      from.increment->read_rows(*from.changed_rows, first,
                                static_cast<std::int64_t>(numbers_.size()),
                                reinterpret_cast<std::byte*>(numbers_.data()));
      const auto begin = std::lower_bound(numbers_.begin(), numbers_.end(), rows.row_begin);
      const std::int64_t count =
          std::lower_bound(begin, numbers_.end(), rows.row_begin + rows.rows) - begin;
      if (count == 0) continue;
      block_.resize(static_cast<std::size_t>(count * row_bytes));
      from.increment->read_rows(source, first + (begin - numbers_.begin()), count, block_.data());
      for (std::int64_t r = 0; r < count; ++r) {
        // A file with a false order must not write elsewhere.
        const std::int64_t model_row = begin[r] - rows.row_begin;
        if (model_row >= 0 && model_row < rows.rows)
          deliver(block_.data() + r * row_bytes, source, part, model(model_row), columns);
      }
    }
    model.put_back();
  }

  const std::vector<TensorSpec>& tensors_;
  const std::vector<TensorSource>& sources_;
  std::vector<std::byte> block_, copied_;
  std::vector<std::int64_t> numbers_;
};

/// A checkpoint's folder, and that of its base where it is an increment, as if they were one.
class StoredModel {
 public:
  explicit StoredModel(const std::filesystem::path& folder) : top_(folder) {
    if (!top_.manifest().base.empty()) {
      base_ = std::make_unique<CheckpointReader>(folder.parent_path() / top_.manifest().base);
      require<DataError>(base_->crc() == top_.manifest().base_crc && base_->manifest().base.empty(),
                         "checkpoint '{}' is an increment of another '{}' than is there",
                         folder.string(), top_.manifest().base);
    }
    // What is compared with the model is the list of what will be read.
    manifest_ = base_ ? base_->manifest() : top_.manifest();
    manifest_.step = top_.manifest().step;
    manifest_.numbers = top_.manifest().numbers;
    manifest_.texts = top_.manifest().texts;
    manifest_.tensors.clear();
    const Index newest = index_of(top_.manifest()),
                before = base_ ? index_of(base_->manifest()) : Index();
    std::map<std::string_view, TensorSource> sources;
    std::set<const StoredTensor*> row_numbers;
    for (const StoredTensor& tensor : top_.manifest().tensors) {
      TensorSource& source = sources[tensor.name] = {&top_, &tensor};
      if (const StoredTensor* numbers = numbers_of(tensor, newest, before)) {
        source = {base_.get(), before.at(tensor.name), &top_, &tensor, numbers};
        row_numbers.insert(numbers);
      }
    }
    for (const StoredTensor& tensor : top_.manifest().tensors) {
      if (row_numbers.contains(&tensor)) continue;
      const TensorSource& source = sources.at(tensor.name);
      manifest_.tensors.push_back(*source.whole);
      sources_.emplace(tensor.name, source);
    }
  }

  /// Returns the manifest: tensors whole, numbers and texts.
  const Manifest& manifest() const { return manifest_; }
  /// Returns a checksum of all bytes of both.
  std::uint64_t crc() const {
    return static_cast<std::uint64_t>(top_.crc()) << 32 | (base_ ? base_->crc() : 0);
  }

  /// Returns the source of a tensor of the manifest.
  const TensorSource& source(const std::string& name) const { return sources_.at(name); }

  /// Verifies the share of one rank.
  void verify(std::uint64_t rank, std::uint64_t ranks) {
    for (CheckpointReader* reader : {base_.get(), &top_})
      if (reader != nullptr)
        reader->verify(reader->chunks() * rank / ranks, reader->chunks() * (rank + 1) / ranks);
  }

 private:
  using Index = std::map<std::string_view, const StoredTensor*>;
  static Index index_of(const Manifest& manifest) {
    Index index;
    for (const StoredTensor& tensor : manifest.tensors) index.emplace(tensor.name, &tensor);
    return index;
  }
  static const StoredTensor* find(const Index& index, std::string_view name) {
    const auto found = index.find(name);
    return found == index.end() ? nullptr : found->second;
  }

  /// Returns the numbers of the rows that an increment holds of a tensor; null if it holds the
  /// whole.
  const StoredTensor* numbers_of(const StoredTensor& tensor, const Index& newest,
                                 const Index& before) const {
    const StoredTensor* old = find(before, tensor.name);
    const bool fits =
        old != nullptr && old->type == tensor.type && old->columns() == tensor.columns();
    if (!tensor.row_numbers.empty()) {
      require<DataError>(
          fits,
          "checkpoint '{}': '{}' holds rows of {} columns {}; the base '{}' has no such tensor",
          top_.folder().string(), tensor.name, tensor.columns(), tensor_type_name(tensor.type),
          top_.manifest().base);
      return newest.at(tensor.row_numbers);
    }
    if (!fits || top_.manifest().version != Manifest::kWhole) return nullptr;
    // Increments of version 1 mark nothing: the numbers of X.weight and X.sum are X.rows, which the
    // base lacks.
    const std::size_t dot = tensor.name.rfind('.');
    if (dot == std::string::npos) return nullptr;
    const std::string name = tensor.name.substr(0, dot) + ".rows";
    const StoredTensor* numbers = find(newest, name);
    const bool sparse = numbers != nullptr && numbers != &tensor && find(before, name) == nullptr &&
                        numbers->type == TensorType::i64 && numbers->columns() == 1 &&
                        numbers->rows() == tensor.rows();
    return sparse ? numbers : nullptr;
  }

  CheckpointReader top_;
  std::unique_ptr<CheckpointReader> base_;
  Manifest manifest_;
  std::map<std::string, TensorSource> sources_;
};

/// What the model has, and what the checkpoint. An error shows the first differences.
class Comparison {
 public:
  Comparison(const CheckpointContents& contents, const Manifest& manifest,
             const LoadOptions& options) {
    std::set<std::string> used;
    const auto of_any = [](const std::vector<std::string>& patterns, const std::string& name) {
      return std::any_of(patterns.begin(), patterns.end(),
                         [&](const std::string& pattern) { return matches(pattern, name); });
    };
    const auto missing = [&](const std::string& name) {
      return options.allow_missing || of_any(options.missing, name);
    };
    const auto extra = [&](const std::string& name) {
      return options.allow_extra || of_any(options.extra, name);
    };
    std::set<std::string> anew;  // states, by their names in the checkpoint
    if (options.new_optimizers != nullptr) anew = find_new_optimizers(contents, manifest, options);
    for (std::size_t t = 0; t < contents.tensors().size(); ++t) {
      const TensorSpec& tensor = contents.tensors()[t];
      const std::string name = renamed(options, tensor.name);
      const StoredTensor* source = manifest.find(name);
      sources.push_back(nullptr);
      used.insert(name);
      if (anew.contains(name)) continue;
      if (source == nullptr) {
        if (!missing(name)) add("the checkpoint has no '{}'", name);
      } else if (!contents.ragged(t)) {
        if (!convertible(source->type, tensor.type))
          add("'{}' is {} in the checkpoint, {} in the model", name, tensor_type_name(source->type),
              tensor_type_name(tensor.type));
        else if (source->shape != tensor.shape &&
                 !(options.allow_shapes && source->shape.size() == 2 && tensor.shape.size() == 2))
          add("'{}' is {} in the checkpoint, {} in the model", name, shape_text(source->shape),
              shape_text(tensor.shape));
        else
          sources.back() = source;
      }
    }
    for (const auto& [name, number] : contents.numbers())
      if (!manifest.numbers.contains(name) && !missing(name))
        add("the checkpoint has no number '{}'", name);
    for (const StoredTensor& tensor : manifest.tensors)
      if (!used.contains(tensor.name) && !anew.contains(tensor.name) && !extra(tensor.name))
        add("the model has no '{}'", tensor.name);
    for (const auto& [name, value] : manifest.numbers)
      if (!contents.numbers().contains(name) && !extra(name))
        add("the model has no number '{}'", name);
    if (count_ > kShown) differences += fmt::format("\n  and {} more", count_ - kShown);
  }

  std::vector<const StoredTensor*> sources;  ///< by tensor of the model; null: none is read
  std::string differences;

 private:
  static constexpr std::size_t kShown = 20;

  /// Returns the states, of both sides, of tables that the checkpoint has with other states.
  static std::set<std::string> find_new_optimizers(const CheckpointContents& contents,
                                                   const Manifest& manifest,
                                                   const LoadOptions& options) {
    std::set<std::string> anew;
    options.new_optimizers->clear();
    for (const auto& [first, end] : contents.tables()) {
      const auto tensor = [&](int t) -> const TensorSpec& {
        return contents.tensors()[static_cast<std::size_t>(t)];
      };
      const std::string weight = renamed(options, tensor(first).name);
      const std::string table = weight.substr(0, weight.rfind('.') + 1);
      if (manifest.find(weight) == nullptr) continue;
      std::set<std::string> stored, own;
      bool same = true;
      for (const StoredTensor& other : manifest.tensors)
        if (other.name.starts_with(table) && other.name != weight &&
            other.name.find('.', table.size()) == std::string::npos)
          stored.insert(other.name);
      for (int t = first + 1; t < end; ++t) {
        const std::string& name = *own.insert(renamed(options, tensor(t).name)).first;
        const StoredTensor* source = manifest.find(name);
        same = same && source != nullptr && source->shape.size() == tensor(t).shape.size() &&
               source->columns() == tensor(t).shape.back();
      }
      if (same && own == stored) continue;
      anew.insert(stored.begin(), stored.end());
      anew.insert(own.begin(), own.end());
      options.new_optimizers->push_back(tensor(first).group);
    }
    return anew;
  }

  static std::string renamed(const LoadOptions& options, const std::string& name) {
    if (const auto found = options.rename.find(name); found != options.rename.end())
      return found->second;
    const std::size_t dot = name.rfind('.');
    if (dot != std::string::npos)
      if (const auto found = options.rename.find(name.substr(0, dot));
          found != options.rename.end())
        return found->second + name.substr(dot);
    return name;
  }

  template <class... Args>
  void add(fmt::format_string<Args...> text, Args&&... args) {
    if (++count_ > kShown) return;
    differences += "\n  ";
    differences += fmt::format(text, std::forward<Args>(args)...);
  }

  std::size_t count_ = 0;
};

}  // namespace detail

/// Reads a checkpoint's folder into the model under any layout, number of ranks and storage
/// precision. Collective. Everything is compared and every checksum verified, each rank reading its
/// share of all bytes, before the model is touched; then each rank reads its rows. Throws DataError
/// on all ranks, the model as it was: for differences (it lists the first 20), a missing, truncated
/// or damaged file.
template <Communicator<detail::kCheckpointCollectives> Comm>
detail::Manifest load_checkpoint(Comm& communicator, const std::filesystem::path& folder,
                                 const CheckpointContents& contents,
                                 const LoadOptions& options = {}) {
  std::unique_ptr<detail::StoredModel> stored;
  std::vector<detail::TensorSource> sources;
  detail::on_all_ranks(communicator, [&] {
    stored = std::make_unique<detail::StoredModel>(folder);
    const detail::Comparison comparison(contents, stored->manifest(), options);
    require<DataError>(comparison.differences.empty(), "checkpoint '{}' and the model differ:{}",
                       folder.string(), comparison.differences);
    for (const detail::StoredTensor* source : comparison.sources)
      sources.push_back(source == nullptr ? detail::TensorSource{} : stored->source(source->name));
  });
  const std::vector<std::uint64_t> crcs = detail::gather_one(communicator, stored->crc());
  detail::on_all_ranks(communicator, [&] {
    for (const std::uint64_t crc : crcs)
      require<DataError>(crc == crcs[0], "checkpoint '{}': the ranks do not read the same manifest",
                         folder.string());
    stored->verify(static_cast<std::uint64_t>(communicator.rank()),
                   static_cast<std::uint64_t>(communicator.size()));
  });
  detail::on_all_ranks(communicator, [&] {
    contents.flush_to_write();
    detail::RowLoader loader(contents.tensors(), sources);
    for (const detail::CheckpointRows& rows : contents.rows()) loader.load(rows);
    for (const auto& [name, number] : contents.numbers())
      if (const auto found = stored->manifest().numbers.find(name);
          found != stored->manifest().numbers.end())
        number.set(found->second);
  });
  return stored->manifest();
}

}}  // namespace tessera::v0
