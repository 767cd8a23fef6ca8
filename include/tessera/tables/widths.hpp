// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/op/kernel.hpp>

#include <cstddef>
#include <type_traits>
#include <utility>

namespace tessera { inline namespace v0 {

/// Row widths for which kernels are compiled; any other width is served by the kernels for widths
/// known at run time.
///
///     using E = LayoutCollection<Widths<16, 64>, Adagrad, Host, Comm>;
template <int... W>
struct Widths {
  /// Whether layouts may have copies on every rank, cut columns, and features whose rows come as
  /// they are (sequences, max pooling): the code for them is compiled.
  static constexpr bool copies = true, cuts_columns = true, keeps_rows = true;
  /// Calls `f` with the width as a constant where it is one of these, else with op::dynamic_width.
  template <class F>
  static void dispatch(int width, F&& f) {
    const bool known = ((W == width && (f(std::integral_constant<int, W>{}), true)) || ...);
    if (!known) f(std::integral_constant<int, op::dynamic_width>{});
  }
};

namespace detail {

/// The widths of a plan whose features are all pooled by sums.
template <int... W>
struct PooledRows : Widths<W...> {
  static constexpr bool keeps_rows = false;
};

/// The widths of a plan that cuts no columns: there are no others.
template <bool Copies, bool KeepsRows, int... W>
struct WholeRows {
  static constexpr bool copies = Copies, cuts_columns = false, keeps_rows = KeepsRows;
  template <class F>
  static void dispatch(int width, F&& f) {
    static_cast<void>(((W == width && (f(std::integral_constant<int, W>{}), true)) || ...));
  }
};

/// The widths of a plan's shards as a list.
template <class PlanT, class Sequence = std::make_index_sequence<PlanT::widths.size()>>
struct WidthsOf;
template <class PlanT, std::size_t... I>
struct WidthsOf<PlanT, std::index_sequence<I...>> {
  using type = std::conditional_t<PlanT::keeps_rows, Widths<PlanT::widths[I]...>,
                                  PooledRows<PlanT::widths[I]...>>;
};
template <class PlanT, std::size_t... I>
  requires(PlanT::whole_rows)
struct WidthsOf<PlanT, std::index_sequence<I...>> {
  using type = WholeRows<PlanT::replicates, PlanT::keeps_rows, PlanT::widths[I]...>;
};
}  // namespace detail

}}  // namespace tessera::v0
