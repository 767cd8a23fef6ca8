// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/codec/codec_choice.hpp>
#include <tessera/codec/codecs.hpp>
#include <tessera/comm/optional_collectives.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/core/pod_vector.hpp>
#include <tessera/ids/wire_order.hpp>
#include <tessera/op/codec.hpp>
#include <tessera/op/exchange.hpp>
#include <tessera/tables/buffer.hpp>
#include <tessera/tables/rank_layout.hpp>

#include <cstddef>
#include <span>
#include <type_traits>

namespace tessera { inline namespace v0 { namespace detail {

template <class Backend, class Comm, class Forward, class Backward>
class VectorExchange;

/// The vectors of a step between owners and requesters, and their gradients on the way back.
/// Written by VectorExchange; the lookup pools into `at_owner`.
template <class Backend>
class VectorsInFlight {
 public:
  /// Returns the order, set before `lookup`, and by `split` for gradients.
  const WireOrder& order() const { return order_; }
  /// Returns the vectors of a piece that this rank serves and that travels; after
  /// `exchange_gradients` their gradients.
  MatrixView<float> at_owner(const Piece& piece) const {
    return {owner_.data() + piece.first_float, piece.rows, piece.columns().width};
  }

 private:
  template <class, class, class, class>
  friend class VectorExchange;

  WireOrder order_;
  Buffer<float, Backend> owner_;
  // the same on the wire, if a codec has another form; and the other end of it
  Buffer<std::byte, Backend> owner_wire_, requester_wire_;
  PodVector<op::EncodeJob> encodes_;
  PodVector<op::DecodeJob> decodes_;
};

/// Pooled vectors on their way from owners to the ranks of the samples, and their gradients on the
/// way back, in a codec's form. Encoding and decoding are one pass together with the packing.
/// `Forward` and `Backward` are each a CodecChoice, `State`: a Step.
template <class Backend, class Comm, class Forward, class Backward>
class VectorExchange {
 public:
  VectorExchange(const RankLayout& routing, Forward forward, Backward backward,
                 BlockAlignment blocks)
      : routing_(routing), forward_(forward), backward_(backward), blocks_(blocks) {}

  /// Sets where vectors are on their way, and room for those that this rank looks up and gets.
  template <class State>
  void size(const Backend& backend, State& step) const {
    forward_.visit([&]<class C>(std::type_identity<C>) { order<C>(backend, step, Way::vectors); });
  }

  /// Sends owners' pooled vectors to the ranks of the samples.
  template <class State>
  void to_requesters(const Backend& backend, Comm& communicator, State& step) const {
    if (!routing_.exchanges()) return;
    forward_.visit([&]<class C>(std::type_identity<C>) {
      if constexpr (!in_place<C>) {
        PodVector<op::EncodeJob>& jobs = step.in_flight.encodes_;
        jobs.clear();
        for (const Piece& piece : step.in_flight.order_.served().pieces()) {
          const MatrixView<float> vectors = step.in_flight.at_owner(piece);
          jobs.push_back({vectors.data, vectors.stride,
                          step.in_flight.owner_wire_.data() + piece.first_byte, piece.rows,
                          piece.columns().width, nullptr});
        }
        op::run<op::EncodeRows<C>>(backend, {jobs});
      }
      all_to_all<std::byte>(
          communicator, owner_wire<C>(step), step.in_flight.order_.served().bytes(),
          step.in_flight.requester_wire_.span(), step.in_flight.order_.requested().bytes());
    });
  }

  /// Puts what came into its columns of `output`, or adds it if a table is cut by rows.
  template <class State>
  void assemble(const Backend& backend, State& step, MatrixView<float> output) const {
    for (const auto& [column, width] : routing_.summed_columns())
      op::run<op::ZeroRows>(
          backend, {output.column_range(column, width).data, output.stride, output.rows, width});
    forward_.visit([&]<class C>(std::type_identity<C>) {
      PodVector<op::DecodeJob>& jobs = step.in_flight.decodes_;
      jobs.clear();
      for (const Piece& piece : step.in_flight.order_.requested().pieces()) {
        const MatrixView<float> target = step.output_of(piece, output);
        jobs.push_back({step.in_flight.requester_wire_.data() + piece.first_byte, target.data,
                        target.stride, piece.rows, piece.columns().width,
                        step.routed.sent()[piece.index].samples, adds(step, *piece.slot)});
      }
      op::run<op::DecodeRows<C>>(backend, {jobs});
    });
  }

  /// Cuts the gradient into what each owner needs.
  template <class State>
  void split(const Backend& backend, State& step, MatrixView<const float> gradient) const {
    backward_.visit([&]<class C>(std::type_identity<C>) {
      order<C>(backend, step, Way::gradients);
      PodVector<op::EncodeJob>& jobs = step.in_flight.encodes_;
      jobs.clear();
      for (const Piece& piece : step.in_flight.order_.requested().pieces()) {
        const MatrixView<const float> source = step.gradient_of(piece, gradient);
        jobs.push_back({source.data, source.stride,
                        step.in_flight.requester_wire_.data() + piece.first_byte, piece.rows,
                        piece.columns().width, step.routed.sent()[piece.index].samples});
      }
      op::run<op::EncodeRows<C>>(backend, {jobs});
    });
  }

  /// Sends gradients to the owners, as floats in step.in_flight.owner_.
  template <class State>
  void to_owners(const Backend& backend, Comm& communicator, State& step) const {
    if (!routing_.exchanges()) return;
    backward_.visit([&]<class C>(std::type_identity<C>) {
      all_to_all<std::byte>(communicator, step.in_flight.requester_wire_.span(),
                            step.in_flight.order_.requested().bytes(), owner_wire<C>(step),
                            step.in_flight.order_.served().bytes());
      if constexpr (!in_place<C>) {
        PodVector<op::DecodeJob>& jobs = step.in_flight.decodes_;
        jobs.clear();
        for (const Piece& piece : step.in_flight.order_.served().pieces()) {
          const MatrixView<float> vectors = step.in_flight.at_owner(piece);
          jobs.push_back({step.in_flight.owner_wire_.data() + piece.first_byte, vectors.data,
                          vectors.stride, piece.rows, piece.columns().width, nullptr, false});
        }
        op::run<op::DecodeRows<C>>(backend, {jobs});
      }
    });
  }

 private:
  /// Floats as they are need no copy: the owner sends what its lookup wrote, and updates by what
  /// came.
  template <class C>
  static constexpr bool in_place = std::is_same_v<C, Fp32>;
  template <class C, class State>
  static std::span<std::byte> owner_wire(State& step) {
    return in_place<C> ? std::as_writable_bytes(step.in_flight.owner_.span())
                       : step.in_flight.owner_wire_.span();
  }

  /// Returns whether parts of rows are added; a distinct id has one row, which is in one block. In
  /// a step of fixed sizes the other blocks send zeros for it.
  template <class State>
  static bool adds(const State& step, const Slot& slot) {
    return !slot.whole && (!step.distinct.active(slot.feature) || step.batch.fixed_sizes());
  }

  template <Codec C, class State>
  void order(const Backend& backend, State& step, Way way) const {
    step.in_flight.order_.set(routing_, blocks_, way, step.routed.received(), step.routed.sent(),
                              [](int width) { return C::bytes(width); });
    step.in_flight.owner_.resize(backend, step.in_flight.order_.served().all_floats());
    if (!in_place<C>)
      step.in_flight.owner_wire_.resize(backend, step.in_flight.order_.served().all_bytes());
    step.in_flight.requester_wire_.resize(backend, step.in_flight.order_.requested().all_bytes());
  }

  const RankLayout& routing_;
  Forward forward_;
  Backward backward_;
  const BlockAlignment blocks_;
};

}}}  // namespace tessera::v0::detail
