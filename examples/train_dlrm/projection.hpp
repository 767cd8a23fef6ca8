// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "interaction.hpp"
#include "model_shape.hpp"

#include <tessera/core/matrix_view.hpp>
#include <tessera/dense/mlp.hpp>
#include <tessera/host/backend.hpp>
#include <tessera/tables/buffer.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace dlrm {

/// Brings a sample's vectors to one width for an interaction that needs that: those of each other
/// width go through a linear layer without bias, one for all tables of that width (mixed dimension
/// embeddings, Ginart et al. 2019, have one for each block of tables). On the host.
class Projected final : public Interaction {
 public:
  /// `interaction`: of vectors of shape.vector_width, without parameters.
  Projected(std::unique_ptr<Interaction> interaction, const ModelShape& shape,
            const tessera::Host& host);

  std::int64_t columns() const override { return interaction_->columns(); }
  void forward(tessera::MatrixView<const float> x, tessera::MatrixView<float> z) override;
  void backward(tessera::MatrixView<const float> x, tessera::MatrixView<const float> dz,
                tessera::MatrixView<float> dx) override;

  std::int64_t parameter_count() const override;
  void bind(std::span<float> values, std::span<float> gradients) override;
  int initialize(std::uint64_t seed, int first_layer) override;
  std::span<const float> gradients() const override { return gradients_; }
  /// projection.WIDTH.weight [vector_width, WIDTH]
  std::vector<DenseTensor> tensors() const override;

 private:
  using Floats = tessera::Buffer<float, tessera::Host>;

  /// Where a vector begins: in a row of x, and in a row of vectors of one width.
  struct Place {
    std::int64_t from, to;
  };
  /// The vectors of one width. Their layer reads and writes them sample by sample.
  struct Group {
    std::int64_t width;
    std::vector<Place> places;
    std::unique_ptr<tessera::Linear<>> linear;  ///< null: of vector_width, copied
    Floats in{}, out{}, d_in{}, d_out{};        ///< [batch * places, width or vector_width]
  };

  template <class F>
  void for_each_vector(const Group& group, std::int64_t batch, const F& f) const;

  std::unique_ptr<Interaction> interaction_;
  std::int64_t width_, vectors_;  ///< of one vector; how many with the bottom MLP's
  int threads_;
  std::vector<Group> groups_;
  Floats whole_, whole_gradients_;  ///< [batch, vectors_ * width_]
  std::span<float> gradients_;
};

}  // namespace dlrm
