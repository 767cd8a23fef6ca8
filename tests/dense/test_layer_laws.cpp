// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The laws of dense layers and interactions: the library's keep them, and layers with one fault
// each do not.
#include <tessera/dense/mlp.hpp>
#include <tessera/interaction/cross.hpp>
#include <tessera/interaction/dot.hpp>
#include <tessera/laws/dense_layer_laws.hpp>
#include <tessera/laws/interaction_laws.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

using namespace tessera;

namespace {

using Lines = std::vector<std::string>;

enum class Fault {
  none,
  initialize,
  other_samples,
  other_bits,
  beside,
  input,
  parameters,
  adds,
  wrong_weights,
  wrong_input,
  empty,
  hides_nan,
  hides_nan_of_weights,
  spreads_nan
};

/// y = x W^T, of 3 numbers 2, and at most one fault.
class PlainLayer {
 public:
  explicit PlainLayer(Fault fault) : fault_(fault) {}

  std::int64_t input_size() const { return 3; }
  std::int64_t output_size() const { return 2; }
  std::int64_t parameter_count() const { return 6; }
  void bind(std::span<float> values, std::span<float> gradients) {
    values_ = values;
    gradients_ = gradients;
  }
  int initialize(std::uint64_t seed, int first_layer) {
    ++calls_;
    for (std::size_t i = 0; i < 6; ++i)
      values_[i] = 0.1f * static_cast<float>(seed + i) + (has(Fault::initialize) ? calls_ : 0.0f);
    return first_layer + 1;
  }
  void forward(MatrixView<const float> x, MatrixView<float> y) {
    x_ = x;
    ++calls_;
    for (std::int64_t r = 0; r < x.rows; ++r)
      for (std::int64_t o = 0; o < 2; ++o) {
        float sum = has(Fault::other_samples) ? x(x.rows - 1, 0) : 0.0f;
        for (std::int64_t i = 0; i < 3; ++i) sum += x(r, i) * weight(o, i);
        if (has(Fault::hides_nan) && std::isnan(x(r, 1))) sum = 0;
        if (has(Fault::hides_nan_of_weights) && std::isnan(weight(o, 0))) sum = 0;
        if (has(Fault::spreads_nan) && r > 0 && std::isnan(x(r - 1, 2))) sum = x(r - 1, 2);
        y(r, o) = sum + (has(Fault::other_bits) ? 1e-3f * calls_ : 0.0f);
        if (has(Fault::beside)) y.row(r)[2] = 0;
        if (has(Fault::input)) const_cast<float*>(x.row(r))[0] = 0.5f;
      }
  }
  void backward(MatrixView<const float> dy, MatrixView<float> dx) {
    if (has(Fault::empty) && dy.rows == 0) return;
    for (std::size_t k = 0; !has(Fault::adds) && k < 6; ++k) gradients_[k] = 0;
    for (std::int64_t r = 0; r < dy.rows; ++r) {
      for (std::int64_t i = 0; i < 3; ++i) dx(r, i) = 0;
      for (std::int64_t o = 0; o < 2; ++o)
        for (std::int64_t i = 0; i < 3; ++i) {
          gradients_[static_cast<std::size_t>(o * 3 + i)] +=
              dy(r, o) * x_(r, has(Fault::wrong_weights) ? 2 - i : i);
          dx(r, i) += dy(r, o) * weight(o, has(Fault::wrong_input) ? 0 : i);
        }
    }
    if (has(Fault::parameters)) values_[0] += 1;
  }

 private:
  bool has(Fault fault) const { return fault_ == fault; }
  float weight(std::int64_t o, std::int64_t i) const {
    return values_[static_cast<std::size_t>(o * 3 + i)];
  }

  Fault fault_;
  float calls_ = 0;
  std::span<float> values_, gradients_;
  MatrixView<const float> x_;
};

/// A factorization machine's second-order term (Rendle 2010): half of the square of the sum less
/// the sum of the squares, by column.
struct FactorizationMachine {
  std::int64_t vectors, width;
  bool forgets_itself = false;  ///< a fault

  std::int64_t input_columns() const { return vectors * width; }
  std::int64_t columns() const { return width; }
  void forward(const Host&, MatrixView<const float> x, MatrixView<float> z) const {
    for (std::int64_t s = 0; s < x.rows; ++s)
      for (std::int64_t c = 0; c < width; ++c) {
        float sum = 0, squares = 0;
        for (std::int64_t v = 0; v < vectors; ++v) {
          const float number = x(s, v * width + c);
          sum += number, squares += number * number;
        }
        z(s, c) = 0.5f * (sum * sum - squares);
      }
  }
  void backward(const Host&, MatrixView<const float> x, MatrixView<const float> dz,
                MatrixView<float> dx) const {
    for (std::int64_t s = 0; s < x.rows; ++s)
      for (std::int64_t c = 0; c < width; ++c) {
        float sum = 0;
        for (std::int64_t v = 0; v < vectors; ++v) sum += x(s, v * width + c);
        for (std::int64_t v = 0; v < vectors; ++v)
          dx(s, v * width + c) = dz(s, c) * (sum - (forgets_itself ? 0.0f : x(s, v * width + c)));
      }
  }
};

}  // namespace

TEST_CASE("the library's layers keep the laws, on one thread and on two") {
  static_assert(DenseLayer<Mlp<>> && DenseLayer<Mlp<Host, 5, 3>> && DenseLayer<Linear<>> &&
                DenseLayer<CrossInteraction<Linear<>>>);
  for (const int threads : {1, 2}) {
    const Host host({.threads = threads});
    const laws::DenseLayerLawsOptions large{.batch = 40};
    Mlp<> mlp(host, {5, 9, 4, 2}), bare(host, {5, 7}, {.last_relu = true, .bias = false});
    Mlp<Host, 5, 6, 3> fixed(host);
    Linear<> linear(host, 4, 6);
    CrossInteraction<Linear<>> cross(host, 6, {.layers = 3, .rank = 2}), full(host, 4);
    CHECK(laws::dense_layer_laws(host, mlp) == Lines{});
    CHECK(laws::dense_layer_laws(host, mlp, large) == Lines{});
    CHECK(laws::dense_layer_laws(host, bare) == Lines{});
    CHECK(laws::dense_layer_laws(host, fixed) == Lines{});
    CHECK(laws::dense_layer_laws(host, linear, large) == Lines{});
    CHECK(laws::dense_layer_laws(host, cross) == Lines{});
    CHECK(laws::dense_layer_laws(host, full, large) == Lines{});
  }
}

TEST_CASE("interactions keep the laws, the library's and a user's") {
  static_assert(Interaction<DotInteraction<3, 5>, Host> && Interaction<FactorizationMachine, Host>);
  const Host host({.threads = 2});
  CHECK(laws::interaction_laws(host, DotInteraction<4, 5, 8>()) == Lines{});
  CHECK(laws::interaction_laws(host, DotInteraction<9, 16>(), {.batch = 33}) == Lines{});
  CHECK(laws::interaction_laws(host, FactorizationMachine{4, 3}) == Lines{});
  CHECK(laws::interaction_laws(host, FactorizationMachine{4, 3, true}) != Lines{});
}

TEST_CASE("each fault of a layer breaks a law") {
  const Host host;
  const auto faults_of = [&](Fault fault) {
    PlainLayer layer(fault);
    return laws::dense_layer_laws(host, layer);
  };
  CHECK(faults_of(Fault::none) == Lines{});
  const auto breaks = [&](Fault fault, const char* law) {
    CAPTURE(law);
    bool found = false;
    for (const std::string& line : faults_of(fault)) found = found || line.starts_with(law);
    CHECK(found);
  };
  breaks(Fault::initialize, "initialize: the same seed and number");
  breaks(Fault::other_samples, "forward: sample 0 depends on the others");
  breaks(Fault::other_bits, "forward: the same batch, other bits");
  breaks(Fault::beside, "forward: writes beside the columns of its view");
  breaks(Fault::input, "x: is written to");
  breaks(Fault::parameters, "forward or backward: parameters are written to");
  breaks(Fault::adds, "backward: along a direction of the parameters");
  breaks(Fault::wrong_weights, "backward: along a direction of the parameters");
  breaks(Fault::wrong_input, "backward: along a direction of the input");
  breaks(Fault::empty, "backward: a batch of no samples");
  breaks(Fault::hides_nan, "forward: NaN in column 1 of the input gives no NaN");
  breaks(Fault::hides_nan_of_weights, "forward: parameters of NaN give sample 0 no NaN");
  breaks(Fault::spreads_nan, "forward: NaN in column 2 of the input gives NaN to other samples");
}
