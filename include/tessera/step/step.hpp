// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/ids/admitted_batch.hpp>
#include <tessera/ids/distinct_rows.hpp>
#include <tessera/ids/equal_batches.hpp>
#include <tessera/ids/resident_rows.hpp>
#include <tessera/ids/routed_ids.hpp>
#include <tessera/ids/rows_of_others.hpp>
#include <tessera/op/lookup.hpp>
#include <tessera/op/update.hpp>
#include <tessera/sharding/fixed_string.hpp>
#include <tessera/step/served_groups.hpp>
#include <tessera/step/step_report.hpp>
#include <tessera/tables/buffer.hpp>
#include <tessera/update/sorted_ahead.hpp>
#include <tessera/vectors/narrow_values.hpp>
#include <tessera/vectors/vector_exchange.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

namespace detail {

/// The last stage that a step has passed. `rejected`: `split` found gradients that
/// NonFinite::reject refuses; `split` may be called again, and the stages behind it do
/// nothing. `accumulated`: an Accumulator has the gradients of one loss; others may follow.
enum class StepStage : std::uint8_t {
  empty,
  routed,
  looked_up,
  exchanged,
  assembled,
  rejected,
  split,
  received,
  accumulated
};

[[noreturn]] void throw_out_of_turn(std::string_view call, StepStage stage, bool own);

/// A member has a value until the call that was given it ends, as it should or by an exception.
template <class T>
class GivenForCall {
 public:
  GivenForCall(T& member, const T& value) : member_(member) { member_ = value; }
  GivenForCall(const GivenForCall&) = delete;
  GivenForCall& operator=(const GivenForCall&) = delete;
  ~GivenForCall() { member_ = {}; }

 private:
  T& member_;
};

/// How far a step has come, and for whom. Written by the collection.
class StepProgress {
 public:
  StepProgress() = default;
  StepProgress(StepProgress&& from) noexcept { *this = std::move(from); }
  StepProgress& operator=(StepProgress&& from) noexcept {
    *this = std::as_const(from);
    from.stage_ = StepStage::empty;
    return *this;
  }

  /// Notes that it is about to be routed by a collection.
  void begin(const void* by);
  void passed(StepStage stage) { stage_ = stage; }
  /// Notes that gradients of a loss are accumulated, after so many `apply`.
  void accumulated(std::uint64_t applies);
  /// Notes that those of another loss on it were refused.
  void accumulated_no_more() {
    if (accumulated_before_) stage_ = StepStage::accumulated;
  }

  /// Throws InvalidArgument, with what comes next, unless collection `by` has routed it and
  /// `needed` is the last stage that it has passed.
  void require_at(const void* by, StepStage needed, std::string_view call) const {
    if (stage_ != needed || !is_of(by)) throw_out_of_turn(call, stage_, is_of(by));
  }
  /// Throws InvalidArgument unless a collection's `call` may follow `assemble`. `accumulate` gives
  /// the number of applies so far, and may be called once for each loss of a forward.
  void require_assembled(std::string_view call, std::optional<std::uint64_t> applies);
  bool is_of(const void* collection) const { return collection_ == collection; }
  /// Returns whether collection `by` dropped its gradients.
  bool rejected(const void* by) const { return stage_ == StepStage::rejected && is_of(by); }
  /// Returns whether a batch was looked up that got no update so far.
  bool awaits_update() const;
  std::uint64_t turn() const { return turn_; }  ///< how often it was routed

 private:
  StepProgress& operator=(const StepProgress&) = default;

  StepStage stage_ = StepStage::empty;
  const void* collection_ = nullptr;  // that routed it last
  std::uint64_t turn_ = 0;
  // Of gradients that are accumulated: the number of `apply` before.
  std::optional<std::uint64_t> accumulated_before_;
};

#ifdef TESSERA_INLINE
TESSERA_INLINE void throw_out_of_turn(std::string_view call, StepStage stage, bool own) {
  constexpr std::array<std::string_view, 8> next{
      "route", "lookup", "exchange", "assemble", "split", "split", "exchange_gradients", "update"};
  require(stage != StepStage::empty,
          "{}: this step has no batch, or its update has ended it; route it first", call);
  require(own, "{}: this step was routed by another collection; route it by this one", call);
  require(stage != StepStage::accumulated,
          "{}: this step's gradients are accumulated; add those of other losses by accumulate, or "
          "route the next batch",
          call);
  throw InvalidArgument(
      formatted("{}: the next stage of this step is {}; stages come in the order route, lookup, "
                "exchange, assemble, "
                "split, exchange_gradients, update, each once",
                call, next[static_cast<std::size_t>(stage)]));
}

TESSERA_INLINE void StepProgress::begin(const void* by) {
  stage_ = StepStage::empty;
  accumulated_before_.reset();
  collection_ = by;
  ++turn_;
}

TESSERA_INLINE void StepProgress::accumulated(std::uint64_t applies) {
  stage_ = StepStage::accumulated;
  accumulated_before_ = applies;
}

TESSERA_INLINE void StepProgress::require_assembled(std::string_view call,
                                                    std::optional<std::uint64_t> applies) {
  if (accumulated_before_) {
    require(applies.has_value(),
            "{}: gradients of this forward are accumulated; give those of other losses to "
            "accumulate, too",
            call);
    require(*applies == *accumulated_before_,
            "{}: apply has used the gradients of this forward, or dropped them; look the batch up "
            "again",
            call);
  }
  require(stage_ == StepStage::assembled || stage_ == StepStage::rejected ||
              stage_ == StepStage::accumulated,
          "{}: call forward first, and backward once for each forward", call);
  if (applies && stage_ == StepStage::accumulated) stage_ = StepStage::assembled;
}

TESSERA_INLINE bool StepProgress::awaits_update() const {
  return stage_ == StepStage::assembled || stage_ == StepStage::split ||
         stage_ == StepStage::received;
}
#endif

}  // namespace detail

/// The memory of one step in flight, from `route` to the end of `update`. Reused from step to step;
/// a trainer that overlaps steps keeps two. Each part is written by the class that it names.
template <IdType Id, class Backend>
struct Step {
  // not in the class, so that tessera::compiled has them once
  Step();
  Step(Step&&) noexcept;
  Step& operator=(Step&&) noexcept;
  ~Step();

  /// Where vectors of sequences go; set before `route`, which forgets it unless it throws.
  detail::SequenceOutputs vectors;

  detail::StepProgress progress;
  detail::AdmittedBatch<Id, Backend> batch;
  detail::EqualSizes equal_sizes;
  /// of features whose duplicate ids do not travel, or whose rows come unpooled
  detail::DistinctRows<Id, Backend> distinct;
  detail::RowsOfOthers<Id, Backend> distinct_of_others;
  detail::RoutedIds<Id, Backend> routed;
  /// in slots of caches
  detail::ResidentRows<Id, Backend> resident;
  detail::VectorsInFlight<Backend> in_flight;
  detail::NarrowValues<Backend> narrow;  ///< under OutputType
  detail::ServedGroups<Id> groups;
  detail::StageRecord<Backend> record;  ///< under ReportSteps
  /// last, so that its work has ended before what it reads is freed
  detail::SortedAhead<Id, Backend> sorted;

  /// Returns the bags of a feature that are routed: this rank's of the batch (model parallel: part
  /// `i`), or distinct ids.
  op::Bags<Id> bags_to_route(int feature, std::size_t i = 0) const {
    return distinct.active(feature) ? distinct.ids(feature) : batch.part(feature, i);
  }
  /// Returns, if model parallel, those of another rank's samples.
  op::Bags<Id> bags_to_route_of(int feature, std::size_t rank) const {
    return distinct.active(feature) ? distinct_of_others[rank].ids(feature)
                                    : batch.part(feature, rank);
  }

  /// Returns where the vectors of a piece go: columns of the output, or, per distinct id, of this
  /// step's rows.
  MatrixView<float> output_of(const detail::Piece& piece, MatrixView<float> output) const {
    const detail::SlotPart& part = piece.columns();
    const int feature = piece.slot->feature;
    if (!distinct.active(feature)) return output.column_range(part.column, part.width);
    return distinct.rows(feature).column_range(part.column - distinct.column(feature), part.width);
  }
  /// Returns where their gradients come from, likewise.
  MatrixView<const float> gradient_of(const detail::Piece& piece,
                                      MatrixView<const float> gradient) const {
    const detail::SlotPart& part = piece.columns();
    const int feature = piece.slot->feature;
    if (!distinct.active(feature)) return gradient.column_range(part.column, part.width);
    return distinct.gradients(feature).column_range(part.column - distinct.column(feature),
                                                    part.width);
  }
  /// Returns the gradients of a piece that this rank serves, after VectorExchange::split: as the
  /// owner got them, or where the caller has them.
  MatrixView<const float> gradient_at_owner(const detail::Piece& piece,
                                            MatrixView<const float> gradient) const {
    return piece.travels ? in_flight.at_owner(piece) : gradient_of(piece, gradient);
  }
  /// Returns those of 16 bits are read where the caller has them.
  template <Element G>
  static MatrixView<const G> gradient_at_owner(const detail::Piece& piece,
                                               MatrixView<const G> gradient) {
    return gradient.column_range(piece.columns().column, piece.columns().width);
  }
  /// Returns the bags of a piece that this rank serves.
  op::Bags<Id> bags_of(const detail::Piece& piece) const {
    op::Bags<Id> bags = routed.received()[piece.index];
    bags.row_bias = piece.columns().row_bias;
    return bags;
  }

  /// Returns the vectors of a sequence feature: an index into Layout::features, or its name. Throws
  /// InvalidArgument before `assemble`, and for other features.
  SequenceView<Backend> sequence(int feature) const { return distinct.sequence(feature); }
  SequenceView<Backend> sequence(std::string_view name) const { return distinct.sequence(name); }
  template <FixedString Name>
  SequenceView<Backend> sequence() const {
    return sequence(Name.view());
  }

  /// Notes that it is about to be routed by a collection.
  void begin(const void* by) {
    if (!progress.is_of(by)) equal_sizes = {};  // that collection's ranks did not compare them
    progress.begin(by);
    distinct.clear();
    resident.release(false);
    sorted.clear();
  }
};

template <IdType Id, class Backend>
Step<Id, Backend>::Step() = default;
template <IdType Id, class Backend>
Step<Id, Backend>::Step(Step&&) noexcept = default;
template <IdType Id, class Backend>
Step<Id, Backend>& Step<Id, Backend>::operator=(Step&&) noexcept = default;
template <IdType Id, class Backend>
Step<Id, Backend>::~Step() = default;

/// What `forward` gives: pooled vectors [local batch, columns], those of sequences, and the step
/// that `backward` continues. Valid until the next forward. `T`: OutputType.
template <IdType Id, class Backend, class T = float>
struct Pooled {
  MatrixView<T> values;
  Step<Id, Backend>* step = nullptr;
  std::uint64_t turn = 0;  ///< the step's

  /// Returns as Step::sequence does.
  template <class Feature>
  SequenceView<Backend> sequence(const Feature& feature) const {
    require(step != nullptr, "sequence: call forward first");
    require(step->progress.turn() == turn,
            "sequence: another batch was looked up since this forward");
    return step->sequence(feature);
  }
  template <FixedString Name>
  SequenceView<Backend> sequence() const {
    return sequence(Name.view());
  }

  operator MatrixView<T>() const { return values; }        // NOLINT(google-explicit-constructor)
  operator MatrixView<const T>() const { return values; }  // NOLINT(google-explicit-constructor)

  /// Throws InvalidArgument unless a collection's `call` can continue it: backward, or, given the
  /// number of applies so far, accumulate, which several losses of one forward may call.
  void check(const void* collection, std::string_view call,
             std::optional<std::uint64_t> applies = {}) const {
    require(step != nullptr, "{}: call forward first", call);
    require(step->progress.is_of(collection),
            "{}: what is given comes from another collection's forward", call);
    require(step->progress.turn() == turn,
            "{0}: another batch was looked up since this forward; call {0} before the next "
            "forward, or keep a Step for each batch (route, forward_routed)",
            call);
    step->progress.require_assembled(call, applies);
  }
};

namespace detail {

/// What `evaluate` gives: pooled vectors, and those of sequences. Valid until the next one.
template <IdType Id, class Backend, class T = float>
struct Evaluated : MatrixView<T> {
  const Step<Id, Backend>* step = nullptr;

  template <class Feature>
  SequenceView<Backend> sequence(const Feature& feature) const {
    return step->sequence(feature);
  }
  template <FixedString Name>
  SequenceView<Backend> sequence() const {
    return step->template sequence<Name>();
  }
};

}  // namespace detail

}}  // namespace tessera::v0
