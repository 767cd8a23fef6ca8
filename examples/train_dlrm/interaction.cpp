// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "interaction.hpp"

#include "plans.hpp"

#include <tessera/core/error.hpp>
#include <tessera/dense/linear.hpp>
#include <tessera/interaction/cross.hpp>
#include <tessera/interaction/dot.hpp>
#include <tessera/interaction/dot_any_shape.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace dlrm {
namespace {

// Padded to whole registers: the products of the top layers like their rows aligned.
template <int Width>
class Dot final : public Interaction {
  using Products = tessera::DotInteraction<kFeatures + 1, Width, 16>;

 public:
  explicit Dot(int threads) : threads_(threads) {}
  std::int64_t columns() const override { return Products::columns(); }
  void forward(tessera::MatrixView<const float> x, tessera::MatrixView<float> z) override {
    Products::forward(x, z, threads_);
  }
  void backward(tessera::MatrixView<const float> x, tessera::MatrixView<const float> dz,
                tessera::MatrixView<float> dx) override {
    Products::backward(x, dz, dx, threads_);
  }

 private:
  int threads_;
};

/// The same of any number of vectors, known at run time.
class AnyDot final : public Interaction {
 public:
  AnyDot(int vectors, int width, int threads) : products_(vectors, width, 16, threads) {}
  std::int64_t columns() const override { return products_.columns(); }
  void forward(tessera::MatrixView<const float> x, tessera::MatrixView<float> z) override {
    products_.forward(x, z);
  }
  void backward(tessera::MatrixView<const float> x, tessera::MatrixView<const float> dz,
                tessera::MatrixView<float> dx) override {
    products_.backward(x, dz, dx);
  }

 private:
  tessera::AnyDotInteraction products_;
};

}  // namespace

std::unique_ptr<Interaction> make_interaction(const Options& options, int vectors) {
  const int width = options.embedding_width, threads = options.threads_per_rank;
  if (options.interaction == "cross") {
    const tessera::CrossOptions cross{
        .layers = options.cross_layers, .rank = options.cross_rank, .threads = threads};
    return std::make_unique<CrossOf<tessera::CrossInteraction<tessera::Linear>>>(vectors * width,
                                                                                 cross);
  }
  if (vectors != kFeatures + 1) return std::make_unique<AnyDot>(vectors, width, threads);
  std::unique_ptr<Interaction> found;
  const auto try_width = [&]<int Width>(std::integral_constant<int, Width>) {
    if (width == Width) found = std::make_unique<Dot<Width>>(threads);
  };
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    (try_width(std::integral_constant<int, kWidths[I]>{}), ...);
  }(std::make_index_sequence<kWidths.size()>{});
  tessera::require(found != nullptr, "no dot interaction of width {} is compiled in", width);
  return found;
}

}  // namespace dlrm
