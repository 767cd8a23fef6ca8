// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "blocks.hpp"

#include <tessera/concepts/sequence_layer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/sequence/hstu_parameters.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

namespace sequence {

static_assert(tessera::SequenceLayer<Block>);

template <int Heads, int Columns, class Backend>
class BlockOf final : public Block {
 public:
  BlockOf(const Backend& backend, std::int64_t max_length)
      : layer_(backend, Heads * Columns, {.max_length = max_length}) {}

  std::int64_t width() const override { return layer_.width(); }
  std::int64_t parameter_count() const override { return layer_.parameter_count(); }
  void bind(std::span<float> values, std::span<float> gradients) override {
    layer_.bind(values, gradients);
  }
  int initialize(std::uint64_t seed, int first_layer) override {
    return layer_.initialize(seed, first_layer);
  }
  void forward(tessera::MatrixView<const float> x, const tessera::SequenceBatch& batch,
               tessera::MatrixView<float> y) override {
    layer_.forward(x, batch, y);
  }
  void backward(tessera::MatrixView<const float> dy, tessera::MatrixView<float> dx) override {
    layer_.backward(dy, dx);
  }

 private:
  tessera::HstuLayer<Heads, Columns, Columns, Backend> layer_;
};

/// Every shape of a block.
struct AllShapes {
  /// Calls f(std::integral_constant heads, columns of a head) for each pair that is compiled.
  template <class F>
  static void for_each(const F& f) {
    const auto shapes = [&]<int Heads, int... Columns>(std::integral_constant<int, Heads> heads,
                                                       std::integer_sequence<int, Columns...>) {
      (f(heads, std::integral_constant<int, Columns>()), ...);
    };
    shapes(std::integral_constant<int, 1>(), std::integer_sequence<int, 16, 32, 64>());
    shapes(std::integral_constant<int, 2>(), std::integer_sequence<int, 8, 16, 32, 64>());
    shapes(std::integral_constant<int, 4>(), std::integer_sequence<int, 8, 16, 32>());
  }
};

/// A block of one of the shapes. Throws tessera::InvalidArgument for another.
template <class Shapes, class Backend>
std::unique_ptr<Block> make_block_of(const Backend& backend, int width, int heads,
                                     std::int64_t max_length) {
  std::unique_ptr<Block> block;
  Shapes::for_each([&](auto h, auto columns) {
    if (h() == heads && h() * columns() == width)
      block = std::make_unique<BlockOf<h(), columns(), Backend>>(backend, max_length);
  });
  tessera::require(block != nullptr, "blocks of width {} with {} heads are not compiled", width,
                   heads);
  return block;
}

}  // namespace sequence
