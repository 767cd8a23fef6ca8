// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "blocks.hpp"

#include <tessera/concepts/sequence_layer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/sequence/hstu.hpp>

#include <utility>

namespace sequence {
namespace {

using namespace tessera;

static_assert(SequenceLayer<Block>);

template <int Heads, int Columns>
class BlockOf final : public Block {
 public:
  BlockOf(std::int64_t max_length, int threads)
      : layer_(Host({.threads = threads}), Heads * Columns, {.max_length = max_length}) {}

  std::int64_t width() const override { return layer_.width(); }
  std::int64_t parameter_count() const override { return layer_.parameter_count(); }
  void bind(std::span<float> values, std::span<float> gradients) override {
    layer_.bind(values, gradients);
  }
  int initialize(std::uint64_t seed, int first_layer) override {
    return layer_.initialize(seed, first_layer);
  }
  void forward(MatrixView<const float> x, const SequenceBatch& batch,
               MatrixView<float> y) override {
    layer_.forward(x, batch, y);
  }
  void backward(MatrixView<const float> dy, MatrixView<float> dx) override {
    layer_.backward(dy, dx);
  }

 private:
  HstuLayer<Heads, Columns, Columns> layer_;
};

/// Calls f(std::integral_constant heads, columns of a head) for each pair that is compiled.
template <class F>
void for_each_shape(const F& f) {
  const auto shapes = [&]<int Heads, int... Columns>(std::integral_constant<int, Heads> heads,
                                                     std::integer_sequence<int, Columns...>) {
    (f(heads, std::integral_constant<int, Columns>()), ...);
  };
  shapes(std::integral_constant<int, 1>(), std::integer_sequence<int, 16, 32, 64>());
  shapes(std::integral_constant<int, 2>(), std::integer_sequence<int, 8, 16, 32, 64>());
  shapes(std::integral_constant<int, 4>(), std::integer_sequence<int, 8, 16, 32>());
}

}  // namespace

bool is_compiled(int width, int heads) {
  bool found = false;
  for_each_shape(
      [&](auto h, auto columns) { found = found || (h() == heads && h() * columns() == width); });
  return found;
}

std::unique_ptr<Block> make_block(int width, int heads, std::int64_t max_length, int threads) {
  std::unique_ptr<Block> block;
  for_each_shape([&](auto h, auto columns) {
    if (h() == heads && h() * columns() == width)
      block = std::make_unique<BlockOf<h(), columns()>>(max_length, threads);
  });
  require(block != nullptr, "blocks of width {} with {} heads are not compiled", width, heads);
  return block;
}

}  // namespace sequence
