// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/planner/plan_layout.hpp>
#include <tessera/planner/plan_rounds.hpp>
#include <tessera/sharding/plan.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

// Further arguments of AutoPlan, in any order, besides Features<...>.

/// Cuts a table in this way. Parts: columns of column_wise and grid, rows that hot_rows copies; 0
/// leaves them open. Rank: of table_wise, -1 leaves it open.
template <FixedString Table, Cut How, int Parts = 0, int Rank = -1>
struct Pin {
  static_assert(How != Cut::own, "Pin: write PinTo<table, policy> for a policy of your own");
  static constexpr auto table = Table;
  static constexpr void apply(detail::PlanConstraints& c) {
    c.pins.push_back({table.view(), How, Parts, Rank});
  }
};
/// No table without a pin is cut in these ways.
template <Cut... Cuts>
struct Forbid {
  static constexpr void apply(detail::PlanConstraints& c) { (c.forbidden.push_back(Cuts), ...); }
};
/// Cuts a table by a policy of the user's, without tables: `PinTo<"query",
/// HotRowsReplicated<1000>>`. Explanations use `Name`.
template <FixedString Table, class Policy, FixedString Name = "own policy">
struct PinTo {
  static constexpr void apply(detail::PlanConstraints& c) {
    c.pins.push_back(
        {.table = Table.view(), .cut = Cut::own, .policy = planned_policy<Policy>(Name.view())});
  }
};
/// Lets the planner cut any table by a policy of the user's, if that is faster.
template <class Policy, FixedString Name = "own policy">
struct Consider {
  static constexpr void apply(detail::PlanConstraints& c) {
    c.policies.push_back(planned_policy<Policy>(Name.view()));
  }
};
/// Bytes of every rank that tables may not use: activations, dense layers, other programs.
template <std::int64_t Bytes>
struct Reserve {
  static constexpr void apply(detail::PlanConstraints& c) { c.reserve = Bytes; }
};
/// No rank holds more than so many hundredths of an even share of tables and state, where a plan
/// can do so: 105 allows 5 % more.
template <int Percent>
struct BalanceMemory {
  static constexpr void apply(detail::PlanConstraints& c) { c.memory_share = Percent / 100.0; }
};

namespace detail {

template <class T>
concept PlanConstraint = requires(PlanConstraints& c) { T::apply(c); };

/// Train<O, Tables...>, Frozen<Tables...>: what their tables cost.
template <class T>
concept TrainedPlanTables = requires(std::string_view table) {
  typename T::optimizer;
  T::all_others;
  T::names(table);
};

}  // namespace detail

/// A plan that the compiler chooses: `AutoPlan<TableList<Query, User>, dgx_a100(8), Workload{.batch
/// = 65536}>` goes wherever `Plan<...>` does. Constraints: Pin, PinTo, Consider, Forbid, Reserve,
/// BalanceMemory; Features<...> as in a Plan; training groups, whose optimizers' states tables
/// keep. For the cluster's ranks the plan is part of the program; for other ranks, or rows given at
/// run time, the same functions choose when the collection is constructed. RowWise<Interleaved> and
/// HotRows are chosen where they are pinned or considered.
///
///     using P = AutoPlan<TableList<Query, User, Country>, dgx_a100(8), Workload{.batch = 65'536}>;
template <TableSource TableSet, Cluster C, Workload W, class... Arguments>
class AutoPlan {
  static_assert(((detail::PlanConstraint<Arguments> || detail::FeatureList<Arguments> ||
                  detail::TrainedPlanTables<Arguments>) &&
                 ...),
                "AutoPlan: after tables, cluster, workload come Pin, PinTo, Consider, Forbid, "
                "Reserve, BalanceMemory, training groups and one Features<...> "
                "(docs/concepts/plan.md)");
  static_assert((0 + ... + int{detail::FeatureList<Arguments>}) <= 1,
                "AutoPlan: give one Features<...> that lists all features");
  static_assert(C.ranks > 0 && C.ranks < 32768, "AutoPlan: the cluster's ranks must be 1 .. 32767");

  /// Sets what a table of a training group costs; `others`: of the group that takes all others.
  template <class Group>
  static constexpr void set_cost([[maybe_unused]] TableSpec& table, [[maybe_unused]] bool others) {
    if constexpr (detail::TrainedPlanTables<Group>) {
      if (others ? !Group::all_others : Group::names(table.name) == 0) return;
      using O = typename Group::optimizer;
      table.bytes_per_element = W.element_bytes + detail::state_bytes<O>;
      if constexpr (requires { typename Group::element; })
        table.bytes_per_element +=
            static_cast<int>(sizeof(typename Group::element)) - W.element_bytes;
      table.bytes_per_row = 4 * O::row_states;
    }
  }

 public:
  static constexpr std::size_t table_count = std::size(TableSet::specs);
  static constexpr std::array<TableSpec, table_count> tables = [] {
    std::array<TableSpec, table_count> all{};
    for (std::size_t t = 0; t < table_count; ++t) {
      all[t] = TableSet::specs[t];
      (set_cost<Arguments>(all[t], true), ...);
      (set_cost<Arguments>(all[t], false), ...);
    }
    return all;
  }();
  /// Whether rows are only known at run time: then nothing is chosen, and nothing checked, while
  /// compiling.
  static constexpr bool is_dynamic = [] {
    for (const TableSpec& table : tables)
      if (table.rows == dynamic_rows) return true;
    return false;
  }();

  /// Works the plan out like Plan::layout: at compile time and at run time; the result's `fault`
  /// says what is wrong.
  static constexpr Layout layout(const Topology& topology,
                                 std::span<const detail::TableRows> rows = {}) {
    if constexpr (!is_dynamic)
      if (rows.empty() && topology.ranks == C.ranks &&
          (topology.ranks_per_node == 0 || topology.ranks_per_node == C.ranks_per_node))
        return stored_layout();
    Cluster cluster = C;
    cluster.ranks = topology.ranks;
    if (topology.ranks_per_node != 0) cluster.ranks_per_node = topology.ranks_per_node;
    Layout start{.topology = cluster.topology(), .tables = {tables.begin(), tables.end()}};
    detail::set_rows(start, rows);
    add_features(start);
    return plan_layout(std::move(start), cluster, W, constraints());
  }

 private:
  /// Steps that both compilers' default limits allow for some 30 tables, in less than two seconds.
  static constexpr std::int64_t effort = 1500;

  static constexpr detail::PlanConstraints constraints() {
    detail::PlanConstraints c;
    c.effort = effort;
    // hundreds of rectangles cost the compiler much
    c.forbidden.push_back(Cut::interleaved), c.forbidden.push_back(Cut::hot_rows);
    [[maybe_unused]] const auto apply = [&]<class A>(std::type_identity<A>) {
      if constexpr (detail::PlanConstraint<A>) A::apply(c);
    };
    (apply(std::type_identity<Arguments>{}), ...);
    return c;
  }

  static constexpr void add_features(Layout& layout) {
    constexpr bool listed = (detail::FeatureList<Arguments> || ...);
    [[maybe_unused]] const auto append = [&]<class A>(std::type_identity<A>) {
      if constexpr (detail::FeatureList<A>)
        for (const FeatureSpec& feature : A::features) layout.features.push_back(feature);
    };
    (append(std::type_identity<Arguments>{}), ...);
    if constexpr (!listed)
      for (const TableSpec& table : layout.tables)
        layout.features.push_back({table.name, table.name, table.pooling});
    detail::resolve_features(layout, !listed);
  }

  static constexpr Layout uncut() {
    Layout layout{.topology = C.topology(), .tables = {tables.begin(), tables.end()}};
    add_features(layout);
    return layout;
  }

  static constexpr PlanFault check_names() {
    if constexpr (is_dynamic) return {};
    PlanFault fault = uncut().fault;
    const auto check = [&](PlanFault::Kind kind, std::string_view name) {
      if (std::ranges::find(tables, name, &TableSpec::name) == tables.end())
        fault = PlanFault::of(kind, name);
    };
    for (const detail::TablePin& pin : constraints().pins)
      check(PlanFault::Kind::unknown_pin, pin.table);
    [[maybe_unused]] const auto check_group = [&]<class A>(std::type_identity<A>) {
      if constexpr (detail::TrainedPlanTables<A>)
        for (const std::string_view name : A::table_names)
          check(PlanFault::Kind::unknown_in_group, name);
    };
    (check_group(std::type_identity<Arguments>{}), ...);
    return fault.ok() ? detail::check_policies(uncut(), constraints()) : fault;
  }
  static_assert(SoundPlan<check_names()>::value);

  static constexpr std::size_t max_parts = [] {
    int most = 1;
    for (const TableSpec& table : tables) {
      most = std::max(most, std::min<int>(C.ranks, table.width));
      if (table.rows == dynamic_rows) continue;
      const detail::PlanConstraints all = constraints();
      for (const detail::PlannedPolicy& policy : all.policies)
        most = std::max(most, policy.count(table, C.topology()));
      for (const detail::TablePin& pin : all.pins)
        if (pin.policy.given() && pin.table == table.name)
          most = std::max(most, pin.policy.count(table, C.topology()));
    }
    return static_cast<std::size_t>(most);
  }();

  using Stored = detail::StoredPlan<table_count, max_parts>;

  // ---- large models: in rounds, each a constant evaluation of its own ----

  static constexpr bool in_rounds = !is_dynamic && table_count > detail::tables_at_once;
  static constexpr std::size_t per_round = detail::round_size(C.ranks);
  template <bool>  // of large models alone
  static constexpr auto round_model = [] {
    constexpr std::size_t features = uncut().features.size();
    detail::RoundModel<std::array<TableSpec, table_count>, std::array<FeatureSpec, features>,
                       std::array<int, std::max(features, table_count)>>
        model{.tables = tables};
    const Layout layout = uncut();
    for (std::size_t f = 0; f < features; ++f) {
      model.features[f] = layout.features[f];
      model.feature_table[f] = layout.feature_table[f];
    }
    model.sort(W.memory);
    return model;
  }();
  template <bool Lean, class Use>
  static constexpr auto with_round(std::size_t round, Use use) {
    return round_model<true>.with_planner(
        round, C, W, detail::round_constraints(constraints(), C.ranks, Lean), use);
  }
  template <std::size_t Round, bool Lean>
  static constexpr detail::RoundShare round_share =
      with_round<Lean>(Round, [](const detail::Planner& planner) { return planner.share(); });
  template <bool Lean>
  static constexpr detail::RoundShare all_rounds = []<std::size_t... I>(std::index_sequence<I...>) {
    detail::RoundShare all;
    (all.add(round_share<I, Lean>), ...);
    return all;
  }(std::make_index_sequence<round_model<true>.rounds(C.ranks)>());
  template <std::size_t Round, bool Lean>
  struct PlanRound {
    using Before = PlanRound<Round - 1, Lean>;
    static constexpr double bytes_later = [] {
      double bytes = all_rounds<Lean>.bytes;
      if constexpr (Round > 0) bytes = Before::bytes_later;
      return bytes - round_share<Round, Lean>.bytes;
    }();
    static constexpr auto stored = [] {
      detail::StoredRound<per_round, max_parts, static_cast<std::size_t>(C.ranks)> kept;
      detail::PlacedBefore before;
      if constexpr (Round > 0) before = Before::stored.placed();
      before.level = all_rounds<Lean>.load;
      const detail::PlanChoice choice = with_round<Lean>(Round, [&](detail::Planner& planner) {
        detail::PlacedBefore after;
        detail::PlanChoice found =
            planner.search_beside(before, all_rounds<Lean>, bytes_later, after);
        kept.keep(after);
        return found;
      });
      for (std::size_t k = 0; k < choice.tables.size(); ++k) kept.plan.keep(k, choice.tables[k]);
      kept.plan.fits = choice.fits;
      return kept;
    }();
  };
  template <bool Lean>
  static constexpr Stored chosen_in_rounds = []<std::size_t... I>(std::index_sequence<I...>) {
    Stored stored;
    const auto add = [&](std::size_t i, const auto& some) {
      for (std::size_t k = 0; k < per_round && i * per_round + k < table_count; ++k)
        stored.keep(static_cast<std::size_t>(round_model<true>.order[i * per_round + k]), some, k);
      stored.fits = some.fits;
    };
    (add(I, PlanRound<I, Lean>::stored.plan), ...);
    return stored;
  }(std::make_index_sequence<round_model<true>.rounds(C.ranks)>());

  static constexpr Stored chosen = [] {
    if constexpr (in_rounds) {
      if constexpr (chosen_in_rounds<false>.fits)
        return chosen_in_rounds<false>;
      else
        return chosen_in_rounds<true>;
    } else {
      Stored stored;
      if constexpr (!is_dynamic) {
        const Layout layout = uncut();
        const detail::CostModel model(layout.tables, layout.features, layout.feature_table, C, W);
        const detail::PlanConstraints limits = constraints();
        const detail::PlanChoice choice = detail::Planner(layout, model, limits).search();
        stored.fits = choice.fits;
        for (std::size_t t = 0; t < choice.tables.size(); ++t) stored.keep(t, choice.tables[t]);
      }
      return stored;
    }
  }();

  static constexpr PlanFault check_fit() {
    return chosen.fits ? PlanFault{} : detail::explain_no_fit(uncut(), C, W, constraints());
  }
  static_assert(SoundPlan<check_fit()>::value);

  static constexpr Layout stored_layout() {
    Layout layout = uncut();
    layout.shards = shards_of(chosen.choice(), layout);
    return layout;
  }

  static constexpr std::vector<int> shard_widths() {
    std::vector<int> found;
    if constexpr (is_dynamic) {
      for (const TableSpec& table : tables) add_width(found, table.width);
    } else {
      for (std::size_t i = 0; i < table_count; ++i) {
        const detail::TableCut cut{
            .cut = chosen.cuts[i], .parts = chosen.parts[i], .policy = chosen.policies[i]};
        const int shards = detail::shard_count(cut, tables[i], C.topology());
        for (int k = 0; k < shards; ++k)
          if (const Rectangle r = detail::shard_request(cut, tables[i], C.topology(), k).rectangle;
              !r.empty())
            add_width(found, r.width());
      }
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  static constexpr void add_width(std::vector<int>& widths, int width) {
    if (std::find(widths.begin(), widths.end(), width) == widths.end()) widths.push_back(width);
  }

  static constexpr std::size_t width_count() { return shard_widths().size(); }

 public:
  /// See Plan::feature_shape.
  static constexpr detail::FeatureShape feature_shape = detail::shape_of_features(uncut());
  /// See Plan::keeps_rows.
  static constexpr bool keeps_rows = tessera::detail::keeps_rows(uncut());

  /// Whether a rectangle may have a copy on every rank, on any number of ranks.
  static constexpr bool replicates = constraints().allows(Cut::replicated) || [] {
    for (const detail::TablePin& pin : constraints().pins)
      if (pin.cut == Cut::replicated || pin.cut == Cut::hot_rows || pin.cut == Cut::own)
        return true;
    return !constraints().policies.empty();
  }();

  /// Whether ids and vectors pass between ranks: what is chosen for other numbers of ranks may need
  /// it.
  static constexpr bool exchanges = true;

  /// Distinct shard widths of the chosen plan; see Plan::widths.
  static constexpr auto widths = [] {
    std::array<int, width_count()> result{};
    const std::vector<int> found = shard_widths();
    for (std::size_t i = 0; i < result.size(); ++i) result[i] = found[i];
    return result;
  }();
};

}}  // namespace tessera::v0
