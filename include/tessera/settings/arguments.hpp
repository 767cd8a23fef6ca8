// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// first, for short errors: a compiler prints how it came to a header first
#include <tessera/concepts/backend.hpp>
#include <tessera/concepts/codec.hpp>
#include <tessera/concepts/communicator.hpp>
#include <tessera/concepts/optimizer.hpp>

#include <tessera/optimizer/optimizers.hpp>
#include <tessera/settings/options.hpp>
#include <tessera/settings/policies.hpp>
#include <tessera/sharding/sound_plan.hpp>
#include <tessera/tables/training_groups.hpp>
#include <tessera/tables/widths.hpp>

#include <array>
#include <cstddef>
#include <string_view>
#include <type_traits>

namespace tessera { inline namespace v0 {

namespace detail {
template <class T>
inline constexpr bool is_training = is_training_group<T> || Optimizer<T>;
template <class T>
inline constexpr bool is_communicator = HasRank<T> && HasSize<T>;

/// Refuses the first argument of a LayoutCollection that is in another's place.
template <class WidthList, class O, class B, class Comm>
struct LayoutArguments {
  static constexpr bool first = requires { WidthList::has(1); },
                        second = !first || !(Backend<O> || is_communicator<O>),
                        third = !first || !second || !(is_training<B> || is_communicator<B>),
                        fourth = !first || !second || !third || is_communicator<Comm>,
                        in_order = first && second && third && fourth;
  static_assert(first,
                "LayoutCollection: the first argument must be Widths<...>; the arguments are "
                "Widths, Optimizer, Backend, Communicator, in this order");
  static_assert(second,
                "LayoutCollection: behind the widths comes the optimizer, or TrainingGroups<...>; "
                "the arguments are Widths, Optimizer, Backend, Communicator, in this order");
  static_assert(third,
                "LayoutCollection: behind the optimizer comes the backend; the arguments are "
                "Widths, Optimizer, Backend, Communicator, in this order");
  static_assert(fourth,
                "LayoutCollection: behind the backend comes the communicator; the arguments are "
                "Widths, Optimizer, Backend, Communicator, in this order");
};
}  // namespace detail

template <class WidthList, class O, class Backend, class Comm, class... Policies>
  requires(detail::LayoutArguments<WidthList, O, Backend, Comm>::in_order &&
           detail::OptimizerOrGroups<O>)
class LayoutCollection;

namespace detail {

/// Takes the place of a collection whose arguments are refused.
struct NoCollection {
  struct Options {};
  void set_learning_rate(float) {}
};
/// Takes the place of its plan.
struct NoPlan {
  static constexpr std::array<TableSpec, 0> tables{};
  static constexpr bool replicates = false, exchanges = false;
};

template <class PlanT, class O, class B, class Comm, class... Policies>
struct CollectionOf;

/// The arguments of a collection behind its plan. Groups go without their tables into the types of
/// what is below: there a table's group is a number, so that plans share code, and nvcc writes no
/// table's name into that of a kernel, which g++ would refuse.
template <class O, class B, class Comm, class... Policies>
struct SortedArguments {
  using training = O;
  using groups = void;
  using backend = B;
  using communicator = Comm;
  using policies = CheckedPolicies<Policies...>;
  template <class PlanT>
  using collection = CollectionOf<PlanT, O, B, Comm, Policies...>;
};

/// Training groups side by side become one argument.
template <class... Groups>
struct GroupPack {};
template <bool NextIsGroup, class Groups, class... Arguments>
struct GatheredGroups {
  static_assert(sizeof...(Arguments) < 0,
                "EmbeddingCollection: behind the training groups come Backend and Communicator");
};
template <class... Groups, class Group, class Next, class... Rest>
struct GatheredGroups<true, GroupPack<Groups...>, Group, Next, Rest...>
    : GatheredGroups<is_training_group<Next>, GroupPack<Groups..., Group>, Next, Rest...> {};
template <class... Groups, class B, class Comm, class... Policies>
struct GatheredGroups<false, GroupPack<Groups...>, B, Comm, Policies...>
    : SortedArguments<TrainingGroups<typename Groups::without_tables...>, B, Comm, Policies...> {
  using groups = GroupPack<Groups...>;
};

template <bool HasGroups, class... Arguments>
struct ArgumentsBehindPlan : GatheredGroups<true, GroupPack<>, Arguments...> {};
template <class... Arguments>
struct ArgumentsBehindPlan<false, Arguments...> : SortedArguments<Arguments...> {};

template <class O, class... Rest>
using CollectionArguments = ArgumentsBehindPlan<is_training_group<O>, O, Rest...>;

template <class O>
struct ExplainedTraining {
  static consteval bool value() { return explain_optimizer<O>(); }
};
template <class... Groups>
struct ExplainedTraining<TrainingGroups<Groups...>> {
  static consteval bool value() { return (explain_optimizer<typename Groups::optimizer>() && ...); }
};

/// Each table's training group, and what is wrong with them.
template <class PlanT, class NoGroups>
struct GroupsOfPlan {
  static constexpr PlanFault fault{};
  static constexpr int of(std::string_view) { return 0; }
  template <class Optimizer>
  static void fill(Optimizer&) {}
};
template <class PlanT, class... Groups>
struct GroupsOfPlan<PlanT, GroupPack<Groups...>> {
  static constexpr int others = (0 + ... + Groups::all_others);
  static constexpr PlanFault fault = [] {
    PlanFault found;
    for (const TableSpec& table : PlanT::tables) {
      const int named = (0 + ... + Groups::names(table.name));
      if (named > 1 || (named == 0 && others > 1))
        found = PlanFault::of(PlanFault::Kind::two_groups, table.name);
      else if (named + others == 0)
        found = PlanFault::of(PlanFault::Kind::no_group, table.name);
    }
    const auto check = [&](const auto& names) {
      for (const std::string_view name : names) {
        bool known = false;
        for (const TableSpec& table : PlanT::tables) known = known || table.name == name;
        if (!known) found = PlanFault::of(PlanFault::Kind::unknown_in_group, name);
      }
    };
    (check(Groups::table_names), ...);
    return found;
  }();

  /// Returns a table's group, if there is no fault.
  static constexpr int of(std::string_view table) {
    int group = 0, others_at = 0, at = -1;
    const auto next = [&](bool names, bool all_others) {
      if (names) at = group;
      if (all_others) others_at = group;
      ++group;
    };
    (next(Groups::names(table) != 0, Groups::all_others), ...);
    return at < 0 ? others_at : at;
  }
  template <class Group>
  static constexpr std::size_t index_of() {
    std::size_t index = 0;
    static_cast<void>(((std::is_same_v<Group, Groups> || (++index, false)) || ...));
    return index;
  }
  template <class Trained>
  static void fill(Trained& training) {
    training.group_of_table.clear();
    for (const TableSpec& table : PlanT::tables) training.group_of_table.push_back(of(table.name));
  }
};

template <class T>
inline constexpr bool is_plan = requires { T::widths.size(); };
/// Explains an optimizer or a backend that is none, one error for each member that is missing,
/// before anything is made of it; Sgd takes the place of the optimizer, so that the compiler has
/// nothing to add.
template <bool InOrder, class PlanT, class O, class B, class Comm, class... Policies>
auto make_collection() {
  if constexpr (!InOrder)
    return std::type_identity<NoCollection>{};
  else if constexpr (!explain_backend<B>())
    return std::type_identity<NoCollection>{};
  else
    return std::type_identity<LayoutCollection<
        typename WidthsOf<PlanT>::type, std::conditional_t<ExplainedTraining<O>::value(), O, Sgd>,
        B, Comm, Policies...>>{};
}

/// What EmbeddingCollection is made of. The first argument in another's place is
/// refused, and nothing is made.
template <class PlanT, class O, class B, class Comm, class... Policies>
struct CollectionOf {
  static constexpr bool first = is_plan<PlanT>,
                        second = !first || !(is_plan<O> || Backend<O> || is_communicator<O>),
                        third = !first || !second ||
                                !(is_plan<B> || is_training<B> || is_communicator<B>),
                        fourth = !first || !second || !third || is_communicator<Comm>,
                        in_order = first && second && third && fourth;
  // codecs that are none are explained from here
  static_assert((true && ... && (sizeof(Policies) > 0)));
  static_assert(first,
                "EmbeddingCollection: the first argument must be a Plan<...> or AutoPlan<...>; the "
                "arguments are Plan, Optimizer, Backend, Communicator, in this order");
  static_assert(second,
                "EmbeddingCollection: behind the plan comes the optimizer, or training groups; the "
                "arguments are Plan, Optimizer, Backend, Communicator, in this order");
  static_assert(third,
                "EmbeddingCollection: behind the optimizer comes the backend; the arguments are "
                "Plan, Optimizer, Backend, Communicator, in this order");
  static_assert(fourth,
                "EmbeddingCollection: behind the backend comes the communicator, with int rank() "
                "const and int size() const; the arguments are Plan, Optimizer, Backend, "
                "Communicator, in this order");
  using type = typename decltype(make_collection<in_order, PlanT, O, B, Comm, Policies...>())::type;
  using plan = std::conditional_t<in_order, PlanT, NoPlan>;
};

}  // namespace detail
}}  // namespace tessera::v0
