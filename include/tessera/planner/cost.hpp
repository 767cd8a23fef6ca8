// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/planner/power_law.hpp>
#include <tessera/planner/prediction.hpp>
#include <tessera/planner/workload.hpp>
#include <tessera/sharding/cluster.hpp>
#include <tessera/sharding/layout.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera { inline namespace v0 {

// Predicts what a training step costs under a layout. Equations and sources: docs/cost_model.md.

namespace detail {

/// What one rectangle costs in a step. Replicated ones cost every rank the same.
struct ShardCost {
  /// seconds on its rank; `exchange`: each way
  double route = 0, lookup = 0, exchange = 0, update = 0;
  double fetch = 0;  ///< between a cache and where its rows stay, while the batch is routed
  /// seconds on every rank: to cut ids, and to place vectors and cut gradients
  double ask = 0, assemble = 0;
  /// of these, on its own rank, which reads ids and writes vectors in place
  double spared_ask = 0, spared = 0;
  /// that travel for the global batch, those of its own rank included
  double id_bytes = 0, vector_bytes = 0;

  constexpr double seconds() const { return route + fetch + lookup + 2 * exchange + update; }
  constexpr double shared_seconds() const { return ask + assemble; }
  constexpr double spared_seconds() const { return spared_ask + spared; }
};

/// Rows in the host's memory, read there or behind a cache: see CostModel::cache_gain.
struct CacheGain {
  double hit_rate = 0;         ///< of the distinct rows of a batch, those that are in the cache
  double seconds = 0;          ///< of a step, to fetch, look up and update, with the cache
  double seconds_without = 0;  ///< and without
  /// the hit rate from which on the cache pays; 0 or less: always, above 1: never
  double pays_from = 0;
  constexpr bool pays() const { return seconds < seconds_without; }
};

/// The cost of rectangles, one by one: what both `predict` and the planner add up.
class CostModel {
 public:
  constexpr CostModel(const std::vector<TableSpec>& tables,
                      const std::vector<FeatureSpec>& features,
                      const std::vector<int>& feature_table, const Cluster& cluster,
                      const Workload& workload)
      : cluster_(for_batches(cluster, tables, features, feature_table, workload)),
        workload_(workload) {
    const Topology topology = cluster.topology();
    ranks_ = topology.ranks;
    batch_ = static_cast<double>(workload.batch);
    const double near = topology.node_size() - 1, far = ranks_ - topology.node_size();
    peer_byte_ = std::max(near / cluster.node_bandwidth, far / cluster.network_bandwidth);
    collective_ = ranks_ == 1 ? 0
                              : cluster.launch_seconds + cluster.wake_seconds +
                                    near * cluster.node_latency + far * cluster.network_latency;
    tables_.reserve(tables.size());
    for (const TableSpec& table : tables)
      tables_.push_back({.rows = static_cast<double>(table.rows),
                         .width = table.width,
                         .memory = memory_cost(table, workload.memory),
                         .law = {.rows = static_cast<double>(table.rows),
                                 .skew = table.skew < 0 ? workload.skew : table.skew,
                                 .measured = table.frequencies}});
    for (std::size_t f = 0; f < features.size(); ++f) {
      const int t = feature_table[f];
      if (t < 0) continue;
      const double hotness = features[f].hotness > 0 ? features[f].hotness : tables[t].hotness;
      Table& table = tables_[t];
      const double ids = hotness * batch_;
      table.given += ids;
      if (keeps_rows(features[f].pooling) || workload.deduplicate) {
        table.add(asked_once(table, ids, 0, table.rows));
      } else {
        table.add({.hotness = hotness, .bags = batch_});
        ragged_ |= hotness != 1;
      }
    }
    for (Table& t : tables_) {
      t.distinct = t.law.distinct(t.given, 0, t.rows);
      t.distinct_of_rank = ranks_ == 1 ? t.distinct : t.law.distinct(t.given / ranks_, 0, t.rows);
    }
  }
  /// Sends lengths if `ragged`: of a model of which only some tables are here.
  constexpr void send_lengths(bool ragged) { ragged_ |= ragged; }
  /// Returns the cluster, its rates those of the model's batches.
  constexpr const Cluster& cluster() const { return cluster_; }
  constexpr const Workload& workload() const { return workload_; }
  /// Returns the seconds of one collective, its data aside.
  constexpr double collective_seconds() const { return collective_; }
  /// Returns the seconds in which a rank checks the ids of its samples.
  constexpr double check_seconds() const {
    double ids = 0;
    for (const Table& t : tables_) ids += t.given;
    return ids / ranks_ * cluster_.check_seconds;
  }
  /// Returns the seconds until a rank has sent so many bytes to each other rank.
  constexpr double seconds_to_each(double bytes) const { return bytes * peer_byte_; }
  /// Returns the bytes of ids and vectors per step, cut or not: what the planner sorts tables by.
  constexpr double ids_of(int table) const { return tables_[table].ids; }
  constexpr double distinct_of(int table) const { return tables_[table].distinct; }
  constexpr bool uneven(int table) const { return tables_[table].law.uneven(); }
  /// Returns how many rows a batch has so many ids of, or more.
  constexpr double rows_asked_for(int table, double ids) const {
    return tables_[table].law.rows_with(ids / tables_[table].given);
  }
  /// Returns the bytes of an element and a row, the table's optimizer included.
  constexpr const MemoryCost& memory(int table) const { return tables_[table].memory; }

  /// Returns the rows of a cache of no given size: a sixteenth of all, four batches' at least.
  constexpr std::int64_t cache_rows(int table, const Rectangle& r) const {
    const double least = 4 * distinct_in(tables_[table], r) + 1;
    return std::min(r.rows(), std::max(static_cast<std::int64_t>(least), (r.rows() + 15) / 16));
  }

  /// Returns the cost. `cached`: as Shard::cache_rows; 0: of a file `cache_rows`, else no cache.
  constexpr ShardCost cost(int table, const Rectangle& r, bool replicated, Tier tier = Tier::device,
                           std::int64_t cached = 0) const {
    const Table& t = tables_[table];
    const bool whole = is_whole(t, r);
    const double begin = static_cast<double>(r.row_begin), end = static_cast<double>(r.row_end);
    const double share = share_in(t, r), distinct = distinct_in(t, r);
    double ids = t.ids, bags = t.bags;
    if (!whole) {
      ids = bags = 0;
      for (const Feature& f : t.features) {
        const bool once = f.given > 0 && workload_.sorted_ids;
        const Feature here = once ? asked_once(t, f.given, begin, end) : f;
        const double part = once ? 1 : share;
        ids += here.hotness * here.bags * part;
        bags += here.bags * (f.hotness == 1 ? part : 1 - constexpr_pow(1 - part, f.hotness));
      }
    }
    const bool behind = tier != Tier::device && (tier == Tier::file || cached > 0);
    const Tier read = behind ? Tier::device : tier;
    const double blocks = whole ? 1 : t.rows / (end - begin);
    ShardCost c = !replicated ? shard(t, r.width(), ids, distinct, bags, blocks, read)
                              : replica(t, r.width(), ids, distinct, distinct_of_rank_in(t, r),
                                        bags, blocks, read);
    if (behind)
      c.fetch = (replicated ? ids / ranks_ + distinct : ids) * cluster_.directory_seconds +
                missed_in(t, r, cached > 0 ? cached : cache_rows(table, r)) *
                    missed_seconds(t, r.width(), tier);
    return c;
  }

  /// Returns what a cache of `cached` rows is worth to a rectangle OnHost.
  constexpr CacheGain cache_gain(int table, const Rectangle& r, bool replicated,
                                 std::int64_t cached) const {
    const Table& t = tables_[table];
    const auto seconds = [](const ShardCost& c) { return c.fetch + c.lookup + c.update; };
    const double distinct = std::max(1e-30, distinct_in(t, r)),
                 missed = std::min(distinct, missed_in(t, r, cached)),
                 each = missed_seconds(t, r.width(), Tier::host);
    CacheGain gain{.hit_rate = 1 - missed / distinct,
                   .seconds = seconds(cost(table, r, replicated, Tier::host, cached)),
                   .seconds_without = seconds(cost(table, r, replicated, Tier::host))};
    // what may be missed in the time that is saved by hits
    gain.pays_from =
        1 - (gain.seconds_without - (gain.seconds - missed * each)) / (distinct * each);
    return gain;
  }

 private:
  static constexpr double kLine = 64;     // bytes that memory moves at least
  static constexpr double kBlock = 4096;  // and files
  static constexpr double kHeader = 32;   // of what a rank asks for of a rectangle
  static constexpr double kLog2 = constexpr_log(2);
  struct Feature {
    double hotness = 0, bags = 0;  // as owners see it
    double given = 0;              // ids of the batch, if each rank asks for a row once
  };
  struct Table {
    double rows = 0;
    int width = 0;
    MemoryCost memory{};
    IdLaw law{};
    double given = 0;          // ids of the batch
    double ids = 0, bags = 0;  // that owners see
    double distinct = 0, distinct_of_rank = 0;
    std::vector<Feature> features{};

    constexpr void add(const Feature& feature) {
      features.push_back(feature);
      ids += feature.hotness * feature.bags;
      bags += feature.bags;
    }
  };

  /// Returns a feature of whose ids each rank asks for the distinct ones among some rows.
  constexpr Feature asked_once(const Table& t, double ids, double begin, double end) const {
    return {.hotness = 1, .bags = ranks_ * t.law.distinct(ids / ranks_, begin, end), .given = ids};
  }
  static constexpr bool is_whole(const Table& t, const Rectangle& r) {
    return r.row_begin == 0 && static_cast<double>(r.row_end) == t.rows;
  }
  /// Returns, of the ids and the distinct rows of a batch, those in a rectangle.
  constexpr double share_in(const Table& t, const Rectangle& r) const {
    const auto begin = static_cast<double>(r.row_begin), end = static_cast<double>(r.row_end);
    return is_whole(t, r)         ? 1
           : workload_.sorted_ids ? t.law.share(begin, end)
                                  : (end - begin) / t.rows;
  }
  constexpr double distinct_in(const Table& t, const Rectangle& r) const {
    return is_whole(t, r)         ? t.distinct
           : workload_.sorted_ids ? t.law.distinct(t.given, static_cast<double>(r.row_begin),
                                                   static_cast<double>(r.row_end))
                                  : t.distinct * share_in(t, r);
  }
  /// Returns the distinct rows of a rank's samples in a rectangle.
  constexpr double distinct_of_rank_in(const Table& t, const Rectangle& r) const {
    return workload_.sorted_ids && !is_whole(t, r)
               ? t.law.distinct(t.given / ranks_, static_cast<double>(r.row_begin),
                                static_cast<double>(r.row_end))
               : t.distinct_of_rank * share_in(t, r);
  }

  /// Returns the rows of a batch that a cache lacks.
  constexpr double missed_in(const Table& t, const Rectangle& r, std::int64_t cached) const {
    const double here = static_cast<double>(std::max<std::int64_t>(1, r.rows())),
                 slots = static_cast<double>(cached);
    return workload_.sorted_ids
               ? t.law.missed(t.given, slots, static_cast<double>(r.row_begin),
                              static_cast<double>(r.row_end))
               : here / t.rows * t.law.missed(t.given, slots * t.rows / here, 0, t.rows);
  }
  /// Returns the seconds: each row is read, and as many go back, into blocks of files read first.
  constexpr double missed_seconds(const Table& t, int width, Tier tier) const {
    if (tier == Tier::host)
      return cluster_.missing_seconds + apply_seconds(t.memory, 1, width, tier);
    const double record = static_cast<double>(t.memory.of({0, 1, 0, width}));
    return cluster_.missing_seconds + 3 * (kBlock + record) / cluster_.file_bandwidth;
  }

  constexpr double gather_seconds(double ids, double distinct, int width, Tier tier) const {
    const double row = static_cast<double>(width) * workload_.element_bytes;
    if (tier == Tier::host)  // no cache of the device keeps rows of the host
      return ids * (cluster_.lookup_seconds + std::max(row, kLine) / cluster_.bus_bandwidth);
    return ids * cluster_.lookup_seconds +
           distinct * std::max(row, kLine) / cluster_.gather_bandwidth +
           std::max(ids - distinct, 0.0) * row / cluster_.cache_bandwidth;
  }
  /// Returns the time for rows whose weights and states each have an array of their own.
  constexpr double apply_seconds(const MemoryCost& memory, double distinct, int width,
                                 Tier tier) const {
    const auto lines = [](double arrays, double bytes) { return arrays * std::max(bytes, kLine); };
    const double element = workload_.element_bytes,
                 states = (static_cast<double>(memory.per_element) - element) / 4;
    const double bytes = lines(1, width * element) + lines(std::max(states, 0.0), width * 4.0) +
                         lines(static_cast<double>(memory.per_row) / 4, 4);
    return distinct * 2 * bytes /
           (tier == Tier::host ? cluster_.bus_bandwidth : cluster_.gather_bandwidth);
  }
  /// Returns the time of the mean squares of whole rows. Of cut rows each part works out sums of its
  /// columns, sends them to the others, and puts all together.
  constexpr double mean_square_seconds(const Table& t, double distinct, int width) const {
    if (!t.memory.mean_squares) return 0;
    const double parts = static_cast<double>(t.width) / width,
                 sums = distinct * width * cluster_.lookup_seconds;
    return parts < 2 ? sums / 2 : 2 * sums + distinct * 3 * parts * cluster_.merge_seconds;
  }
  constexpr double merge_seconds(double ids, int width) const {
    return ids * (cluster_.merge_seconds + 4.0 * width / cluster_.cache_bandwidth);
  }

  /// Returns the cost of a shard. `blocks`: into how many the table's rows are cut.
  constexpr ShardCost shard(const Table& t, int width, double ids, double distinct, double bags,
                            double blocks, Tier tier) const {
    const bool whole = blocks <= 1;
    const double vectors = bags * width * 4, features = static_cast<double>(t.features.size());
    const double remote = ranks_ > 1 ? 1 : 0, sources = features * ranks_ * cluster_.block_seconds;
    ShardCost c{.id_bytes = ids * workload_.id_bytes + (ragged_ ? 4 * bags : 0) +
                            features * ranks_ * kHeader,
                .vector_bytes = bags * width * workload_.wire_bytes};
    // A whole table's rank reads its own samples in place; blocks of rows pass through the exchange
    // on all ranks.
    const double travels = remote * (whole ? 1 - 1.0 / ranks_ : 1),
                 own = whole ? 0 : 1.0 / ranks_ / cluster_.stream_bandwidth;
    const double sent = ids * cluster_.route_seconds / 2;
    c.route = travels * sent +
              remote * (seconds_to_each(c.id_bytes / ranks_) + c.id_bytes * own + sources);
    c.lookup =
        gather_seconds(ids, distinct, width, tier) + vectors / cluster_.stream_bandwidth + sources;
    c.exchange = remote * (seconds_to_each(c.vector_bytes / ranks_) + c.vector_bytes * own);
    add_cutting(c, t, width, ids, bags, blocks);
    if (whole) c.spared_ask = c.ask, c.spared = c.assemble;
    c.update = merge_seconds(ids, width) + vectors / cluster_.stream_bandwidth +
               apply_seconds(t.memory, distinct, width, tier) +
               mean_square_seconds(t, distinct, width) + sources;
    return c;
  }

  /// Adds what every rank does for a rectangle whose ids and vectors are packed.
  constexpr void add_cutting(ShardCost& c, const Table& t, int width, double ids, double bags,
                             double blocks) const {
    if (ranks_ == 1) return;
    const bool whole = blocks <= 1;
    const double features = static_cast<double>(t.features.size()), vectors = bags * width * 4;
    c.ask = ids * cluster_.route_seconds / 2 / ranks_ + features * cluster_.block_seconds;
    if (!whole) {  // even blocks are one a rank, uneven ones at most those of Interleaved
      const double most = ranks_ * (1 + std::max(0.0, constexpr_log(t.rows / ranks_)) / kLog2);
      c.ask +=
          ids * cluster_.cut_seconds * (1 + constexpr_log(std::min(blocks, most)) / kLog2) / ranks_;
    }
    // Vectors are put into place and gradients cut: both read and written. What blocks of rows give
    // is added to zeros, and a sample that has nothing in a block is a gap in the order of the
    // matrix.
    const double lines = t.bags / blocks * std::max(width * 4.0, kLine),
                 gaps = 1 - bags / std::max(1.0, t.bags);
    const double matrix = whole ? 2 * lines / cluster_.stream_bandwidth
                                : 4 * lines / cluster_.stream_bandwidth +
                                      2 * gaps * lines / cluster_.gather_bandwidth;
    c.assemble =
        (2 * bags * cluster_.vector_seconds + 2 * vectors / cluster_.stream_bandwidth + matrix) /
            ranks_ +
        2 * features * cluster_.block_seconds;
  }

  /// Returns the cost of a replica: every rank looks its own samples up; merged gradients of
  /// touched rows go to all ranks. The ids and vectors of a part of the rows pass through the
  /// exchange, each rank's to itself. `local`: distinct rows of a rank's samples.
  constexpr ShardCost replica(const Table& t, int width, double all_ids, double distinct,
                              double local, double bags, double blocks, Tier tier) const {
    const double ids = all_ids / ranks_, vectors = bags / ranks_ * width * 4,
                 features = static_cast<double>(t.features.size());
    ShardCost c;
    if (blocks > 1 && ranks_ > 1) {
      c.route =
          ids * (cluster_.route_seconds / 2 + workload_.id_bytes / cluster_.stream_bandwidth) +
          features * cluster_.block_seconds;
      c.exchange = bags / ranks_ * width * workload_.wire_bytes / cluster_.stream_bandwidth;
      add_cutting(c, t, width, all_ids, bags, blocks);
    }
    c.lookup = gather_seconds(ids, local, width, tier) + vectors / cluster_.stream_bandwidth +
               features * cluster_.block_seconds;
    c.update = merge_seconds(ids, width) + vectors / cluster_.stream_bandwidth +
               apply_seconds(t.memory, distinct, width, tier) +
               mean_square_seconds(t, distinct, width) + features * cluster_.block_seconds;
    if (ranks_ > 1)
      c.update += merge_seconds(local * ranks_, width) +
                  local * (4.0 * width + 8) * (1 + ranks_) / cluster_.stream_bandwidth +
                  seconds_to_each(local * (4.0 * width + 8));
    return c;
  }

  Cluster cluster_;
  Workload workload_;
  int ranks_ = 1;
  double batch_ = 0;
  double peer_byte_ = 0;
  double collective_ = 0;
  bool ragged_ = false;  // one feature with bags of several ids gives all of them lengths
  std::vector<Table> tables_;
};

constexpr double dense_seconds(const Cluster& cluster, const Workload& workload) {
  const double samples = static_cast<double>(workload.batch) / cluster.ranks;
  return samples *
         (workload.dense_flops / cluster.flops + workload.dense_bytes / cluster.stream_bandwidth);
}

/// Returns the seconds of a ring in each node, and one over the nodes for each of their ranks.
constexpr double all_reduce_seconds(const CostModel& model) {
  const Cluster& c = model.cluster();
  const Topology topology = c.topology();
  if (c.ranks == 1 || model.workload().dense_parameters == 0) return 0;
  const double bytes = 4.0 * static_cast<double>(model.workload().dense_parameters),
               size = topology.node_size(), nodes = topology.nodes();
  return model.collective_seconds() + 2 * bytes * (size - 1) / size / c.node_bandwidth +
         2 * bytes / size * (nodes - 1) / nodes / c.network_bandwidth;
}

/// Works out stages and step from what is predicted for the ranks.
constexpr void finish(Prediction& p, const CostModel& model) {
  for (const auto member : {&StageTimes::route, &StageTimes::lookup, &StageTimes::exchange,
                            &StageTimes::assemble, &StageTimes::exchange_gradients,
                            &StageTimes::update, &StageTimes::dense, &StageTimes::all_reduce})
    p.stages.*member = slowest(p.ranks, model.cluster(), member);
  p.step_seconds = p.stages.total(model.workload().overlap_route);
}

}  // namespace detail

/// Predicts a step under any layout. The layout must have the model's tables,
/// features and ranks. `traffic`: fill the traffic matrices too.
constexpr detail::Prediction predict(const Layout& layout, const detail::CostModel& model,
                                     bool traffic = false) {
  const Cluster& cluster = model.cluster();
  const Workload& workload = model.workload();
  const std::size_t ranks = static_cast<std::size_t>(layout.ranks());
  detail::Prediction p;
  p.ranks.assign(ranks, {});
  for (const Tier tier : detail::all_tiers) p.bytes_in(tier).assign(ranks, 0);
  if (traffic) {
    p.id_traffic.assign(ranks * ranks, 0.0);
    p.vector_traffic.assign(ranks * ranks, 0.0);
  }
  detail::StageTimes all{};
  detail::Prediction all_bytes{.bytes = {0}, .host_bytes = {0}, .file_bytes = {0}};
  bool replicas = false;
  std::vector<int> widths;
  for (std::size_t i = 0; i < layout.shards.size(); ++i) {
    const Shard& shard = layout.shards[i];
    const bool replicated = shard.rank == every_rank;
    const detail::ShardCost c =
        model.cost(shard.table, shard.rectangle, replicated, shard.tier, shard.cache_rows);
    for (const Tier tier : detail::all_tiers)
      (replicated ? all_bytes.bytes_in(tier)[0] : p.bytes_in(tier)[shard.rank]) +=
          detail::bytes_in(shard, model.memory(shard.table), tier);
    if (std::find(widths.begin(), widths.end(), shard.rectangle.width()) == widths.end())
      widths.push_back(shard.rectangle.width());
    if (replicated) {
      all.route += c.fetch + c.route + c.ask;
      all.lookup += c.lookup;
      all.exchange += c.exchange;
      all.exchange_gradients += c.exchange;
      all.assemble += c.assemble;
      all.update += c.update;
      replicas = true;
      continue;
    }
    bool ids_are_there = false;  // sent for other columns of the same rows
    const bool cut = shard.rectangle.width() < layout.tables[shard.table].width;
    for (std::size_t k = cut ? i : 0; k-- > 0 && layout.shards[k].table == shard.table;)
      ids_are_there |= layout.shards[k].rank == shard.rank &&
                       layout.shards[k].rectangle.row_begin == shard.rectangle.row_begin &&
                       layout.shards[k].rectangle.row_end == shard.rectangle.row_end;
    detail::StageTimes& own = p.ranks[shard.rank];
    if (!ids_are_there) {
      own.route += c.route - c.spared_ask;
      all.route += c.ask;
    }
    own.route += c.fetch;
    own.lookup += c.lookup;
    own.exchange += c.exchange;
    own.exchange_gradients += c.exchange;
    own.update += c.update;
    all.assemble += c.assemble;
    own.assemble -= c.spared;
    if (!traffic) continue;
    const double each = 1.0 / static_cast<double>(ranks);
    for (std::size_t r = 0; r < ranks; ++r) {
      if (!ids_are_there)
        p.id_traffic[r * ranks + static_cast<std::size_t>(shard.rank)] += c.id_bytes * each;
      p.vector_traffic[static_cast<std::size_t>(shard.rank) * ranks + r] += c.vector_bytes * each;
    }
  }
  const double launches = static_cast<double>(widths.size()) * cluster.launch_seconds,
               collective = model.collective_seconds();
  all.route += model.check_seconds();
  const double dense = detail::dense_seconds(cluster, workload),
               all_reduce = detail::all_reduce_seconds(model);
  for (std::size_t r = 0; r < ranks; ++r) {
    detail::StageTimes& own = p.ranks[r];
    own.route += all.route + 2 * collective;
    own.lookup += all.lookup + launches;
    own.exchange += all.exchange + collective;
    own.assemble += all.assemble + (ranks > 1 ? 2 * cluster.launch_seconds : 0);
    own.exchange_gradients += all.exchange_gradients + collective;
    own.update += all.update + launches + (replicas ? 3 * collective : 0);
    own.dense = dense;
    own.all_reduce = all_reduce;
    for (const Tier tier : detail::all_tiers) p.bytes_in(tier)[r] += all_bytes.bytes_in(tier)[0];
  }
  detail::finish(p, model);
  return p;
}

constexpr detail::Prediction predict(const Layout& layout, const Cluster& cluster,
                                     const Workload& workload, bool traffic = false) {
  return predict(
      layout,
      detail::CostModel(layout.tables, layout.features, layout.feature_table, cluster, workload),
      traffic);
}

}}  // namespace tessera::v0
