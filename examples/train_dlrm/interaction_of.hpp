// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "interaction.hpp"
#include "model_shape.hpp"
#include "options.hpp"
#include "plans.hpp"
#include "projection.hpp"
#include "vector_ops.hpp"

#include <tessera/core/matrix_view.hpp>
#include <tessera/dense/mlp_layers.hpp>
#include <tessera/interaction/cross.hpp>
#include <tessera/interaction/dot_any_shape.hpp>

#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>

namespace dlrm {

/// DotOf, of any number of vectors, known at run time.
template <class Backend>
class AnyDot final : public Interaction {
 public:
  AnyDot(const Backend& backend, std::int64_t vectors, std::int64_t width)
      : products_(backend, vectors, width, 16) {}
  std::int64_t columns() const override { return products_.columns(); }
  void forward(tessera::MatrixView<const float> x, tessera::MatrixView<float> z) override {
    products_.forward(x, z);
  }
  void backward(tessera::MatrixView<const float> x, tessera::MatrixView<const float> dz,
                tessera::MatrixView<float> dx) override {
    products_.backward(x, dz, dx);
  }

 private:
  tessera::AnyDotInteraction<Backend> products_;
};

/// Numbers or their vector, and the features' vectors side by side, of which each `stride`
/// neighbouring columns are averaged.
template <class Backend>
class Concat final : public Interaction {
 public:
  Concat(const Backend& backend, const ModelShape& shape)
      : backend_(backend),
        averages_(shape.first_columns(), shape.columns() - shape.first_columns(), shape.stride) {}
  std::int64_t columns() const override { return averages_.kept + averages_.count; }
  void forward(tessera::MatrixView<const float> x, tessera::MatrixView<float> z) override {
    tessera::op::run<TakeAverages>(backend_, {averages_, x, z});
  }
  void backward(tessera::MatrixView<const float>, tessera::MatrixView<const float> dz,
                tessera::MatrixView<float> dx) override {
    tessera::op::run<SpreadAverages>(backend_, {averages_, dz, dx});
  }

 private:
  Backend backend_;
  Averages averages_;
};

/// What --interaction names, on a backend whose kernels the including file brings; a dot of vectors
/// of several widths projects them.
template <class Backend>
std::unique_ptr<Interaction> interaction_of(const Options& options, const ModelShape& shape,
                                            const Backend& backend) {
  if (options.interaction == "cross")
    return std::make_unique<CrossOf<tessera::CrossInteraction<tessera::Linear<Backend>>>>(
        backend, shape.columns(),
        tessera::CrossOptions{.layers = options.cross_layers,
                              .rank = options.cross_rank,
                              .tf32 = tf32(options),
                              .precision = dense_precision(options)});
  if (options.interaction == "concat") return std::make_unique<Concat<Backend>>(backend, shape);
  const std::int64_t vectors = std::ssize(shape.deep()) + 1, width = shape.vector_width;
  std::unique_ptr<Interaction> dot;
  if (vectors == kFeatures + 1) {
    if constexpr (!Backend::host_readable)
      if (tf32(options)) dot = make_dot<true>(backend, shape.vector_width);
    if (!dot) dot = make_dot<false>(backend, shape.vector_width);
  }
  if (!dot) dot = std::make_unique<AnyDot<Backend>>(backend, vectors, width);
  if (shape.one_width()) return dot;
  return std::make_unique<Projected<Backend>>(std::move(dot), shape, backend, tf32(options));
}

}  // namespace dlrm
