// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "interaction.hpp"

#include "plans.hpp"
#include "projection.hpp"

#include <tessera/dense/mlp.hpp>
#include <tessera/interaction/cross.hpp>
#include <tessera/interaction/dot.hpp>
#include <tessera/interaction/dot_any_shape.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>

namespace dlrm {
namespace {

/// DotOf, of any number of vectors, known at run time.
class AnyDot final : public Interaction {
 public:
  AnyDot(const tessera::Host& host, int vectors, int width) : products_(host, vectors, width, 16) {}
  std::int64_t columns() const override { return products_.columns(); }
  void forward(tessera::MatrixView<const float> x, tessera::MatrixView<float> z) override {
    products_.forward(x, z);
  }
  void backward(tessera::MatrixView<const float> x, tessera::MatrixView<const float> dz,
                tessera::MatrixView<float> dx) override {
    products_.backward(x, dz, dx);
  }

 private:
  tessera::AnyDotInteraction<> products_;
};

/// Numbers or their vector, and the features' vectors side by side, of which each `stride`
/// neighbouring columns are averaged. Where the stride does not divide them, the first and the last
/// average have fewer columns, the last the odd one ("same" padding).
class Concat final : public Interaction {
 public:
  Concat(const ModelShape& shape, int threads)
      : first_(shape.first_columns()),
        vectors_(shape.columns() - first_),
        stride_(shape.stride),
        threads_(threads) {}
  std::int64_t columns() const override { return first_ + averages(); }
  void forward(tessera::MatrixView<const float> x, tessera::MatrixView<float> z) override {
#pragma omp parallel for num_threads(threads_) schedule(static)
    for (std::int64_t s = 0; s < x.rows; ++s) {
      if (stride_ == 1) {
        std::copy_n(x.row(s), columns(), z.row(s));
        continue;
      }
      float* to = std::copy_n(x.row(s), first_, z.row(s));
      for_averages([&](std::int64_t begin, std::int64_t end) {
        const float* const from = x.row(s) + first_;
        *to++ = std::accumulate(from + begin, from + end, 0.0f) / static_cast<float>(end - begin);
      });
    }
  }
  void backward(tessera::MatrixView<const float>, tessera::MatrixView<const float> dz,
                tessera::MatrixView<float> dx) override {
#pragma omp parallel for num_threads(threads_) schedule(static)
    for (std::int64_t s = 0; s < dz.rows; ++s) {
      if (stride_ == 1) {
        std::copy_n(dz.row(s), columns(), dx.row(s));
        continue;
      }
      std::copy_n(dz.row(s), first_, dx.row(s));
      const float* gradient = dz.row(s) + first_;
      for_averages([&](std::int64_t begin, std::int64_t end) {
        float* const to = dx.row(s) + first_;
        std::fill(to + begin, to + end, *gradient++ / static_cast<float>(end - begin));
      });
    }
  }

 private:
  std::int64_t averages() const { return (vectors_ + stride_ - 1) / stride_; }
  /// f(begin, end) for the columns of each.
  template <class F>
  void for_averages(const F& f) const {
    const std::int64_t before = (averages() * stride_ - vectors_) / 2;
    for (std::int64_t i = 0; i < averages(); ++i)
      f(std::max<std::int64_t>(0, i * stride_ - before),
        std::min(vectors_, (i + 1) * stride_ - before));
  }

  std::int64_t first_, vectors_, stride_;
  int threads_;
};

}  // namespace

std::unique_ptr<Interaction> make_interaction(const Options& options, const ModelShape& shape,
                                              const tessera::Host& host) {
  if (options.interaction == "cross")
    return std::make_unique<CrossOf<tessera::CrossInteraction<tessera::Linear<>>>>(
        host, shape.columns(),
        tessera::CrossOptions{.layers = options.cross_layers,
                              .rank = options.cross_rank,
                              .precision = dense_precision(options)});
  if (options.interaction == "concat") return std::make_unique<Concat>(shape, host.threads());
  const int vectors = static_cast<int>(std::ssize(shape.deep())) + 1, width = shape.vector_width;
  std::unique_ptr<Interaction> dot;
  if (vectors == kFeatures + 1) dot = make_dot<false>(host, width);
  if (!dot) dot = std::make_unique<AnyDot>(host, vectors, width);
  if (shape.one_width()) return dot;
  return std::make_unique<Projected>(std::move(dot), shape, host);
}

}  // namespace dlrm
