// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/collection/checked_arguments.hpp>
#include <tessera/collection/equal_batches.hpp>
#include <tessera/collection/gradient_guard.hpp>
#include <tessera/collection/model_parallel.hpp>
#include <tessera/collection/options.hpp>
#include <tessera/collection/route.hpp>
#include <tessera/collection/step.hpp>
#include <tessera/collection/table_store.hpp>
#include <tessera/collection/updater.hpp>
#include <tessera/collection/vector_exchange.hpp>
#include <tessera/collection/weight_gradients.hpp>
#include <tessera/concepts/communicator.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/sharding/plan.hpp>
#include <tessera/table/buffer.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera::inline v0 {

/// The embedding tables of a model under a layout that is known at run time: cut, looked up, exchanged between ranks, updated.
/// `EmbeddingCollection` is the same for a plan known at compile time, with its checks; see there.
template <class WidthList, Optimizer O, class Backend, class Comm, class... Policies>
class ShardedCollection {
  using Settings = detail::CollectionPolicies<Policies...>;

 public:
  using optimizer = O;
  using element = typename Settings::element;
  using initializer = typename decltype(detail::initializer_of<typename Settings::initializer, O>())::type;
  using Store = TableStore<WidthList, element, O, Backend>;
  template <class Id>  // clang 14 crashes on a constrained alias here
  using StepState = Step<Id, Backend>;

  struct Options {
    float learning_rate = 0.01f;
    std::uint64_t seed = 0;  ///< of the first values, and of stochastic rounding
    O optimizer{};
    initializer initialize{};
    std::vector<TableRows> rows{};  ///< of tables with dynamic_rows
    int ranks_per_node = 0;         ///< for Grid; 0: all ranks are on one node
    bool check_stages = false;      ///< for debugging: before each exchange all ranks compare where they are, and name who is elsewhere
    std::string forward_codec{}, backward_codec{};  ///< names, under EncodeWithOneOf; empty: its first
    bool deduplicate = false;                       ///< under DeduplicateIfAsked
    bool equal_batches = false;  ///< all ranks give batches of equal sizes and bounds: a GPU's steps need not ask for them (EqualBatches)
  };

  /// What one element and one row cost on a rank.
  static constexpr MemoryCost memory_cost{.per_element = static_cast<std::int64_t>(sizeof(element)) + 4 * O::element_states,
                                          .per_row = 4 * O::row_states};

  /// Every rank gives the same layout, made for communicator.size() ranks, and the same options. Throws InvalidArgument if the layout has a
  /// fault, or if ranks differ: on all of them, with what differs and where. Collective.
  ShardedCollection(Comm& communicator, Backend backend, Layout layout, Options options)
      : communicator_(communicator),
        backend_(std::move(backend)),
        options_(std::move(options)),
        store_(backend_, std::move(layout), communicator.rank(), options_.optimizer, options_.seed, options_.initialize),
        layout_(store_.layout()),
        routing_(store_.routing()),
        updater_(backend_, communicator, store_),
        report_(backend_, layout_.tables.size()) {
    for (std::size_t f = 0; f < layout_.features.size(); ++f) all_features_.push_back(static_cast<int>(f));
    detail::finite_rate(options_.learning_rate);
    require(!options_.deduplicate || Settings::deduplicates,
            "EmbeddingCollection: option deduplicate needs the policy DeduplicateIfAsked (or Deduplicate, which needs no option)");
    require(!options_.equal_batches || !deduplicates(),
            "EmbeddingCollection: option equal_batches and duplicate removal exclude each other: ranks have different numbers of ids left");
    detail::require_offered<Comm>(layout_, routing_, communicator_.size());
    require_agreement(communicator_, detail::shared_facts<Settings>(layout_, options_));
  }
  ShardedCollection(const ShardedCollection&) = delete;
  ShardedCollection& operator=(const ShardedCollection&) = delete;

  const Layout& layout() const { return layout_; }
  std::int64_t columns() const { return layout_.columns(); }
  const Backend& backend() const { return backend_; }
  float learning_rate() const { return options_.learning_rate; }
  void set_learning_rate(float rate) { options_.learning_rate = detail::finite_rate(rate); }
  /// Updates so far.
  std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }
  /// Bad ids seen by this rank so far, per table of the layout. Where the host cannot see ids it waits for the backend's work, and
  /// throws a fault that `forward` has not.
  std::span<const std::uint64_t> bad_ids() const { return report_.read(layout_); }
  /// Gradients given to this rank's `backward` that were NaN or infinite (waits for the backend's work), and steps that no rank carried out
  /// because of them; under CountNonFiniteGradients or RejectNonFiniteGradients.
  std::uint64_t non_finite_gradients() const { return guard_.counted(); }
  std::uint64_t rejected_steps() const { return guard_.rejected(); }
  /// Weights of this rank that are NaN or infinite now. Reads all of them.
  std::int64_t count_non_finite_weights() const { return store_.count_non_finite(backend_); }
  /// Features (indices into layout().features) whose ids this rank needs in model-parallel input, in the order of that batch.
  std::span<const int> local_features() const { return routing_.local_features(); }

  // ---- one call per direction ----

  /// Looks this rank's samples up. The result lives in the collection until the next forward.
  template <IdType Id>
  Pooled<Id, Backend> forward(const KeyedJagged<Id>& ids) {
    ids.validate_sizes();  // before memory is asked for
    output_.resize(backend_, static_cast<std::size_t>(ids.batch * columns()));
    return forward(ids, MatrixView<float>{output_.data(), ids.batch, columns()});
  }

  /// The same into the caller's memory: [batch, columns], any stride.
  template <IdType Id>
  Pooled<Id, Backend> forward(const KeyedJagged<Id>& ids, MatrixView<float> output) {
    StepState<Id>& step = std::get<StepState<Id>>(own_steps_);
    route(step, ids);
    return forward_routed(step, output);
  }

  /// Model-parallel input: `ids` are the global batch of local_features(). `sample_begin`: first sample of each rank and the end
  /// (ranks + 1 numbers); empty: the batch is cut evenly. The result is as from `forward`: this rank's samples, all columns.
  template <IdType Id>
  Pooled<Id, Backend> forward_model_parallel(const KeyedJagged<Id>& ids, std::span<const std::int64_t> sample_begin = {}) {
    StepState<Id>& step = std::get<StepState<Id>>(own_steps_);
    route_model_parallel(step, ids, sample_begin);
    output_.resize(backend_, static_cast<std::size_t>(step.batch * columns()));
    return forward_routed(step, {output_.data(), step.batch, columns()});
  }

  /// Updates the rows that `pooled` was looked up from. `gradient`: of pooled.values, same shape.
  template <IdType Id>
  void backward(const Pooled<Id, Backend>& pooled, MatrixView<const float> gradient) {
    StepState<Id>& step = opened(pooled, gradient);
    if (!guard_.accept(communicator_, gradient)) return;
    start_backward(step, gradient);
    update(step, gradient);
  }

  /// The same; `weight_gradients` gets the gradient of the per-id weights, parallel to the batch's ids (0 for features without weights).
  /// With model-parallel input each rank gets its own shards' share, and the ranks' sum is the gradient. Every rank must call this form.
  template <IdType Id>
  void backward(const Pooled<Id, Backend>& pooled, MatrixView<const float> gradient, std::span<float> weight_gradients) {
    StepState<Id>& step = opened(pooled, gradient);
    require(static_cast<std::int64_t>(weight_gradients.size()) == step.ids, "backward: room for {} weight gradients, the batch has {} ids",
            weight_gradients.size(), step.ids);
    if (!guard_.accept(communicator_, gradient)) {
      backend_.fill_zero(weight_gradients.data(), weight_gradients.size_bytes());
      return;
    }
    start_backward(step, gradient);
    const auto groups_of = [&](int arena, auto&& visit) { for_each_group(step, arena, visit); };
    weight_gradients_.run_stage(step, gradient, groups_of, weight_gradients);
    update(step, gradient);
  }

  /// The rest of `forward` for a step that has been routed.
  template <IdType Id>
  Pooled<Id, Backend> forward_routed(StepState<Id>& step, MatrixView<float> output) {
    lookup(step, output);
    exchange(step);
    assemble(step, output);
    return {output, &step, step.turn};
  }

  // ---- the stages; a step passes them in this order ----

  /// Checks ids and sends them to the ranks that own their rows.
  template <IdType Id>
  void route(StepState<Id>& step, const KeyedJagged<Id>& ids) {
    check_stage(communicator_, "route");
    route(step, ids, communicator_, backend_);
  }

  /// The same with another communicator of the same ranks and another backend: so another thread may route the next batch while this one
  /// does anything but route or ask for bad_ids (RouteAhead).
  template <IdType Id>
  void route(StepState<Id>& step, const KeyedJagged<Id>& ids, Comm& communicator, const Backend& backend) {
    step.begin(this);
    step.model_parallel = false;
    step.batch = ids.batch;
    step.ids = static_cast<std::int64_t>(ids.ids.size());
    step.inputs.prepare(backend, layout_, all_features_, ids, std::array<std::int64_t, 2>{0, ids.batch}, Settings::bad_ids, report_,
                        routing_.sizes_needed(options_.equal_batches, deduplicates()));
    if (options_.equal_batches) equal_batches_.fix_sizes(communicator, layout_, routing_, ids, step);
    if constexpr (Settings::deduplicates)
      if (deduplicates()) step.distinct.find(backend, layout_, routing_, step.inputs);
    Router<Id, Backend, Comm>(backend, communicator, routing_).data_parallel(step);
    step.stage = StepState<Id>::Stage::routed;
  }

  template <IdType Id>
  void route_model_parallel(StepState<Id>& step, const KeyedJagged<Id>& ids, std::span<const std::int64_t> sample_begin = {}) {
    check_stage(communicator_, "route_model_parallel");
    step.begin(this);
    step.model_parallel = true;
    step.distinct.clear();
    step.ids = static_cast<std::int64_t>(ids.ids.size());
    set_sample_begin(step, ids.batch, sample_begin);
    step.inputs.prepare(backend_, layout_, routing_.local_features(), ids, step.sample_begin, Settings::bad_ids, report_,
                        routing_.sizes_needed(false, false));
    LocalRouter<Id, Backend, Comm>(backend_, communicator_, layout_, routing_).run_stage(step);
    step.stage = StepState<Id>::Stage::routed;
  }

  /// Gathers and pools on the owners; what this rank needs from itself goes straight to `output`.
  template <IdType Id>
  void lookup(StepState<Id>& step, MatrixView<float> output) {
    require(step.stage == StepState<Id>::Stage::routed, "lookup: route the step first");
    check_shape("lookup: output", output, step.batch);
    vectors_.size(step);
    for (std::size_t a = 0; a < store_.arenas().size(); ++a) {
      const Arena<element, O, Backend>& arena = store_.arenas()[a];
      step.lookups.clear();
      for_each_group(step, static_cast<int>(a), [&](const Bags<Id>& bags, const Slot& slot, std::size_t p, std::size_t, float* packed) {
        const SlotPart& part = slot.parts[p];
        const MatrixView<float> own = step.output_of(slot, part, output);
        step.lookups.push_back({bags, packed == nullptr ? own.data : packed, packed == nullptr ? own.stride : part.width});
      });
      Store::with_width(arena.width(), [&]<int Width>(std::integral_constant<int, Width>) {
        run<Lookup<element, Id, Width>>(backend_, {arena.weights(), arena.width(), step.lookups});
      });
    }
  }

  /// Pooled vectors go back to the ranks that own the samples.
  template <IdType Id>
  void exchange(StepState<Id>& step) {
    check_stage(communicator_, "exchange");
    vectors_.to_requesters(step);
  }

  /// Puts the vectors that came back into their columns; adds where a table is cut by rows.
  template <IdType Id>
  void assemble(StepState<Id>& step, MatrixView<float> output) {
    check_shape("assemble: output", output, step.batch);
    vectors_.assemble(step, output);
    if constexpr (Settings::deduplicates) step.distinct.template pool<Store>(backend_, output);
    step.stage = StepState<Id>::Stage::assembled;
  }

  /// Cuts the gradient into what each owner needs.
  template <IdType Id>
  void split(StepState<Id>& step, MatrixView<const float> gradient) {
    check_shape("backward: gradient", gradient, step.batch);
    if constexpr (Settings::deduplicates) step.distinct.template merge<Store>(backend_, gradient);
    vectors_.split(step, gradient);
  }

  /// Gradients go to the owners.
  template <IdType Id>
  void exchange_gradients(StepState<Id>& step) {
    check_stage(communicator_, "exchange_gradients");
    vectors_.to_owners(step);
  }

  /// Merges the gradients of each row over the global batch and applies the optimizer once per row. Ends the step. All that may fail for
  /// another rank's sake comes first: where it throws CommunicatorError, no table of this rank has changed.
  template <IdType Id>
  void update(StepState<Id>& step, MatrixView<const float> gradient) {
    check_stage(communicator_, "update");
    step.stage = StepState<Id>::Stage::empty;
    const std::size_t arenas = store_.arenas().size();
    for (std::size_t a = 0; a < arenas; ++a)
      if (updater_.shared(a)) updater_.gather(a, gradients_of(step, a, gradient), step.fixed_sizes());
    updater_.exchange(step.most_entries);
    ++steps_;
    const typename O::Step functor = options_.optimizer.at(options_.learning_rate, steps_);
    const ObservedUpdate observed(updater_.observers());
    for (std::size_t a = 0; a < arenas; ++a) {
      step.gradients.clear();
      updater_.apply(a, steps_, functor, updater_.shared(a) ? step.gradients : gradients_of(step, a, gradient));
    }
  }

  // ---- tables ----

  /// This rank's rectangles: weights and optimizer state, by table name or one by one.
  Store& tables() { return store_; }
  /// Rows of a table (index in layout().tables) that this rank holds get first values and state again: see Vocabulary.
  void reset_rows(int table, std::span<const std::int64_t> rows) {
    store_.reset_rows(backend_, table, rows, options_.optimizer, options_.initialize);
  }
  const Store& tables() const { return store_; }

  /// Tells `observer` from now on which rows updates change (not what `tables()` and `reset_rows` do).
  void observe(RowObserver& observer) {
    require(Backend::host_readable, "observe: rows can be watched only where the host can read them");
    updater_.observers().push_back(&observer);
  }
  void unobserve(RowObserver& observer) { std::erase(updater_.observers(), &observer); }
  /// The rows that updates change from now on, as long as the result lives, which must not outlive this.
  std::unique_ptr<RowMarks> mark_rows() { return std::make_unique<MarkedRows<Backend>>(backend_, store_.arenas(), updater_.marks()); }

 private:
  bool deduplicates() const { return Settings::deduplicates && (!Settings::deduplicates_if_asked || options_.deduplicate); }

  template <class T>
  void check_shape(const char* what, MatrixView<T> matrix, std::int64_t batch) const {
    require(matrix.rows == batch && matrix.columns == columns(), "{} is [{}, {}], must be [{}, {}]: local batch x columns of the plan",
            what, matrix.rows, matrix.columns, batch, columns());
    detail::check_view(what, matrix);
  }

  void check_stage(Comm& communicator, std::string_view stage) const {
    if (options_.check_stages) require_same_stage(communicator, stage, steps_, options_.learning_rate);
  }

  /// What this rank updates in an arena.
  template <IdType Id>
  const std::vector<GradientGroup<Id>>& gradients_of(StepState<Id>& step, std::size_t arena, MatrixView<const float> gradient) {
    step.gradients.clear();
    for_each_group(step, static_cast<int>(arena), [&](const Bags<Id>& bags, const Slot& slot, std::size_t p, std::size_t, float* packed) {
      const SlotPart& part = slot.parts[p];
      const MatrixView<const float> own = step.gradient_of(slot, part, gradient);
      step.gradients.push_back({bags,
                                packed == nullptr ? own.data : packed,
                                packed == nullptr ? own.stride : part.width,
                                {slot.row_begin + part.row_bias, slot.row_end + part.row_bias}});
    });
    return step.gradients;
  }

  template <IdType Id>
  StepState<Id>& opened(const Pooled<Id, Backend>& pooled, MatrixView<const float> gradient) const {
    pooled.check(this);
    check_shape("backward: gradient", gradient, pooled.step->batch);
    return *pooled.step;
  }

  template <IdType Id>
  void start_backward(StepState<Id>& step, MatrixView<const float> gradient) {
    split(step, gradient);
    exchange_gradients(step);
  }

  template <IdType Id>
  void set_sample_begin(StepState<Id>& step, std::int64_t batch, std::span<const std::int64_t> given) {
    const int ranks = routing_.ranks();
    require(given.empty() || static_cast<int>(given.size()) == ranks + 1,
            "forward_model_parallel: {} sample boundaries for {} ranks; give {}", given.size(), ranks, ranks + 1);
    step.sample_begin.resize(static_cast<std::size_t>(ranks) + 1);
    for (int r = 0; r <= ranks; ++r) step.sample_begin[r] = given.empty() ? even_cut(batch, ranks, r) : given[r];
    require(step.sample_begin[0] == 0 && step.sample_begin[ranks] == batch &&
                std::is_sorted(step.sample_begin.begin(), step.sample_begin.end()),
            "forward_model_parallel: sample boundaries must ascend from 0 to the batch ({})", batch);
    step.batch = step.sample_begin[routing_.rank() + 1] - step.sample_begin[routing_.rank()];
  }

  /// Visits what this rank serves from arena `arena` (-1: all), in the order in which a row's gradients are summed: feature, source
  /// rank. visit(bags, slot, part, index into step.received, packed); `packed`: the vectors' place in owner_vectors (by source, slot,
  /// part), or null where they are in the caller's matrix.
  template <IdType Id, class Visit>
  void for_each_group(StepState<Id>& step, int arena, Visit&& visit) {
    const std::size_t ranks = static_cast<std::size_t>(routing_.ranks());
    std::vector<std::size_t>& at = next_vector_;
    at.assign(ranks, 0);
    for (std::size_t r = 1; r < ranks; ++r) at[r] = at[r - 1] + step.owner_counts[r - 1];
    for (std::size_t k = 0; k < routing_.slots_of(routing_.rank()); ++k) {
      const Slot& slot = routing_.own_slot(k);
      for (std::size_t r = 0; r < ranks; ++r) {
        const bool direct = slot.whole && static_cast<int>(r) == routing_.rank();
        Bags<Id> bags = step.received[k * ranks + r];
        for (std::size_t p = 0; p < slot.parts.size(); ++p) {
          const SlotPart& part = slot.parts[p];
          float* packed = direct ? nullptr : step.owner_vectors.data() + at[r];
          if (!direct) at[r] += static_cast<std::size_t>(bags.bags) * static_cast<std::size_t>(part.width);
          if (part.arena != arena || bags.bags == 0) continue;
          bags.row_bias = part.row_bias;
          visit(bags, slot, p, k * ranks + r, packed);
        }
      }
    }
  }

  Comm& communicator_;
  Backend backend_;
  Options options_;
  Store store_;
  const Layout& layout_;
  const Routing& routing_;
  Updater<Store, O, Backend, Comm> updater_;
  WeightGradientStage<Store, Backend, Comm> weight_gradients_{backend_, communicator_, store_};
  VectorExchange<Backend, Comm, typename Settings::forward_codecs, typename Settings::backward_codecs> vectors_{
      backend_, communicator_, routing_, typename Settings::forward_codecs(options_.forward_codec),
      typename Settings::backward_codecs(options_.backward_codec)};
  mutable IdReport<Backend> report_;
  std::vector<int> all_features_;
  std::int64_t steps_ = 0;
  GradientGuard<Settings::non_finite, Backend> guard_{backend_};
  EqualBatches equal_batches_;

  std::tuple<StepState<std::int32_t>, StepState<std::int64_t>> own_steps_;
  Buffer<float, Backend> output_;
  std::vector<std::size_t> next_vector_;
};

/// The embedding tables of a model: cut as the plan says, looked up, exchanged between ranks, updated.
/// One object per rank; every rank makes the same calls in the same order. `forward` takes this rank's part of the global batch
/// (rank r's samples come before rank r+1's) and gives [local batch, columns] floats; `backward` takes the gradient of those, and
/// updates the rows at once. The stages are public, so that a trainer can interleave them with other work.
/// Policies: Storage<T>, Throw | ZeroVector | Clamp | Wrap, CountNonFiniteGradients | RejectNonFiniteGradients, InitializeWith<F>,
/// EncodeWith<Forward, Backward> or EncodeWithOneOf<Codecs...>, Deduplicate or DeduplicateIfAsked.
template <class PlanT, class O, class Backend, class Comm, class... Policies>
class EmbeddingCollection : public detail::CollectionOf<typename detail::WidthsOf<PlanT>::type, O, Backend, Comm, Policies...>::type {
  using Base = typename detail::CollectionOf<typename detail::WidthsOf<PlanT>::type, O, Backend, Comm, Policies...>::type;

 public:
  using plan = PlanT;
  using typename Base::Options;

  /// The collectives that this plan needs on more than one rank: all_gather where tables are replicated, all_to_all where some are not,
  /// all_reduce where steps may be rejected.
  static constexpr Collective needs =
      (PlanT::replicates ? Collective::all_gather : Collective::none) | (PlanT::exchanges ? Collective::all_to_all : Collective::none) |
      (detail::CollectionPolicies<Policies...>::non_finite == NonFinite::reject ? Collective::all_reduce : Collective::none);
  static_assert(Communicator<Comm, needs>,
                "EmbeddingCollection: the communicator lacks a collective that the plan needs; "
                "explain_communicator<Comm, needs>() lists them (docs/concepts/communicator.md)");

  /// Every rank constructs the same plan. Throws InvalidArgument for a plan that these ranks cannot carry out.
  EmbeddingCollection(Comm& communicator, Backend backend, Options options)  // a misspelt option? Embeddings::Options{...} names it
      : Base(communicator, std::move(backend), PlanT::layout(Topology{communicator.size(), options.ranks_per_node}, options.rows),
             options) {}
};

namespace detail {

template <class Embeddings, Cluster C>
constexpr PlanFault memory_fault() {
  const Layout layout = Embeddings::plan::layout(Topology{C.ranks, C.ranks_per_node});
  return check_memory(layout, Embeddings::memory_cost, C.memory_per_rank);
}

}  // namespace detail

/// Whether every rank's tables and optimizer state fit into its memory: `static_assert(ts::fits<Embeddings, ts::Cluster{...}>)`.
template <class Embeddings, Cluster C>
inline constexpr bool fits = SoundPlan<detail::memory_fault<Embeddings, C>()>::value;

}  // namespace tessera::inline v0
