// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/op/codec.hpp>
#include <tessera/op/exchange.hpp>
#include <tessera/op/lookup.hpp>
#include <tessera/op/update.hpp>
#include <tessera/sharding/fixed_string.hpp>
#include <tessera/stage/device_inputs.hpp>
#include <tessera/stage/distinct_rows.hpp>
#include <tessera/stage/resident_rows.hpp>
#include <tessera/stage/step_report.hpp>
#include <tessera/stage/wire_order.hpp>
#include <tessera/tables/buffer.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::inline v0 {

/// What one rank tells another about a slot before the ids travel. Any number of them ends at a
/// multiple of 16 bytes (detail::BlockAlignment).
struct alignas(16) IdMessageHeader {
  std::int64_t bags = 0;
  std::int64_t entries = 0;
  /// of the rank that sends; NaN: not told
  double learning_rate = std::numeric_limits<double>::quiet_NaN();
  /// every bag has one id: lengths do not travel
  std::uint8_t one_hot = 0;
  std::uint8_t scaled = 0;  ///< bags have scales
  std::uint8_t weighted = 0;
  std::uint8_t id_size = 0;  ///< bytes
};

namespace detail {
/// Throws InvalidArgument where the lengths of a slot's bags might not fit their 32 bits on the
/// wire.
inline void require_lengths_fit(const IdMessageHeader& header, int feature) {
  require(header.one_hot != 0 || header.entries <= std::numeric_limits<std::uint32_t>::max(),
          "route: {} ids of feature {} for one rank in one batch; at most 2^32 - 1 travel at once, "
          "split the batch",
          header.entries, feature);
}
}  // namespace detail

/// Where the sections of one slot's message lie, in bytes from its start; each begins at a multiple
/// of 8, the messages for one rank together where its block does (detail::BlockAlignment).
struct IdMessage {
  std::size_t lengths = 0, ids = 0, weights = 0, scales = 0, size = 0;
  bool has_lengths = false, has_weights = false, has_scales = false;

  IdMessage(const IdMessageHeader& header, std::size_t id_size) {
    const auto aligned = [](std::size_t bytes) { return (bytes + 7) / 8 * 8; };
    const std::size_t bags = static_cast<std::size_t>(header.bags),
                      entries = static_cast<std::size_t>(header.entries);
    has_lengths = header.one_hot == 0;
    has_weights = header.weighted != 0;
    has_scales = header.scaled != 0;
    ids = has_lengths ? aligned(bags * sizeof(std::uint32_t)) : 0;
    weights = ids + aligned(entries * id_size);
    scales = weights + (has_weights ? aligned(entries * sizeof(float)) : 0);
    size = scales + (has_scales ? aligned(bags * sizeof(float)) : 0);
  }
};

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

namespace detail {

[[noreturn]] inline void throw_out_of_turn(std::string_view call, StepStage stage, bool own) {
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
      fmt::format("{}: the next stage of this step is {}; stages come in the order route, lookup, "
                  "exchange, assemble, "
                  "split, exchange_gradients, update, each once",
                  call, next[static_cast<std::size_t>(stage)]));
}

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

}  // namespace detail

/// The memory of one step in flight, from `route` to the end of `update`. Reused from step to step;
/// a trainer that overlaps steps keeps two.
template <IdType Id, class Backend>
struct Step {
  /// This rank's side of a slot: which of its samples have a vector there.
  struct Sent {
    std::int64_t bags = 0;
    std::int64_t entries = 0;
    const std::int32_t* samples = nullptr;  ///< null: all samples, in order
    /// index into the feature's entries of each id; null: all entries, in order
    const std::int64_t* positions = nullptr;
  };

  InputsOn<Id, Backend> inputs;
  /// of features whose duplicate ids do not travel
  DistinctRows<Id, Backend> distinct;
  /// model parallel: of the samples of the other ranks, by rank
  std::vector<DistinctRows<Id, Backend>> distinct_of_others;
  /// model parallel: what ranks without a feature's ids are told of its rows
  Buffer<std::int32_t, Backend> told_index_out, told_index_in;
  Buffer<std::int64_t, Backend> told_offsets_out, told_offsets_in;
  /// where vectors of sequences go; set before `route`, which forgets it unless it throws
  SequenceOutputs vectors;
  std::int64_t batch = 0;  ///< of this rank
  std::int64_t ids = 0;    ///< of the batch given
  /// of this rank when the batch was routed (TrainingSteps::rates); NaN: ranks do not compare it
  double learning_rate = 0;
  /// inputs hold the global batch of the local features
  bool model_parallel = false;
  /// of each table, of all ranks; in a step of fixed sizes, else empty
  std::vector<std::int64_t> most_entries;
  /// model parallel: first global sample of each rank, and the end
  std::vector<std::int64_t> sample_begin;
  std::vector<Sent> sent;              ///< by slot
  std::vector<op::Bags<Id>> received;  ///< by own slot * ranks + source
  /// model parallel, weighted, cut: entries' indices in the inputs
  std::vector<const std::int64_t*> received_positions;
  std::vector<typename op::PackBags<Id>::Block> blocks;
  std::vector<typename op::PackBags<Id>::Job> pack_jobs;
  std::vector<std::size_t> message_begin;  ///< by slot, in ids_out
  std::vector<std::size_t> arrival_begin;  ///< by RankLayout::served(), in ids_in

  std::vector<IdMessageHeader> headers_out, headers_in;
  std::vector<std::size_t> counts_out, counts_in;
  Buffer<std::byte, Backend> ids_out, ids_in;
  Buffer<std::int32_t, Backend> samples;
  Buffer<std::int32_t, Backend> cut_samples;  ///< model parallel: of what this rank cut for others
  Buffer<std::int64_t, Backend> positions;
  Buffer<std::int64_t, Backend> offsets;
  std::vector<op::OffsetsFromLengths::Job> offset_jobs;

  /// pooled vectors to send, or gradients received
  Buffer<float, Backend> owner_vectors;
  /// the same on the wire, where a codec has another form; and the other end of it
  Buffer<std::byte, Backend> owner_wire, requester_wire;
  /// where they lie there: set by `lookup`, and by `split` for gradients
  WireOrder wire;
  std::vector<op::EncodeJob> encodes;
  std::vector<op::DecodeJob> decodes;
  std::vector<op::LookupGroup<Id>> lookups;
  std::vector<op::GradientGroup<Id>> gradients;
  /// in slots of caches
  ResidentRows<Id, Backend> resident;

  /// The bags of a feature that are routed: the batch's part `i`, or distinct ids.
  op::Bags<Id> routed(int feature, std::size_t i = 0) const {
    return distinct.active(feature) ? distinct.ids(feature) : inputs.part(feature, i);
  }
  /// Model parallel: those of another rank's samples.
  op::Bags<Id> routed_of(int feature, std::size_t rank) const {
    return distinct.active(feature) ? distinct_of_others[rank].ids(feature)
                                    : inputs.part(feature, rank);
  }

  /// Where the vectors of a piece go: columns of the output, or, per distinct id, of this step's
  /// rows.
  MatrixView<float> output_of(const Piece& piece, MatrixView<float> output) const {
    const SlotPart& part = piece.columns();
    const int feature = piece.slot->feature;
    if (!distinct.active(feature)) return output.column_range(part.column, part.width);
    return distinct.rows(feature).column_range(part.column - distinct.column(feature), part.width);
  }
  /// Where their gradients come from, likewise.
  MatrixView<const float> gradient_of(const Piece& piece, MatrixView<const float> gradient) const {
    const SlotPart& part = piece.columns();
    const int feature = piece.slot->feature;
    if (!distinct.active(feature)) return gradient.column_range(part.column, part.width);
    return distinct.gradients(feature).column_range(part.column - distinct.column(feature),
                                                    part.width);
  }
  /// As owner: the vectors of a piece that travels.
  MatrixView<float> owner_vectors_of(const Piece& piece) const {
    return {owner_vectors.data() + piece.first_float, piece.rows, piece.columns().width};
  }
  /// The bags of a piece that this rank serves.
  op::Bags<Id> bags_of(const Piece& piece) const {
    op::Bags<Id> bags = received[piece.index];
    bags.row_bias = piece.columns().row_bias;
    return bags;
  }

  /// Finds the distinct ids of this rank's samples; `vectors` are those asked for.
  void find_rows(const Backend& backend, const Layout& layout, const RankLayout& routing,
                 typename DistinctRows<Id, Backend>::Wanted wanted) {
    wanted.fixed = fixed_sizes();
    wanted.vectors = std::exchange(vectors, {});
    distinct.find(backend, layout, routing, inputs, wanted);
  }

  /// Whether every rank's messages have the room that this rank's bounds tell: no rank is asked for
  /// sizes (EqualBatches).
  bool fixed_sizes() const { return !most_entries.empty(); }

  /// The vectors of a sequence feature: an index into Layout::features, or its name. Throws
  /// InvalidArgument before `assemble`, and for other features.
  SequenceView<Backend> sequence(int feature) const { return distinct.sequence(feature); }
  SequenceView<Backend> sequence(std::string_view name) const { return distinct.sequence(name); }
  template <FixedString Name>
  SequenceView<Backend> sequence() const {
    return sequence(Name.view());
  }

  /// It is about to be routed by a collection.
  void begin(const void* by) {
    stage = Stage::empty;
    distinct.clear();
    most_entries.clear();
    resident.release(false);
    accumulated_before.reset();
    collection = by;
    ++turn;
  }

  /// Throws InvalidArgument, with what comes next, unless collection `by` has routed it and
  /// `needed` is the last stage that it has passed.
  void require_at(const void* by, StepStage needed, std::string_view call) const {
    if (stage != needed || collection != by)
      detail::throw_out_of_turn(call, stage, collection == by);
  }
  /// Whether collection `by` dropped its gradients.
  bool rejected(const void* by) const { return stage == Stage::rejected && collection == by; }
  /// Whether a batch was looked up that got no update so far.
  bool awaits_update() const {
    return stage == Stage::assembled || stage == Stage::split || stage == Stage::received;
  }

  StageRecord<Backend> record;  ///< under ReportSteps

  using Stage = StepStage;
  Stage stage = Stage::empty;
  const void* collection = nullptr;  ///< that routed it last
  std::uint64_t turn = 0;            ///< how often it was routed
  /// Of gradients that are accumulated: the number of `apply` before.
  std::optional<std::uint64_t> accumulated_before;
};

/// What `forward` gives: pooled vectors [local batch, columns], those of sequences, and the step
/// that `backward` continues. Valid until the next forward.
template <IdType Id, class Backend>
struct Pooled {
  MatrixView<float> values;
  Step<Id, Backend>* step = nullptr;
  std::uint64_t turn = 0;  ///< the step's

  /// As Step::sequence.
  template <class Feature>
  SequenceView<Backend> sequence(const Feature& feature) const {
    require(step != nullptr && step->turn == turn,
            "sequence: another batch was looked up since this forward");
    return step->sequence(feature);
  }
  template <FixedString Name>
  SequenceView<Backend> sequence() const {
    return sequence(Name.view());
  }

  operator MatrixView<float>() const { return values; }  // NOLINT(google-explicit-constructor)
  operator MatrixView<const float>() const {
    return values;
  }  // NOLINT(google-explicit-constructor)

  /// Throws InvalidArgument unless a collection's `call` can continue it: backward, or, given the
  /// number of applies so far, accumulate, which several losses of one forward may call.
  void check(const void* collection, std::string_view call,
             std::optional<std::uint64_t> applies = {}) const {
    require(step != nullptr, "{}: call forward first", call);
    require(step->collection == collection,
            "{}: what is given comes from another collection's forward", call);
    require(step->turn == turn,
            "{0}: another batch was looked up since this forward; call {0} before the next "
            "forward, or keep a Step for each batch (route, forward_routed)",
            call);
    if (const auto& before = step->accumulated_before) {
      require(applies.has_value(),
              "{}: gradients of this forward are accumulated; give those of other losses to "
              "accumulate, too",
              call);
      require(*applies == *before,
              "{}: apply has used the gradients of this forward; look the batch up again", call);
    }
    require(step->stage == StepStage::assembled || step->stage == StepStage::rejected ||
                step->stage == StepStage::accumulated,
            "{}: call forward first, and backward once for each forward", call);
    if (applies && step->stage == StepStage::accumulated) step->stage = StepStage::assembled;
  }
};

/// What `evaluate` gives: pooled vectors, and those of sequences. Valid until the next one.
template <IdType Id, class Backend>
struct Evaluated : MatrixView<float> {
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

}  // namespace tessera::inline v0
