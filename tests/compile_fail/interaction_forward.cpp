// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A user's interaction does not take the backend, and does not say how wide its output is.
// expect: Interaction: need std::int64_t input_columns() const and std::int64_t columns() const (docs/concepts/interaction.md)
// expect: Interaction: need void forward(const Backend&, MatrixView<const float> x, MatrixView<float> z) const (docs/concepts/interaction.md)
// at most g++: 14 lines
#include <tessera/concepts/interaction.hpp>
#include <tessera/host/backend.hpp>

using namespace tessera;

/// The first of two vectors of four numbers.
struct First {
  static void copy(MatrixView<const float> x, MatrixView<float> z) {
    for (std::int64_t r = 0; r < x.rows; ++r)
      for (std::int64_t c = 0; c < 4; ++c) z(r, c) = x(r, c);
  }
#ifdef ALLOWED_TWIN
  static constexpr std::int64_t input_columns() { return 8; }
  static constexpr std::int64_t columns() { return 4; }
  static void forward(const Host&, MatrixView<const float> x, MatrixView<float> z) { copy(x, z); }
#else
  static void forward(MatrixView<const float> x, MatrixView<float> z) { copy(x, z); }
#endif
  static void backward(const Host&, MatrixView<const float>, MatrixView<const float> dz,
                       MatrixView<float> dx) {
    for (std::int64_t r = 0; r < dx.rows; ++r)
      for (std::int64_t c = 0; c < 8; ++c) dx(r, c) = c < 4 ? dz(r, c) : 0.0f;
  }
};
static_assert(explain_interaction<First, Host>());
