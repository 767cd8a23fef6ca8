// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "blocks.hpp"
#include "vector_ops.hpp"

#include <tessera/core/matrix_view.hpp>
#include <tessera/core/sequence_batch.hpp>
#include <tessera/dense/normal.hpp>
#include <tessera/op/kernel.hpp>
#include <tessera/tables/buffer.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace sequence {

/// Vectors by number, of the dense part of a model: places, labels.
template <class Backend>
class Vectors {
 public:
  /// `waves`: the first values are sines and cosines of the number, of many lengths of wave: "the
  /// one before" is then one matrix for all numbers, which attention finds soon. Else normal.
  Vectors(const Backend& backend, std::int64_t rows, std::int64_t width, bool waves)
      : backend_(backend), rows_(rows), width_(width), waves_(waves) {}
  std::int64_t parameter_count() const { return rows_ * width_; }
  void bind(std::span<float> values, std::span<float> gradients) {
    values_ = values, gradients_ = gradients;
  }
  int initialize(std::uint64_t seed, int first_layer) {
    constexpr float deviation = 0.02f;
    std::vector<float> values(values_.size());
    tessera::fill_normal(std::span(values), deviation, seed,
                         static_cast<std::uint64_t>(first_layer) * 2);
    for (std::int64_t row = 0; waves_ && row < rows_; ++row)
      for (std::int64_t c = 0; c < width_; ++c) {
        const double angle =
            static_cast<double>(row) *
            std::pow(1e-4, static_cast<double>(c / 2 * 2) / static_cast<double>(width_));
        values[static_cast<std::size_t>(row * width_ + c)] = static_cast<float>(
            deviation * std::sqrt(2.0) * (c % 2 == 0 ? std::sin(angle) : std::cos(angle)));
      }
    backend_.copy(values_.data(), values.data(), values_.size_bytes());
    backend_.synchronize();  // `values` ends
    return first_layer + 1;
  }
  tessera::MatrixView<const float> values() const { return {values_.data(), rows_, width_}; }
  tessera::MatrixView<float> gradients() const { return {gradients_.data(), rows_, width_}; }

 private:
  Backend backend_;
  std::int64_t rows_, width_;
  bool waves_;
  std::span<float> values_, gradients_;
};

/// HSTU blocks one after another, each with dropout of what it adds.
template <class Backend>
class Encoder {
 public:
  Encoder(const Backend& backend, std::vector<std::unique_ptr<Block>> blocks, int width,
          float dropout)
      : backend_(backend), width_(width), zeros_(dropout), blocks_(std::move(blocks)) {
    inputs_.resize(blocks_.size() + 1);
  }

  std::int64_t parameter_count() const {
    std::int64_t count = 0;
    for (const auto& block : blocks_) count += block->parameter_count();
    return count;
  }
  void bind(std::span<float> values, std::span<float> gradients) {
    std::size_t at = 0;
    for (const auto& block : blocks_) {
      const auto count = static_cast<std::size_t>(block->parameter_count());
      block->bind(values.subspan(at, count), gradients.subspan(at, count));
      at += count;
    }
  }
  int initialize(std::uint64_t seed, int first_layer) {
    for (const auto& block : blocks_) first_layer = block->initialize(seed, first_layer);
    return first_layer;
  }

  /// The matrix to fill before `forward`: [rows, width].
  tessera::MatrixView<float> input(std::int64_t rows) {
    rows_ = rows;
    return room(inputs_[0]);
  }
  /// `keys`: of each row, for dropout; none: without it. Both in the backend's memory. The result
  /// stays until the next call.
  tessera::MatrixView<const float> forward(const tessera::SequenceBatch& batch,
                                           std::span<const std::uint64_t> keys) {
    const bool training = !keys.empty();
    tessera::MatrixView<float> x = room(inputs_[0]);
    if (training) tessera::op::run<Drop>(backend_, drop(0, keys, x));
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      const tessera::MatrixView<float> y = room(inputs_[b + 1]);
      blocks_[b]->forward(x, batch, y);
      if (training)
        tessera::op::run<DropAdded>(backend_, {drop(static_cast<int>(b) + 1, keys, y), x});
      x = y;
    }
    return x;
  }
  /// Of the last forward with keys. `d`: the gradient of its result becomes that of its input.
  void backward(tessera::MatrixView<float> d, std::span<const std::uint64_t> keys) {
    const std::int64_t count = d.rows * width_;
    for (std::size_t b = blocks_.size(); b-- > 0;) {
      const tessera::MatrixView<float> masked = room(masked_), passed = room(passed_);
      backend_.copy(masked.data, d.data, static_cast<std::size_t>(count) * sizeof(float));
      tessera::op::run<Drop>(backend_, drop(static_cast<int>(b) + 1, keys, masked));
      blocks_[b]->backward(masked, passed);
      // the block passes its whole input on, which had no dropout
      tessera::op::run<AddDifference>(backend_, {passed.data, masked.data, d.data, count});
    }
    tessera::op::run<Drop>(backend_, drop(0, keys, d));
  }

 private:
  using Floats = tessera::Buffer<float, Backend>;

  tessera::MatrixView<float> room(Floats& floats) const {
    return {floats.resize(backend_, static_cast<std::size_t>(rows_ * width_)).data(), rows_,
            width_};
  }
  Drop::Parameters drop(int layer, std::span<const std::uint64_t> keys,
                        tessera::MatrixView<float> x) const {
    return {zeros_, keys.data(), layer, x};
  }

  Backend backend_;
  std::int64_t width_, rows_ = 0;
  Zeros zeros_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<Floats> inputs_;  ///< of each block; the last: what comes out
  Floats masked_, passed_;
};

}  // namespace sequence
