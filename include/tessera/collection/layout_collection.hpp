// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/communicator.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/settings/arguments.hpp>
#include <tessera/sharding/cluster.hpp>
#include <tessera/sharding/plan.hpp>
#include <tessera/stage/apply_accumulated.hpp>
#include <tessera/stage/apply_step.hpp>
#include <tessera/stage/equal_batches.hpp>
#include <tessera/stage/gradient_guard.hpp>
#include <tessera/stage/local_distinct_rows.hpp>
#include <tessera/stage/look_up.hpp>
#include <tessera/stage/model_parallel.hpp>
#include <tessera/stage/route.hpp>
#include <tessera/stage/served_groups.hpp>
#include <tessera/stage/step.hpp>
#include <tessera/stage/step_reporter.hpp>
#include <tessera/stage/trained_tables.hpp>
#include <tessera/stage/training_steps.hpp>
#include <tessera/stage/updater.hpp>
#include <tessera/stage/vector_exchange.hpp>
#include <tessera/stage/weight_gradients.hpp>
#include <tessera/tables/buffer.hpp>
#include <tessera/tables/matrix.hpp>
#include <tessera/tables/table_store.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// The embedding tables of a model under a layout that is known at run time: cut, looked up,
/// exchanged between ranks, updated. `EmbeddingCollection` is the same for a plan known at compile
/// time, with its checks; see there.
template <class WidthList, class O, class Backend, class Comm, class... Policies>
  requires(detail::LayoutArguments<WidthList, O, Backend, Comm>::in_order && OptimizerOrGroups<O>)
class LayoutCollection : public detail::TablesOf<WidthList, O, Backend, Policies...> {
  using Settings = detail::CheckedPolicies<Policies...>;
  using Tables = detail::TablesOf<WidthList, O, Backend, Policies...>;
  using Tables::backend_, Tables::options_, Tables::store_, Tables::layout_, Tables::steps_;
  using typename Tables::Initializers;
  using Reporter = detail::StepReporter<Settings::reports_steps, Comm, Backend>;
  using Ranks = typename Reporter::Ranks;

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
  static constexpr MemoryCost memory_cost = detail::memory_cost<element, O>(-1);

  /// Every rank gives the same layout, made for communicator.size() ranks, and the same options.
  /// Throws InvalidArgument if the layout has a fault, or if ranks differ: on all of them, with
  /// what differs and where. Collective.
  LayoutCollection(Comm& communicator, Backend backend, Layout layout, Options options)
      : Tables(communicator.rank(), std::move(backend), std::move(layout), std::move(options)),
        communicator_(communicator),
        routing_(store_.routing()),
        counted_(communicator),
        updater_(backend_, counted_, store_),
        report_(backend_, layout_.tables.size(),
                communicator.size() == 1 ? -1 : communicator.rank()) {
    detail::require_memory<Backend>(communicator_);
    detail::require_sound(options_, communicator_.size());
    detail::require_offered<Comm>(layout_, routing_, communicator_.size(), guard_.rejects());
    detail::require_agreement(communicator_, detail::shared_facts<Settings>(layout_, options_));
  }
  LayoutCollection(const LayoutCollection&) = delete;
  LayoutCollection& operator=(const LayoutCollection&) = delete;

  /// Returns how many batches of this rank were looked up and replaced by the next one without an
  /// update; those of `evaluate`, and steps given to `end`, do not count. With
  /// Options::check_stages the next batch throws InvalidArgument instead.
  std::uint64_t forwards_without_backward() const {
    return forwards_without_backward_.load(std::memory_order_relaxed);
  }
  /// Bad ids seen by this rank so far, per table of the layout. Where the host cannot see ids it
  /// waits for the backend's work, and throws a fault that `forward` has not.
  std::span<const std::uint64_t> bad_ids() const { return report_.read(layout_); }
  /// Gradients given to this rank's `backward` that were NaN or infinite (waits for the backend's
  /// work), and steps that no rank carried out because of them; under NonFinite::count or reject.
  std::uint64_t non_finite_gradients() const { return guard_.counted(); }
  std::uint64_t rejected_steps() const { return guard_.rejected(); }
  /// Under ReportSteps: of the last step, on this rank; a GPU's host waits. On from the first step.
  const StepReport& step_report()
    requires(Settings::reports_steps)
  {
    return reporter_.report(backend_);
  }
  void report_steps(bool on)
    requires(Settings::reports_steps)
  {
    reporter_.turn(on);
  }
  /// Whose ids model-parallel input holds on this rank, in this order (indices into the features).
  std::span<const int> local_features() const { return routing_.local_features(); }

  // ---- one call per direction ----

  /// Looks this rank's samples up. The result lives in the collection until the next forward.
  template <IdType Id>
  Found<Id> forward(const KeyedJagged<Id>& ids) {
    detail::check_features(ids, layout_.features.size());
    return forward(ids, detail::make_matrix(backend_, output_, ids.batch, columns()));
  }

  /// The same into the caller's memory: [batch, columns], any stride.
  template <IdType Id>
  Found<Id> forward(const KeyedJagged<Id>& ids, Output output) {
    StepState<Id>& step = std::get<StepState<Id>>(own_steps_);
    route(step, ids);
    return forward_routed(step, output);
  }

  /// The first; `vectors` says where those of some sequences are written, one per id
  /// (SequenceView).
  template <IdType Id>
  Found<Id> forward(const KeyedJagged<Id>& ids, SequenceOutputs vectors)
    requires(Store::keeps_rows)
  {
    const detail::GivenForCall given(std::get<StepState<Id>>(own_steps_).vectors, vectors);
    return forward(ids);
  }

  /// Model-parallel input: `ids` are the global batch of local_features(). `sample_begin`: first
  /// sample of each rank and the end (ranks + 1 numbers); empty: the batch is cut evenly. The
  /// result is as from `forward`: this rank's samples, all columns and sequences, written as
  /// `vectors` says.
  template <IdType Id>
  Found<Id> forward_model_parallel(const KeyedJagged<Id>& ids,
                                   std::span<const std::int64_t> sample_begin = {},
                                   SequenceOutputs vectors = {}) {
    StepState<Id>& step = std::get<StepState<Id>>(own_steps_);
    const detail::GivenForCall given(step.vectors, vectors);
    route_model_parallel(step, ids, sample_begin);
    return forward_routed(step,
                          detail::make_matrix(backend_, output_, step.batch.samples(), columns()));
  }

  /// Updates the rows that `pooled` was looked up from. `gradient`: of pooled.values;
  /// `sequences`: one for each sequence feature that trains, from its view.
  template <IdType Id>
  void backward(const Found<Id>& pooled, Gradient gradient, SequenceGradients sequences = {}) {
    StepState<Id>& step = opened("backward", pooled, gradient, sequences);
    split(step, gradient, sequences);
    exchange_gradients(step);
    update(step, gradient);
  }

  /// The same where all features are sequences.
  template <IdType Id>
  void backward(const Found<Id>& pooled, SequenceGradients sequences) {
    backward(pooled, Gradient(nullptr, pooled.values.rows, 0), sequences);
  }

  /// The first; `weight_gradients` gets the gradient of the per-id weights, parallel to the batch's
  /// ids (0 for features without weights). With model-parallel input each rank gets its own shards'
  /// share, and the ranks' sum is the gradient. Every rank must call this form.
  template <IdType Id>
  void backward(const Found<Id>& pooled, Gradient gradient, std::span<float> weight_gradients,
                SequenceGradients sequences = {}) {
    StepState<Id>& step = opened("backward", pooled, gradient, sequences);
    weight_gradients_.check_room("backward", weight_gradients, step.batch.ids());
    split(step, gradient, sequences);
    exchange_gradients(step);
    this->weight_gradients(step, gradient, weight_gradients);
    update(step, gradient);
  }

  /// As `backward`, but rows wait for `apply`: gradients of several batches, and of several losses
  /// on one of them (the same `pooled` again), are summed, for one step. False, on every rank, where
  /// `split` refuses the gradients: leave those that dense layers have of this batch out, too.
  template <IdType Id>
  bool accumulate(const Found<Id>& pooled, Gradient gradient, SequenceGradients sequences = {}) {
    StepState<Id>& step = opened("accumulate", pooled, gradient, sequences, accumulator_.applies());
    if (!split(step, gradient, sequences)) return accumulator_.skip(step), false;
    exchange_gradients(step);
    {
      const auto timing = reporter_.time(step, ReportedStage::update, backend_);
      accumulator_.add(step, step.narrow.widened(backend_, gradient));
    }
    reporter_.batch_done(step);
    return true;
  }
  /// The optimizer's step (apply_accumulated): returns the norm before clipping, if `clip` needs it.
  template <class Clip = KeepGradients>
  double apply(const Clip& clip = {}, std::span<float> dense = {}) {
    check_stage(communicator_, "apply");
    const auto timing = reporter_.time(backend_, counted_);
    updater_.count_rows(reporter_.row_counter(backend_));
    const auto clipped =
        detail::apply_accumulated(accumulator_, options_.optimizer, steps_, store_.seed(), clip,
                                  dense, reporter_.clip_counter());
    reporter_.step_done(steps_.called(), updater_.split_rows(), clipped);
    return clipped.norm;
  }

  /// Looks a batch up that gets no update: as `forward`, beside a batch that waits for its
  /// `backward`. The result lives until the next `evaluate`.
  template <IdType Id>
  Evaluated<Id, Backend, output_type> evaluate(const KeyedJagged<Id>& ids) {
    detail::check_features(ids, layout_.features.size());
    const Output output = detail::make_matrix(backend_, evaluated_, ids.batch, columns());
    StepState<Id>& step = std::get<StepState<Id>>(evaluation_steps_);
    evaluate(step, ids, output);
    return {output, &step};
  }

  /// The same with a step and memory of the caller's. On the host, threads that have a step each
  /// may do so side by side (on several ranks with a communicator each), and beside `route` and
  /// `forward_routed` of other steps, but not beside anything that changes tables.
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

  /// The rest of `forward` for a step that has been routed.
  template <IdType Id>
  Found<Id> forward_routed(StepState<Id>& step, Output output) const {
    return forward_routed(step, output, communicator_, backend_);
  }
  /// The same with another communicator of the same ranks and another backend: see `route`.
  template <IdType Id>
  Found<Id> forward_routed(StepState<Id>& step, Output output, Comm& communicator,
                           const Backend& backend) const {
    lookup(step, output, backend);
    exchange(step, communicator, backend);
    assemble(step, output, backend);
    return {output, &step, step.progress.turn()};
  }

  // ---- the stages; a step passes them in this order. Each throws InvalidArgument where it is not
  // the step's next one, and then changes nothing ----

  /// Checks ids and sends them to the ranks that own their rows.
  template <IdType Id>
  void route(StepState<Id>& step, const KeyedJagged<Id>& ids) const {
    check_stage(communicator_, "route");
    route_at(step, ids, communicator_, backend_, steps_.rates());
  }

  /// The same with another communicator of the same ranks and another backend: so another thread
  /// may route the next batch while this one does anything but route or ask for bad_ids
  /// (RouteAhead); on the host it may also route, with another step.
  template <IdType Id>
  void route(StepState<Id>& step, const KeyedJagged<Id>& ids, Comm& communicator,
             const Backend& backend) const {
    // ranks may be between other updates
    route_at(step, ids, communicator, backend, std::numeric_limits<double>::quiet_NaN());
  }

  template <IdType Id>
  void route_model_parallel(StepState<Id>& step, const KeyedJagged<Id>& ids,
                            std::span<const std::int64_t> sample_begin = {}) const {
    check_stage(communicator_, "route_model_parallel");
    begin(step, backend_);
    auto&& ranks = Reporter::counted(communicator_);
    const auto timing =
        reporter_.time(step, ReportedStage::route, backend_, &ranks, std::ssize(ids.ids));
    step.batch.admit_global(backend_, layout_, routing_, ids, sample_begin,
                            {options_.bad_ids, report_, routing_.sizes_needed(false, false)},
                            steps_.rates());
    if constexpr (Store::keeps_rows)
      if (routing_.keeps_rows() || !step.vectors.empty())
        detail::LocalDistinctRows<Id, Backend, Ranks>(backend_, ranks, layout_, routing_)
            .find(step, options_.bad_ids, blocks());
    require(step.vectors.empty(), "forward_model_parallel: no feature is a sequence");
    detail::LocalIdExchange<Id, Backend, Ranks>(backend_, ranks, layout_, routing_).run_stage(step);
    step.resident.hold(backend_, store_, step.routed.received());
    step.progress.passed(detail::StepStage::routed);
  }

  /// Gathers and pools on the owners; what this rank needs from itself goes straight to `output`.
  template <IdType Id>
  void lookup(StepState<Id>& step, Output output) const {
    lookup(step, output, backend_);
  }

  /// Pooled vectors go back to the ranks that own the samples.
  template <IdType Id>
  void exchange(StepState<Id>& step) const {
    check_stage(communicator_, "exchange");
    exchange(step, communicator_, backend_);
  }

  /// Puts the vectors that came back into their columns; adds where a table is cut by rows.
  /// `output`: as given to lookup.
  template <IdType Id>
  void assemble(StepState<Id>& step, Output output) const {
    assemble(step, output, backend_);
  }

  /// Ends a step that was looked up and gets no update: its batch was for evaluation.
  template <IdType Id>
  void end(StepState<Id>& step) const {
    require(step.progress.is_of(this), "end: this step was routed by another collection");
    step.sorted.join(backend_);
    step.resident.release(true);
    step.progress.passed(detail::StepStage::empty);
  }

  /// Cuts the gradients into what each owner needs. False, on every rank, where
  /// NonFinite::reject refuses the gradients of any: then the stages that follow do nothing, and
  /// the step waits for `split` with other gradients, or for its next batch.
  template <IdType Id>
  bool split(StepState<Id>& step, Gradient gradient, SequenceGradients sequences = {}) {
    if (!step.progress.rejected(this))
      step.progress.require_at(this, detail::StepStage::assembled, "split");
    detail::check_shape("split: gradient", gradient, step.batch.samples(), columns());
    step.distinct.check("split", sequences);
    if (!guard_.accept(communicator_, gradient, sequences)) {
      step.progress.passed(detail::StepStage::rejected);
      return false;
    }
    const auto timing = reporter_.time(step, ReportedStage::split, backend_);
    const MatrixView<const float> floats = step.narrow.begin(backend_, gradient);
    if (step.distinct.template merge<Store>(backend_, floats, sequences))
      step.routed.set_direct(routing_, [&](int feature) { return step.bags_to_route(feature); });
    vectors_.split(backend_, step, floats);
    step.progress.passed(detail::StepStage::split);
    return true;
  }

  /// Gradients go to the owners.
  template <IdType Id>
  void exchange_gradients(StepState<Id>& step) {
    if (step.progress.rejected(this)) return;
    step.progress.require_at(this, detail::StepStage::split, "exchange_gradients");
    check_stage(communicator_, "exchange_gradients");
    const auto timing =
        reporter_.time(step, ReportedStage::exchange_gradients, backend_, &counted_);
    vectors_.to_owners(backend_, counted_, step);
    step.progress.passed(detail::StepStage::received);
  }

  /// The gradient of the per-id weights, before the update changes the rows: `out` as in
  /// `backward`, `gradient` as given to split. Collective; may be left out on all ranks.
  template <IdType Id>
  void weight_gradients(StepState<Id>& step, Gradient gradient, std::span<float> out) {
    const bool rejected = step.progress.rejected(this);
    if (!rejected) step.progress.require_at(this, detail::StepStage::received, "weight_gradients");
    detail::check_shape("weight_gradients: gradient", gradient, step.batch.samples(), columns());
    weight_gradients_.check_room("weight_gradients", out, step.batch.ids());
    if (rejected) return backend_.fill_zero(out.data(), out.size_bytes());
    const auto timing = reporter_.time(step, ReportedStage::weight_gradients, backend_, &counted_);
    store_.refresh();
    step.narrow.visit(backend_, gradient,
                      [&](auto given) { weight_gradients_.run_stage(step, given, out); });
  }

  /// Merges the gradients of each row over the global batch and applies the optimizer once per row
  /// (apply_step). Ends the step. `gradient`: as given to split.
  template <IdType Id>
  void update(StepState<Id>& step, Gradient gradient) {
    if (step.progress.rejected(this)) return;
    step.progress.require_at(this, detail::StepStage::received, "update");
    accumulator_.require_none("update");
    detail::check_shape("update: gradient", gradient, step.batch.samples(), columns());
    check_stage(communicator_, "update");
    const auto timing = reporter_.time(backend_, counted_);
    updater_.count_rows(reporter_.row_counter(backend_));
    step.progress.passed(detail::StepStage::empty);
    step.narrow.visit(backend_, gradient, [&](auto given) {
      detail::apply_step(step, given, store_, updater_, options_.optimizer, steps_);
    });
    reporter_.batch_done(step);
    reporter_.step_done(steps_.called(), updater_.split_rows(), detail::Clipped{});
  }

  // ---- tables ----

  /// Rows of a table (index in layout().tables) that this rank holds start anew: see Vocabulary.
  void reset_rows(int table, std::span<const std::int64_t> rows) {
    const ObservedUpdate observed(updater_.observers());
    store_.reset_rows(backend_, table, rows, options_.optimizer,
                      Initializers{options_.initialize, options_.optimizer},
                      [this](std::size_t arena, std::span<const std::int64_t> arena_rows) {
                        updater_.tell_rows(arena, arena_rows);
                      });
  }

  /// Tells `observer` from now on which rows updates and `reset_rows` change, not `tables()`.
  void observe(RowObserver& observer) {
    require(Backend::host_readable,
            "observe: rows can be watched only where the host can read them");
    updater_.observers().push_back(&observer);
  }
  void unobserve(RowObserver& observer) { std::erase(updater_.observers(), &observer); }
  /// The rows that updates and `reset_rows` change while the result lives: not after this.
  std::unique_ptr<detail::RowMarks> mark_rows() {
    return std::make_unique<detail::MarkedRows<Backend>>(backend_, routing_.arenas(),
                                                         updater_.marks());
  }

 private:
  int blocks() const { return detail::blocks_of_batch(options_, routing_.ranks()); }

  void check_stage(Comm& communicator, std::string_view stage) const {
    if (options_.check_stages)
      detail::require_same_stage(communicator, stage, steps_.called(), steps_.rates());
  }

  template <IdType Id>
  StepState<Id>& opened(std::string_view call, const Found<Id>& pooled, Gradient gradient,
                        SequenceGradients sequences, const auto&... applies) const {
    pooled.check(this, call, applies...);
    detail::check_shape("backward: gradient", gradient, pooled.step->batch.samples(), columns());
    pooled.step->distinct.check(call, sequences);
    return *pooled.step;
  }

  template <IdType Id>
  void begin(StepState<Id>& step, const Backend& backend) const {
    if (step.progress.is_of(this) && step.progress.awaits_update()) {
      forwards_without_backward_.fetch_add(1, std::memory_order_relaxed);
      require(!options_.check_stages,
              "route: the batch before had no update; call backward once for each forward, and "
              "evaluate (or end, for a step of your own) where none is meant");
    }
    step.begin(this);
    step.sorted.join(backend);
  }

  template <IdType Id>
  void route_at(StepState<Id>& step, const KeyedJagged<Id>& ids, Comm& communicator,
                const Backend& backend, double rate) const {
    begin(step, backend);
    auto&& ranks = Reporter::counted(communicator);
    const auto timing =
        reporter_.time(step, ReportedStage::route, backend, &ranks, std::ssize(ids.ids));
    const bool fix = detail::fixes_sizes(options_, routing_.keeps_rows(), routing_.ranks());
    step.batch.admit(backend, layout_, all_features_, ids,
                     {options_.bad_ids, report_, routing_.sizes_needed(fix, options_.deduplicate)},
                     rate);
    if (options_.equal_batches) equal_batches_.fix_sizes(ranks, layout_, routing_, ids, step, fix);
    if (options_.deduplicate || routing_.keeps_rows() || !step.vectors.empty())
      step.distinct.find(backend, layout_, routing_, step.batch,
                         {.duplicates = options_.deduplicate,
                          .bad_ids = options_.bad_ids,
                          .blocks = blocks(),
                          .fixed = step.batch.fixed_sizes(),
                          .vectors = std::exchange(step.vectors, {})});
    detail::IdExchange<Id, Backend, Ranks>(backend, ranks, routing_).data_parallel(step);
    step.resident.hold(backend, store_, step.routed.received());
    step.progress.passed(detail::StepStage::routed);
  }

  template <IdType Id>
  void lookup(StepState<Id>& step, Output output, const Backend& backend) const {
    step.progress.require_at(this, detail::StepStage::routed, "lookup");
    detail::check_shape("lookup: output", output, step.batch.samples(), columns());
    const auto timing = reporter_.time(step, ReportedStage::lookup, backend);
    vectors_.size(backend, step);
    if (options_.sort_ahead) sort_ahead(step, backend, store_, updater_);
    store_.refresh();
    detail::look_up(step, output, backend, store_, timing);
    step.progress.passed(detail::StepStage::looked_up);
  }
  template <IdType Id>
  void exchange(StepState<Id>& step, Comm& communicator, const Backend& backend) const {
    step.progress.require_at(this, detail::StepStage::looked_up, "exchange");
    auto&& ranks = Reporter::counted(communicator);
    const auto timing = reporter_.time(step, ReportedStage::exchange, backend, &ranks);
    vectors_.to_requesters(backend, ranks, step);
    step.progress.passed(detail::StepStage::exchanged);
  }
  template <IdType Id>
  void assemble(StepState<Id>& step, Output output, const Backend& backend) const {
    step.progress.require_at(this, detail::StepStage::exchanged, "assemble");
    detail::check_shape("assemble: output", output, step.batch.samples(), columns());
    const auto timing = reporter_.time(step, ReportedStage::assemble, backend);
    const MatrixView<float> floats = step.narrow.floats(backend, output);
    vectors_.assemble(backend, step, floats);
    step.distinct.template pool<Store>(backend, floats);
    step.narrow.round(backend, output);
    step.progress.passed(detail::StepStage::assembled);
  }

  Comm& communicator_;
  const detail::RankLayout& routing_;
  typename Reporter::RanksHolder counted_;  ///< the same ranks
  detail::Updater<Store, Backend, Ranks> updater_;
  detail::Accumulator<Store, Backend, Ranks> accumulator_{backend_, counted_, store_, updater_};
  detail::WeightGradientStage<Store, Backend, Ranks> weight_gradients_{backend_, counted_, store_};
  detail::VectorExchange<Backend, Ranks, typename Settings::forward_codecs,
                         typename Settings::backward_codecs>
      vectors_{routing_, typename Settings::forward_codecs(options_.forward_codec),
               typename Settings::backward_codecs(options_.backward_codec),
               detail::block_alignment(communicator_)};
  mutable detail::IdReport<Backend> report_;
  const std::vector<int> all_features_ = routing_.all_features();
  detail::GradientGuard<Backend> guard_{backend_, store_, options_};
  mutable detail::EqualBatches equal_batches_;
  Reporter reporter_{routing_};
  mutable std::atomic<std::uint64_t> forwards_without_backward_ = 0;

  std::tuple<StepState<std::int32_t>, StepState<std::int64_t>> own_steps_, evaluation_steps_;
  Buffer<output_type, Backend> output_, evaluated_;
};

}}  // namespace tessera::v0
