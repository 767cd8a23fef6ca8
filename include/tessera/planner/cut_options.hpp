// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/planner/cost.hpp>
#include <tessera/planner/strategies.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// Cuts one table in a given way; the planner chooses what is left open.
struct TablePin {
  std::string_view table;
  Cut cut = Cut::table_wise;
  int parts = 0;           ///< columns of column_wise and grid, rows of hot_rows; 0: open
  int rank = -1;           ///< of table_wise; negative: open
  PlannedPolicy policy{};  ///< of Cut::own
};

/// What a planner must respect.
struct PlanConstraints {
  std::vector<TablePin> pins{};
  std::vector<Cut> forbidden{};  ///< for tables without a pin
  /// the user's, which any table without a pin may be cut by
  std::vector<PlannedPolicy> policies{};
  std::int64_t reserve = 0;  ///< bytes of each rank that tables may not use
  /// a step counts as longer by this times the fullest rank's bytes beyond 1.05 even shares, over
  /// the bytes of a rank's memory; 0: memory need not be level
  double memory_balance = 1;
  /// no rank holds more even shares than this, if a plan can do so; 0: no such limit
  double memory_share = 0;
  std::int64_t effort = 240'000'000;  ///< places tried before the search ends

  /// Returns the last pin of a table; null if there is none.
  constexpr const TablePin* pin_of(std::string_view table) const {
    const TablePin* found = nullptr;
    for (const TablePin& pin : pins)
      if (pin.table == table) found = &pin;
    return found;
  }
  constexpr bool allows(Cut cut) const {
    return std::find(forbidden.begin(), forbidden.end(), cut) == forbidden.end();
  }
};

/// Seconds of a rank in each of the stages that wait for the slowest.
struct StageLoad {
  double route = 0, lookup = 0, exchange = 0, assemble = 0, update = 0;

  constexpr StageLoad() = default;
  /// Takes the load of a rectangle's own rank: what it is spared is less than nothing.
  constexpr explicit StageLoad(const ShardCost& c)
      : route(c.route + c.fetch - c.spared_ask),
        lookup(c.lookup),
        exchange(2 * c.exchange),
        assemble(-c.spared),
        update(c.update) {}
  constexpr explicit StageLoad(const StageTimes& s)
      : route(s.route),
        lookup(s.lookup),
        exchange(s.exchange + s.exchange_gradients),
        assemble(s.assemble),
        update(s.update) {}
  constexpr void add(const StageLoad& other, double times = 1) {
    route += times * other.route, lookup += times * other.lookup,
        exchange += times * other.exchange, assemble += times * other.assemble,
        update += times * other.update;
  }
  constexpr void raise(const StageLoad& other) {
    route = std::max(route, other.route), lookup = std::max(lookup, other.lookup),
    exchange = std::max(exchange, other.exchange), assemble = std::max(assemble, other.assemble),
    update = std::max(update, other.update);
  }
  constexpr double total() const { return route + lookup + exchange + assemble + update; }
  /// Returns by how much the stages of `most` grow with `more` added to this.
  constexpr double growth(const StageLoad& more, const StageLoad& most) const {
    return std::max(0.0, route + more.route - most.route) +
           std::max(0.0, lookup + more.lookup - most.lookup) +
           std::max(0.0, exchange + more.exchange - most.exchange) +
           std::max(0.0, update + more.update - most.update);
  }
};

/// What the first of several pays for all: calls for rectangles of one width; `width` 0: the
/// exchange of copies' gradients.
struct Fee {
  int width = 0;
  constexpr bool operator==(const Fee&) const = default;
};

/// What one rectangle costs on its rank, and where the policy wants it.
struct PartCost {
  StageLoad load{};
  double seconds = 0;
  std::int64_t bytes = 0;        // whatever the memory
  std::int64_t cache_bytes = 0;  // on the device
  Tier tier = Tier::device;
  Place place{};

  constexpr std::int64_t bytes_in(Tier memory) const {
    return memory == tier ? bytes : memory == Tier::device ? cache_bytes : 0;
  }
  constexpr double device_bytes() const { return static_cast<double>(bytes_in(Tier::device)); }
  /// Adds what is in the same place.
  constexpr void add(const PartCost& other) {
    load.add(other.load);
    seconds += other.seconds;
    bytes += other.bytes;
    cache_bytes += other.cache_bytes;
  }
};

/// One way to cut a table, and what it costs.
struct CutOption {
  StageLoad load{};  // of one part, on its rank; of a grid, on each rank of its node
  Cut cut = Cut::table_wise;
  int parts = 1;
  double seconds = 0;      // its sum
  double shared = 0;       // on every rank
  std::int64_t bytes = 0;  // of one part
  std::int64_t cache_bytes = 0;
  double total = 0;  // over all ranks
  int rank = -1;     // pinned
  Tier tier = Tier::device;
  std::int64_t cache_rows = 0;     // of a part that is not in the device's memory
  PlannedPolicy policy{};          // of Cut::own
  std::vector<PartCost> pieces{};  // where parts differ: each; `seconds`, `bytes`: the largest
  StageLoad base{};                // on every rank
  std::vector<Fee> fees{};
  int rectangles = 1;
  double spared = 0;  // at most, of `base`

  constexpr PartCost part() const {
    return {
        .load = load, .seconds = seconds, .bytes = bytes, .cache_bytes = cache_bytes, .tier = tier};
  }
};

/// Returns what a table costs in rectangles that differ: those of `cut`, each by itself.
constexpr CutOption option_of_pieces(const Layout& layout, int t, const CostModel& model,
                                     const TableCut& cut) {
  const TableSpec& table = layout.tables[t];
  const int ranks = layout.ranks(), count = shard_count(cut, table, layout.topology);
  CutOption o{.cut = cut.cut,
              .parts = cut.parts,
              .tier = cut.tier,
              .cache_rows = cut.cache_rows,
              .policy = cut.policy,
              .rectangles = 0};
  for (int i = 0; i < count; ++i) {
    const ShardRequest request = shard_request(cut, table, layout.topology, i);
    if (request.rectangle.empty()) continue;
    const bool everywhere = request.place.kind == Place::Kind::every;
    const ShardCost cost =
        model.cost(t, request.rectangle, everywhere, request.tier, request.cache_rows);
    const Shard shard{t, request.rectangle, 0, request.tier, request.cache_rows};
    PartCost piece{.load = StageLoad(cost),
                   .seconds = cost.seconds(),
                   .bytes = model.memory(t).of(request.rectangle),
                   .cache_bytes = request.tier == Tier::device
                                      ? 0
                                      : bytes_in(shard, model.memory(t), Tier::device),
                   .tier = request.tier,
                   .place = request.place};
    ++o.rectangles;
    // what one rank has anyway is one part
    const auto with = std::find_if(o.pieces.begin(), o.pieces.end(), [&](const PartCost& other) {
      return other.place.kind == Place::Kind::rank && piece.place.kind == Place::Kind::rank &&
             other.place.index == piece.place.index && other.tier == piece.tier;
    });
    if (with == o.pieces.end())
      o.pieces.push_back(piece);
    else
      with->add(piece);
    const Fee fee{request.rectangle.width()};
    if (std::find(o.fees.begin(), o.fees.end(), fee) == o.fees.end()) o.fees.push_back(fee);
    if (everywhere && std::find(o.fees.begin(), o.fees.end(), Fee{}) == o.fees.end())
      o.fees.push_back(Fee{});
    o.base.route += cost.ask;
    o.base.assemble += cost.assemble;
    if (everywhere) o.base.add(StageLoad(cost));
    o.spared += cost.spared_seconds();
    const double shared = cost.shared_seconds() - cost.spared_seconds() / ranks;
    o.shared += shared;
    o.total += (everywhere ? cost.seconds() * ranks : cost.seconds()) + shared * ranks;
  }
  for (const PartCost& piece : o.pieces) {
    o.seconds = std::max(o.seconds, piece.seconds);
    o.bytes = std::max(o.bytes, piece.bytes);
    o.cache_bytes = std::max(o.cache_bytes, piece.cache_bytes);
  }
  return o;
}

/// Returns an option of a table's cut. `behind`: rows of the tier host are behind a cache; those of
/// files always are.
constexpr CutOption cut_option(const Layout& layout, int t, const CostModel& model, Cut cut,
                               int parts, int rank = -1, Tier tier = Tier::device,
                               bool behind = false) {
  const TableSpec& table = layout.tables[t];
  const int all = layout.ranks();
  const int blocks = cut == Cut::row_wise ? all
                     : cut == Cut::grid   ? layout.topology.node_size()
                                          : 1;
  const Rectangle part{0, even_cut(table.rows, blocks, 1), 0,
                       cut == Cut::hot_rows ? table.width : table.width / parts};
  const std::int64_t cached = behind || tier == Tier::file ? model.cache_rows(t, part) : 0;
  // frequent rows come first
  if (cut == Cut::interleaved || cut == Cut::hot_rows ||
      ((cut == Cut::row_wise || cut == Cut::grid) && model.workload().sorted_ids))
    return option_of_pieces(layout, t, model,
                            {.cut = cut, .parts = parts, .tier = tier, .cache_rows = cached});
  const ShardCost cost = model.cost(t, part, cut == Cut::replicated, tier, cached);
  CutOption o{.load = StageLoad(cost),
              .cut = cut,
              .parts = parts,
              .seconds = cost.seconds(),
              .bytes = model.memory(t).of(part),
              .cache_bytes = cached == 0 ? 0
                                         : bytes_in(Shard{t, part, 0, tier, cached},
                                                    model.memory(t), Tier::device),
              .rank = rank,
              .tier = tier,
              .cache_rows = cached};
  const double count = static_cast<double>(parts) * blocks, ranks = all;
  // of its own rank, which is anyone
  o.shared = (cost.shared_seconds() - cost.spared_seconds() / ranks) * count;
  o.total = (cut == Cut::replicated ? o.seconds * ranks : o.seconds * count) + o.shared * ranks;
  o.base.route = cost.ask * count;
  o.base.assemble = cost.assemble * count;
  if (cut == Cut::replicated || cut == Cut::row_wise) o.base.add(o.load);
  o.spared = cost.spared_seconds() * parts;
  o.fees.push_back({part.width()});
  if (cut == Cut::replicated) o.fees.push_back({});
  o.rectangles = parts * blocks;
  return o;
}

/// Appends the ways in which table `t` may be cut.
constexpr void append_cut_options(const Layout& layout, int t, const CostModel& model,
                                  const PlanConstraints& constraints,
                                  std::vector<CutOption>& options) {
  const TableSpec& table = layout.tables[t];
  const std::size_t first = options.size();
  const int all = layout.ranks();
  const auto add = [&](Cut cut, int parts, int rank = -1) {
    options.push_back(cut_option(layout, t, model, cut, parts, rank));
    // many caches of one size fit few of their blocks
    if (cut == Cut::interleaved || cut == Cut::hot_rows) return;
    for (const Tier tier : {Tier::host, Tier::file})
      for (const bool behind : {false, true})
        if (memory_of(model.cluster(), tier) > 0 && behind <= (tier == Tier::host)) {
          options.push_back(cut_option(layout, t, model, cut, parts, rank, tier, behind));
          if (behind && options.back().cache_bytes >= options.back().bytes) options.pop_back();
        }
  };
  const TablePin* pin = constraints.pin_of(table.name);
  const auto wanted = [&](Cut cut) {
    return pin != nullptr ? pin->cut == cut : constraints.allows(cut);
  };
  const int parts = pin != nullptr ? pin->parts : 0, nodes = layout.topology.nodes(),
            size = layout.topology.node_size();
  const bool even_nodes = all % size == 0;
  if (wanted(Cut::table_wise))
    add(Cut::table_wise, 1, pin != nullptr && pin->rank >= 0 ? pin->rank % all : -1);
  if (all > 1 && wanted(Cut::replicated)) add(Cut::replicated, 1);
  // small parts too if only such are wanted
  for (const bool small : {false, true}) {
    if (small && first < options.size()) break;
    const auto worth = [&](int columns, int blocks) {
      return small || worth_cutting(table, columns, blocks);
    };
    if (all > 1 && wanted(Cut::row_wise) &&
        (pin != nullptr || (table.rows >= all && worth(1, all))))
      add(Cut::row_wise, 1);
    // frequent rows are known, and each block has many ids: its own cost was measured as that of
    // some hundred
    constexpr double least_ids = 2048;
    const int dealt = RowWise<Interleaved>::count(table, layout.topology);
    if (all > 1 && wanted(Cut::interleaved) &&
        (pin != nullptr || (model.workload().sorted_ids && model.uneven(t) && worth(1, dealt) &&
                            model.ids_of(t) >= least_ids * dealt)))
      add(Cut::interleaved, 1);
    if (all > 1 && table.rows > 1 && wanted(Cut::hot_rows)) {
      int last = 0;
      // rows of which each rank has so many ids, or as many as a pin says
      for (const double ids : {8.0, 2.0, 0.5}) {
        const auto most = static_cast<double>(std::min<std::int64_t>(table.rows / 2, 1 << 30));
        const int hot =
            parts != 0
                ? parts
                : static_cast<int>(std::clamp(model.rows_asked_for(t, ids * all), 1.0, most));
        const int blocks = HotAndDealtRows{hot}.count(table, layout.topology);
        if (hot != last &&
            (pin != nullptr || (model.workload().sorted_ids && model.uneven(t) &&
                                worth(1, blocks) && model.ids_of(t) >= least_ids * blocks)))
          add(Cut::hot_rows, hot);
        last = hot;
      }
    }
    for (int k = 1; k <= all && k <= table.width; ++k) {
      if (table.width % k != 0 || (parts != 0 && k != parts)) continue;
      if (k > 1 && wanted(Cut::column_wise) && (parts != 0 || worth(k, 1)))
        add(Cut::column_wise, k);
      // on nodes of one rank it would be column-wise by another name
      if (nodes > 1 && (size > 1 || pin != nullptr) && even_nodes && k <= nodes &&
          table.rows >= size && wanted(Cut::grid) && (parts != 0 || worth(k, size)))
        add(Cut::grid, k);
    }
  }
  if (pin != nullptr && pin->cut == Cut::own)
    options.push_back(option_of_pieces(layout, t, model, {.cut = Cut::own, .policy = pin->policy}));
  if (pin == nullptr && constraints.allows(Cut::own))
    for (const PlannedPolicy& policy : constraints.policies)
      options.push_back(option_of_pieces(layout, t, model, {.cut = Cut::own, .policy = policy}));
  // Too few ranks for what was pinned or left over: the table stays whole.
  if (first == options.size()) add(Cut::table_wise, 1);
}

/// Returns a strategy's plan under constraints: pinned tables are cut as in `planned`. No tables:
/// it cuts some other table in a way that is forbidden.
constexpr PlanChoice plain_choice(Strategy strategy, const Layout& layout,
                                  const PlanConstraints& constraints, const PlanChoice& planned) {
  PlanChoice choice = strategy_choice(strategy, layout);
  for (std::size_t t = 0; t < choice.tables.size(); ++t) {
    if (constraints.pin_of(layout.tables[t].name) != nullptr)
      choice.tables[t] = planned.tables[t];
    else if (!constraints.allows(choice.tables[t].cut))
      return {};
  }
  return choice;
}

}}}  // namespace tessera::v0::detail
