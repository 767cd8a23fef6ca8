// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/matrix_view.hpp>
#include <tessera/ids/agreement.hpp>
#include <tessera/settings/arguments.hpp>
#include <tessera/sharding/cluster.hpp>
#include <tessera/sharding/plan.hpp>
#include <tessera/step/stages.hpp>
#include <tessera/tables/buffer.hpp>
#include <tessera/tables/kernels_of.hpp>
#include <tessera/tables/matrix.hpp>
#include <tessera/update/trained_tables.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// The embedding tables of a model under a layout that is known at run time: cut, looked up,
/// exchanged between ranks, updated. `EmbeddingCollection` is the same for a plan known at compile
/// time, with its checks; see there.
template <class WidthList, class O, class Backend, class Comm, class... Policies>
  requires(detail::LayoutArguments<WidthList, O, Backend, Comm>::in_order &&
           detail::OptimizerOrGroups<O>)
class LayoutCollection : public detail::TablesOf<WidthList, O, Backend, Policies...> {
  using Settings = detail::CheckedPolicies<Policies...>;
  using Tables = detail::TablesOf<WidthList, O, Backend, Policies...>;
  using Tables::backend_, Tables::options_, Tables::store_, Tables::layout_, Tables::steps_;
  using typename Tables::Initializers;
  using Kernels = detail::KernelsOf<typename Tables::Store>;
  using Stages = detail::Stages<
      detail::StagePolicies<typename Settings::output, typename Settings::forward_codecs,
                            typename Settings::backward_codecs, Settings::reports_steps>,
      Kernels::shared, Backend, Comm>;
  template <IdType Id>
  using Calls = detail::StageCalls<Stages, Id>;

 public:
  using optimizer = O;
  using Tables::columns;
  using typename Tables::element, typename Tables::Options, typename Tables::Store;
  template <class Id>  // clang 14 crashes on a constrained alias here
  using StepState = Step<Id, Backend>;
  using output_type = typename Settings::output;
  template <class Id>
  using Found = Pooled<Id, Backend, output_type>;
  using Output = MatrixView<output_type>;
  using Gradient = MatrixView<const output_type>;

  /// What one element and one row cost on a rank; of several training groups, the most.
  static constexpr detail::MemoryCost memory_cost = detail::memory_cost<element, O>(-1);

  /// Takes a layout: every rank gives the same layout, made for communicator.size() ranks, and the
  /// same options. Throws InvalidArgument if the layout has a fault, or if ranks differ: on all of
  /// them, with what differs and where. Collective.
  LayoutCollection(Comm& communicator, Backend backend, Layout layout, Options options)
      : Tables(communicator.rank(), std::move(backend), std::move(layout), std::move(options)),
        communicator_(communicator),
        stages_(
            communicator, backend_, store_, steps_, detail::stage_options(options_),
            detail::guards_of(options_), typename Settings::forward_codecs(options_.forward_codec),
            typename Settings::backward_codecs(options_.backward_codec), Kernels::shared_rows()) {
    detail::require_memory<Backend>(communicator_);
    detail::require_sound(options_, communicator_.size());
    detail::require_offered<Comm>(layout_, store_.routing(), communicator_.size(),
                                  stages_.guard.rejects());
    detail::require_agreement(communicator_, detail::shared_facts<Settings>(layout_, options_));
  }
  LayoutCollection(const LayoutCollection&) = delete;
  LayoutCollection& operator=(const LayoutCollection&) = delete;

  /// Returns how many batches of this rank were looked up and replaced by the next one without an
  /// update; those of `evaluate`, and steps given to `end`, do not count. With
  /// Options::check_stages the next batch throws InvalidArgument instead.
  std::uint64_t forwards_without_backward() const {
    return stages_.forwards_without_backward.load(std::memory_order_relaxed);
  }
  /// Returns the bad ids seen by this rank so far, per table of the layout. Where the host cannot
  /// see ids it waits for the backend's work, and throws a fault that `forward` has not.
  std::span<const std::uint64_t> bad_ids() const { return stages_.report.read(layout_); }
  /// Returns the number of gradients given to this rank's `backward` that were NaN or infinite
  /// (waits for the backend's work), and steps that no rank carried out because of them; under
  /// NonFinite::count or reject.
  std::uint64_t non_finite_gradients() const { return stages_.guard.counted(); }
  std::uint64_t rejected_steps() const { return stages_.guard.rejected(); }
  /// Returns, under ReportSteps, the report of the last step on this rank; a GPU's host waits. On
  /// from the first step.
  const StepReport& step_report()
    requires(Settings::reports_steps)
  {
    return stages_.reporter.report(backend_);
  }
  void report_steps(bool on)
    requires(Settings::reports_steps)
  {
    stages_.reporter.turn(on);
  }
  /// Turns the promise of Options::equal_batches off for the batches that follow, or on again: on
  /// all ranks alike, as for the last batch of an epoch.
  void promise_equal_batches(bool on) { stages_.equal_batches = on; }
  /// Returns whose ids model-parallel input holds on this rank, in this order (indices into the
  /// features).
  std::span<const int> local_features() const { return store_.routing().local_features(); }

  // ---- one call per direction ----

  /// Looks this rank's samples up. The result lives in the collection until the next forward.
  template <IdType Id>
  Found<Id> forward(const KeyedJagged<Id>& ids) {
    detail::check_features(ids, layout_.features.size());
    return forward(ids, detail::make_matrix(backend_, output_, ids.batch, columns()));
  }

  /// Does the same into the caller's memory: [batch, columns], any stride.
  template <IdType Id>
  Found<Id> forward(const KeyedJagged<Id>& ids, Output output) {
    StepState<Id>& step = step_of<Id>(own_steps_);
    route(step, ids);
    return forward_routed(step, output);
  }

  /// Does as the first; `vectors` says where those of some sequences are written, one per id
  /// (SequenceView).
  template <IdType Id>
  Found<Id> forward(const KeyedJagged<Id>& ids, detail::SequenceOutputs vectors)
    requires(Store::keeps_rows)
  {
    const detail::GivenForCall given(step_of<Id>(own_steps_).vectors, vectors);
    return forward(ids);
  }

  /// Takes model-parallel input: `ids` are the global batch of local_features(). `sample_begin`:
  /// first sample of each rank and the end (ranks + 1 numbers); empty: the batch is cut evenly. The
  /// result is as from `forward`: this rank's samples, all columns and sequences, written as
  /// `vectors` says.
  template <IdType Id>
  Found<Id> forward_model_parallel(const KeyedJagged<Id>& ids,
                                   std::span<const std::int64_t> sample_begin = {},
                                   detail::SequenceOutputs vectors = {}) {
    StepState<Id>& step = step_of<Id>(own_steps_);
    const detail::GivenForCall given(step.vectors, vectors);
    route_model_parallel(step, ids, sample_begin);
    return forward_routed(step,
                          detail::make_matrix(backend_, output_, step.batch.samples(), columns()));
  }

  /// Updates the rows that `pooled` was looked up from. `gradient`: of pooled.values;
  /// `sequences`: one for each sequence feature that trains, from its view.
  template <IdType Id>
  void backward(const Found<Id>& pooled, Gradient gradient,
                detail::SequenceGradients sequences = {}) {
    StepState<Id>& step = Calls<Id>::opened(stages_, "backward", pooled, gradient, sequences);
    split(step, gradient, sequences);
    exchange_gradients(step);
    update(step, gradient);
  }

  /// Does the same if all features are sequences.
  template <IdType Id>
  void backward(const Found<Id>& pooled, detail::SequenceGradients sequences) {
    backward(pooled, Gradient(nullptr, pooled.values.rows, 0), sequences);
  }

  /// Does as the first; `weight_gradients` gets the gradient of the per-id weights, parallel to the
  /// batch's ids (0 for features without weights). With model-parallel input each rank gets its own
  /// shards' share, and the ranks' sum is the gradient. Every rank must call this form.
  template <IdType Id>
  void backward(const Found<Id>& pooled, Gradient gradient, std::span<float> weight_gradients,
                detail::SequenceGradients sequences = {}) {
    StepState<Id>& step = Calls<Id>::opened(stages_, "backward", pooled, gradient, sequences);
    stages_.weight_gradients.check_room("backward", weight_gradients, step.batch.ids());
    split(step, gradient, sequences);
    exchange_gradients(step);
    this->weight_gradients(step, gradient, weight_gradients);
    update(step, gradient);
  }

  /// Does as `backward`, but rows wait for `apply`: gradients of several batches, and of several
  /// losses on one of them (the same `pooled` again), are summed, for one step. False, on every
  /// rank, if `split` refuses the gradients: leave those that dense layers have of this batch
  /// out, too.
  template <IdType Id>
  bool accumulate(const Found<Id>& pooled, Gradient gradient,
                  detail::SequenceGradients sequences = {}) {
    StepState<Id>& step = Calls<Id>::opened(stages_, "accumulate", pooled, gradient, sequences,
                                            stages_.accumulator.applies());
    if (!split(step, gradient, sequences)) return stages_.accumulator.skip(step), false;
    exchange_gradients(step);
    Calls<Id>::accumulate(stages_, step, gradient, Kernels::template merge<Id, float>);
    return true;
  }
  /// Makes the optimizer's step (apply_accumulated): returns the norm before clipping, if `clip`
  /// needs it.
  template <class Clip = KeepGradients>
  double apply(const Clip& clip = {}, std::span<float> dense = {}) {
    stages_.check_stage(communicator_, "apply");
    const auto timing = stages_.reporter.time(backend_, stages_.counted);
    stages_.updater.count_rows(stages_.reporter.row_counter(backend_));
    const auto clipped = detail::apply_accumulated(stages_.accumulator, steps_, store_.seed(),
                                                   Kernels::merged_rows(), clip, dense,
                                                   stages_.reporter.clip_counter());
    stages_.reporter.step_done(steps_.called(), stages_.updater.split_rows(), clipped);
    return clipped.norm;
  }

  /// Looks a batch up that gets no update: as `forward`, beside a batch that waits for its
  /// `backward`. The result lives until the next `evaluate`.
  template <IdType Id>
  detail::Evaluated<Id, Backend, output_type> evaluate(const KeyedJagged<Id>& ids) {
    detail::check_features(ids, layout_.features.size());
    const Output output = detail::make_matrix(backend_, evaluated_, ids.batch, columns());
    StepState<Id>& step = step_of<Id>(evaluation_steps_);
    evaluate(step, ids, output);
    return {output, &step};
  }

  /// Does the same with a step and memory of the caller's. On the host, threads that have a step
  /// each may do so side by side (on several ranks with a communicator each), and beside `route`
  /// and `forward_routed` of other steps, but not beside anything that changes tables.
  template <IdType Id>
  void evaluate(StepState<Id>& step, const KeyedJagged<Id>& ids, Output output) const {
    evaluate(step, ids, output, communicator_, backend_);
  }
  template <IdType Id>
  void evaluate(StepState<Id>& step, const KeyedJagged<Id>& ids, Output output, Comm& communicator,
                const Backend& backend) const {
    route(step, ids, communicator, backend);
    step.sorted.forgo();
    forward_routed(step, output, communicator, backend);
    end(step);
  }

  /// Does the rest of `forward` for a step that has been routed.
  template <IdType Id>
  Found<Id> forward_routed(StepState<Id>& step, Output output) const {
    return forward_routed(step, output, communicator_, backend_);
  }
  /// Does the same with another communicator of the same ranks and another backend: see `route`.
  template <IdType Id>
  Found<Id> forward_routed(StepState<Id>& step, Output output, Comm& communicator,
                           const Backend& backend) const {
    lookup(step, output, backend);
    Calls<Id>::exchange(stages_, step, communicator, backend);
    Calls<Id>::assemble(stages_, step, output, backend, Kernels::whole_rows());
    return {output, &step, step.progress.turn()};
  }

  // ---- the stages; a step passes them in this order. Each throws InvalidArgument if it is not
  // the step's next one, and then changes nothing ----

  /// Checks ids and sends them to the ranks that own their rows.
  template <IdType Id>
  void route(StepState<Id>& step, const KeyedJagged<Id>& ids) const {
    stages_.check_stage(communicator_, "route");
    Calls<Id>::route(stages_, step, ids, communicator_, backend_, steps_.rates());
  }

  /// Does the same with another communicator of the same ranks and another backend: so another
  /// thread may route the next batch while this one does anything but route or ask for bad_ids
  /// (RouteAhead); on the host it may also route, with another step.
  template <IdType Id>
  void route(StepState<Id>& step, const KeyedJagged<Id>& ids, Comm& communicator,
             const Backend& backend) const {
    // ranks may be between other updates
    Calls<Id>::route(stages_, step, ids, communicator, backend,
                     std::numeric_limits<double>::quiet_NaN());
  }

  template <IdType Id>
  void route_model_parallel(StepState<Id>& step, const KeyedJagged<Id>& ids,
                            std::span<const std::int64_t> sample_begin = {}) const {
    Calls<Id>::route_model_parallel(stages_, step, ids, sample_begin, Store::keeps_rows);
  }

  /// Gathers and pools on the owners; what this rank needs from itself goes straight to `output`.
  template <IdType Id>
  void lookup(StepState<Id>& step, Output output) const {
    lookup(step, output, backend_);
  }

  /// Sends pooled vectors back to the ranks that own the samples.
  template <IdType Id>
  void exchange(StepState<Id>& step) const {
    stages_.check_stage(communicator_, "exchange");
    Calls<Id>::exchange(stages_, step, communicator_, backend_);
  }

  /// Puts the vectors that came back into their columns; adds if a table is cut by rows.
  /// `output`: as given to lookup.
  template <IdType Id>
  void assemble(StepState<Id>& step, Output output) const {
    Calls<Id>::assemble(stages_, step, output, backend_, Kernels::whole_rows());
  }

  /// Ends a step that was looked up and gets no update: its batch was for evaluation.
  template <IdType Id>
  void end(StepState<Id>& step) const {
    Calls<Id>::end(stages_, step);
  }

  /// Cuts the gradients into what each owner needs. False, on every rank, if
  /// NonFinite::reject refuses the gradients of any: then the stages that follow do nothing, and
  /// the step waits for `split` with other gradients, or for its next batch.
  template <IdType Id>
  bool split(StepState<Id>& step, Gradient gradient, detail::SequenceGradients sequences = {}) {
    return Calls<Id>::split(stages_, step, gradient, sequences, Kernels::whole_rows());
  }

  /// Sends gradients to the owners.
  template <IdType Id>
  void exchange_gradients(StepState<Id>& step) {
    Calls<Id>::exchange_gradients(stages_, step);
  }

  /// Computes the gradient of the per-id weights, before the update changes the rows: `out` as in
  /// `backward`, `gradient` as given to split. Collective; may be left out on all ranks.
  template <IdType Id>
  void weight_gradients(StepState<Id>& step, Gradient gradient, std::span<float> out) {
    Calls<Id>::weight_gradients(stages_, step, gradient, out, Kernels::template dot<Id, float>,
                                Kernels::template dot<Id, output_type>, Kernels::dot_whole_rows);
  }

  /// Merges the gradients of each row over the global batch and applies the optimizer once per row.
  /// Ends the step. `gradient`: as given to split.
  template <IdType Id>
  void update(StepState<Id>& step, Gradient gradient) {
    Calls<Id>::update(stages_, step, gradient, Kernels::template shared_merge<Id, float>(),
                      Kernels::template update<Id, float>,
                      Kernels::template shared_merge<Id, output_type>(),
                      Kernels::template update<Id, output_type>);
  }

  // ---- tables ----

  /// Lets rows of a table (index in layout().tables) that this rank holds start anew, without what
  /// was accumulated for them: see Vocabulary.
  void reset_rows(int table, std::span<const std::int64_t> rows) {
    const detail::ObservedUpdate observed(stages_.updater.observers());
    store_.reset_rows(backend_, table, rows, options_.optimizer,
                      Initializers{options_.initialize, options_.optimizer},
                      [this](std::size_t arena, std::span<const std::int64_t> arena_rows) {
                        stages_.updater.tell_rows(arena, arena_rows);
                      });
  }

  /// Tells `observer` from now on which rows updates and `reset_rows` change, not `tables()`.
  void observe(RowObserver& observer) {
    require(Backend::host_readable,
            "observe: rows can be watched only where the host can read them");
    stages_.updater.observers().push_back(&observer);
  }
  void unobserve(RowObserver& observer) { stages_.updater.observers().remove(&observer); }
  /// Marks the rows that updates and `reset_rows` change while the result lives: not after this.
  std::unique_ptr<detail::RowMarks> mark_rows() {
    return std::make_unique<detail::MarkedRows<Backend>>(backend_, store_.routing().arenas(),
                                                         stages_.updater.marks());
  }

 private:
  template <IdType Id, class Steps>
  static StepState<Id>& step_of(Steps& steps) {
    auto& step = std::get<std::shared_ptr<StepState<Id>>>(steps);
    if (step == nullptr) step = std::make_shared<StepState<Id>>();
    return *step;
  }

  template <IdType Id>
  void lookup(StepState<Id>& step, Output output, const Backend& backend) const {
    Calls<Id>::lookup(stages_, step, output, backend, Kernels::template look_up<Id, float>,
                      Kernels::template look_up<Id, output_type>);
  }

  Comm& communicator_;
  Stages stages_;
  /// By type of ids; made when a batch has such ids.
  using Steps = std::tuple<std::shared_ptr<StepState<std::int32_t>>,
                           std::shared_ptr<StepState<std::int64_t>>>;
  Steps own_steps_, evaluation_steps_;
  Buffer<output_type, Backend> output_, evaluated_;
};

}}  // namespace tessera::v0
