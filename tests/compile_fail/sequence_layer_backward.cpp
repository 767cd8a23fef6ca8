// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A user's sequence layer has no way back, and does not say how wide it is.
// expect: SequenceLayer: need std::int64_t width() const (docs/concepts/sequence.md)
// expect: SequenceLayer: need void backward(MatrixView<const float> dy, MatrixView<float> dx) (docs/concepts/sequence.md)
#include <tessera/concepts/sequence_layer.hpp>

using namespace tessera;

struct Halves {
  std::int64_t parameter_count() const { return 0; }
  void bind(std::span<float>, std::span<float>) {}
  int initialize(std::uint64_t, int first_layer) { return first_layer; }
  void forward(MatrixView<const float> x, const SequenceBatch&, MatrixView<float> y) {
    for (std::int64_t r = 0; r < x.rows; ++r)
      for (std::int64_t c = 0; c < x.columns; ++c) y(r, c) = x(r, c) / 2;
  }
#ifdef ALLOWED_TWIN
  std::int64_t width() const { return 8; }
  void backward(MatrixView<const float> dy, MatrixView<float> dx) {
    if (dx.data != nullptr) forward(dy, {}, dx);
  }
#endif
};
static_assert(explain_sequence_layer<Halves>());
