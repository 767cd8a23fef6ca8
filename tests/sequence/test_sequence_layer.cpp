// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include <tessera/laws/sequence_layer_laws.hpp>
#include <tessera/sequence/hstu.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace {

using namespace tessera;
using Lines = std::vector<std::string>;

/// y_i = x_i + w (x_0 + ... + x_{i-1}) of the history, element by element; with one thing wrong.
struct RunningSum {
  enum class Fault { none, other_sequences, later, among_targets, slope, adds, first_values };
  Fault fault = Fault::none;
  std::span<float> w{}, dw{};
  MatrixView<const float> x{};
  std::vector<std::int64_t> offsets{}, targets{};

  std::int64_t width() const { return 3; }
  std::int64_t parameter_count() const { return 3; }
  void bind(std::span<float> values, std::span<float> gradients) { w = values, dw = gradients; }
  int initialize(std::uint64_t, int first_layer) {
    if (fault != Fault::first_values) std::fill(w.begin(), w.end(), 0.5f);
    return first_layer + 1;
  }

  template <class F>
  void each_pair(const F& f) const {
    for (std::size_t s = 0; s + 1 < offsets.size(); ++s) {
      const std::int64_t begin = fault == Fault::other_sequences ? 0 : offsets[s];
      const std::int64_t history = offsets[s + 1] - (targets.empty() ? 0 : targets[s]);
      for (std::int64_t i = offsets[s]; i < offsets[s + 1]; ++i)
        for (std::int64_t j = begin; j < offsets[s + 1]; ++j)
          if ((j < i && (j < history || fault == Fault::among_targets)) ||
              (fault == Fault::later && j != i && j < history))
            f(i, j);
    }
  }
  void forward(MatrixView<const float> from, const SequenceBatch& batch, MatrixView<float> y) {
    x = from;
    offsets.assign(batch.offsets.begin(), batch.offsets.end());
    targets.assign(batch.targets.begin(), batch.targets.end());
    for (std::int64_t r = 0; r < x.rows; ++r) std::copy_n(x.row(r), 3, y.row(r));
    each_pair([&](std::int64_t i, std::int64_t j) {
      for (int c = 0; c < 3; ++c) y(i, c) += w[c] * x(j, c);
    });
  }
  void backward(MatrixView<const float> dy, MatrixView<float> dx) {
    if (fault != Fault::adds) std::fill(dw.begin(), dw.end(), 0.0f);
    if (dx.data != nullptr)
      for (std::int64_t r = 0; r < dy.rows; ++r) std::copy_n(dy.row(r), 3, dx.row(r));
    each_pair([&](std::int64_t i, std::int64_t j) {
      for (int c = 0; c < 3; ++c) {
        dw[c] += (fault == Fault::slope ? 1.1f : 1.0f) * dy(i, c) * x(j, c);
        if (dx.data != nullptr) dx(j, c) += w[c] * dy(i, c);
      }
    });
  }
};

/// The beginnings of all faults that the laws find.
bool found(RunningSum::Fault fault, const std::string& text) {
  RunningSum layer{fault};
  const Lines lines = laws::sequence_layer_laws(layer);
  return std::any_of(lines.begin(), lines.end(),
                     [&](const std::string& line) { return line.starts_with(text); });
}

}  // namespace

TEST_CASE("sequence layers: the HSTU block keeps the laws, with every option") {
  static_assert(SequenceLayer<HstuLayer<2, 4, 3>>);
  for (const HstuOptions options :
       {HstuOptions{.max_length = 12}, HstuOptions{.max_length = 12, .concat_ux = true},
        HstuOptions{.max_length = 30, .silu_all = false, .attention_window = 3}}) {
    HstuOptions smooth = options;
    smooth.norm_epsilon = 1e-2f;  // so that steps of a slope stay small beside it
    HstuLayer<2, 4, 3> layer(Host({.threads = options.attention_window > 0 ? 2 : 1}), 5, smooth);
    CHECK(laws::sequence_layer_laws(layer) == Lines{});
  }
}

TEST_CASE("sequence layers: the laws find what is planted") {
  using enum RunningSum::Fault;
  RunningSum right;
  CHECK(laws::sequence_layer_laws(right) == Lines{});
  CHECK(found(other_sequences, "forward: a sequence of 1 positions depends on others"));
  CHECK(found(later, "forward: position 0 of 12 (0 targets) sees 1"));
  CHECK(found(among_targets, "forward: position 10 of 12 (3 targets) sees 9"));
  CHECK(found(slope, "backward: along a direction of the parameters"));
  CHECK(found(adds, "backward: a batch of no positions has gradients"));
  CHECK(found(first_values, "initialize: the same seed and number give other values"));

  RunningSum later_allowed{later};
  CHECK(laws::sequence_layer_laws(later_allowed, {.causal = false}) == Lines{});
}

TEST_CASE("sequence layers: shapes that do not fit are named") {
  RunningSum layer;
  CHECK_THROWS_WITH_AS(laws::sequence_layer_laws(layer, {.max_length = 5}),
                       "sequence_layer_laws: max_length is 5, must be at least 6", InvalidArgument);
  const std::vector<std::int64_t> offsets{0, 2, 5}, one{1};
  CHECK_NOTHROW(check_sequences("Mine", {offsets}, 5, 3));
  CHECK_THROWS_WITH_AS(check_sequences("Mine", {offsets}, 5, 2),
                       "Mine: sequence 1 has 3 positions; max_length is 2", InvalidArgument);
  CHECK_THROWS_WITH_AS(check_sequences("Mine", {offsets, one}, 5, 3),
                       "Mine: 1 numbers of targets for 2 sequences", InvalidArgument);
}
