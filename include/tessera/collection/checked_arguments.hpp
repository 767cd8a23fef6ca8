// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/backend.hpp>
#include <tessera/concepts/codec.hpp>  // for short errors: a compiler prints how it came to a header first
#include <tessera/concepts/optimizer.hpp>
#include <tessera/optimizer/optimizers.hpp>

#include <type_traits>

namespace tessera::inline v0 {

template <class WidthList, Optimizer O, class Backend, class Comm, class... Policies>
class LayoutCollection;

namespace detail {

/// Takes the place of a collection on what is no backend.
struct NoCollection {
  struct Options {};
};

/// What EmbeddingCollection is made of. An optimizer or a backend that is none is explained, one
/// error for each member that is missing, before anything is made of it; Sgd takes the place of the
/// optimizer, so that the compiler has nothing to add.
template <class WidthList, class O, class B, class Comm, class... Policies>
struct CollectionOf {
  static constexpr bool in_order = !(Backend<O> && Optimizer<B>);
  // codecs that are none are explained from here
  static_assert((true && ... && (sizeof(Policies) > 0)));
  static_assert(in_order,
                "EmbeddingCollection: the arguments are Plan, Optimizer, Backend, Communicator, in "
                "this order");
  using Optimizing = std::conditional_t<in_order, O, Sgd>;
  using Running = std::conditional_t<in_order, B, O>;
  using type = std::conditional_t<
      explain_backend<Running>() && in_order,
      LayoutCollection<WidthList,
                       std::conditional_t<explain_optimizer<Optimizing>(), Optimizing, Sgd>,
                       Running, Comm, Policies...>,
      NoCollection>;
};

}  // namespace detail
}  // namespace tessera::inline v0
