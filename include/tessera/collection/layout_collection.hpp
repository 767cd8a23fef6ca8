// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/collection/apply_accumulated.hpp>
#include <tessera/collection/apply_step.hpp>
#include <tessera/collection/gradient_guard.hpp>
#include <tessera/collection/options.hpp>
#include <tessera/concepts/communicator.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/sharding/cluster.hpp>
#include <tessera/sharding/plan.hpp>
#include <tessera/stage/equal_batches.hpp>
#include <tessera/stage/model_parallel.hpp>
#include <tessera/stage/route.hpp>
#include <tessera/stage/served_groups.hpp>
#include <tessera/stage/step.hpp>
#include <tessera/stage/training_steps.hpp>
#include <tessera/stage/updater.hpp>
#include <tessera/stage/vector_exchange.hpp>
#include <tessera/stage/weight_gradients.hpp>
#include <tessera/tables/buffer.hpp>
#include <tessera/tables/matrix.hpp>
#include <tessera/tables/table_store.hpp>

#include <algorithm>
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
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera::inline v0 {

/// The embedding tables of a model under a layout that is known at run time: cut, looked up,
/// exchanged between ranks, updated. `EmbeddingCollection` is the same for a plan known at compile
/// time, with its checks; see there.
template <class WidthList, OptimizerOrGroups O, class Backend, class Comm, class... Policies>
class LayoutCollection {
  using Settings = detail::CheckedPolicies<Policies...>;

 public:
  using optimizer = O;
  using element = typename Settings::element;
  using initializer =
      typename decltype(detail::initializer_of<typename Settings::initializer, O>())::type;
  using Initializers = detail::Initializers<typename Settings::initializer, O, initializer>;
  using Store = TableStore<WidthList, element, O, Backend>;
  template <class Id>  // clang 14 crashes on a constrained alias here
  using StepState = Step<Id, Backend>;

  using Options = CollectionOptions<O, initializer>;

  /// What one element and one row cost on a rank; of several training groups, the most.
  static constexpr MemoryCost memory_cost = detail::memory_cost<element, O>(-1);

  /// Every rank gives the same layout, made for communicator.size() ranks, and the same options.
  /// Throws InvalidArgument if the layout has a fault, or if ranks differ: on all of them, with
  /// what differs and where. Collective.
  LayoutCollection(Comm& communicator, Backend backend, Layout layout, Options options)
      : communicator_(communicator),
        backend_(std::move(backend)),
        options_(std::move(options)),
        store_(backend_, std::move(layout), communicator.rank(), options_.optimizer, options_.seed,
               Initializers{options_.initialize}, options_.files),
        layout_(store_.layout()),
        routing_(store_.routing()),
        updater_(backend_, communicator, store_),
        report_(backend_, layout_.tables.size(),
                communicator.size() == 1 ? -1 : communicator.rank()) {
    for (std::size_t f = 0; f < layout_.features.size(); ++f)
      all_features_.push_back(static_cast<int>(f));
    detail::require_sound<Settings>(options_, communicator_.size());
    detail::require_offered<Comm>(layout_, routing_, communicator_.size());
    require_agreement(communicator_, detail::shared_facts<Settings>(layout_, options_));
  }
  LayoutCollection(const LayoutCollection&) = delete;
  LayoutCollection& operator=(const LayoutCollection&) = delete;

  const Layout& layout() const { return layout_; }
  std::int64_t columns() const { return layout_.columns(); }
  const Backend& backend() const { return backend_; }
  float learning_rate() const { return options_.learning_rate; }
  /// Of later updates of all tables; every rank sets the same one. Throws InvalidArgument unless it
  /// is finite and not negative.
  void set_learning_rate(float rate) {
    options_.learning_rate = detail::checked_rate(rate);
    steps_.set_learning_rate(rate);
  }
  /// The same of a table's training group. Throws InvalidArgument for a name that no table has.
  float learning_rate(std::string_view table) const {
    return steps_.learning_rate(store_.group_of(store_.table_index(table)));
  }
  void set_learning_rate(std::string_view table, float rate) {
    steps_.set_learning_rate(store_.group_of(store_.table_index(table)),
                             detail::checked_rate(rate));
  }
  /// Updates so far. Once a step was captured in a CUDA graph the host waits and reads the number
  /// back, for only the GPU knows how often the graph ran.
  std::int64_t steps() const { return steps_.all(); }
  /// As after so many updates. Throws InvalidArgument for a number below 0, or so large that it
  /// could not be counted on.
  void set_steps(std::int64_t steps) {
    require(steps >= 0 && steps <= most_steps, "EmbeddingCollection: {} steps; give 0 .. 2^62",
            steps);
    steps_.set(steps);
  }
  /// Batches of this rank that were looked up and never updated, until the next batch took their
  /// step. Batches of `evaluate`, and steps given to `end`, do not count: so, in a trainer that
  /// evaluates with these, `backward` was forgotten as often. With Options::check_stages the next
  /// batch throws InvalidArgument instead.
  std::uint64_t forwards_without_backward() const {
    return forwards_without_backward_.load(std::memory_order_relaxed);
  }
  /// Bad ids seen by this rank so far, per table of the layout. Where the host cannot see ids it
  /// waits for the backend's work, and throws a fault that `forward` has not.
  std::span<const std::uint64_t> bad_ids() const { return report_.read(layout_); }
  /// Gradients given to this rank's `backward` that were NaN or infinite (waits for the backend's
  /// work), and steps that no rank carried out because of them; under CountNonFiniteGradients or
  /// RejectNonFiniteGradients.
  std::uint64_t non_finite_gradients() const { return guard_.counted(); }
  std::uint64_t rejected_steps() const { return guard_.rejected(); }
  /// Weights of this rank that are NaN or infinite now. Reads all of them.
  std::int64_t count_non_finite_weights() const { return store_.count_non_finite(backend_); }
  /// Features (indices into layout().features) whose ids this rank needs in model-parallel input,
  /// in the order of that batch.
  std::span<const int> local_features() const { return routing_.local_features(); }

  // ---- one call per direction ----

  /// Looks this rank's samples up. The result lives in the collection until the next forward.
  template <IdType Id>
  Pooled<Id, Backend> forward(const KeyedJagged<Id>& ids) {
    detail::check_features(ids, layout_.features.size());
    return forward(ids, detail::make_matrix(backend_, output_, ids.batch, columns()));
  }

  /// The same into the caller's memory: [batch, columns], any stride.
  template <IdType Id>
  Pooled<Id, Backend> forward(const KeyedJagged<Id>& ids, MatrixView<float> output) {
    StepState<Id>& step = std::get<StepState<Id>>(own_steps_);
    route(step, ids);
    return forward_routed(step, output);
  }

  /// Model-parallel input: `ids` are the global batch of local_features(). `sample_begin`: first
  /// sample of each rank and the end (ranks + 1 numbers); empty: the batch is cut evenly. The
  /// result is as from `forward`: this rank's samples, all columns.
  template <IdType Id>
  Pooled<Id, Backend> forward_model_parallel(const KeyedJagged<Id>& ids,
                                             std::span<const std::int64_t> sample_begin = {}) {
    StepState<Id>& step = std::get<StepState<Id>>(own_steps_);
    route_model_parallel(step, ids, sample_begin);
    return forward_routed(step, detail::make_matrix(backend_, output_, step.batch, columns()));
  }

  /// Updates the rows that `pooled` was looked up from. `gradient`: of pooled.values, same shape;
  /// `sequences`: one for each sequence feature that trains, from its view.
  template <IdType Id>
  void backward(const Pooled<Id, Backend>& pooled, MatrixView<const float> gradient,
                SequenceGradients sequences = {}) {
    StepState<Id>& step = opened(pooled, gradient, sequences);
    split(step, gradient, sequences);
    exchange_gradients(step);
    update(step, gradient);
  }

  /// The same where all features are sequences.
  template <IdType Id>
  void backward(const Pooled<Id, Backend>& pooled, SequenceGradients sequences) {
    backward(pooled, MatrixView<const float>(nullptr, pooled.values.rows, 0), sequences);
  }

  /// The first; `weight_gradients` gets the gradient of the per-id weights, parallel to the batch's
  /// ids (0 for features without weights). With model-parallel input each rank gets its own shards'
  /// share, and the ranks' sum is the gradient. Every rank must call this form.
  template <IdType Id>
  void backward(const Pooled<Id, Backend>& pooled, MatrixView<const float> gradient,
                std::span<float> weight_gradients, SequenceGradients sequences = {}) {
    StepState<Id>& step = opened(pooled, gradient, sequences);
    weight_gradients_.check_room("backward", weight_gradients, step.ids);
    split(step, gradient, sequences);
    exchange_gradients(step);
    this->weight_gradients(step, gradient, weight_gradients);
    update(step, gradient);
  }

  /// As `backward`, but rows wait for `apply`: gradients of several batches are summed, for one step.
  template <IdType Id>
  void accumulate(const Pooled<Id, Backend>& pooled, MatrixView<const float> gradient,
                  SequenceGradients sequences = {}) {
    StepState<Id>& step = opened(pooled, gradient, sequences);
    if (!split(step, gradient, sequences)) return accumulator_.skip();
    exchange_gradients(step);
    step.stage = StepStage::empty;
    accumulator_.add(step, gradient);
  }
  /// The optimizer's step (apply_accumulated): returns the norm before clipping, where `clip` needs it.
  template <class Clip = KeepGradients>
  double apply(const Clip& clip = {}, std::span<float> dense = {}) {
    check_stage(communicator_, "apply");
    return apply_accumulated(accumulator_, options_.optimizer, steps_, store_.seed(), clip, dense);
  }

  /// Looks a batch up that gets no update: as `forward`, beside a batch that waits for its
  /// `backward`. The result lives until the next `evaluate`.
  template <IdType Id>
  Evaluated<Id, Backend> evaluate(const KeyedJagged<Id>& ids) {
    detail::check_features(ids, layout_.features.size());
    const MatrixView<float> output =
        detail::make_matrix(backend_, evaluated_, ids.batch, columns());
    StepState<Id>& step = std::get<StepState<Id>>(evaluation_steps_);
    evaluate(step, ids, output);
    return {output, &step};
  }

  /// The same with a step and memory of the caller's. On the host, threads that have a step each
  /// may do so side by side, and beside `route` and `forward_routed` of other steps, but not beside
  /// anything that changes tables. More than one rank: each thread needs a communicator of its own,
  /// too.
  template <IdType Id>
  void evaluate(StepState<Id>& step, const KeyedJagged<Id>& ids, MatrixView<float> output) const {
    evaluate(step, ids, output, communicator_, backend_);
  }
  template <IdType Id>
  void evaluate(StepState<Id>& step, const KeyedJagged<Id>& ids, MatrixView<float> output,
                Comm& communicator, const Backend& backend) const {
    route(step, ids, communicator, backend);
    forward_routed(step, output, communicator, backend);
    end(step);
  }

  /// The rest of `forward` for a step that has been routed.
  template <IdType Id>
  Pooled<Id, Backend> forward_routed(StepState<Id>& step, MatrixView<float> output) const {
    return forward_routed(step, output, communicator_, backend_);
  }
  /// The same with another communicator of the same ranks and another backend: see `route`.
  template <IdType Id>
  Pooled<Id, Backend> forward_routed(StepState<Id>& step, MatrixView<float> output,
                                     Comm& communicator, const Backend& backend) const {
    lookup(step, output, backend);
    exchange(step, communicator, backend);
    assemble(step, output, backend);
    return {output, &step, step.turn};
  }

  // ---- the stages; a step passes them in this order. Each throws InvalidArgument where it is not the step's next one, and then changes
  // nothing ----

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
    route_at(step, ids, communicator, backend, std::numeric_limits<float>::quiet_NaN());
  }

  template <IdType Id>
  void route_model_parallel(StepState<Id>& step, const KeyedJagged<Id>& ids,
                            std::span<const std::int64_t> sample_begin = {}) const {
    check_stage(communicator_, "route_model_parallel");
    require(!routing_.keeps_rows(),
            "route_model_parallel: sequences and max pooling need each rank's own samples; give "
            "those to forward or route");
    begin(step, steps_.rates());
    step.model_parallel = true;
    step.ids = static_cast<std::int64_t>(ids.ids.size());
    detail::check_features(ids, routing_.local_features().size());
    LocalIdExchange<Id, Backend, Comm>::set_sample_begin(step, routing_, ids.batch, sample_begin);
    step.inputs.prepare(backend_, layout_, routing_.local_features(), ids, step.sample_begin,
                        Settings::bad_ids, report_, routing_.sizes_needed(false, false));
    LocalIdExchange<Id, Backend, Comm>(backend_, communicator_, layout_, routing_).run_stage(step);
    step.resident.hold(backend_, store_, step.received);
    step.stage = StepStage::routed;
  }

  /// Gathers and pools on the owners; what this rank needs from itself goes straight to `output`.
  template <IdType Id>
  void lookup(StepState<Id>& step, MatrixView<float> output) const {
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
  void assemble(StepState<Id>& step, MatrixView<float> output) const {
    assemble(step, output, backend_);
  }

  /// Ends a step that was looked up and gets no update: its batch was for evaluation.
  template <IdType Id>
  void end(StepState<Id>& step) const {
    require(step.collection == this, "end: this step was routed by another collection");
    step.resident.release(true);
    step.stage = StepStage::empty;
  }

  /// Cuts the gradients into what each owner needs. False, on every rank, where
  /// RejectNonFiniteGradients refuses the gradients of any: then the stages that follow do nothing,
  /// and the step waits for `split` with other gradients, or for its next batch.
  template <IdType Id>
  bool split(StepState<Id>& step, MatrixView<const float> gradient,
             SequenceGradients sequences = {}) {
    if (!step.rejected(this)) step.require_at(this, StepStage::assembled, "split");
    check_shape("split: gradient", gradient, step.batch);
    step.distinct.check("split", sequences);
    if (!guard_.accept(communicator_, gradient, sequences)) {
      step.stage = StepStage::rejected;
      return false;
    }
    if constexpr (finds_rows) step.distinct.template merge<Store>(backend_, gradient, sequences);
    vectors_.split(backend_, step, gradient);
    step.stage = StepStage::split;
    return true;
  }

  /// Gradients go to the owners.
  template <IdType Id>
  void exchange_gradients(StepState<Id>& step) {
    if (step.rejected(this)) return;
    step.require_at(this, StepStage::split, "exchange_gradients");
    check_stage(communicator_, "exchange_gradients");
    vectors_.to_owners(backend_, communicator_, step);
    step.stage = StepStage::received;
  }

  /// The gradient of the per-id weights, before the update changes the rows: `out` as in
  /// `backward`, `gradient` as given to split. Collective; may be left out on all ranks.
  template <IdType Id>
  void weight_gradients(StepState<Id>& step, MatrixView<const float> gradient,
                        std::span<float> out) {
    const bool rejected = step.rejected(this);
    if (!rejected) step.require_at(this, StepStage::received, "weight_gradients");
    check_shape("weight_gradients: gradient", gradient, step.batch);
    weight_gradients_.check_room("weight_gradients", out, step.ids);
    if (rejected) return backend_.fill_zero(out.data(), out.size_bytes());
    store_.refresh();
    weight_gradients_.run_stage(step, gradient, out);
  }

  /// Merges the gradients of each row over the global batch and applies the optimizer once per row
  /// (apply_step). Ends the step. `gradient`: as given to split.
  template <IdType Id>
  void update(StepState<Id>& step, MatrixView<const float> gradient) {
    if (step.rejected(this)) return;
    step.require_at(this, StepStage::received, "update");
    accumulator_.require_none("update");
    check_shape("update: gradient", gradient, step.batch);
    check_stage(communicator_, "update");
    step.stage = StepStage::empty;
    apply_step(step, gradient, store_, updater_, options_.optimizer, steps_);
  }

  // ---- tables ----

  /// This rank's rectangles: weights and optimizer state, by table name or one by one.
  Store& tables() { return store_; }
  /// Rows of a table (index in layout().tables) that this rank holds get first values and state
  /// again: see Vocabulary.
  void reset_rows(int table, std::span<const std::int64_t> rows) {
    const ObservedUpdate observed(updater_.observers());
    store_.reset_rows(backend_, table, rows, options_.optimizer, Initializers{options_.initialize},
                      [this](std::size_t arena, std::span<const std::int64_t> arena_rows) {
                        updater_.tell_rows(arena, arena_rows);
                      });
  }
  const Store& tables() const { return store_; }

  /// Tells `observer` from now on which rows updates and `reset_rows` change (not what `tables()`
  /// does).
  void observe(RowObserver& observer) {
    require(Backend::host_readable,
            "observe: rows can be watched only where the host can read them");
    updater_.observers().push_back(&observer);
  }
  void unobserve(RowObserver& observer) { std::erase(updater_.observers(), &observer); }
  /// The rows that updates and `reset_rows` change from now on, as long as the result lives, which must not outlive
  /// this.
  std::unique_ptr<RowMarks> mark_rows() {
    return std::make_unique<MarkedRows<Backend>>(backend_, routing_.arenas(), updater_.marks());
  }

 private:
  /// Whether rows may come to the rank that asks as they are.
  static constexpr bool finds_rows = Settings::deduplicates || Store::keeps_rows;
  bool deduplicates() const { return detail::deduplicates<Settings>(options_); }

  template <class T>
  void check_shape(const char* what, MatrixView<T> matrix, std::int64_t batch) const {
    require(matrix.rows == batch && matrix.columns == columns(),
            "{} is [{}, {}], must be [{}, {}]: local batch x columns of the plan", what,
            matrix.rows, matrix.columns, batch, columns());
    detail::check_view(what, matrix);
  }

  void check_stage(Comm& communicator, std::string_view stage) const {
    if (options_.check_stages)
      require_same_stage(communicator, stage, steps_.called(), steps_.rates());
  }

  template <IdType Id>
  StepState<Id>& opened(const Pooled<Id, Backend>& pooled, MatrixView<const float> gradient,
                        SequenceGradients sequences) const {
    pooled.check(this);
    check_shape("backward: gradient", gradient, pooled.step->batch);
    pooled.step->distinct.check("backward", sequences);
    return *pooled.step;
  }

  /// `rate`: as in Step.
  template <IdType Id>
  void begin(StepState<Id>& step, float rate) const {
    if (step.collection == this && step.awaits_update()) {
      forwards_without_backward_.fetch_add(1, std::memory_order_relaxed);
      require(!options_.check_stages,
              "route: the batch before had no update; call backward once for each forward, and "
              "evaluate (or end, for a step of your own) where "
              "none is meant");
    }
    step.begin(this);
    step.learning_rate = rate;
  }

  template <IdType Id>
  void route_at(StepState<Id>& step, const KeyedJagged<Id>& ids, Comm& communicator,
                const Backend& backend, float rate) const {
    begin(step, rate);
    step.model_parallel = false;
    step.batch = ids.batch;
    step.ids = static_cast<std::int64_t>(ids.ids.size());
    step.inputs.prepare(backend, layout_, all_features_, ids,
                        std::array<std::int64_t, 2>{0, ids.batch}, Settings::bad_ids, report_,
                        routing_.sizes_needed(options_.equal_batches, deduplicates()));
    if (options_.equal_batches)
      equal_batches_.fix_sizes(communicator, layout_, routing_, ids, step);
    if constexpr (finds_rows)
      if (deduplicates() || routing_.keeps_rows())
        step.distinct.find(backend, layout_, routing_, step.inputs,
                           {deduplicates(), Settings::bad_ids,
                            std::max(1, options_.gradient_blocks / routing_.ranks())});
    IdExchange<Id, Backend, Comm>(backend, communicator, routing_).data_parallel(step);
    step.resident.hold(backend, store_, step.received);
    step.stage = StepStage::routed;
  }

  template <IdType Id>
  void lookup(StepState<Id>& step, MatrixView<float> output, const Backend& backend) const {
    step.require_at(this, StepStage::routed, "lookup");
    check_shape("lookup: output", output, step.batch);
    vectors_.size(backend, step);
    store_.refresh();
    for (std::size_t a = 0; a < store_.arenas().size(); ++a) {
      const Arena<element, Backend>& arena = store_.arenas()[a];
      list_lookups(step, routing_, a, output);
      Store::with_width(arena.width(), [&]<int Width>(std::integral_constant<int, Width>) {
        op::run<op::Lookup<element, Id, Width>>(backend,
                                                {arena.weights(), arena.width(), step.lookups});
      });
    }
    step.stage = StepStage::looked_up;
  }
  template <IdType Id>
  void exchange(StepState<Id>& step, Comm& communicator, const Backend& backend) const {
    step.require_at(this, StepStage::looked_up, "exchange");
    vectors_.to_requesters(backend, communicator, step);
    step.stage = StepStage::exchanged;
  }
  template <IdType Id>
  void assemble(StepState<Id>& step, MatrixView<float> output, const Backend& backend) const {
    step.require_at(this, StepStage::exchanged, "assemble");
    check_shape("assemble: output", output, step.batch);
    vectors_.assemble(backend, step, output);
    if constexpr (finds_rows) step.distinct.template pool<Store>(backend, output);
    step.stage = StepStage::assembled;
  }

  static constexpr std::int64_t most_steps = std::int64_t{1} << 62;

  Comm& communicator_;
  Backend backend_;
  Options options_;
  Store store_;
  const Layout& layout_;
  const RankLayout& routing_;
  Updater<Store, Backend, Comm> updater_;
  Accumulator<Store, Backend, Comm> accumulator_{backend_, communicator_, store_, updater_};
  WeightGradientStage<Store, Backend, Comm> weight_gradients_{backend_, communicator_, store_};
  VectorExchange<Backend, Comm, typename Settings::forward_codecs,
                 typename Settings::backward_codecs>
      vectors_{routing_, typename Settings::forward_codecs(options_.forward_codec),
               typename Settings::backward_codecs(options_.backward_codec),
               detail::block_alignment(communicator_)};
  mutable IdReport<Backend> report_;
  std::vector<int> all_features_;
  TrainingSteps<O, Backend> steps_{backend_, options_.optimizer, options_.learning_rate};
  GradientGuard<Settings::non_finite, Backend> guard_{backend_};
  mutable EqualBatches equal_batches_;
  mutable std::atomic<std::uint64_t> forwards_without_backward_ = 0;

  std::tuple<StepState<std::int32_t>, StepState<std::int64_t>> own_steps_, evaluation_steps_;
  Buffer<float, Backend> output_, evaluated_;
};

}  // namespace tessera::inline v0
