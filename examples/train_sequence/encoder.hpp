// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "blocks.hpp"

#include <tessera/core/matrix_view.hpp>
#include <tessera/core/random.hpp>
#include <tessera/core/sequence_batch.hpp>
#include <tessera/dense/normal.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace sequence {

/// Vectors by number, of the dense part of a model: places, labels.
class Vectors {
 public:
  /// `waves`: the first values are sines and cosines of the number, of many lengths of wave: "the
  /// one before" is then one matrix for all numbers, which attention finds soon. Else normal.
  Vectors(std::int64_t rows, std::int64_t width, bool waves)
      : rows_(rows), width_(width), waves_(waves) {}
  std::int64_t parameter_count() const { return rows_ * width_; }
  void bind(std::span<float> values, std::span<float> gradients) {
    values_ = values, gradients_ = gradients;
  }
  int initialize(std::uint64_t seed, int first_layer) {
    constexpr float deviation = 0.02f;
    tessera::fill_normal(values_, deviation, seed, static_cast<std::uint64_t>(first_layer) * 2);
    for (std::int64_t row = 0; waves_ && row < rows_; ++row)
      for (std::int64_t c = 0; c < width_; ++c) {
        const double angle =
            static_cast<double>(row) *
            std::pow(1e-4, static_cast<double>(c / 2 * 2) / static_cast<double>(width_));
        values_[at(row, c)] = static_cast<float>(deviation * std::sqrt(2.0) *
                                                 (c % 2 == 0 ? std::sin(angle) : std::cos(angle)));
      }
    return first_layer + 1;
  }
  void clear_gradients() { std::fill(gradients_.begin(), gradients_.end(), 0.0f); }
  void add(std::int64_t row, float factor, float* to) const {
    for (std::int64_t c = 0; c < width_; ++c) to[c] += factor * values_[at(row, c)];
  }
  void add_gradient(std::int64_t row, float factor, const float* gradient) {
    for (std::int64_t c = 0; c < width_; ++c) gradients_[at(row, c)] += factor * gradient[c];
  }

 private:
  std::size_t at(std::int64_t row, std::int64_t c) const {
    return static_cast<std::size_t>(row * width_ + c);
  }
  std::int64_t rows_, width_;
  bool waves_;
  std::span<float> values_, gradients_;
};

/// Zeros for a share of the elements, the others larger by as much: of a row's key and a layer, so
/// that it is the same whatever rank has the row. Share 0 changes nothing.
class Dropout {
 public:
  explicit Dropout(float share)
      : below_(static_cast<std::uint32_t>(std::lround(share * 65536))),
        scale_(65536.0f / static_cast<float>(65536 - below_)) {}
  void apply(tessera::MatrixView<float> x, std::span<const std::uint64_t> keys, int layer) const {
    if (below_ == 0) return;
    for (std::int64_t r = 0; r < x.rows; ++r) {
      float* const row = x.row(r);
      for (std::int64_t c = 0; c < x.columns; c += 4) {
        std::uint64_t word = tessera::random_word(keys[static_cast<std::size_t>(r)], layer, c);
        for (std::int64_t k = c; k < std::min(c + 4, x.columns); ++k, word >>= 16)
          row[k] *= (word & 0xffff) < below_ ? 0.0f : scale_;
      }
    }
  }

 private:
  std::uint32_t below_;
  float scale_;
};

/// HSTU blocks one after another, each with dropout of what it adds.
class Encoder {
 public:
  Encoder(int blocks, int width, int heads, std::int64_t max_length, int threads, float dropout)
      : width_(width), dropout_(dropout) {
    for (int b = 0; b < blocks; ++b)
      blocks_.push_back(make_block(width, heads, max_length, threads));
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

  /// The matrix to fill before `forward`: [rows, width], zeros.
  tessera::MatrixView<float> input(std::int64_t rows) {
    inputs_[0].assign(static_cast<std::size_t>(rows * width_), 0.0f);
    return view(0);
  }
  /// `keys`: of each row, for dropout; none: without it. The result stays until the next call.
  tessera::MatrixView<const float> forward(const tessera::SequenceBatch& batch,
                                           std::span<const std::uint64_t> keys) {
    const bool training = !keys.empty();
    if (training) dropout_.apply(view(0), keys, 0);
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      inputs_[b + 1].resize(inputs_[b].size());
      blocks_[b]->forward(view(b), batch, view(b + 1));
      if (!training) continue;
      std::vector<float>&x = inputs_[b], &y = inputs_[b + 1];
      for (std::size_t i = 0; i < x.size(); ++i) y[i] -= x[i];
      dropout_.apply(view(b + 1), keys, static_cast<int>(b) + 1);
      for (std::size_t i = 0; i < x.size(); ++i) y[i] += x[i];
    }
    return view(blocks_.size());
  }
  /// Of the last forward with keys. `d`: the gradient of its result becomes that of its input.
  void backward(tessera::MatrixView<float> d, std::span<const std::uint64_t> keys) {
    const auto count = static_cast<std::size_t>(d.rows * width_);
    for (std::size_t b = blocks_.size(); b-- > 0;) {
      masked_.assign(d.data, d.data + count);
      passed_.resize(count);
      const tessera::MatrixView<float> masked(masked_.data(), d.rows, width_);
      dropout_.apply(masked, keys, static_cast<int>(b) + 1);
      blocks_[b]->backward(masked, {passed_.data(), d.rows, width_});
      // the block passes its whole input on, which had no dropout
      for (std::size_t i = 0; i < count; ++i) d.data[i] += passed_[i] - masked_[i];
    }
    dropout_.apply(d, keys, 0);
  }

 private:
  tessera::MatrixView<float> view(std::size_t layer) {
    return {inputs_[layer].data(), static_cast<std::int64_t>(inputs_[layer].size()) / width_,
            width_};
  }

  std::int64_t width_;
  Dropout dropout_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<std::vector<float>> inputs_;  ///< of each block; the last: what comes out
  std::vector<float> masked_, passed_;
};

}  // namespace sequence
