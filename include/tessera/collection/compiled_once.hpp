// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/collection/embedding_collection.hpp>

#include <cstdint>
#include <span>
#include <utility>

namespace tessera { inline namespace v0 {

/// An EmbeddingCollection whose code is compiled in one source file, for batches of ids of type Id.
/// It is used as that collection is; a call that is not declared here, or has ids of the other
/// type, is the collection's and compiled where it stands.
///
///   model.hpp:  using Tables = EmbeddingCollection<...>;
///               extern template class tessera::CompiledOnce<Tables>;   // at namespace scope, of any namespace around tessera
///               using Embeddings = tessera::CompiledOnce<Tables>;
///   model.cpp:  template class tessera::CompiledOnce<Tables>;          // after model.hpp; with <tessera/tessera.hpp>
///
/// Without the two lines it is compiled wherever it is used.
template <class Collection, IdType Id = std::int32_t>
class CompiledOnce;

// The members are defined outside of the class: those inside would be inline, and a compiler
// compiles such ones again for every file that calls them, extern template or not.
template <class PlanT, class O, class Backend, class Comm, class... Policies, IdType Id>
class CompiledOnce<EmbeddingCollection<PlanT, O, Backend, Comm, Policies...>, Id>
    : public EmbeddingCollection<PlanT, O, Backend, Comm, Policies...> {
  using Base = EmbeddingCollection<PlanT, O, Backend, Comm, Policies...>;
  using Batch = KeyedJagged<Id>;
  using Device = typename Base::backend_type;
  using Ranks = typename Base::communicator_type;
  using Found = typename Base::template Found<Id>;
  using Output = typename Base::Output;
  using Gradient = typename Base::Gradient;
  using State = Step<Id, Device>;

 public:
  using Base::backward;
  using Base::forward;
  using Base::forward_routed;
  using Base::route;
  using typename Base::Options;

  CompiledOnce(Ranks& communicator, Device backend, Options options);
  ~CompiledOnce();

  Found forward(const Batch& ids);
  Found forward(const Batch& ids, Output output);
  void backward(const Found& pooled, Gradient gradient);
  void route(State& step, const Batch& ids);
  void route(State& step, const Batch& ids, Ranks& communicator, const Device& backend);
  Found forward_routed(State& step, Output output);
  void reset_rows(int table, std::span<const std::int64_t> rows);
};

template <class PlanT, class O, class Backend, class Comm, class... Policies, IdType Id>
CompiledOnce<EmbeddingCollection<PlanT, O, Backend, Comm, Policies...>, Id>::CompiledOnce(
    Ranks& communicator, Device backend, Options options)
    : Base(communicator, std::move(backend), std::move(options)) {}

template <class PlanT, class O, class Backend, class Comm, class... Policies, IdType Id>
CompiledOnce<EmbeddingCollection<PlanT, O, Backend, Comm, Policies...>, Id>::~CompiledOnce() =
    default;

template <class PlanT, class O, class Backend, class Comm, class... Policies, IdType Id>
auto CompiledOnce<EmbeddingCollection<PlanT, O, Backend, Comm, Policies...>, Id>::forward(
    const Batch& ids) -> Found {
  return Base::forward(ids);
}

template <class PlanT, class O, class Backend, class Comm, class... Policies, IdType Id>
auto CompiledOnce<EmbeddingCollection<PlanT, O, Backend, Comm, Policies...>, Id>::forward(
    const Batch& ids, Output output) -> Found {
  return Base::forward(ids, output);
}

template <class PlanT, class O, class Backend, class Comm, class... Policies, IdType Id>
void CompiledOnce<EmbeddingCollection<PlanT, O, Backend, Comm, Policies...>, Id>::backward(
    const Found& pooled, Gradient gradient) {
  Base::backward(pooled, gradient);
}

template <class PlanT, class O, class Backend, class Comm, class... Policies, IdType Id>
void CompiledOnce<EmbeddingCollection<PlanT, O, Backend, Comm, Policies...>, Id>::route(
    State& step, const Batch& ids) {
  Base::route(step, ids);
}

template <class PlanT, class O, class Backend, class Comm, class... Policies, IdType Id>
void CompiledOnce<EmbeddingCollection<PlanT, O, Backend, Comm, Policies...>, Id>::route(
    State& step, const Batch& ids, Ranks& communicator, const Device& backend) {
  Base::route(step, ids, communicator, backend);
}

template <class PlanT, class O, class Backend, class Comm, class... Policies, IdType Id>
auto CompiledOnce<EmbeddingCollection<PlanT, O, Backend, Comm, Policies...>, Id>::forward_routed(
    State& step, Output output) -> Found {
  return Base::forward_routed(step, output);
}

template <class PlanT, class O, class Backend, class Comm, class... Policies, IdType Id>
void CompiledOnce<EmbeddingCollection<PlanT, O, Backend, Comm, Policies...>, Id>::reset_rows(
    int table, std::span<const std::int64_t> rows) {
  Base::reset_rows(table, rows);
}

}}  // namespace tessera::v0
