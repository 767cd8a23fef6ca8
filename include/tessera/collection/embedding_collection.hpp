// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// first, for short errors: see there
#include <tessera/settings/arguments.hpp>

#include <tessera/collection/layout_collection.hpp>
#include <tessera/concepts/communicator.hpp>
#include <tessera/settings/options.hpp>
#include <tessera/sharding/plan.hpp>
#include <tessera/tables/table_store.hpp>

#include <algorithm>
#include <tuple>
#include <utility>

namespace tessera { inline namespace v0 {

/// The embedding tables of a model: cut as the plan says, looked up, exchanged between ranks,
/// updated. One object per rank; every rank makes the same calls in the same order. `forward` takes
/// this rank's part of the global batch (rank r's samples come before rank r+1's) and gives [local
/// batch, columns] floats; `backward` takes the gradient of those, and updates the rows at once.
/// The stages are public, so that a trainer can interleave them with other work. Policies:
/// Storage<T>, InitializeWith<F>, EncodeWith<Forward, Backward> or EncodeWithOneOf<Codecs...>,
/// OutputType<T>, ReportSteps.
///
///     EmbeddingCollection<MyPlan, RowWiseAdagrad, Host, Comm> embeddings(
///         communicator, Host(), {.learning_rate = 0.1f, .seed = 42});
///     const auto pooled = embeddings.forward(ids);  // pooled.values: [batch, columns]
///     embeddings.backward(pooled, gradient);
template <class PlanT, class O, class Backend, class Comm, class... Policies>
class EmbeddingCollection
    : public detail::CollectionArguments<O, Backend, Comm,
                                         Policies...>::template collection<PlanT>::type {
  using Arguments = detail::CollectionArguments<O, Backend, Comm, Policies...>;
  using Checked = typename Arguments::template collection<PlanT>;
  using Base = typename Checked::type;
  using Ranks = typename Arguments::communicator;

 public:
  using plan = typename Checked::plan;
  using backend_type = typename Arguments::backend;
  using communicator_type = Ranks;
  using typename Base::Options;

 private:
  using Groups = detail::GroupsOfPlan<plan, typename Arguments::groups>;
  static_assert(SoundPlan<Groups::fault>::value);

 public:
  /// The collectives that this plan needs on more than one rank: all_gather if tables are
  /// replicated, all_to_all if some are not. The option NonFinite::reject needs all_reduce, too.
  static constexpr Collective needs =
      (plan::replicates ? Collective::all_gather : Collective::none) |
      (plan::exchanges ? Collective::all_to_all : Collective::none);
  static_assert(!Checked::in_order || Communicator<Ranks, needs>,
                "EmbeddingCollection: the communicator lacks a collective that the plan needs; "
                "explain_communicator<Comm, needs>() lists them (docs/concepts/communicator.md)");

  /// Takes a plan: every rank constructs the same plan. Throws InvalidArgument for a plan that
  /// these ranks cannot carry out.
  EmbeddingCollection(Ranks& ranks,  // a misspelt option? Embeddings::Options{...} names it
                      backend_type backend, Options options)
      : Base(ranks, std::move(backend),
             plan::layout(Topology{ranks.size(), options.ranks_per_node}, options.rows),
             with_groups(options)) {}

  /// Returns what an element and a row of each table cost, in the order of the plan.
  static constexpr std::vector<detail::MemoryCost> memory_costs() {
    std::vector<detail::MemoryCost> costs;
    for (const TableSpec& table : plan::tables)
      costs.push_back(detail::memory_cost<typename Base::element, typename Arguments::training>(
          Groups::of(table.name)));
    return costs;
  }

  /// Returns the constants and the rate of one of the training groups among these options:
  /// `Embeddings::of<Wide>(options).learning_rate = 0.1f`.
  template <class Group>
  static auto& of(Options& options) {
    return std::get<Groups::template index_of<Group>()>(options.optimizer.groups);
  }

  using Base::set_learning_rate;
  /// Sets the rate of a table's training group: `set_learning_rate<"wide">(0.1f)`.
  template <FixedString Table>
  void set_learning_rate(float rate) {
    static_assert(std::any_of(plan::tables.begin(), plan::tables.end(),
                              [](const TableSpec& table) { return table.name == Table.view(); }),
                  "set_learning_rate: the plan has no table of this name");
    Base::set_learning_rate(Table.view(), rate);
  }

 private:
  static Options with_groups(Options options) {
    if constexpr (requires { options.optimizer; }) Groups::fill(options.optimizer);
    return options;
  }
};

namespace detail {

template <class Embeddings, Cluster C>
constexpr PlanFault memory_fault() {
  const Layout layout = Embeddings::plan::layout(Topology{C.ranks, C.ranks_per_node});
  return check_memory(layout, Embeddings::memory_costs(), C.memory_per_rank,
                      C.host_memory_per_rank);
}

}  // namespace detail

/// Whether every rank's tables and optimizer state fit into its memory, and those OnHost into its
/// share of the host's:
/// `static_assert(ts::fits<Embeddings, ts::Cluster{...}>)`.
template <class Embeddings, Cluster C>
inline constexpr bool fits = SoundPlan<detail::memory_fault<Embeddings, C>()>::value;

}}  // namespace tessera::v0
