// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/communicator.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/core/pod_vector.hpp>
#include <tessera/ids/model_parallel_ids.hpp>
#include <tessera/ids/routed_ids.hpp>
#include <tessera/settings/options.hpp>
#include <tessera/step/served_groups.hpp>
#include <tessera/step/step.hpp>
#include <tessera/step/step_reporter.hpp>
#include <tessera/step/weight_gradients.hpp>
#include <tessera/tables/arena_kernels.hpp>
#include <tessera/tables/rank_tables.hpp>
#include <tessera/update/apply_accumulated.hpp>
#include <tessera/update/gradient_guard.hpp>
#include <tessera/update/training_steps.hpp>
#include <tessera/update/updater.hpp>
#include <tessera/vectors/vector_exchange.hpp>

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// What stages ask of CollectionOptions.
struct StageOptions {
  BadIds bad_ids;
  bool check_stages, deduplicate, equal_batches, sort_ahead;
  int gradient_blocks;
};
template <class Options>
StageOptions stage_options(const Options& options) {
  return {options.bad_ids,       options.check_stages, options.deduplicate,
          options.equal_batches, options.sort_ahead,   options.gradient_blocks};
}

/// The policies of a collection that its stages are compiled for.
template <Element Out, class Forward, class Backward, bool Reports>
struct StagePolicies {
  using output = Out;
  using forward_codecs = Forward;
  using backward_codecs = Backward;
  static constexpr bool reports_steps = Reports;
};

/// What the stages of a collection share, whatever its tables, widths and optimizers are.
/// `Policies`: StagePolicies; `Shares`: what ranks share of tables.
template <class Policies, Shared Shares, class BackendT, class Comm>
struct Stages {
  using output = typename Policies::output;
  using Backend = BackendT;
  using Communicator = Comm;
  using Reporter = StepReporter<Policies::reports_steps, Comm, Backend>;
  using Ranks = typename Reporter::Ranks;
  using Tables = RankTables<Backend>;

  /// Takes references to what must stay. `guards`: by training group.
  Stages(Comm& ranks, const Backend& memory, const Tables& stored, AnyTrainingSteps& trained,
         const StageOptions& chosen, std::span<const NonFinite> guards,
         typename Policies::forward_codecs forward, typename Policies::backward_codecs backward,
         const MergedRowKernels<Backend>& shared);
  Stages(const Stages&) = delete;
  Stages& operator=(const Stages&) = delete;
  ~Stages();

  std::int64_t columns() const { return layout.columns(); }
  int blocks() const { return blocks_of_batch(options, routing.ranks()); }
  void check_stage(Comm& ranks, std::string_view stage) const {
    if (options.check_stages) require_same_stage(ranks, stage, steps.called(), steps.rates());
  }

  Comm& communicator;
  const Backend& backend;
  const Tables& tables;
  const Layout& layout;
  const RankLayout& routing;
  AnyTrainingSteps& steps;
  const StageOptions options;
  typename Reporter::RanksHolder counted;  ///< the same ranks
  Updater<Shares, Backend, Ranks> updater;
  Accumulator<Shares, Backend, Ranks> accumulator;
  WeightGradientStage<Backend, Ranks> weight_gradients;
  VectorExchange<Backend, Ranks, typename Policies::forward_codecs,
                 typename Policies::backward_codecs>
      vectors;
  mutable IdReport<Backend> report;
  const std::vector<int> all_features;
  GradientGuard<Backend> guard;
  bool equal_batches = true;  ///< unless the promise is off for a while
  Reporter reporter;
  mutable std::atomic<std::uint64_t> forwards_without_backward = 0;
};

/// The stages of LayoutCollection, and what they are made of, for one type of ids. Members are
/// defined outside of the class: those inside would be inline, and a compiler compiles such ones
/// again for every file that calls them, even if an instantiation is declared extern.
template <class S, IdType Id>
struct StageCalls {
  using Backend = typename S::Backend;
  using Comm = typename S::Communicator;
  using Out = typename S::output;
  using State = Step<Id, Backend>;
  using Output = MatrixView<Out>;
  using Gradient = MatrixView<const Out>;

  /// Routes a batch. `rates`: of steps, or NaN if ranks may be between different updates.
  static void route(const S& s, State& step, const KeyedJagged<Id>& ids, Comm& communicator,
                    const Backend& backend, double rates);
  /// Routes a batch. `keeps_rows`: whether the plan may have features whose rows come unpooled.
  static void route_model_parallel(const S& s, State& step, const KeyedJagged<Id>& ids,
                                   std::span<const std::int64_t> sample_begin, bool keeps_rows);
  static void lookup(const S& s, State& step, Output output, const Backend& backend,
                     LookUpArena<Id, float, Backend> kernel, LookUpArena<Id, Out, Backend> narrow);
  static void exchange(const S& s, State& step, Comm& communicator, const Backend& backend);
  static void assemble(const S& s, State& step, Output output, const Backend& backend,
                       const WholeRowKernels<Backend>& kernels);
  static void end(const S& s, State& step);
  static State& opened(const S& s, std::string_view call, const Pooled<Id, Backend, Out>& pooled,
                       Gradient gradient, SequenceGradients sequences,
                       std::optional<std::uint64_t> applies = {});
  static bool split(S& s, State& step, Gradient gradient, SequenceGradients sequences,
                    const WholeRowKernels<Backend>& kernels);
  static void exchange_gradients(S& s, State& step);
  static void weight_gradients(S& s, State& step, Gradient gradient, std::span<float> out,
                               DotArena<Id, float, Backend> dot, DotArena<Id, Out, Backend> narrow,
                               DotWholeRows<Backend> whole_rows);
  static void update(S& s, State& step, Gradient gradient, MergeRows<Id, float, Backend> merge,
                     UpdateArena<Id, float, Backend> kernel,
                     MergeRows<Id, Out, Backend> narrow_merge,
                     UpdateArena<Id, Out, Backend> narrow);
  static void accumulate(S& s, State& step, Gradient gradient, MergeRows<Id, float, Backend> merge);

 private:
  static void begin(const S& s, State& step, const Backend& backend);
  static void sort_ahead(const S& s, State& step, const Backend& backend);
  template <Element G>
  static void apply(S& s, State& step, MatrixView<const G> gradient,
                    MergeRows<Id, G, Backend> merge, UpdateArena<Id, G, Backend> update);
};

template <class P, Shared Shares, class B, class C>
Stages<P, Shares, B, C>::Stages(C& ranks, const B& memory, const Tables& stored,
                                AnyTrainingSteps& trained, const StageOptions& chosen,
                                std::span<const NonFinite> guards,
                                typename P::forward_codecs forward,
                                typename P::backward_codecs backward,
                                const MergedRowKernels<B>& shared)
    : communicator(ranks),
      backend(memory),
      tables(stored),
      layout(stored.layout()),
      routing(stored.routing()),
      steps(trained),
      options(chosen),
      counted(ranks),
      updater(backend, counted, stored, shared),
      accumulator(backend, counted, stored, updater),
      weight_gradients(backend, counted, stored),
      vectors(routing, forward, backward, block_alignment(ranks)),
      report(backend, layout.tables.size(), ranks.size() == 1 ? -1 : ranks.rank()),
      all_features(routing.all_features()),
      guard(backend, stored, guards),
      reporter(routing) {}

template <class P, Shared Shares, class B, class C>
Stages<P, Shares, B, C>::~Stages() = default;

template <class S, IdType Id>
void StageCalls<S, Id>::begin(const S& s, State& step, const Backend& backend) {
  if (step.progress.is_of(&s) && step.progress.awaits_update()) {
    s.forwards_without_backward.fetch_add(1, std::memory_order_relaxed);
    require(!s.options.check_stages,
            "route: the batch before had no update; call backward once for each forward, and "
            "evaluate (or end, for a step of your own) where none is meant");
  }
  step.begin(&s);
  step.sorted.join(backend);
}

template <class S, IdType Id>
void StageCalls<S, Id>::route(const S& s, State& step, const KeyedJagged<Id>& ids,
                              Comm& communicator, const Backend& backend, double rates) {
  begin(s, step, backend);
  auto&& ranks = S::Reporter::counted(communicator);
  const auto timing =
      s.reporter.time(step, ReportedStage::route, backend, &ranks, std::ssize(ids.ids));
  const bool equal = s.options.equal_batches && s.equal_batches,
             fix = equal && fixes_sizes(s.options, s.routing.keeps_rows(), s.routing.ranks());
  step.batch.admit(
      backend, s.layout, s.all_features, ids,
      {s.options.bad_ids, s.report, s.routing.sizes_needed(fix, s.options.deduplicate)}, rates);
  if (equal) step.equal_sizes.fix(ranks, s.layout, s.routing, ids, step.batch, fix);
  if (s.options.deduplicate || s.routing.keeps_rows() || !step.vectors.empty())
    step.distinct.find(backend, s.layout, s.routing, step.batch,
                       {.duplicates = s.options.deduplicate,
                        .bad_ids = s.options.bad_ids,
                        .blocks = s.blocks(),
                        .fixed = step.batch.fixed_sizes(),
                        .vectors = std::exchange(step.vectors, {})});
  step.routed.exchange(backend, ranks, s.routing, step);
  step.resident.hold(backend, s.tables, step.routed.received());
  step.progress.passed(StepStage::routed);
}

template <class S, IdType Id>
void StageCalls<S, Id>::route_model_parallel(const S& s, State& step, const KeyedJagged<Id>& ids,
                                             std::span<const std::int64_t> sample_begin,
                                             bool keeps_rows) {
  s.check_stage(s.communicator, "route_model_parallel");
  begin(s, step, s.backend);
  auto&& ranks = S::Reporter::counted(s.communicator);
  const auto timing =
      s.reporter.time(step, ReportedStage::route, s.backend, &ranks, std::ssize(ids.ids));
  step.batch.admit_global(s.backend, s.layout, s.routing, ids, sample_begin,
                          {s.options.bad_ids, s.report, s.routing.sizes_needed(false, false)},
                          s.steps.rates());
  if (keeps_rows && (s.routing.keeps_rows() || !step.vectors.empty()))
    step.distinct_of_others.find(s.backend, ranks, s.layout, s.routing, step, s.options.bad_ids,
                                 s.blocks());
  require(step.vectors.empty(), "forward_model_parallel: no feature is a sequence");
  step.routed.cut(s.backend, ranks, s.layout, s.routing, step);
  step.resident.hold(s.backend, s.tables, step.routed.received());
  step.progress.passed(StepStage::routed);
}

template <class S, IdType Id>
void StageCalls<S, Id>::lookup(const S& s, State& step, Output output, const Backend& backend,
                               LookUpArena<Id, float, Backend> kernel,
                               LookUpArena<Id, Out, Backend> narrow) {
  step.progress.require_at(&s, StepStage::routed, "lookup");
  check_shape("lookup: output", output, step.batch.samples(), s.columns());
  const auto timing = s.reporter.time(step, ReportedStage::lookup, backend);
  s.vectors.size(backend, step);
  if (s.options.sort_ahead) sort_ahead(s, step, backend);
  s.tables.refresh();
  if constexpr (!std::is_same_v<Out, float>) {
    const WireOrder& order = step.in_flight.order();
    const bool complete = order.requested().pieces().empty() &&
                          s.routing.summed_columns().empty() && !step.distinct.pools();
    step.narrow.set(complete, order.served().pieces().empty() && !step.distinct.any_active());
  }
  // What travels goes to its place on the wire, what this rank's own samples need to the output.
  const auto run = [&](std::size_t arena, auto to, auto look_up) {
    const auto& groups = step.groups.lookups(step, arena, to);
    if (groups.empty()) return;
    timing.read_rows(groups);
    look_up(backend, s.tables, arena, groups);
  };
  const MatrixView<float> floats = step.narrow.floats(backend, output);
  for (std::size_t a = 0; a < s.tables.arenas().size(); ++a) {
    run(a, floats, kernel);
    if constexpr (!std::is_same_v<Out, float>) run(a, output, narrow);
  }
  step.progress.passed(StepStage::looked_up);
}

/// Begins to sort what the step's update will add up, behind `backend`'s work so far, of arenas
/// that are updated by what this rank has been sent, without asking others. A batch that the update
/// may refuse is left to it: a lookup alone may be as large.
template <class S, IdType Id>
void StageCalls<S, Id>::sort_ahead(const S& s, State& step, const Backend& backend) {
  if constexpr (HasStreams<Backend>) {
    const std::size_t arenas = s.tables.arenas().size();
    if (step.groups.may_be_too_large(step, arenas) || !step.sorted.start(backend, arenas)) return;
    for (std::size_t a = 0; a < arenas; ++a) {
      const ArenaPlan& arena = s.routing.arenas()[a];
      if (!arena.trains || s.updater.shared(a) || s.tables.cache(a) != nullptr) continue;
      if (const auto* const groups = step.groups.to_sort(step, a))
        step.sorted.sort(a, arena.rows, *groups);
    }
  }
}

template <class S, IdType Id>
void StageCalls<S, Id>::exchange(const S& s, State& step, Comm& communicator,
                                 const Backend& backend) {
  step.progress.require_at(&s, StepStage::looked_up, "exchange");
  auto&& ranks = S::Reporter::counted(communicator);
  const auto timing = s.reporter.time(step, ReportedStage::exchange, backend, &ranks);
  s.vectors.to_requesters(backend, ranks, step);
  step.progress.passed(StepStage::exchanged);
}

template <class S, IdType Id>
void StageCalls<S, Id>::assemble(const S& s, State& step, Output output, const Backend& backend,
                                 const WholeRowKernels<Backend>& kernels) {
  step.progress.require_at(&s, StepStage::exchanged, "assemble");
  check_shape("assemble: output", output, step.batch.samples(), s.columns());
  const auto timing = s.reporter.time(step, ReportedStage::assemble, backend);
  const MatrixView<float> floats = step.narrow.floats(backend, output);
  s.vectors.assemble(backend, step, floats);
  step.distinct.pool(backend, floats, kernels);
  step.narrow.round(backend, output);
  step.progress.passed(StepStage::assembled);
}

template <class S, IdType Id>
void StageCalls<S, Id>::end(const S& s, State& step) {
  require(step.progress.is_of(&s), "end: this step was routed by another collection");
  step.sorted.join(s.backend);
  step.resident.release(true);
  step.progress.passed(StepStage::empty);
}

template <class S, IdType Id>
auto StageCalls<S, Id>::opened(const S& s, std::string_view call,
                               const Pooled<Id, Backend, Out>& pooled, Gradient gradient,
                               SequenceGradients sequences, std::optional<std::uint64_t> applies)
    -> State& {
  pooled.check(&s, call, applies);
  check_shape("backward: gradient", gradient, pooled.step->batch.samples(), s.columns());
  pooled.step->distinct.check(call, sequences);
  return *pooled.step;
}

template <class S, IdType Id>
bool StageCalls<S, Id>::split(S& s, State& step, Gradient gradient, SequenceGradients sequences,
                              const WholeRowKernels<Backend>& kernels) {
  if (!step.progress.rejected(&s)) step.progress.require_at(&s, StepStage::assembled, "split");
  check_shape("split: gradient", gradient, step.batch.samples(), s.columns());
  step.distinct.check("split", sequences);
  if (!s.guard.accept(s.communicator, gradient, sequences)) {
    step.progress.passed(StepStage::rejected);
    return false;
  }
  const auto timing = s.reporter.time(step, ReportedStage::split, s.backend);
  const MatrixView<const float> floats = step.narrow.begin(s.backend, gradient);
  if (step.distinct.merge(s.backend, floats, sequences, kernels))
    step.routed.set_direct(s.routing, step);
  s.vectors.split(s.backend, step, floats);
  step.progress.passed(StepStage::split);
  return true;
}

template <class S, IdType Id>
void StageCalls<S, Id>::exchange_gradients(S& s, State& step) {
  if (step.progress.rejected(&s)) return;
  step.progress.require_at(&s, StepStage::split, "exchange_gradients");
  s.check_stage(s.communicator, "exchange_gradients");
  const auto timing =
      s.reporter.time(step, ReportedStage::exchange_gradients, s.backend, &s.counted);
  s.vectors.to_owners(s.backend, s.counted, step);
  step.progress.passed(StepStage::received);
}

template <class S, IdType Id>
void StageCalls<S, Id>::weight_gradients(S& s, State& step, Gradient gradient, std::span<float> out,
                                         DotArena<Id, float, Backend> dot,
                                         DotArena<Id, Out, Backend> narrow,
                                         DotWholeRows<Backend> whole_rows) {
  const bool rejected = step.progress.rejected(&s);
  if (!rejected) step.progress.require_at(&s, StepStage::received, "weight_gradients");
  check_shape("weight_gradients: gradient", gradient, step.batch.samples(), s.columns());
  s.weight_gradients.check_room("weight_gradients", out, step.batch.ids());
  if (rejected) return s.backend.fill_zero(out.data(), out.size_bytes());
  const auto timing = s.reporter.time(step, ReportedStage::weight_gradients, s.backend, &s.counted);
  s.tables.refresh();
  step.narrow.visit(s.backend, gradient, [&]<Element G>(MatrixView<const G> given) {
    if constexpr (std::is_same_v<G, float>)
      s.weight_gradients.run_stage(step, given, out, dot, whole_rows);
    else
      s.weight_gradients.run_stage(step, given, out, narrow, whole_rows);
  });
}

template <class S, IdType Id>
void StageCalls<S, Id>::update(S& s, State& step, Gradient gradient,
                               MergeRows<Id, float, Backend> merge,
                               UpdateArena<Id, float, Backend> kernel,
                               MergeRows<Id, Out, Backend> narrow_merge,
                               UpdateArena<Id, Out, Backend> narrow) {
  if (step.progress.rejected(&s)) return;
  step.progress.require_at(&s, StepStage::received, "update");
  s.accumulator.require_none("update");
  check_shape("update: gradient", gradient, step.batch.samples(), s.columns());
  s.check_stage(s.communicator, "update");
  const auto timing = s.reporter.time(s.backend, s.counted);
  s.updater.count_rows(s.reporter.row_counter(s.backend));
  step.progress.passed(StepStage::empty);
  step.narrow.visit(s.backend, gradient, [&]<Element G>(MatrixView<const G> given) {
    if constexpr (std::is_same_v<G, float>)
      apply(s, step, given, merge, kernel);
    else
      apply(s, step, given, narrow_merge, narrow);
  });
  s.reporter.batch_done(step);
  s.reporter.step_done(s.steps.called(), s.updater.split_rows(), Clipped{});
}

/// Takes one optimizer step with the gradients that have come to the owners. All that may fail for
/// another rank's sake, or for a batch that is too large, comes first: where it throws, no table of
/// this rank has changed. Collective.
template <class S, IdType Id>
template <Element G>
void StageCalls<S, Id>::apply(S& s, State& step, MatrixView<const G> gradient,
                              MergeRows<Id, G, Backend> merge, UpdateArena<Id, G, Backend> update) {
  step.sorted.join(s.backend);
  s.tables.refresh();
  const std::size_t arenas = s.tables.arenas().size();
  if (step.groups.may_be_too_large(step, arenas))
    for (std::size_t a = 0; a < arenas; ++a)
      op::require_countable<Backend, Id, G>(step.groups.gradients(step, a, gradient));
  const bool fixed = step.batch.fixed_sizes();
  for (std::size_t a = 0; a < arenas; ++a)
    if (s.updater.shared(a))
      s.updater.merge_own(a, step.groups.gradients(step, a, gradient), fixed, merge);
  const AnyUpdateStep& now = s.steps.next();
  s.updater.exchange(step.batch.most_entries(), s.steps.rates(), now);
  s.steps.advance(s.tables.seed());
  const PodVector<op::GradientGroup<Id, G>> none;
  s.updater.update([&](std::size_t a, const Backend& backend) {
    const auto groups = [&](IdsAre ids) -> const auto& {
      return s.updater.shared(a) ? none : step.groups.gradients(step, a, gradient, ids);
    };
    if (s.updater.tells()) s.updater.tell(a, groups(IdsAre::rows));
    step.resident.mark_changed(a);
    s.updater.apply(a, now, groups(IdsAre::places), step.sorted.of(a), backend, update);
  });
  step.resident.release(false);
}

template <class S, IdType Id>
void StageCalls<S, Id>::accumulate(S& s, State& step, Gradient gradient,
                                   MergeRows<Id, float, Backend> merge) {
  {
    const auto timing = s.reporter.time(step, ReportedStage::update, s.backend);
    s.accumulator.add(step, step.narrow.widened(s.backend, gradient), merge);
  }
  s.reporter.batch_done(step);
}

}}}  // namespace tessera::v0::detail
