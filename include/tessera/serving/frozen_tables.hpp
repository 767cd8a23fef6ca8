// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/core/jagged.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/host/backend.hpp>
#include <tessera/host/parallel.hpp>
#include <tessera/io/crc32.hpp>
#include <tessera/io/safetensors.hpp>
#include <tessera/op/inputs.hpp>
#include <tessera/serving/freeze.hpp>
#include <tessera/serving/pool_rows.hpp>
#include <tessera/serving/row_format.hpp>
#include <tessera/sharding/layout.hpp>
#include <tessera/stage/id_report.hpp>
#include <tessera/stage/inputs.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <filesystem>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::inline v0 {

struct FrozenOptions {
  /// Reads every byte once and compares the checksums. Without it, damage shows as wrong vectors.
  bool verify = true;
};

/// Tables of a trained model that nothing changes, mapped from a file of freeze_checkpoint:
/// processes that map one file share its memory. Lookups are const; any number of threads may look
/// up at one time. Throws DataError, naming the file, for one that is damaged or of another kind.
class FrozenTables {
 public:
  struct Table {
    std::string name;
    std::int64_t rows = 0;
    int width = 0;
    RowFormat format = RowFormat::fp32;
    const std::byte* data = nullptr;  ///< rows of row_bytes(format, width), without padding
  };

  explicit FrozenTables(const std::filesystem::path& file, FrozenOptions options = {})
      : file_(file) {
    const auto version = file_.metadata().find(std::string(detail::kFrozenKey));
    require<DataError>(version != file_.metadata().end(),
                       "file '{}' holds no frozen tables; freeze_checkpoint writes such",
                       file_.name());
    require<DataError>(version->second == detail::kFrozenVersion,
                       "file '{}' has frozen tables of version '{}', this library reads {}",
                       file_.name(), version->second, detail::kFrozenVersion);
    for (const TensorInfo& info : file_.tensors())
      if (info.name != detail::kChecksums) add(info);
    if (options.verify) verify();
  }

  const std::string& file() const { return file_.name(); }
  const std::vector<Table>& tables() const { return tables_; }
  /// Throws InvalidArgument where there is none of that name.
  const Table& table(std::string_view name) const {
    const auto found = std::find_if(tables_.begin(), tables_.end(),
                                    [&](const Table& t) { return t.name == name; });
    require(found != tables_.end(), "file '{}' has no table '{}'", file_.name(), name);
    return *found;
  }

  /// Bytes of all rows.
  std::int64_t bytes() const {
    return std::accumulate(
        tables_.begin(), tables_.end(), std::int64_t{0}, [](std::int64_t sum, const Table& t) {
          return sum + t.rows * static_cast<std::int64_t>(row_bytes(t.format, t.width));
        });
  }

  /// Row ids[i] of a table as floats in row i of `output`, [ids, width]. Throws BadId for an id
  /// outside the table, InvalidArgument for another shape.
  template <IdType Id>
  void rows(std::string_view name, std::span<const Id> ids, MatrixView<float> output) const {
    const Table& t = table(name);
    require(output.rows == std::ssize(ids) && output.columns == t.width &&
                output.stride >= output.columns,
            "FrozenTables: table '{}': {} rows of {} go to [{}, {}] with a stride of {}", name,
            ids.size(), t.width, output.rows, output.columns, output.stride);
    for (std::size_t i = 0; i < ids.size(); ++i)
      if (ids[i] < 0 || ids[i] >= t.rows)
        throw BadId(name, static_cast<std::int64_t>(i), static_cast<std::int64_t>(ids[i]), t.rows);
    detail::with_row_type(t.format, [&](auto row) {
      using Row = decltype(row);
      for (std::size_t i = 0; i < ids.size(); ++i)
        detail::read_row<Row>(t.data + static_cast<std::size_t>(ids[i]) * Row::bytes(t.width),
                              t.width, output.data + static_cast<std::int64_t>(i) * output.stride);
    });
  }

 private:
  void add(const TensorInfo& info) {
    const auto found = file_.metadata().find(std::string(detail::kFormatKey) + info.name);
    const auto fault = [&](std::string_view what) {
      return fmt::format("file '{}', table '{}': {}", file_.name(), info.name, what);
    };
    if (found == file_.metadata().end()) throw DataError(fault("its format is not given"));
    const std::string_view text = found->second;
    const std::size_t space = std::min(text.find(' '), text.size());
    Table table{.name = info.name};
    const auto name =
        std::find(row_format_names.begin(), row_format_names.end(), text.substr(0, space));
    if (name == row_format_names.end() || space == text.size())
      throw DataError(fault(fmt::format("there is no format '{}'", text)));
    table.format = static_cast<RowFormat>(name - row_format_names.begin());
    const auto [end, error] =
        std::from_chars(text.data() + space + 1, text.data() + text.size(), table.width);
    if (error != std::errc() || end != text.data() + text.size() || table.width < 1 ||
        table.width > 1 << 20)
      throw DataError(fault(fmt::format("'{}' is no format and width", text)));
    const TensorType type =
        detail::with_row_type(table.format, [](auto row) { return decltype(row)::type; });
    const auto bytes = static_cast<std::int64_t>(row_bytes(table.format, table.width));
    if (info.type != type || info.shape.size() != 2 || info.shape[0] < 1 ||
        info.shape[1] * static_cast<std::int64_t>(tensor_type_size(type)) != bytes)
      throw DataError(fault(fmt::format("{} {} is not its rows in {}", tensor_type_name(info.type),
                                        detail::shape_text(info.shape), text)));
    table.rows = info.shape[0];
    table.data = file_.bytes(info.name).data();
    if (reinterpret_cast<std::uintptr_t>(table.data) % tensor_type_size(type) != 0)
      throw DataError(fault("its elements are not aligned"));
    tables_.push_back(std::move(table));
  }

  void verify() const {
    const std::vector<std::uint8_t> sums = file_.contains(detail::kChecksums)
                                               ? file_.read<std::uint8_t>(detail::kChecksums)
                                               : std::vector<std::uint8_t>();
    require<DataError>(sums.size() == 4 * tables_.size(), "file '{}' lacks its checksums",
                       file_.name());
    for (std::size_t t = 0; t < tables_.size(); ++t) {
      std::uint32_t expected = 0;
      std::memcpy(&expected, sums.data() + 4 * t, sizeof(expected));
      require<DataError>(crc32(file_.bytes(tables_[t].name)) == expected,
                         "file '{}', table '{}': its bytes do not have the checksum that was "
                         "written: the file is damaged",
                         file_.name(), tables_[t].name);
    }
  }

  SafetensorsReader file_;
  std::vector<Table> tables_;
};

/// A feature that a FrozenLookup serves.
struct FrozenFeature {
  std::string name;
  std::string table;
  Pooling pooling = Pooling::sum;
  bool weighted = false;
};

/// Pooled lookups of a list of features in FrozenTables, which must outlive it. Keeps the memory
/// that a batch needs: one per thread. Vectors have the bits of EmbeddingCollection::evaluate where
/// rows are stored in the type of its tables; those of codes are the sums of the rows that `rows`
/// gives.
template <IdType Id>
class FrozenLookup {
 public:
  /// `bad_ids`: as the policies of collection/options.hpp. `threads`: of OpenMP, for one batch.
  FrozenLookup(const FrozenTables& tables, std::span<const FrozenFeature> features,
               BadIds bad_ids = BadIds::throw_error, int threads = 1)
      : features_(features.begin(), features.end()),
        backend_({.threads = threads}),
        bad_ids_(bad_ids),
        report_(backend_, tables.tables().size(), -1) {
    std::vector<Shard> shards;
    std::vector<TableSpec> specs;
    for (const FrozenTables::Table& table : tables.tables()) {
      shards.push_back({static_cast<int>(specs.size()), {0, table.rows, 0, table.width}, 0});
      specs.push_back({.name = table.name, .rows = table.rows, .width = table.width});
      tables_.push_back(&table);
    }
    std::vector<FeatureSpec> list;
    for (const FrozenFeature& feature : features_) {
      static_cast<void>(tables.table(feature.table));
      require(!keeps_rows(feature.pooling),
              "FrozenLookup: feature '{}' has pooling {}; those of sum, mean and sqrtn are served",
              feature.name, to_string(feature.pooling));
      list.push_back({.name = feature.name,
                      .table = feature.table,
                      .pooling = feature.pooling,
                      .weighted = feature.weighted});
    }
    require(!list.empty(), "FrozenLookup: give one feature at least");
    layout_ = make_layout({1}, std::move(specs), std::move(list), std::move(shards));
    if (!layout_.fault.ok()) throw InvalidArgument(describe(layout_.fault));
    order_.resize(features_.size());
    std::iota(order_.begin(), order_.end(), 0);
  }
  FrozenLookup(const FrozenLookup&) = delete;
  FrozenLookup& operator=(const FrozenLookup&) = delete;

  /// Floats of a sample: the features' widths, side by side in their order.
  std::int64_t columns() const { return layout_.columns(); }

  /// Pooled vectors of a batch, `output` [batch, columns()]. Throws BadId and InvalidArgument as
  /// EmbeddingCollection::forward does; then `output` is as it was.
  void pool(const KeyedJagged<Id>& batch, MatrixView<float> output) {
    require(output.rows == batch.batch && output.columns == columns() &&
                output.stride >= output.columns,
            "FrozenLookup: {} samples of {} columns go to [{}, {}] with a stride of {}",
            batch.batch, columns(), output.rows, output.columns, output.stride);
    const std::int64_t cuts[] = {0, batch.batch};
    inputs_.prepare(backend_, layout_, order_, batch, cuts, bad_ids_, report_, SizesNeeded::none);
    if (batch.batch == 0) return;
    for (std::size_t f = 0; f < features_.size(); ++f) {
      const FrozenTables::Table& table =
          *tables_[static_cast<std::size_t>(layout_.feature_table[f])];
      const op::Bags<Id>& bags = inputs_[static_cast<int>(f)].bags;
      float* const to = output.data + layout_.feature_column[f];
      detail::with_row_type(table.format, [&](auto row) {
        bags.weights != nullptr
            ? pool_in_parts<decltype(row), true>(table, bags, to, output.stride)
            : pool_in_parts<decltype(row), false>(table, bags, to, output.stride);
      });
    }
  }

  /// Ids outside their tables so far, by table; under BadIds::throw_error none are counted.
  std::span<const std::uint64_t> bad_ids() const { return report_.read(layout_); }

 private:
  template <class Row, bool Weighted>
  void pool_in_parts(const FrozenTables::Table& table, const op::Bags<Id>& bags, float* to,
                     std::int64_t stride) const {
    const auto bytes = static_cast<std::int64_t>(Row::bytes(table.width));
    const int threads = worthwhile_threads(backend_.threads(), bags.entries() * bytes);
    const std::int64_t parts = std::min<std::int64_t>(threads == 1 ? 1 : 4 * threads, bags.bags);
    parallel_for(threads, parts, [&](std::int64_t part, int) {
      const std::int64_t first = bags.bags * part / parts, last = bags.bags * (part + 1) / parts;
      if (first < last)
        detail::pool_rows<Row, Weighted>(table.data, table.width, bags, first, last, to, stride);
    });
  }

  std::deque<FrozenFeature> features_;
  std::vector<const FrozenTables::Table*> tables_;
  Layout layout_;
  Host backend_;
  BadIds bad_ids_;
  IdReport<Host> report_;
  Inputs<Id, Host> inputs_;
  std::vector<int> order_;
};

}  // namespace tessera::inline v0
