// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "projection.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace dlrm {
namespace {

using tessera::MatrixView;

MatrixView<float> matrix_of(tessera::Buffer<float, tessera::Host>& floats, std::int64_t rows,
                            std::int64_t columns) {
  floats.resize(tessera::Host(), static_cast<std::size_t>(rows * columns));
  return {floats.data(), rows, columns};
}

}  // namespace

Projected::Projected(std::unique_ptr<Interaction> interaction, const ModelShape& shape,
                     const tessera::Host& host)
    : interaction_(std::move(interaction)),
      width_(shape.vector_width),
      vectors_(std::ssize(shape.deep()) + 1),
      threads_(host.threads()) {
  std::map<std::int64_t, std::vector<Place>> places;
  places[width_].push_back({0, 0});  // the bottom MLP's
  Place next{width_, width_};
  for (const DataShape::Feature& feature : shape.deep()) {
    const std::int64_t width = shape.width_of(feature);
    places[width].push_back(next);
    next.from += width;
    next.to += width_;
  }
  for (auto& [width, where] : places)
    groups_.push_back({.width = width,
                       .places = std::move(where),
                       .linear = width == width_ ? nullptr
                                                 : std::make_unique<tessera::Linear<>>(
                                                       host, width, width_,
                                                       tessera::LinearOptions{.bias = false})});
}

/// f(sample, place, row of the group's matrices), on the threads.
template <class F>
void Projected::for_each_vector(const Group& group, std::int64_t batch, const F& f) const {
  const std::int64_t count = std::ssize(group.places);
#pragma omp parallel for num_threads(threads_) schedule(static)
  for (std::int64_t s = 0; s < batch; ++s)
    for (std::int64_t k = 0; k < count; ++k)
      f(s, group.places[static_cast<std::size_t>(k)], s * count + k);
}

void Projected::forward(MatrixView<const float> x, MatrixView<float> z) {
  const std::int64_t batch = x.rows;
  const MatrixView<float> whole = matrix_of(whole_, batch, vectors_ * width_);
  for (Group& group : groups_) {
    if (!group.linear) {
      for_each_vector(group, batch, [&](std::int64_t s, const Place& place, std::int64_t) {
        std::copy_n(&x(s, place.from), width_, &whole(s, place.to));
      });
      continue;
    }
    const std::int64_t rows = batch * std::ssize(group.places);
    const MatrixView<float> in = matrix_of(group.in, rows, group.width),
                            out = matrix_of(group.out, rows, width_);
    for_each_vector(group, batch, [&](std::int64_t s, const Place& place, std::int64_t row) {
      std::copy_n(&x(s, place.from), group.width, in.row(row));
    });
    group.linear->forward(in, out);
    for_each_vector(group, batch, [&](std::int64_t s, const Place& place, std::int64_t row) {
      std::copy_n(out.row(row), width_, &whole(s, place.to));
    });
  }
  interaction_->forward(whole, z);
}

void Projected::backward(MatrixView<const float>, MatrixView<const float> dz,
                         MatrixView<float> dx) {
  const std::int64_t batch = dz.rows;
  const MatrixView<float> whole(whole_.data(), batch, vectors_ * width_),
      d_whole = matrix_of(whole_gradients_, batch, vectors_ * width_);
  interaction_->backward(whole, dz, d_whole);
  for (Group& group : groups_) {
    if (!group.linear) {
      for_each_vector(group, batch, [&](std::int64_t s, const Place& place, std::int64_t) {
        std::copy_n(&d_whole(s, place.to), width_, &dx(s, place.from));
      });
      continue;
    }
    const std::int64_t rows = batch * std::ssize(group.places);
    const MatrixView<float> d_out = matrix_of(group.d_out, rows, width_),
                            d_in = matrix_of(group.d_in, rows, group.width);
    for_each_vector(group, batch, [&](std::int64_t s, const Place& place, std::int64_t row) {
      std::copy_n(&d_whole(s, place.to), width_, d_out.row(row));
    });
    group.linear->backward(d_out, d_in);
    for_each_vector(group, batch, [&](std::int64_t s, const Place& place, std::int64_t row) {
      std::copy_n(d_in.row(row), group.width, &dx(s, place.from));
    });
  }
}

std::int64_t Projected::parameter_count() const {
  std::int64_t count = 0;
  for (const Group& group : groups_)
    if (group.linear) count += group.linear->parameter_count();
  return count;
}

void Projected::bind(std::span<float> values, std::span<float> gradients) {
  gradients_ = gradients;
  for (Group& group : groups_) {
    if (!group.linear) continue;
    const auto count = static_cast<std::size_t>(group.linear->parameter_count());
    group.linear->bind(values.first(count), gradients.first(count));
    values = values.subspan(count);
    gradients = gradients.subspan(count);
  }
}

int Projected::initialize(std::uint64_t seed, int first_layer) {
  for (Group& group : groups_)
    if (group.linear) first_layer = group.linear->initialize(seed, first_layer);
  return first_layer;
}

std::vector<DenseTensor> Projected::tensors() const {
  std::vector<DenseTensor> all;
  for (const Group& group : groups_)
    if (group.linear)
      all.push_back({fmt::format("projection.{}.weight", group.width),
                     {width_, group.width},
                     group.linear->values()});
  return all;
}

}  // namespace dlrm
