// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A user's dense layer has no way back, and does not say how many numbers it takes and gives.
// expect: DenseLayer: need std::int64_t input_size() const and std::int64_t output_size() const (docs/concepts/dense.md)
// expect: DenseLayer: need void backward(MatrixView<const float> dy, MatrixView<float> dx) (docs/concepts/dense.md)
// at most g++: 14 lines
#include <tessera/concepts/dense_layer.hpp>

using namespace tessera;

struct Halves {
  std::int64_t parameter_count() const { return 0; }
  void bind(std::span<float>, std::span<float>) {}
  int initialize(std::uint64_t, int first_layer) { return first_layer; }
  void forward(MatrixView<const float> x, MatrixView<float> y) {
    for (std::int64_t r = 0; r < x.rows; ++r)
      for (std::int64_t c = 0; c < x.columns; ++c) y(r, c) = x(r, c) / 2;
  }
#ifdef ALLOWED_TWIN
  std::int64_t input_size() const { return 8; }
  std::int64_t output_size() const { return 8; }
  void backward(MatrixView<const float> dy, MatrixView<float> dx) { forward(dy, dx); }
#endif
};
static_assert(explain_dense_layer<Halves>());
