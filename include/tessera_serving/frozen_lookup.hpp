// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/core/jagged.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/host/backend.hpp>
#include <tessera/host/exchange.hpp>
#include <tessera/host/parallel.hpp>
#include <tessera/ids/admitted_batch.hpp>
#include <tessera/ids/id_report.hpp>
#include <tessera/op/inputs.hpp>
#include <tessera/sharding/layout.hpp>
#include <tessera_serving/fresh_tables.hpp>
#include <tessera_serving/frozen_tables.hpp>
#include <tessera_serving/pool_rows.hpp>
#include <tessera_serving/published.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// A feature that a FrozenLookup serves.
struct FrozenFeature {
  std::string name;
  std::string table;
  /// none: a vector for each id, in place of one for each bag; see FrozenLookup::sequence.
  Pooling pooling = Pooling::sum;
  bool weighted = false;
};

/// Lookups of a list of features in FrozenTables or FreshTables, which must outlive it. Keeps the
/// memory that a batch needs: one per thread. Vectors have the bits of
/// EmbeddingCollection::evaluate where rows are stored in the type of its tables; those of codes
/// are the sums of the rows that `rows` gives.
template <IdType Id>
class FrozenLookup {
 public:
  /// Makes lookups. `bad_ids`: as Options::bad_ids of a collection. `threads`: of OpenMP, for one
  /// batch.
  FrozenLookup(const FrozenTables& tables, std::span<const FrozenFeature> features,
               BadIds bad_ids = BadIds::throw_error, int threads = 1)
      : FrozenLookup(tables, nullptr, features, bad_ids, threads) {}
  /// Makes lookups: each batch reads the version that is the newest when it begins, and no other.
  FrozenLookup(const FreshTables& tables, std::span<const FrozenFeature> features,
               BadIds bad_ids = BadIds::throw_error, int threads = 1)
      : FrozenLookup(*tables.current(), &tables, features, bad_ids, threads) {}
  FrozenLookup(const FrozenLookup&) = delete;
  FrozenLookup& operator=(const FrozenLookup&) = delete;

  /// Returns the floats of a sample: the widths of pooled features, side by side in their order.
  std::int64_t columns() const { return columns_; }

  /// Pools the vectors of a batch, `output` [batch, columns()]. Throws BadId and InvalidArgument as
  /// EmbeddingCollection::forward does; then `output` is as it was.
  void pool(const KeyedJagged<Id>& batch, MatrixView<float> output) {
    with_version([&](const FrozenTables& tables) { pool_in(tables, batch, output); });
  }

  /// Does the same for raw keys, in the features whose tables have a vocabulary; unknown ones mean
  /// the shared row. In the others they are ids.
  void pool_keys(const KeyedJagged<std::int64_t>& keys, MatrixView<float> output)
    requires std::same_as<Id, std::int64_t>
  {
    detail::check_features(keys, features_.size());
    keys.validate();
    rows_of_keys_.resize(keys.ids.size());
    with_version([&](const FrozenTables& tables) {
      for (std::size_t f = 0; f < features_.size(); ++f) {
        const FrozenTables::Table& table = table_of(tables, f);
        const auto begin = static_cast<std::size_t>(keys.begin(static_cast<std::int64_t>(f))),
                   count = static_cast<std::size_t>(keys.end(static_cast<std::int64_t>(f))) - begin;
        const std::span<const std::int64_t> of_feature = keys.ids.subspan(begin, count);
        table.keys != nullptr
            ? table.keys->find(of_feature, table.rows, rows_of_keys_.data() + begin)
            : void(std::ranges::copy(of_feature, rows_of_keys_.data() + begin));
      }
      pool_in(tables, {keys.features, keys.batch, rows_of_keys_, keys.offsets, keys.weights},
              output);
    });
  }

  /// Returns, after `pool`, the vectors of a sequence feature (an index of the list), row i for the
  /// feature's i-th id in the batch, until the next batch. Bad ids under BadIds::zero_vector have
  /// rows of zeros.
  MatrixView<const float> sequence(std::size_t feature) const {
    require(feature < features_.size() && features_[feature].pooling == Pooling::none,
            "FrozenLookup: feature {} is no sequence", feature);
    const Sequence& s = sequences_[feature];
    return {s.values.data(), s.rows, s.width};
  }

  /// Returns the number of ids outside their tables so far, by table; under BadIds::throw_error
  /// none are counted.
  std::span<const std::uint64_t> bad_ids() const { return report_.read(layout_); }

 private:
  struct Sequence {
    std::vector<float> values;
    std::int64_t rows = 0, width = 0;
  };

  FrozenLookup(const FrozenTables& tables, const FreshTables* fresh,
               std::span<const FrozenFeature> features, BadIds bad_ids, int threads)
      : features_(features.begin(), features.end()),
        sequences_(features.size()),
        backend_({.threads = threads}),
        bad_ids_(bad_ids),
        report_(backend_, tables.tables().size(), -1) {
    std::vector<Shard> shards;
    std::vector<TableSpec> specs;
    for (const FrozenTables::Table& table : tables.tables()) {
      names_.push_back(table.name);
      shards.push_back({static_cast<int>(specs.size()), {0, table.rows, 0, table.width}, 0});
      specs.push_back({.name = names_.back(), .rows = table.rows, .width = table.width});
    }
    std::vector<FeatureSpec> list;
    for (const FrozenFeature& feature : features_) {
      const FrozenTables::Table& table = tables.table(feature.table);
      require(feature.pooling != Pooling::max,
              "FrozenLookup: feature '{}' has pooling {}; those of "
              "sum, mean, sqrtn and none are served",
              feature.name, to_string(feature.pooling));
      list.push_back({.name = feature.name,
                      .table = feature.table,
                      .pooling = feature.pooling,
                      .weighted = feature.weighted});
      first_column_.push_back(columns_);
      if (feature.pooling != Pooling::none) columns_ += table.width;
    }
    require(!list.empty(), "FrozenLookup: give one feature at least");
    layout_ = make_layout({1}, std::move(specs), std::move(list), std::move(shards));
    if (!layout_.fault.ok()) throw InvalidArgument(describe(layout_.fault));
    order_.resize(features_.size());
    std::iota(order_.begin(), order_.end(), 0);
    fresh != nullptr ? void(reader_.emplace(fresh->versions())) : void(tables_ = &tables);
  }

  template <class F>
  void with_version(F&& f) {
    if (!reader_) return f(*tables_);
    const auto version = reader_->pin();
    f(*version);
  }

  const FrozenTables::Table& table_of(const FrozenTables& tables, std::size_t feature) const {
    // Versions may hold their tables in another order: that of their formats.
    const auto t = static_cast<std::size_t>(layout_.feature_table[feature]);
    const FrozenTables::Table& table = tables.tables()[t];
    return table.name == names_[t] ? table : tables.table(names_[t]);
  }

  void pool_in(const FrozenTables& tables, const KeyedJagged<Id>& batch, MatrixView<float> output) {
    require(output.rows == batch.batch && output.columns == columns() &&
                output.stride >= output.columns,
            "FrozenLookup: {} samples of {} columns go to [{}, {}] with a stride of {}",
            batch.batch, columns(), output.rows, output.columns, output.stride);
    admitted_.admit(backend_, layout_, order_, batch,
                    {bad_ids_, report_, detail::SizesNeeded::none}, 0);
    for (std::size_t f = 0; f < features_.size(); ++f) {
      const FrozenTables::Table& table = table_of(tables, f);
      if (features_[f].pooling == Pooling::none) {
        fill(sequences_[f], table, admitted_[static_cast<int>(f)].bags);
        continue;
      }
      if (batch.batch == 0) continue;
      const op::Bags<Id>& bags = admitted_[static_cast<int>(f)].bags;
      float* const to = output.data + first_column_[f];
      detail::with_rows(table, [&](auto row, const auto& rows) {
        bags.weights != nullptr
            ? pool_in_parts<decltype(row), true>(rows, table.width, bags, to, output.stride)
            : pool_in_parts<decltype(row), false>(rows, table.width, bags, to, output.stride);
      });
    }
  }

  template <class Row, bool Weighted, class Rows>
  void pool_in_parts(const Rows& rows, int width, const op::Bags<Id>& bags, float* to,
                     std::int64_t stride) const {
    const auto bytes = static_cast<std::int64_t>(Row::bytes(width));
    const int threads = detail::worthwhile_threads(backend_.threads(), bags.entries() * bytes);
    const std::int64_t parts = std::min<std::int64_t>(threads == 1 ? 1 : 4 * threads, bags.bags);
    detail::parallel_for(threads, parts, [&](std::int64_t part, int) {
      const std::int64_t first = bags.bags * part / parts, last = bags.bags * (part + 1) / parts;
      if (first < last)
        detail::pool_rows<Row, Weighted>(rows, width, bags, first, last, to, stride);
    });
  }

  static void fill(Sequence& sequence, const FrozenTables::Table& table, const op::Bags<Id>& bags) {
    sequence.rows = bags.bags == 0 ? 0 : bags.entries();
    sequence.width = table.width;
    const auto needed = static_cast<std::size_t>(sequence.rows * sequence.width);
    if (sequence.values.size() < needed) sequence.values.resize(needed);
    if (sequence.rows == 0) return;
    const std::span<const Id> ids(bags.ids + bags.begin(0),
                                  static_cast<std::size_t>(sequence.rows));
    detail::with_rows(table, [&](auto row, const auto& rows) {
      detail::read_rows<decltype(row)>(
          rows, table.width, ids,
          MatrixView<float>{sequence.values.data(), sequence.rows, sequence.width});
    });
    if (bags.weights == nullptr) return;
    for (std::int64_t i = 0; i < sequence.rows; ++i)
      for (std::int64_t c = 0; c < sequence.width; ++c)
        sequence.values[static_cast<std::size_t>(i * sequence.width + c)] *=
            bags.weights[bags.begin(0) + i];
  }

  std::deque<FrozenFeature> features_;
  std::deque<std::string> names_;  ///< of tables
  std::vector<Sequence> sequences_;
  std::vector<std::int64_t> first_column_;
  std::int64_t columns_ = 0;
  Layout layout_;
  Host backend_;
  BadIds bad_ids_;
  detail::IdReport<Host> report_;
  detail::AdmittedBatch<Id, Host> admitted_;
  std::vector<int> order_;
  std::vector<Id> rows_of_keys_;
  const FrozenTables* tables_ = nullptr;  ///< null: those of reader_
  std::optional<Published<FrozenTables>::Reader> reader_;
};

}}  // namespace tessera::v0
