// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "interaction.hpp"
#include "model_shape.hpp"
#include "vector_ops.hpp"

#include <tessera/core/matrix_view.hpp>
#include <tessera/dense/mlp_layers.hpp>
#include <tessera/tables/buffer.hpp>

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace dlrm {

/// Brings a sample's vectors to one width for an interaction that needs that: those of each other
/// width go through a linear layer without bias, one for all tables of that width (mixed dimension
/// embeddings, Ginart et al. 2019, have one for each block of tables).
template <class Backend>
class Projected final : public Interaction {
 public:
  /// `interaction`: of vectors of shape.vector_width, without parameters. `tf32`: as the layers' of
  /// a backend.
  Projected(std::unique_ptr<Interaction> interaction, const ModelShape& shape,
            const Backend& backend, bool tf32)
      : interaction_(std::move(interaction)),
        backend_(backend),
        width_(shape.vector_width),
        vectors_(std::ssize(shape.deep()) + 1) {
    struct Columns {
      std::vector<std::int64_t> x, whole;
    };
    std::map<std::int64_t, Columns> columns;
    columns[width_] = {{0}, {0}};  // the bottom MLP's
    std::int64_t x = width_, whole = width_;
    for (const DataShape::Feature& feature : shape.deep()) {
      const std::int64_t width = shape.width_of(feature);
      columns[width].x.push_back(x);
      columns[width].whole.push_back(whole);
      x += width;
      whole += width_;
    }
    for (const auto& [width, places] : columns) {
      Group& group = groups_.emplace_back();
      group.width = width;
      group.count = std::ssize(places.x);
      put(group.x, places.x);
      put(group.whole, places.whole);
      if (width == width_) continue;
      group.linear = std::make_unique<tessera::Linear<Backend>>(
          backend, width, width_, tessera::LinearOptions{.bias = false, .tf32 = tf32});
      put(group.in_columns, multiples(group.count, width));
      put(group.out_columns, multiples(group.count, width_));
    }
  }

  std::int64_t columns() const override { return interaction_->columns(); }

  void forward(tessera::MatrixView<const float> x, tessera::MatrixView<float> z) override {
    const View whole = rows_of(whole_, x.rows, vectors_ * width_);
    for (Group& group : groups_) {
      if (!group.linear) {
        copy(group, width_, x, group.x, whole, group.whole);
        continue;
      }
      const View in = rows_of(group.in, x.rows, group.count * group.width),
                 out = rows_of(group.out, x.rows, group.count * width_);
      copy(group, group.width, x, group.x, in, group.in_columns);
      group.linear->forward(vectors_in(in, group.width), vectors_in(out, width_));
      copy(group, width_, out, group.out_columns, whole, group.whole);
    }
    interaction_->forward(whole, z);
  }

  void backward(tessera::MatrixView<const float>, tessera::MatrixView<const float> dz,
                tessera::MatrixView<float> dx) override {
    const View whole(whole_.data(), dz.rows, vectors_ * width_),
        d_whole = rows_of(whole_gradients_, dz.rows, vectors_ * width_);
    interaction_->backward(whole, dz, d_whole);
    for (Group& group : groups_) {
      if (!group.linear) {
        copy(group, width_, d_whole, group.whole, dx, group.x);
        continue;
      }
      const View d_out = rows_of(group.d_out, dz.rows, group.count * width_),
                 d_in = rows_of(group.d_in, dz.rows, group.count * group.width);
      copy(group, width_, d_whole, group.whole, d_out, group.out_columns);
      group.linear->backward(vectors_in(d_out, width_), vectors_in(d_in, group.width));
      copy(group, group.width, d_in, group.in_columns, dx, group.x);
    }
  }

  std::int64_t parameter_count() const override {
    std::int64_t count = 0;
    for (const Group& group : groups_)
      if (group.linear) count += group.linear->parameter_count();
    return count;
  }
  void bind(std::span<float> values, std::span<float> gradients) override {
    gradients_ = gradients;
    for (Group& group : groups_) {
      if (!group.linear) continue;
      const auto count = static_cast<std::size_t>(group.linear->parameter_count());
      group.linear->bind(values.first(count), gradients.first(count));
      values = values.subspan(count);
      gradients = gradients.subspan(count);
    }
  }
  int initialize(std::uint64_t seed, int first_layer) override {
    for (Group& group : groups_)
      if (group.linear) first_layer = group.linear->initialize(seed, first_layer);
    return first_layer;
  }
  std::span<const float> gradients() const override { return gradients_; }
  /// projection.WIDTH.weight [vector_width, WIDTH]
  std::vector<DenseTensor> tensors() const override {
    std::vector<DenseTensor> all;
    for (const Group& group : groups_)
      if (group.linear)
        all.push_back({fmt::format("projection.{}.weight", group.width),
                       {width_, group.width},
                       group.linear->values()});
    return all;
  }

 private:
  using View = tessera::MatrixView<float>;
  using Floats = tessera::Buffer<float, Backend>;
  using Columns = tessera::Buffer<std::int64_t, Backend>;

  /// The vectors of one width. Their layer reads and writes them sample by sample.
  struct Group {
    std::int64_t width, count;  ///< of a vector; vectors of a sample
    Columns x{}, whole{};       ///< where each begins in a row of x, and of vectors of one width
    Columns in_columns{}, out_columns{};                 ///< the same in rows of `in` and `out`
    std::unique_ptr<tessera::Linear<Backend>> linear{};  ///< null: of vector_width, copied
    Floats in{}, out{}, d_in{}, d_out{};                 ///< [batch, count * width or vector_width]
  };

  static std::vector<std::int64_t> multiples(std::int64_t count, std::int64_t of) {
    std::vector<std::int64_t> all;
    for (std::int64_t k = 0; k < count; ++k) all.push_back(k * of);
    return all;
  }
  void put(Columns& columns, const std::vector<std::int64_t>& values) const {
    columns.resize(backend_, values.size());
    backend_.copy(columns.data(), values.data(), values.size() * sizeof(std::int64_t));
    backend_.synchronize();  // `values` may go
  }
  View rows_of(Floats& floats, std::int64_t rows, std::int64_t columns) const {
    floats.resize(backend_, static_cast<std::size_t>(rows * columns));
    return {floats.data(), rows, columns};
  }
  /// The same floats, a vector a row.
  static View vectors_in(View rows, std::int64_t width) {
    return {rows.data, rows.rows * (rows.columns / width), width};
  }
  void copy(const Group& group, std::int64_t width, tessera::MatrixView<const float> from,
            const Columns& from_columns, View to, const Columns& to_columns) const {
    tessera::op::run<CopyVectors>(backend_, {.count = group.count,
                                             .width = width,
                                             .from = from,
                                             .from_columns = from_columns.data(),
                                             .to = to,
                                             .to_columns = to_columns.data()});
  }

  std::unique_ptr<Interaction> interaction_;
  Backend backend_;
  std::int64_t width_, vectors_;  ///< of one vector; how many with the bottom MLP's
  std::vector<Group> groups_;
  Floats whole_, whole_gradients_;  ///< [batch, vectors_ * width_]
  std::span<float> gradients_;
};

}  // namespace dlrm
