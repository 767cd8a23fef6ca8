// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/checkpoint/file_plan.hpp>
#include <tessera/checkpoint/manifest.hpp>
#include <tessera/core/any_matrix.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/core/row_marks.hpp>
#include <tessera/core/row_observer.hpp>
#include <tessera/io/direct_file.hpp>
#include <tessera/io/safetensors.hpp>
#include <tessera/io/text.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

namespace detail {

/// Copies bytes between the host's memory and another, and returns when they are there.
using MemoryCopy = std::function<void(void* to, const void* from, std::size_t bytes)>;
/// Copies some rows, `stride` bytes apart, one after another into the host's memory, and returns
/// when they are there.
using MemoryGather =
    std::function<void(const std::byte* from, std::int64_t stride,
                       std::span<const std::int64_t> rows, std::int64_t row_bytes, std::byte* to)>;

/// Rows of tensors that are in this rank's memory side by side: a rectangle of a table and its
/// optimizer state, or a dense tensor.
struct CheckpointRows {
  struct Part {
    int tensor = 0;                 ///< index into CheckpointContents::tensors
    std::int64_t column_begin = 0;  ///< elements
    std::int64_t columns = 0;
    std::byte* data = nullptr;
    /// bytes from one row to the next; of rows that are copied: a row's bytes
    std::int64_t stride = 0;
    bool write = true;  ///< false: a copy that another rank writes
  };

  std::int64_t row_begin = 0;  ///< in the tensors
  std::int64_t rows = 0;
  /// index into CheckpointContents::sources; -1: no collection's rows
  int source = -1;
  int arena = -1;              ///< of that collection
  std::int64_t arena_row = 0;  ///< of the first row
  /// where not empty: row i of these is row chosen[i] in memory
  std::vector<std::int64_t> chosen{};
  std::vector<Part> parts{};
  MemoryCopy copy{};      ///< empty: the host reads and writes the parts itself
  MemoryGather gather{};  ///< of tables that the host cannot read
  /// of rows in a file: a copy, if the file system can do that, else null
  std::function<std::shared_ptr<const FileClone>()> clone{};
};

}  // namespace detail

/// What a checkpoint holds: the list of tensors, the same on every rank, and where this rank's rows
/// of them are in memory. Saving reads from there, loading writes there; so that what was added
/// must stay where it is. Build it once, after the model.
///
///     CheckpointContents contents;
///     contents.add(embeddings);
///     save_checkpoint(communicator, "run7", contents, 1200);
class CheckpointContents {
 public:
  struct Number {
    std::function<std::uint64_t()> get;
    std::function<void(std::uint64_t)> set;
  };

  /// Adds a collection's tables, as "NAME.weight", and its optimizer's state, as "NAME.sum" and the
  /// like; its step and seed. `prefix` keeps several collections apart. Each table has files of its
  /// own.
  template <class Collection>
  void add(Collection& collection, const std::string& prefix = "") {
    const detail::MemoryCopy copy = copy_of(collection.backend());
    detail::MemoryGather gather;
    if constexpr (!std::remove_cvref_t<decltype(collection.backend())>::host_readable)
      gather = [&collection](auto... arguments) { collection.tables().fetch_rows(arguments...); };
    const auto& tables = collection.layout().tables;
    std::vector<int> first;
    for (const auto& table : tables) {
      const std::string name = prefix + std::string(table.name);
      const int index = static_cast<int>(first.size());
      first.push_back(add_tensor({name + ".weight",
                                  name,
                                  collection.tables().element_type(index),
                                  {table.rows, table.width}}));
      for (const auto& state : collection.tables().states(index))
        add_tensor({detail::formatted("{}.{}", name, state.name),
                    name,
                    state.type,
                    {table.rows, state.per_row ? 1 : table.width}});
      table_tensors_[first.back()] = static_cast<int>(tensors_.size());
    }
    for (const auto& shard : collection.tables().local_shards()) {
      const bool write = !shard.replicated || shard.table % collection.layout().ranks() ==
                                                  collection.tables().routing().rank();
      const std::int64_t column = shard.rectangle.column_begin;
      detail::CheckpointRows rows{.row_begin = shard.rectangle.row_begin,
                                  .rows = shard.rectangle.rows(),
                                  .source = static_cast<int>(sources_.size()),
                                  .arena = shard.arena,
                                  .arena_row = shard.arena_row,
                                  .copy = shard.host_memory ? detail::MemoryCopy{} : copy,
                                  .gather = shard.host_memory ? detail::MemoryGather{} : gather};
      if (shard.cache != nullptr)
        rows.clone = [cache = shard.cache, row = shard.arena_row] { return cache->clone(row); };
      const int t = first[static_cast<std::size_t>(shard.table)];
      with_matrix(shard.weights, [&](const auto& weights) {
        rows.parts.push_back(part(t, column, weights, write));
      });
      int k = 0;
      for (const auto& state : collection.tables().states(shard.table)) {
        const auto& values = shard.states[static_cast<std::size_t>(k++)];
        // every part of a row has its state: the rank that holds the first columns writes it
        with_matrix(values, [&](const auto& matrix) {
          rows.parts.push_back(part(t + k, state.per_row ? 0 : column, matrix,
                                    write && (!state.per_row || column == 0)));
        });
      }
      rows_.push_back(std::move(rows));
    }
    sources_.emplace_back();
    if (!copy)
      sources_.back() = [&collection](RowObserver& observer, bool on) {
        on ? collection.observe(observer) : collection.unobserve(observer);
      };
    marks_.push_back([&collection] { return collection.mark_rows(); });
    const auto& shards = collection.layout().shards;
    if constexpr (requires { collection.tables().flush(); })
      if (std::any_of(shards.begin(), shards.end(),
                      [](const auto& shard) { return shard.behind_cache(); }))
        caches_.push_back({[&collection] { collection.tables().flush(); },
                           [&collection] { collection.tables().reload(); }});
    add_number(
        prefix + "step", [&collection] { return static_cast<std::uint64_t>(collection.steps()); },
        [&collection](std::uint64_t step) {
          collection.set_steps(static_cast<std::int64_t>(step));
        });
    add_number(
        prefix + "seed", [&collection] { return collection.tables().seed(); },
        [&collection](std::uint64_t seed) { collection.tables().set_seed(seed); });
  }

  /// Adds a tensor that every rank holds whole, row-major: dense parameters, an optimizer's state.
  /// Rank 0's is saved. Those of one group share a file.
  template <class T>
  void add(std::string name, std::vector<std::int64_t> shape, std::span<T> values,
           std::string group = "dense") {
    add_whole(std::move(name), std::move(shape), values, std::move(group), {});
  }
  /// Adds the same in a backend's memory.
  template <class T, class Backend>
  void add(const Backend& backend, std::string name, std::vector<std::int64_t> shape,
           std::span<T> values, std::string group = "dense") {
    add_whole(std::move(name), std::move(shape), values, std::move(group), copy_of(backend));
  }

  /// Adds a number that every rank has: a step, an epoch, a seed.
  void add_number(std::string name, std::function<std::uint64_t()> get,
                  std::function<void(std::uint64_t)> set) {
    require(numbers_.emplace(name, Number{std::move(get), std::move(set)}).second,
            "checkpoint: number '{}' was added before", name);
  }
  void add_number(std::string name, std::int64_t& value) {
    add_number(
        std::move(name), [&value] { return static_cast<std::uint64_t>(value); },
        [&value](std::uint64_t number) { value = static_cast<std::int64_t>(number); });
  }

  /// Adds rows that each rank has some of, in any number, such as the keys of a vocabulary: the
  /// tensor [rows of all ranks, columns] holds the ranks' rows in rank order. Saved only: as its
  /// size says nothing about the model, who needs it reads it before the load by CheckpointReader,
  /// the whole of it or parts. `columns` 0: the shape is [rows].
  template <class T>
  void add_rows(std::string name, std::int64_t columns, std::span<const T> values,
                std::string group = "extra") {
    const std::int64_t width = std::max<std::int64_t>(columns, 1),
                       count = static_cast<std::int64_t>(values.size());
    require(columns >= 0 && count % width == 0,
            "checkpoint: tensor '{}': {} values are no rows of {}", name, count, columns);
    const int t = add_tensor({std::move(name), std::move(group), detail::tensor_type_of<T>(), {0}});
    if (columns > 0) tensors_.back().shape.push_back(columns);
    detail::CheckpointRows rows{.rows = count / width};
    rows.parts.push_back({t, 0, width, const_cast<std::byte*>(std::as_bytes(values).data()),
                          width * static_cast<std::int64_t>(sizeof(T))});
    ragged_.push_back(rows_.size());
    rows_.push_back(std::move(rows));
  }

  /// Adds a text to the manifest.
  void set_text(std::string name, std::string text) { texts_[std::move(name)] = std::move(text); }

  /// Returns whether rows of some collection are behind caches; the same on every rank.
  bool has_caches() const { return !caches_.empty(); }
  /// Brings rows that updates changed in caches to memory, before rows are read.
  void flush() const {
    for (const Caches& caches : caches_) caches.flush();
  }
  /// Makes caches read rows again, before they are written, too.
  void flush_to_write() const {
    flush();
    for (const Caches& caches : caches_) caches.reload();
  }

  /// Adds a file of any bytes beside the tensors', which CheckpointReader::read_file reads back:
  /// those of rank 0 count. Loading passes it over; an increment has none, as its base has it.
  void set_file(std::string name, std::string bytes) {
    require(detail::plain_file_name(name) == name && !name.empty() && name[0] != '.' &&
                name != detail::Manifest::kFile && (name[0] < '0' || name[0] > '9'),
            "checkpoint: '{}' is no name of a file beside the tensors': take letters first, then "
            "digits, '_', '-' and '.', too",
            name);
    files_[std::move(name)] = std::make_shared<const std::string>(std::move(bytes));
  }

  /// Returns, of collections' tables, the index of the weights, then of what follows their states.
  const std::map<int, int>& tables() const { return table_tensors_; }
  const std::vector<detail::TensorSpec>& tensors() const { return tensors_; }
  const std::vector<detail::CheckpointRows>& rows() const { return rows_; }
  /// Returns, by collection, what makes it tell an observer of its updates, or no longer; empty
  /// if the host cannot see them.
  const std::vector<std::function<void(RowObserver&, bool)>>& sources() const { return sources_; }
  /// Begins to mark the rows that its updates change.
  const std::vector<std::function<std::unique_ptr<detail::RowMarks>()>>& marks() const {
    return marks_;
  }
  const std::map<std::string, Number>& numbers() const { return numbers_; }
  const std::map<std::string, std::string>& texts() const { return texts_; }
  const std::map<std::string, std::shared_ptr<const std::string>>& files() const { return files_; }
  /// Returns whether a tensor's size is known only when it is saved.
  bool ragged(std::size_t tensor) const {
    return std::any_of(ragged_.begin(), ragged_.end(), [&](std::size_t i) {
      return rows_[i].parts[0].tensor == static_cast<int>(tensor);
    });
  }

  /// Returns the contents of one save, once the ranks have told each other how many rows they have.
  /// gather(n) gives every rank's n.
  template <class Gather>
  CheckpointContents for_saving(int rank, Gather&& gather) const {
    CheckpointContents copy = *this;
    for (const std::size_t i : whole_) copy.rows_[i].parts[0].write = rank == 0;
    for (const std::size_t i : ragged_) {
      const std::vector<std::int64_t> counts = gather(rows_[i].rows);
      for (std::size_t r = 0; r < counts.size(); ++r) {
        if (static_cast<int>(r) < rank) copy.rows_[i].row_begin += counts[r];
        copy.tensors_[static_cast<std::size_t>(rows_[i].parts[0].tensor)].shape[0] += counts[r];
      }
    }
    return copy;
  }

  /// Makes these the contents of an increment: tables have `totals` rows (by their first tensor)
  /// and `pieces` of them; numbers[i] are those of pieces[i], empty if another rank writes them.
  void make_sparse(const std::map<std::int32_t, std::int64_t>& totals,
                   std::vector<detail::CheckpointRows> pieces,
                   const std::deque<std::vector<std::int64_t>>& numbers) {
    std::map<std::int32_t, int> number_tensors;
    for (const auto& [first, total] : totals) {
      const std::string group = tensors_[static_cast<std::size_t>(first)].group;
      std::string name = group + ".rows";
      while (names_.contains(name)) name += '_';  // the user may have one of that name
      for (int t = first; t < table_tensors_.at(first); ++t) {
        tensors_[static_cast<std::size_t>(t)].shape[0] = total;
        tensors_[static_cast<std::size_t>(t)].row_numbers = name;
      }
      number_tensors[first] = add_tensor({name, group, detail::TensorType::i64, {total}});
    }
    std::vector<detail::CheckpointRows> rows;
    const auto keep = [&](std::vector<std::size_t>& indices) {
      for (std::size_t& i : indices) {
        rows.push_back(std::move(rows_[i]));
        i = rows.size() - 1;
      }
    };
    keep(whole_);
    keep(ragged_);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (!numbers[i].empty()) {
        detail::CheckpointRows list{.row_begin = pieces[i].row_begin, .rows = pieces[i].rows};
        list.parts.push_back(
            {number_tensors.at(pieces[i].parts[0].tensor), 0, 1,
             reinterpret_cast<std::byte*>(const_cast<std::int64_t*>(numbers[i].data())),
             sizeof(std::int64_t)});
        rows.push_back(std::move(list));
      }
      pieces[i].source = -1;
      rows.push_back(std::move(pieces[i]));
    }
    rows_ = std::move(rows);
  }

 private:
  int add_tensor(detail::TensorSpec tensor) {
    require(!tensor.name.empty(), "checkpoint: a tensor has no name");
    detail::check_name("name of a checkpoint's tensor", tensor.name);
    require(names_.insert(tensor.name).second, "checkpoint: tensor '{}' was added before",
            tensor.name);
    tensors_.push_back(std::move(tensor));
    return static_cast<int>(tensors_.size()) - 1;
  }

  template <class T>
  void add_whole(std::string name, std::vector<std::int64_t> shape, std::span<T> values,
                 std::string group, detail::MemoryCopy copy) {
    for (const std::int64_t extent : shape)
      require(extent >= 0, "checkpoint: tensor '{}' of shape {} has a negative extent", name,
              detail::shape_text(shape));
    const int t = add_tensor(
        {std::move(name), std::move(group), detail::tensor_type_of<T>(), std::move(shape)});
    const detail::StoredTensor stored{tensors_.back().name, tensors_.back().type,
                                      tensors_.back().shape};
    require(stored.rows() * stored.columns() == static_cast<std::int64_t>(values.size()),
            "checkpoint: tensor '{}' of shape {} has {} elements, got {}", stored.name,
            detail::shape_text(stored.shape), stored.rows() * stored.columns(), values.size());
    detail::CheckpointRows rows{.rows = stored.rows(), .copy = std::move(copy)};
    rows.parts.push_back(
        {t, 0, stored.columns(), reinterpret_cast<std::byte*>(values.data()), stored.row_bytes()});
    whole_.push_back(rows_.size());
    rows_.push_back(std::move(rows));
  }

  template <class Backend>
  static detail::MemoryCopy copy_of(const Backend& backend) {
    if constexpr (Backend::host_readable)
      return {};
    else
      return [backend](void* to, const void* from, std::size_t bytes) {
        backend.copy(to, from, bytes);
        backend.synchronize();
      };
  }

  template <class T>
  static detail::CheckpointRows::Part part(int tensor, std::int64_t column_begin,
                                           MatrixView<T> view, bool write) {
    return {tensor,
            column_begin,
            view.columns,
            reinterpret_cast<std::byte*>(view.data),
            view.stride * static_cast<std::int64_t>(sizeof(T)),
            write};
  }

  std::vector<detail::TensorSpec> tensors_;
  std::vector<detail::CheckpointRows> rows_;
  std::vector<std::function<void(RowObserver&, bool)>> sources_;
  std::vector<std::function<std::unique_ptr<detail::RowMarks>()>> marks_;
  struct Caches {
    std::function<void()> flush, reload;
  };
  std::vector<Caches> caches_;
  std::vector<std::size_t> whole_, ragged_;  // indices into rows_
  // of each table: its first tensor, and behind its last one
  std::map<int, int> table_tensors_;
  std::map<std::string, Number> numbers_;
  std::map<std::string, std::string> texts_;
  std::map<std::string, std::shared_ptr<const std::string>> files_;
  std::set<std::string> names_;
};

}}  // namespace tessera::v0
