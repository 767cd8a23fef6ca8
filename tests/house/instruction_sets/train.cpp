// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/host/lookup.hpp>
#include <tessera/host/update.hpp>
#include <tessera/optimizer/optimizers.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

#include "shared.hpp"

namespace ts = tessera;

namespace {

Event third("3");

constexpr int kRows = 40, kWidth = 16, kBags = 64, kIds = 3, kSteps = 3;
constexpr float kRate = 0.125f;

}  // namespace

Outcome train() {
  const ts::Host host({.threads = 2});
  float* const table = static_cast<float*>(ts::Host::allocate(kRows * kWidth * sizeof(float)));
  std::vector<double> reference(kRows * kWidth);
  for (int i = 0; i < kRows * kWidth; ++i)
    reference[i] = table[i] = static_cast<float>(i * 37 % 101) / 64 - 0.75f;
  std::vector<std::int32_t> ids(kBags * kIds);
  std::vector<std::int64_t> offsets(kBags + 1);
  std::vector<float> weights(ids.size()), pooled(kBags * kWidth);
  for (int i = 0; i < kBags * kIds; ++i) {
    ids[i] = i * i % kRows;
    weights[i] = static_cast<float>(i % 7) / 4 - 0.5f;
  }
  for (int b = 0; b <= kBags; ++b) offsets[b] = b * kIds;
  const ts::op::Bags<std::int32_t> bags{ids.data(), offsets.data(), weights.data(),
                                        nullptr,    kBags,          0};

  Outcome outcome{};
  for (int step = 1; step <= kSteps; ++step) {
    const ts::op::LookupGroup<std::int32_t> looked_up[]{{bags, pooled.data(), kWidth}};
    ts::op::run<ts::op::Lookup<float, std::int32_t, kWidth>>(host,
                                                             {.arena = table, .groups = looked_up});
    std::vector<double> expected(pooled.size());
    for (int i = 0; i < kBags * kIds; ++i)
      for (int c = 0; c < kWidth; ++c)
        expected[i / kIds * kWidth + c] +=
            static_cast<double>(weights[i]) * reference[ids[i] * kWidth + c];
    for (std::size_t i = 0; i < pooled.size(); ++i)
      outcome.error = std::max(outcome.error, std::abs(pooled[i] - expected[i]));

    // The loss is half the sum of squares, so that the gradient is what was looked up.
    const ts::op::GradientGroup<std::int32_t> gradients[]{{bags, pooled.data(), kWidth}};
    ts::op::run<ts::op::Update<float, std::int32_t, kWidth, ts::Sgd>>(
        host, {.state = {.arena = table, .rows = kRows, .width = kWidth},
               .step = ts::Sgd().at(kRate, step),
               .groups = gradients});
    std::vector<double> change(reference.size());
    for (int i = 0; i < kBags * kIds; ++i)
      for (int c = 0; c < kWidth; ++c)
        change[ids[i] * kWidth + c] +=
            static_cast<double>(weights[i]) * expected[i / kIds * kWidth + c];
    for (std::size_t i = 0; i < reference.size(); ++i) {
      reference[i] -= kRate * change[i];
      outcome.error = std::max(outcome.error, std::abs(table[i] - reference[i]));
    }
  }
  outcome.checksum =
      product(table, table, kRows * kWidth) + product(pooled.data(), pooled.data(), kBags * kWidth);
  ts::Host::deallocate(table, kRows * kWidth * sizeof(float));
  return outcome;
}

void refuse() {
  ++count<Event>();
#pragma omp critical(refusals)
  of_thread += " refused";
  throw Refused{ts::detail::native_lanes};
}
