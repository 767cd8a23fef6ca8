// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/collection/checked_arguments.hpp>
#include <tessera/collection/layout_collection.hpp>
#include <tessera/collection/options.hpp>
#include <tessera/concepts/communicator.hpp>
#include <tessera/sharding/plan.hpp>
#include <tessera/tables/table_store.hpp>

#include <utility>

namespace tessera::inline v0 {

/// The embedding tables of a model: cut as the plan says, looked up, exchanged between ranks,
/// updated. One object per rank; every rank makes the same calls in the same order. `forward` takes
/// this rank's part of the global batch (rank r's samples come before rank r+1's) and gives [local
/// batch, columns] floats; `backward` takes the gradient of those, and updates the rows at once.
/// The stages are public, so that a trainer can interleave them with other work. Policies:
/// Storage<T>, Throw | ZeroVector | Clamp | Wrap, CountNonFiniteGradients |
/// RejectNonFiniteGradients, InitializeWith<F>, EncodeWith<Forward, Backward> or
/// EncodeWithOneOf<Codecs...>, Deduplicate or DeduplicateIfAsked.
template <class PlanT, class O, class Backend, class Comm, class... Policies>
class EmbeddingCollection : public detail::CollectionOf<typename detail::WidthsOf<PlanT>::type, O,
                                                        Backend, Comm, Policies...>::type {
  using Base = typename detail::CollectionOf<typename detail::WidthsOf<PlanT>::type, O, Backend,
                                             Comm, Policies...>::type;

 public:
  using plan = PlanT;
  using typename Base::Options;

  /// The collectives that this plan needs on more than one rank: all_gather where tables are
  /// replicated, all_to_all where some are not, all_reduce where steps may be rejected.
  static constexpr Collective needs =
      (PlanT::replicates ? Collective::all_gather : Collective::none) |
      (PlanT::exchanges ? Collective::all_to_all : Collective::none) |
      (detail::CheckedPolicies<Policies...>::non_finite == NonFinite::reject
           ? Collective::all_reduce
           : Collective::none);
  static_assert(Communicator<Comm, needs>,
                "EmbeddingCollection: the communicator lacks a collective that the plan needs; "
                "explain_communicator<Comm, needs>() lists them (docs/concepts/communicator.md)");

  /// Every rank constructs the same plan. Throws InvalidArgument for a plan that these ranks cannot
  /// carry out.
  EmbeddingCollection(Comm& communicator,  // a misspelt option? Embeddings::Options{...} names it
                      Backend backend, Options options)
      : Base(communicator, std::move(backend),
             PlanT::layout(Topology{communicator.size(), options.ranks_per_node}, options.rows),
             options) {}
};

namespace detail {

template <class Embeddings, Cluster C>
constexpr PlanFault memory_fault() {
  const Layout layout = Embeddings::plan::layout(Topology{C.ranks, C.ranks_per_node});
  return check_memory(layout, Embeddings::memory_cost, C.memory_per_rank, C.host_memory_per_rank);
}

}  // namespace detail

/// Whether every rank's tables and optimizer state fit into its memory, and those OnHost into its
/// share of the host's:
/// `static_assert(ts::fits<Embeddings, ts::Cluster{...}>)`.
template <class Embeddings, Cluster C>
inline constexpr bool fits = SoundPlan<detail::memory_fault<Embeddings, C>()>::value;

}  // namespace tessera::inline v0
