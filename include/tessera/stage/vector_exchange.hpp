// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/codec/codec_choice.hpp>
#include <tessera/codec/codecs.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/op/codec.hpp>
#include <tessera/op/exchange.hpp>
#include <tessera/stage/optional_collectives.hpp>
#include <tessera/stage/step.hpp>
#include <tessera/tables/rank_layout.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera::inline v0 {

/// Pooled vectors on their way from owners to the ranks of the samples, and their gradients on the
/// way back; encoded where a codec is not Fp32. A codec's rows lie as the floats would: by rank,
/// slot, part. Encoding and decoding are one pass together with the packing. `Forward` and
/// `Backward` are CodecChoices.
template <class Backend, class Comm, class Forward, class Backward>
class VectorExchange {
 public:
  VectorExchange(const RankLayout& routing, Forward forward, Backward backward,
                 detail::BlockAlignment blocks)
      : routing_(routing), forward_(forward), backward_(backward), blocks_(blocks) {}

  /// What this rank, as owner, has for each source; and, as requester, gets from each owner.
  template <IdType Id>
  void size(const Backend& backend, Step<Id, Backend>& step) const {
    resize(backend, step, Way::vectors);
  }

  /// Owners' pooled vectors go to the ranks of the samples.
  template <IdType Id>
  void to_requesters(const Backend& backend, Comm& communicator, Step<Id, Backend>& step) const {
    if (!routing_.exchanges()) return;
    forward_.visit([&]<class C>(std::type_identity<C>) {
      if constexpr (encodes<C>) {
        size_encoded<C>(backend, step, Way::vectors);
        std::vector<typename op::EncodeRows<C>::Job> jobs;
        for_each_owner_row<C>(
            step, Way::vectors,
            [&](float* vectors, std::byte* encoded, std::int64_t rows, int width) {
              jobs.push_back({vectors, width, encoded, rows, width, nullptr});
            });
        op::run<op::EncodeRows<C>>(backend, {jobs});
        detail::all_to_all<std::byte>(communicator, step.owner_encoded.span(), step.owner_bytes,
                                      step.requester_encoded.span(), step.requester_bytes);
      } else {
        detail::all_to_all<float>(communicator, step.owner_vectors.span(), step.owner_counts,
                                  step.requester_vectors.span(), step.requester_counts);
      }
    });
  }

  /// What came is put into its columns of `output`, or added where a table is cut by rows.
  template <IdType Id>
  void assemble(const Backend& backend, Step<Id, Backend>& step, MatrixView<float> output) const {
    for (const auto& [column, width] : routing_.summed_columns())
      op::run<op::ZeroRows>(
          backend, {output.column_range(column, width).data, output.stride, output.rows, width});
    forward_.visit([&]<class C>(std::type_identity<C>) {
      if constexpr (encodes<C>) {
        std::vector<typename op::DecodeRows<C>::Job> jobs;
        for_each_requested<C>(
            step, Way::vectors, step.requester_encoded.data(), step.requester_bytes,
            [&](const Slot& slot, const SlotPart& part, std::size_t s, std::byte* at) {
              const MatrixView<float> target = step.output_of(slot, part, output);
              jobs.push_back({at, target.data, target.stride, step.sent[s].bags, part.width,
                              step.sent[s].samples, adds(step, slot)});
            });
        op::run<op::DecodeRows<C>>(backend, {jobs});
      } else {
        step.moves.clear();
        for_each_requested<C>(
            step, Way::vectors, step.requester_vectors.data(), step.requester_counts,
            [&](const Slot& slot, const SlotPart& part, std::size_t s, float* packed) {
              const MatrixView<float> target = step.output_of(slot, part, output);
              step.moves.push_back({packed, part.width, target.data, target.stride,
                                    step.sent[s].bags, part.width, step.sent[s].samples, true,
                                    adds(step, slot)});
            });
        op::run<op::MoveRows>(backend, {step.moves});
      }
    });
  }

  /// Cuts the gradient into what each owner needs.
  template <IdType Id>
  void split(const Backend& backend, Step<Id, Backend>& step,
             MatrixView<const float> gradient) const {
    if (!all_gradients_) resize(backend, step, Way::gradients);
    backward_.visit([&]<class C>(std::type_identity<C>) {
      if constexpr (encodes<C>) {
        size_encoded<C>(backend, step, Way::gradients);
        std::vector<typename op::EncodeRows<C>::Job> jobs;
        for_each_requested<C>(
            step, Way::gradients, step.requester_encoded.data(), step.requester_bytes,
            [&](const Slot& slot, const SlotPart& part, std::size_t s, std::byte* at) {
              const MatrixView<const float> source = step.gradient_of(slot, part, gradient);
              jobs.push_back({source.data, source.stride, at, step.sent[s].bags, part.width,
                              step.sent[s].samples});
            });
        op::run<op::EncodeRows<C>>(backend, {jobs});
      } else {
        step.moves.clear();
        for_each_requested<C>(
            step, Way::gradients, step.requester_vectors.data(), step.requester_counts,
            [&](const Slot& slot, const SlotPart& part, std::size_t s, float* packed) {
              const MatrixView<const float> source = step.gradient_of(slot, part, gradient);
              step.moves.push_back({source.data, source.stride, packed, part.width,
                                    step.sent[s].bags, part.width, step.sent[s].samples, false,
                                    false});
            });
        op::run<op::MoveRows>(backend, {step.moves});
      }
    });
  }

  /// Gradients go to the owners, as floats in step.owner_vectors.
  template <IdType Id>
  void to_owners(const Backend& backend, Comm& communicator, Step<Id, Backend>& step) const {
    if (!routing_.exchanges()) return;
    backward_.visit([&]<class C>(std::type_identity<C>) {
      if constexpr (encodes<C>) {
        detail::all_to_all<std::byte>(communicator, step.requester_encoded.span(),
                                      step.requester_bytes, step.owner_encoded.span(),
                                      step.owner_bytes);
        std::vector<typename op::DecodeRows<C>::Job> jobs;
        for_each_owner_row<C>(
            step, Way::gradients,
            [&](float* vectors, std::byte* encoded, std::int64_t rows, int width) {
              jobs.push_back({encoded, vectors, width, rows, width, nullptr, false});
            });
        op::run<op::DecodeRows<C>>(backend, {jobs});
      } else {
        detail::all_to_all<float>(communicator, step.requester_vectors.span(),
                                  step.requester_counts, step.owner_vectors.span(),
                                  step.owner_counts);
      }
    });
  }

 private:
  template <class C>
  static constexpr bool encodes = !std::is_same_v<C, Fp32>;

  static std::size_t floats(std::int64_t rows, int width) {
    return static_cast<std::size_t>(rows) * static_cast<std::size_t>(width);
  }
  static std::size_t sum(const std::vector<std::size_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  }

  /// Parts of rows are added; a distinct id has one row, which is in one block. In a step of fixed
  /// sizes the other blocks send zeros for it.
  template <IdType Id>
  static bool adds(const Step<Id, Backend>& step, const Slot& slot) {
    return !slot.whole && (!step.distinct.active(slot.feature) || step.fixed_sizes());
  }

  /// Floats to and from each rank, and room for them.
  template <IdType Id>
  void resize(const Backend& backend, Step<Id, Backend>& step, Way way) const {
    const std::size_t ranks = static_cast<std::size_t>(routing_.ranks());
    step.owner_counts.assign(ranks, 0);
    step.requester_counts.assign(ranks, 0);
    for_each_owned(step, way, [&](std::size_t rank, std::int64_t rows, int width) {
      step.owner_counts[rank] += floats(rows, width);
    });
    for (std::size_t s = 0; s < routing_.slots().size(); ++s)
      if (const Slot& slot = routing_.slots()[s]; !routing_.direct(slot) && slot.goes(way))
        step.requester_counts[slot.rank] += floats(step.sent[s].bags, slot.width());
    pad<float>(step.owner_counts);
    pad<float>(step.requester_counts);
    step.owner_vectors.resize(backend, sum(step.owner_counts));
    if (forward_.template is<Fp32>() || backward_.template is<Fp32>())
      step.requester_vectors.resize(backend, sum(step.requester_counts));
  }

  template <class T>
  void pad(std::vector<std::size_t>& counts) const {
    for (std::size_t& count : counts) count = blocks_.template padded<T>(count);
  }

  /// Visits the vectors that this rank has for others, in their order: f(source rank, rows, width).
  template <IdType Id, class F>
  void for_each_owned(const Step<Id, Backend>& step, Way way, F&& f) const {
    const std::size_t ranks = static_cast<std::size_t>(routing_.ranks());
    for (std::size_t r = 0; r < ranks; ++r)
      for (std::size_t k = 0; k < routing_.slots_of(routing_.rank()); ++k) {
        const Slot& slot = routing_.own_slot(k);
        if ((slot.whole && static_cast<int>(r) == routing_.rank()) || !slot.goes(way)) continue;
        for (const SlotPart& part : slot.parts) f(r, step.received[k * ranks + r].bags, part.width);
      }
  }

  /// The same with their places as floats and in the form of codec C: f(floats, encoded, rows,
  /// width).
  template <Codec C, IdType Id, class F>
  void for_each_owner_row(Step<Id, Backend>& step, Way way, F&& f) const {
    float *vectors = nullptr, *block = step.owner_vectors.data();
    std::byte *encoded = nullptr, *encoded_block = step.owner_encoded.data();
    std::size_t begun = 0;  // blocks
    for_each_owned(step, way, [&](std::size_t rank, std::int64_t rows, int width) {
      for (; begun <= rank; ++begun) {
        vectors = std::exchange(block, block + step.owner_counts[begun]);
        encoded = std::exchange(encoded_block, encoded_block + step.owner_bytes[begun]);
      }
      if (rows != 0) f(vectors, encoded, rows, width);
      vectors += floats(rows, width);
      encoded += static_cast<std::size_t>(rows) * C::bytes(width);
    });
  }

  /// Visits the vectors that this rank gets from (or gives back to) owners: f(slot, part, index of
  /// the slot, place in `block`). `sizes`: of each rank's block.
  template <Codec C, IdType Id, class T, class F>
  void for_each_requested(const Step<Id, Backend>& step, Way way, T* block,
                          const std::vector<std::size_t>& sizes, F&& f) const {
    if (!routing_.exchanges()) return;  // nor are there sizes
    for (int r = 0; r < routing_.ranks(); block += sizes[static_cast<std::size_t>(r++)]) {
      T* at = block;
      for (std::size_t s = routing_.slots_begin(r); s < routing_.slots_end(r); ++s) {
        const Slot& slot = routing_.slots()[s];
        if (routing_.direct(slot) || !slot.goes(way)) continue;
        for (const SlotPart& part : slot.parts) {
          if (step.sent[s].bags != 0) f(slot, part, s, at);
          at += static_cast<std::size_t>(step.sent[s].bags) * (C::bytes(part.width) / sizeof(T));
        }
      }
    }
  }

  template <Codec C, IdType Id>
  void size_encoded(const Backend& backend, Step<Id, Backend>& step, Way way) const {
    step.owner_bytes.assign(step.owner_counts.size(), 0);
    step.requester_bytes.assign(step.owner_counts.size(), 0);
    for_each_owned(step, way, [&](std::size_t rank, std::int64_t rows, int width) {
      step.owner_bytes[rank] += static_cast<std::size_t>(rows) * C::bytes(width);
    });
    for (std::size_t s = 0; s < routing_.slots().size(); ++s)
      if (const Slot& slot = routing_.slots()[s]; !routing_.direct(slot) && slot.goes(way))
        for (const SlotPart& part : slot.parts)
          step.requester_bytes[slot.rank] +=
              static_cast<std::size_t>(step.sent[s].bags) * C::bytes(part.width);
    pad<std::byte>(step.owner_bytes);
    pad<std::byte>(step.requester_bytes);
    step.owner_encoded.resize(backend, sum(step.owner_bytes));
    step.requester_encoded.resize(backend, sum(step.requester_bytes));
  }

  const RankLayout& routing_;
  const bool all_gradients_ = routing_.all_gradients();
  Forward forward_;
  Backward backward_;
  const detail::BlockAlignment blocks_;
};

}  // namespace tessera::inline v0
