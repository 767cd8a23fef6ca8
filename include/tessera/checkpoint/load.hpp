// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/checkpoint/agreement.hpp>
#include <tessera/checkpoint/comparison.hpp>
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

namespace detail {

/// Copies elements, from one storage precision to another if they differ (rounded to nearest,
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

/// Where the values of one of the model's tensors come from: a whole tensor, then rows that changed
/// since.
struct TensorSource {
  CheckpointReader* reader = nullptr;  ///< null: nothing is read
  const StoredTensor* whole = nullptr;
  CheckpointReader* increment = nullptr;  ///< null: no rows changed
  const StoredTensor* changed = nullptr;
  const StoredTensor* changed_rows = nullptr;  ///< their numbers, ascending
  /// of LoadOptions::rows; null: rows have the same numbers on both sides
  const std::vector<std::int64_t>* rows = nullptr;
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
      if (source.rows != nullptr) {
        load_chosen(rows, part, source);
        continue;
      }
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

  /// Reads rows one by one, each from where the model's order says.
  void load_chosen(const CheckpointRows& rows, const CheckpointRows::Part& part,
                   const TensorSource& from) {
    numbers_.clear();
    if (from.increment != nullptr) {
      numbers_.resize(static_cast<std::size_t>(from.changed_rows->rows()));
      from.increment->read_rows(*from.changed_rows, 0, from.changed_rows->rows(),
                                reinterpret_cast<std::byte*>(numbers_.data()));
    }
    WritableRows model(rows, part, type_of(part), copied_);
    for (std::int64_t r = 0; r < rows.rows; ++r) {
      const std::int64_t row = (*from.rows)[static_cast<std::size_t>(rows.row_begin + r)];
      if (row < 0) continue;
      const auto changed = std::lower_bound(numbers_.begin(), numbers_.end(), row);
      const bool newer = changed != numbers_.end() && *changed == row;
      const StoredTensor& source = newer ? *from.changed : *from.whole;
      block_.resize(static_cast<std::size_t>(source.row_bytes()));
      (newer ? from.increment : from.reader)
          ->read_rows(source, newer ? changed - numbers_.begin() : row, 1, block_.data());
      deliver(block_.data(), source, part, model(r), part.columns);
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
    for (std::size_t t = 0; t < comparison.sources.size(); ++t) {
      const detail::StoredTensor* const source = comparison.sources[t];
      sources.push_back(source == nullptr ? detail::TensorSource{} : stored->source(source->name));
      if (source != nullptr)
        sources.back().rows = detail::Comparison::rows_of(contents, t, options);
    }
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
    for (const auto& [name, number] : contents.numbers())
      if (const auto found = stored->manifest().numbers.find(name);
          found != stored->manifest().numbers.end() && !detail::matches_any(options.keep, name))
        number.set(found->second);
    detail::RowLoader loader(contents.tensors(), sources);
    for (const detail::CheckpointRows& rows : contents.rows()) loader.load(rows);
  });
  return stored->manifest();
}

}}  // namespace tessera::v0
