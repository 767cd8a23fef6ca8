// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Compiled twice (tests/CMakeLists.txt), each time with another name of the library's inline
// namespace, so that the linker does not take one compilation's functions for the other's.
#include "contraction.hpp"

#include <tessera/dense/mlp.hpp>
#include <tessera/dense/optimizer.hpp>
#include <tessera/host/lanes.hpp>
#include <tessera/op/update.hpp>
#include <tessera/optimizer/optimizers.hpp>

#include <algorithm>
#include <bit>
#include <cstring>

using namespace tessera;

namespace {

constexpr int count = 64, steps = 5;

float gradient_of(int step, int i) {
  return 0.3f * static_cast<float>((i * 37 + step * 101) % 89 - 44) / 17.0f;
}

void append(std::vector<std::uint32_t>& bits, const float* values, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) bits.push_back(std::bit_cast<std::uint32_t>(values[i]));
}

/// V: float or Lanes.
template <class V, class O>
void train(const O& optimizer, std::vector<std::uint32_t>& bits) {
  constexpr int lanes = sizeof(V) / sizeof(float), slots = std::max(1, O::element_states);
  float weights[count], states[slots][count], row_state[std::max(1, O::row_states)] = {};
  for (int i = 0; i < count; ++i) weights[i] = 0.1f * static_cast<float>(i - 17);
  for (int s = 0; s < O::element_states; ++s)
    std::fill_n(states[s], count, optimizer.initial_state(s));
  for (int t = 1; t <= steps; ++t) {
    const typename O::Step step = optimizer.at(0.0371f, t);
    const typename O::Step::Row row =
        op::shared_by_row<O>(step, row_state, {0.7f * static_cast<float>(t), 0.9f});
    for (int i = 0; i < count; i += lanes) {
      float gradient[lanes];
      for (int l = 0; l < lanes; ++l) gradient[l] = gradient_of(t, i + l);
      V w, g, state[slots];
      std::memcpy(&w, weights + i, sizeof(w));
      std::memcpy(&g, gradient, sizeof(g));
      for (int s = 0; s < O::element_states; ++s) std::memcpy(&state[s], states[s] + i, sizeof(V));
      w = step.element(w, g, state, row);
      std::memcpy(weights + i, &w, sizeof(w));
      for (int s = 0; s < O::element_states; ++s) std::memcpy(states[s] + i, &state[s], sizeof(V));
    }
  }
  append(bits, weights, count);
  for (int s = 0; s < O::element_states; ++s) append(bits, states[s], count);
}

template <class O>
void train_dense(std::vector<std::uint32_t>& bits) {
  Mlp<> mlp({7, 5});
  DenseParameters parameters(1, mlp);
  for (std::size_t i = 0; i < parameters.values().size(); ++i)
    parameters.values()[i] = 0.1f * static_cast<float>(i) / 3.0f;
  DenseOptimizer optimizer(O{}, 0.013f);
  for (int t = 1; t <= steps; ++t) {
    for (std::size_t i = 0; i < parameters.gradients().size(); ++i)
      parameters.gradients()[i] = gradient_of(t, static_cast<int>(i));
    optimizer.step(parameters, 0.0371f);
  }
  append(bits, parameters.values().data(), parameters.values().size());
}

}  // namespace

std::vector<std::uint32_t> TESSERA_TEST_TRAINED() {
  std::vector<std::uint32_t> bits;
  train<float>(Sgd{}, bits), train<Lanes>(Sgd{}, bits);
  train<float>(Adagrad{}, bits), train<Lanes>(Adagrad{}, bits);
  train<float>(RowWiseAdagrad{}, bits), train<Lanes>(RowWiseAdagrad{}, bits);
  train<float>(Adam{}, bits), train<Lanes>(Adam{}, bits);
  train<float>(Momentum{}, bits), train<Lanes>(Momentum{.nesterov = true}, bits);
  train<float>(Lion{.weight_decay = 0.1f}, bits), train<Lanes>(Lion{}, bits);
  train<float>(AdamW{}, bits), train<Lanes>(AdamW{}, bits);
  train<float>(PartialRowWiseAdam{}, bits), train<Lanes>(PartialRowWiseAdam{}, bits);
  train<float>(CountedAdam{}, bits), train<Lanes>(CountedAdam{}, bits);
  train<float>(Lamb{.weight_decay = 0.1f}, bits), train<Lanes>(Lamb{}, bits);
  train<float>(Ftrl{.l1 = 0.1f}, bits), train<Lanes>(Ftrl{.l1 = 0.1f}, bits);
  const RowWiseAdagradL2 l2{.weight_decay = 0.1f};
  const RowWiseAdagradDecoupled decoupled{.weight_decay = 0.1f};
  train<float>(l2, bits), train<Lanes>(l2, bits);
  train<float>(decoupled, bits), train<Lanes>(decoupled, bits);
  train<float>(CountedRowWiseAdagrad{.half_life = 3, .weight_decay = 0.1f}, bits);
  train_dense<Sgd>(bits), train_dense<Adagrad>(bits), train_dense<Adam>(bits);
  return bits;
}
