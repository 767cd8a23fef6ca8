// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/core/rectangle.hpp>
#include <tessera/core/table_spec.hpp>
#include <tessera/io/json_reader.hpp>
#include <tessera/io/regular_file.hpp>
#include <tessera/sharding/layout.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// Returns a layout as the text of a plan file: JSON that names each table with its rows and width,
/// and lists its shards: rows, columns, rank ("every": a copy on each) and whose memory, and the
/// rows in the cache before it. `layout` has no fault. docs/cost_model.md gives an example.
inline std::string plan_file_text(const Layout& layout) {
  std::string text = detail::formatted(
      "{{\n  \"tessera_plan\": 1,\n  \"ranks\": {},\n  \"ranks_per_node\": {},\n  \"tables\": [",
      layout.ranks(), layout.topology.ranks_per_node);
  std::size_t next = 0;
  for (std::size_t t = 0; t < layout.tables.size(); ++t) {
    const TableSpec& table = layout.tables[t];
    text += t == 0 ? "\n    {\"name\": " : ",\n    {\"name\": ";
    detail::append_json_string(text, table.name);
    text +=
        detail::formatted(", \"rows\": {}, \"width\": {}, \"shards\": [", table.rows, table.width);
    for (const std::size_t first = next;
         next < layout.shards.size() && layout.shards[next].table == static_cast<int>(t); ++next) {
      const Shard& shard = layout.shards[next];
      const Rectangle& r = shard.rectangle;
      text += detail::formatted(
          "{}\n      {{\"rows\": [{}, {}], \"columns\": [{}, {}], \"rank\": {}, \"memory\": "
          "\"{}\"{}}}",
          next == first ? "" : ",", r.row_begin, r.row_end, r.column_begin, r.column_end,
          shard.rank == every_rank ? "\"every\"" : std::to_string(shard.rank),
          to_string(shard.tier),
          shard.cache_rows == 0 ? "" : detail::formatted(", \"cache_rows\": {}", shard.cache_rows));
    }
    text += "]}";
  }
  return text + "\n  ]\n}\n";
}

namespace detail {

/// Reads one plan file; see read_plan_file.
class PlanFileReader {
 public:
  PlanFileReader(std::string_view text, std::string_view file, std::span<const TableSpec> tables,
                 const Topology& topology)
      : text_(text),
        file_(file),
        tables_(tables),
        topology_(topology),
        names_(tables),
        given_(tables.size()),
        json_(text, file) {}

  std::vector<Shard> read() {
    bool version = false, ranks = false, listed = false;
    json_.object([&](const std::string& key, std::size_t at) {
      if (key == "tessera_plan") {
        json_.check(json_.number() == 1, at, "this is a plan file of another version; 1 is read");
        version = true;
      } else if (key == "ranks") {
        ranks = true;
        const std::int64_t found = json_.count("the number is too large");
        require<DataError>(found == topology_.ranks,
                           "plan file '{}' is for {} ranks, but there are {}: run as many, or plan "
                           "again for {}",
                           file_, found, topology_.ranks, topology_.ranks);
      } else if (key == "ranks_per_node") {
        json_.count("the number is too large");  // for people: shards name their ranks
      } else if (key == "tables") {
        listed = true;
        json_.array([&](std::size_t table_at) { read_table(table_at); });
      } else {
        json_.check(false, at,
                    "an unknown key; a plan file has tessera_plan, ranks, ranks_per_node, tables");
      }
    });
    json_.end();
    json_.check(version, 0, "this is no plan file: the key tessera_plan is missing");
    json_.check(ranks && listed, 0, "the key ranks or tables is missing");
    for (std::size_t t = 0; t < tables_.size(); ++t)
      if (!given_[t]) blame(formatted("it lacks table '{}'", tables_[t].name));
    require<DataError>(
        faults_.empty(),
        "plan file '{}' is of other tables: {}; plan again for the tables that there "
        "are",
        file_, faults_);
    return std::move(shards_);
  }

 private:
  void read_table(std::size_t at) {
    std::string name;
    std::int64_t rows = -1, width = -1;
    std::vector<Shard> shards;
    bool listed = false;
    json_.object([&](const std::string& key, std::size_t key_at) {
      if (key == "name")
        name = json_.string();
      else if (key == "rows")
        rows = json_.count("the number is too large");
      else if (key == "width")
        width = json_.count("the number is too large");
      else if (key == "shards") {
        listed = true;
        json_.array([&](std::size_t shard_at) { shards.push_back(read_shard(shard_at)); });
      } else
        json_.check(false, key_at, "an unknown key; a table has name, rows, width, shards");
    });
    json_.check(!name.empty() && rows >= 0 && width >= 0 && listed, at,
                "a table needs name, rows, width and shards");
    const int t = names_.find(tables_, name);
    if (t < 0) return blame(formatted("it has a table '{}', which is not there", name));
    const TableSpec& table = tables_[static_cast<std::size_t>(t)];
    json_.check(!given_[static_cast<std::size_t>(t)], at, "this table is there twice");
    given_[static_cast<std::size_t>(t)] = true;
    if (rows != table.rows)
      return blame(formatted("'{}' has {} rows there, {} here", name, rows, table.rows));
    if (width != table.width)
      return blame(formatted("'{}' has width {} there, {} here", name, width, table.width));
    for (Shard& shard : shards) {
      shard.table = t;
      shards_.push_back(shard);
    }
  }

  Shard read_shard(std::size_t at) {
    Shard shard;
    shard.rank = unplaced_rank;
    bool rows = false, columns = false;
    json_.object([&](const std::string& key, std::size_t key_at) {
      if (key == "rows") {
        rows = true;
        std::tie(shard.rectangle.row_begin, shard.rectangle.row_end) = read_range(key_at);
      } else if (key == "columns") {
        columns = true;
        const auto [begin, end] = read_range(key_at);
        json_.check(end <= std::numeric_limits<std::int32_t>::max(), key_at,
                    "there are not so many columns");
        shard.rectangle.column_begin = static_cast<std::int32_t>(begin);
        shard.rectangle.column_end = static_cast<std::int32_t>(end);
      } else if (key == "rank") {
        shard.rank = read_rank(key_at);
      } else if (key == "memory") {
        const std::string memory = json_.string();
        const auto* const tier =
            std::ranges::find(all_tiers, memory, [](Tier named) { return to_string(named); });
        json_.check(tier != all_tiers.end(), key_at, "memory is \"device\", \"host\" or \"file\"");
        shard.tier = *tier;
      } else if (key == "cache_rows") {
        shard.cache_rows = json_.count("the number is too large");
      } else {
        json_.check(false, key_at,
                    "an unknown key; a shard has rows, columns, rank, memory, cache_rows");
      }
    });
    json_.check(shard.cache_rows == 0 || shard.tier != Tier::device, at,
                "cache_rows are of rows in the memory \"host\" or \"file\"");
    json_.check(rows && columns && shard.rank != unplaced_rank, at,
                "a shard needs rows, columns and rank");
    return shard;
  }

  int read_rank(std::size_t at) {
    if (text_.substr(json_.next_position()).starts_with('"')) {
      json_.check(json_.string() == "every", at, "a rank is a number, or \"every\"");
      return every_rank;
    }
    const std::int64_t rank = json_.count("the number is too large");
    json_.check(rank < topology_.ranks, at, "there is no rank of this number");
    return static_cast<int>(rank);
  }

  std::pair<std::int64_t, std::int64_t> read_range(std::size_t at) {
    std::int64_t range[2] = {};
    std::size_t count = 0;
    json_.array([&](std::size_t) {
      json_.check(count < 2, at, "a range has two numbers, its begin and its end");
      range[count++] = json_.count("the number is too large");
    });
    json_.check(count == 2 && range[0] <= range[1], at,
                "a range has two numbers, its begin and its end, which is not smaller");
    return {range[0], range[1]};
  }

  /// Names the first differences; a file of another model has as many as tables.
  void blame(const std::string& fault) {
    constexpr int kMostNamed = 4;
    if (blamed_ < kMostNamed)
      faults_ += faults_.empty() ? fault : "; " + fault;
    else if (blamed_ == kMostNamed)
      faults_ += "; and more";
    ++blamed_;
  }

  std::string_view text_, file_;
  std::span<const TableSpec> tables_;
  Topology topology_;
  NameIndex names_;
  std::vector<bool> given_;
  JsonReader json_;
  std::vector<Shard> shards_;
  std::string faults_;
  int blamed_ = 0;
};

/// Returns the shards that the text of plan file `file` has for these tables on these ranks, ready
/// for `make_layout`. The file must name every table, and no other, with its rows and width; tables
/// may come in any order. Throws DataError that names the file and the place, or the tables that
/// differ.
inline std::vector<Shard> parse_plan_file(std::string_view text, std::string_view file,
                                          std::span<const TableSpec> tables,
                                          const Topology& topology) {
  return detail::PlanFileReader(text, file, tables, topology).read();
}

}  // namespace detail

/// Returns the layout that a plan file gives these tables and features. Throws DataError as
/// parse_plan_file does, and for a file that cannot be read; InvalidArgument for shards that
/// overlap, leave a gap or reach outside.
inline Layout read_plan_file(const std::filesystem::path& path, std::vector<TableSpec> tables,
                             std::vector<FeatureSpec> features, const Topology& topology) {
  const detail::RegularFile file(path);
  std::vector<Shard> shards = detail::parse_plan_file(file.text(), file.name(), tables, topology);
  Layout layout = make_layout(topology, std::move(tables), std::move(features), std::move(shards));
  require(layout.fault.ok(), "plan file '{}': {}", file.name(), describe(layout.fault));
  return layout;
}

}}  // namespace tessera::v0
