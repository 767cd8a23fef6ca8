// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/any_matrix.hpp>
#include <tessera/core/element.hpp>
#include <tessera/tables/training_groups.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace tessera { inline namespace v0 { namespace detail {

/// Element types of tables by training group; T: of groups that name none.
template <class Trained, Element T>
class GroupElements {
  using Groups = GroupsOf<Trained>;

 public:
  template <int I>
  using of = typename Groups::template element<I, T>;

  /// Calls f(std::type_identity<E>) with a group's. Code for one type is compiled once.
  template <class F>
  static void with(int group, F&& f) {
    if constexpr (one)
      f(std::type_identity<of<0>>{});
    else
      (with_if<float>(group, f), with_if<BFloat16>(group, f), with_if<Half>(group, f));
  }
  static std::int64_t size(int group) {
    std::int64_t bytes = 0;
    with(group, [&]<class E>(std::type_identity<E>) { bytes = sizeof(E); });
    return bytes;
  }

 private:
  template <class E>
  static constexpr auto are = []<int... I>(std::integer_sequence<int, I...>) {
    return std::array<bool, sizeof...(I)>{std::is_same_v<of<I>, E>...};
  }(std::make_integer_sequence<int, Groups::count>{});
  static constexpr bool one =
      std::all_of(are<of<0>>.begin(), are<of<0>>.end(), [](bool is) { return is; });

  template <class E, class F>
  static void with_if(int group, F&& f) {
    if constexpr (std::any_of(are<E>.begin(), are<E>.end(), [](bool is) { return is; }))
      if (are<E>[static_cast<std::size_t>(group)]) f(std::type_identity<E>{});
  }

 public:
  /// A matrix of any group's elements, and of any optimizer's states.
  using Matrix = std::conditional_t<one, MatrixView<of<0>>, AnyMatrix>;
  using StateMatrix = std::conditional_t<[]<int... I>(std::integer_sequence<int, I...>) {
    return (std::is_same_v<StateElement<typename Groups::template optimizer<I>>, float> && ...);
  }(std::make_integer_sequence<int, Groups::count>{}),
                                         MatrixView<float>, AnyMatrix>;
};

}}}  // namespace tessera::v0::detail
