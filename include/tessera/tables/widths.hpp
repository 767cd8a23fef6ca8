// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/op/kernel.hpp>

#include <cstddef>
#include <type_traits>
#include <utility>

namespace tessera { inline namespace v0 {

namespace detail {

/// Calls `f` with the width as a constant if it is one of W. Returns whether it is.
template <int... W>
struct WidthList {
  template <class F>
  static bool dispatch(int width, F&& f) {
    return ((W == width && (f(std::integral_constant<int, W>{}), true)) || ...);
  }
};

}  // namespace detail

/// Row widths for which kernels are compiled; any other width is served by the kernels for widths
/// known at run time.
///
///     using E = LayoutCollection<Widths<16, 64>, Adagrad, Host, Comm>;
template <int... W>
struct Widths {
  /// Whether layouts may have copies on every rank, cut columns, features whose rows come unpooled
  /// (sequences, max pooling), and rows in other tiers: the code for them is compiled.
  static constexpr bool copies = true, cuts_columns = true, keeps_rows = true, tiers = true;
  static constexpr bool has(int) { return true; }
  /// The widths for rows of an element type, and for their updates by an optimizer.
  template <class E, class O = void>
  using of = Widths;
  /// Calls `f` with the width of a shard, or of a table's whole rows, as a constant if it is one of
  /// these, else with op::dynamic_width.
  template <class F>
  static void dispatch(int width, F&& f) {
    if (!detail::WidthList<W...>::dispatch(width, f))
      f(std::integral_constant<int, op::dynamic_width>{});
  }
  template <class F>
  static void dispatch_whole(int width, F&& f) {
    dispatch(width, f);
  }
};

/// Widths whose kernels are compiled for `float` tables of the optimizers named; tables of others,
/// and of 16 bits, are served by the kernels for any width. With many optimizers, the kernels of
/// widths are most of what a collection takes to compile.
///
///     using E = LayoutCollection<WidthsFor<Widths<16, 64>, Sgd, Adam>, Adam, Host, Comm>;
template <class List, class... Optimizers>
struct WidthsFor : List {
  template <class E, class O = void>
  using of = std::conditional_t<std::is_same_v<E, float> &&
                                    (std::is_void_v<O> || ... || std::is_same_v<O, Optimizers>),
                                List, Widths<>>;
};

namespace detail {

/// The widths of a plan whose features are all pooled by sums.
template <int... W>
struct PooledRows : Widths<W...> {
  static constexpr bool keeps_rows = false;
};

/// The widths of a plan whose policies tell all of them, of shards and of tables.
template <class Shards, class Tables, bool Copies, bool CutsColumns, bool KeepsRows, bool Tiers>
struct KnownWidths {
  static constexpr bool copies = Copies, cuts_columns = CutsColumns, keeps_rows = KeepsRows,
                        tiers = Tiers;
  template <class E, class O = void>
  using of = KnownWidths;
  static bool has(int width) {
    return Shards::dispatch(width, [](auto) {});
  }
  template <class F>
  static void dispatch(int width, F&& f) {
    Shards::dispatch(width, f);
  }
  template <class F>
  static void dispatch_whole(int width, F&& f) {
    Tables::dispatch(width, f);
  }
};

/// The widths of a plan's shards.
template <class PlanT, class Sequence = std::make_index_sequence<PlanT::widths.size()>>
struct WidthsOf;
template <class PlanT, std::size_t... I>
struct WidthsOf<PlanT, std::index_sequence<I...>> {
  using type = std::conditional_t<PlanT::keeps_rows, Widths<PlanT::widths[I]...>,
                                  PooledRows<PlanT::widths[I]...>>;
};
template <class PlanT, std::size_t... I>
  requires(PlanT::known_widths)
struct WidthsOf<PlanT, std::index_sequence<I...>> {
  template <std::size_t... T>
  static WidthList<PlanT::table_widths[T]...> of_tables(std::index_sequence<T...>);
  using type =
      KnownWidths<WidthList<PlanT::widths[I]...>,
                  decltype(of_tables(std::make_index_sequence<PlanT::table_widths.size()>())),
                  PlanT::replicates, !PlanT::whole_rows, PlanT::keeps_rows, PlanT::uses_tiers>;
};
}  // namespace detail

}}  // namespace tessera::v0
