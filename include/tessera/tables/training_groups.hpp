// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/optimizer.hpp>
#include <tessera/config.hpp>
#include <tessera/op/step_counter.hpp>
#include <tessera/op/update.hpp>
#include <tessera/sharding/table.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

namespace detail {

template <TableSource... Tables>
constexpr auto names_of_tables() {
  std::array<std::string_view, (std::size_t{0} + ... + table_count<Tables>)> names{};
  std::size_t n = 0;
  [[maybe_unused]] const auto append = [&](const auto& specs) {
    for (const TableSpec& spec : specs) names[n++] = spec.name;
  };
  (append(Tables::specs), ...);
  return names;
}

template <class... Tables>
struct GroupTables {
  static constexpr auto table_names = names_of_tables<Tables...>();
  /// All tables that no other group names.
  static constexpr bool all_others = sizeof...(Tables) == 0;
  static constexpr int names(std::string_view table) {
    int times = 0;
    for (const std::string_view name : table_names) times += name == table;
    return times;
  }
};

template <class P>
concept StoragePolicy = requires { typename P::element; };
template <class P>
concept InitializerPolicy = requires { typename P::initializer; };

/// Bases that differ even if a policy is given twice.
template <std::size_t, class Policy>
struct ListedPolicy : Policy {};
template <class Indices, class... Policies>
struct ListedPolicies;
template <std::size_t... I, class... Policies>
struct ListedPolicies<std::index_sequence<I...>, Policies...> : ListedPolicy<I, Policies>... {};

/// A training group with policies of its own, one of a kind, in place of the collection's:
/// InitializeWith<F> or Storage<T>.
template <class Group, class... Policies>
struct GroupWith : Group, ListedPolicies<std::index_sequence_for<Policies...>, Policies...> {
  using without_tables = GroupWith<typename Group::without_tables, Policies...>;
  static_assert(((InitializerPolicy<Policies> || StoragePolicy<Policies>) && ...),
                "a training group's own policies are InitializeWith<F> and Storage<T>; all others "
                "are the collection's");
  static_assert((0 + ... + InitializerPolicy<Policies>) <= 1 &&
                    (0 + ... + StoragePolicy<Policies>) <= 1,
                "a training group has two policies of one kind; give one InitializeWith<F>, one "
                "Storage<T>");
};

}  // namespace detail

/// A training group: tables that share an optimizer, its constants and its learning rate. `Tables`:
/// Table, Fused or Tables<...>, as in the plan; none: all tables that no other group names.
///
///     using E = EmbeddingCollection<MyPlan, Train<Ftrl, Country>, Train<RowWiseAdagrad>, Host,
///                                   Comm>;
template <class O, class... Tables>
struct Train : detail::GroupTables<Tables...> {
  using optimizer = O;
  using without_tables = Train<O>;
  /// The same with policies of its own: `Train<Sgd, Text>::with<InitializeWith<Uniform>>`.
  template <class... Policies>
  using with = detail::GroupWith<Train, Policies...>;
  static constexpr bool trains = true;
};

namespace detail {

/// Takes the place of an optimizer where rows never change.
struct NoUpdate {
  static constexpr int element_states = 0, row_states = 0;
  static constexpr bool needs_mean_square = false;
  static constexpr std::array<std::string_view, 0> state_names{};

  struct Step {
    struct Row {};
    TESSERA_HOST_DEVICE Row row(float*, float) const { return {}; }
    TESSERA_HOST_DEVICE float element(float weight, float, float*, const Row&) const {
      return weight;
    }
  };
  constexpr float initial_state(int) const { return 0; }
  TESSERA_HOST_DEVICE constexpr Step at(float, std::int64_t) const { return {}; }
};
static_assert(Optimizer<NoUpdate>);

}  // namespace detail

/// A group of tables that are looked up and never change: no optimizer state, no update; gradients
/// of their vectors are not sent, but for those of features with per-id weights.
///
///     using E = EmbeddingCollection<MyPlan, Train<Adam>, Frozen<Country>, Host, Comm>;
template <class... Tables>
struct Frozen : detail::GroupTables<Tables...> {
  using optimizer = detail::NoUpdate;
  using without_tables = Frozen<>;
  template <class... Policies>
  using with = detail::GroupWith<Frozen, Policies...>;
  static constexpr bool trains = false;
};

namespace detail {

/// The first values that a group names for itself; void: none.
template <class Group>
struct InitializerOfGroup {
  using type = void;
};
template <InitializerPolicy Group>
struct InitializerOfGroup<Group> {
  using type = typename Group::initializer;
};
template <class Group>
using OwnInitializer = typename InitializerOfGroup<Group>::type;
struct NoInitializer {};

/// The element type that a group names for itself; T: none.
template <class Group, class T>
struct ElementOfGroup {
  using type = T;
};
template <StoragePolicy Group, class T>
struct ElementOfGroup<Group, T> {
  using type = typename Group::element;
};

}  // namespace detail

/// What `backward` does about gradients that are NaN or infinite. use: they are used.
/// count: the same, and `non_finite_gradients()` counts them. reject: they are counted, and if any
/// rank has one, no rank changes anything, and `rejected_steps()` grows; the step stays open, and
/// `backward` may be called again with other gradients. That needs all_reduce, and is one more
/// small exchange a step.
enum class NonFinite : std::uint8_t { use, count, reject };

constexpr std::string_view to_string(NonFinite policy) {
  constexpr std::array<std::string_view, 3> names{"use", "count", "reject"};
  return names[static_cast<std::size_t>(policy)];
}

/// The constants of one training group.
template <class Group>
struct GroupOptions {
  typename Group::optimizer optimizer{};
  /// NaN: the collection's
  float learning_rate = std::numeric_limits<float>::quiet_NaN();
  /// of a group with InitializeWith<F>: its F
  std::conditional_t<std::is_void_v<detail::OwnInitializer<Group>>, detail::NoInitializer,
                     detail::OwnInitializer<Group>>
      initialize{};
  std::optional<NonFinite> non_finite{};  ///< none: the collection's
};

/// How the tables of a collection train, group by group: what takes the place of an optimizer.
template <class... Groups>
struct TrainingGroups {
  static_assert((false || ... || Groups::trains),
                "TrainingGroups: no group trains; FrozenTables serves tables that never change");

  std::tuple<GroupOptions<Groups>...> groups{};
  /// by table of the layout: its group; EmbeddingCollection knows it from its types
  std::vector<int> group_of_table{};
};

namespace detail {

template <class T>
inline constexpr bool is_training_group = requires { T::all_others; };

/// What a collection asks of the place of its optimizer: an optimizer is one group of all tables.
template <class Training>
struct GroupsOf {
  static constexpr int count = 1;
  static constexpr std::array<bool, 1> trains{true};
  template <int>
  using optimizer = Training;
  using steps = std::tuple<typename Training::Step>;
  using step_values = std::tuple<const op::StepValues<Training>*>;
  template <class Backend>
  using counters = std::tuple<StepCounter<Training, Backend>>;

  template <int>
  using initializer = void;
  template <int, class T>
  using element = T;
  template <int>
  static const Training& get(const Training& training) {
    return training;
  }
  template <int>
  static float rate(const Training&, float of_all) {
    return of_all;
  }
  template <int>
  static std::optional<NonFinite> own_guard(const Training&) {
    return {};
  }
};
template <class... Groups>
struct GroupsOf<TrainingGroups<Groups...>> {
  using Training = TrainingGroups<Groups...>;
  static constexpr int count = sizeof...(Groups);
  static constexpr std::array<bool, count> trains{Groups::trains...};
  template <int I>
  using optimizer = typename std::tuple_element_t<I, std::tuple<Groups...>>::optimizer;
  using steps = std::tuple<typename Groups::optimizer::Step...>;
  using step_values = std::tuple<const op::StepValues<typename Groups::optimizer>*...>;
  template <class Backend>
  using counters = std::tuple<StepCounter<typename Groups::optimizer, Backend>...>;

  template <int I>
  using group = std::tuple_element_t<I, std::tuple<Groups...>>;
  template <int I>
  using initializer = OwnInitializer<group<I>>;
  template <int I, class T>
  using element = typename ElementOfGroup<group<I>, T>::type;
  template <int I>
  static const optimizer<I>& get(const Training& training) {
    return std::get<I>(training.groups).optimizer;
  }
  template <int I>
  static float rate(const Training& training, float of_all) {
    const float own = std::get<I>(training.groups).learning_rate;
    return own == own ? own : of_all;
  }
  template <int I>
  static std::optional<NonFinite> own_guard(const Training& training) {
    return std::get<I>(training.groups).non_finite;
  }
};

/// Calls f(std::integral_constant<int, I>) for every group.
template <class Training, class F>
constexpr void for_each_training_group(F&& f) {
  [&]<int... I>(std::integer_sequence<int, I...>) {
    (f(std::integral_constant<int, I>{}), ...);
  }(std::make_integer_sequence<int, GroupsOf<Training>::count>{});
}

/// Calls f(std::integral_constant<int, I>) for group `group`.
template <class Training, class F>
void with_training_group(int group, F&& f) {
  if constexpr (GroupsOf<Training>::count == 1) {
    f(std::integral_constant<int, 0>{});
  } else {
    for_each_training_group<Training>([&](auto i) {
      if (i() == group) f(i);
    });
  }
}

/// An optimizer for all tables, or TrainingGroups.
template <class T>
concept OptimizerOrGroups = Optimizer<T> || requires(const T& t) {
  t.group_of_table;
  t.groups;
};

}  // namespace detail

}}  // namespace tessera::v0
