// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// What the laboratory compiles for each optimizer.
#pragma once

#include "measure.hpp"

#include <tessera/codec/codecs.hpp>
#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/host/kernels.hpp>
#include <tessera/measure/measure_plans.hpp>
#include <tessera/settings/policies.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

namespace lab {

template <class Optimizer>
std::vector<tessera::detail::RecordedSteps> record_on_threads(const Case& c, const Batches& batches,
                                                              int steps,
                                                              const std::function<void()>& built) {
  using namespace tessera;
  std::vector<tessera::detail::RecordedSteps> all(static_cast<std::size_t>(c.ranks));
  std::vector<std::size_t> order(c.layout.features.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  run_ranks(c.ranks, [&](ThreadCommunicator& rank) {
    std::vector<tessera::detail::SampleSlice<std::int64_t>> slices;
    std::vector<KeyedJagged<std::int64_t>> own;
    for (const KeyedJagged<std::int64_t>& batch : batches.views)
      slices.emplace_back(batch, order, rank.rank(), c.ranks);
    for (const auto& slice : slices) {
      KeyedJagged<std::int64_t>& view = own.emplace_back(slice.view());
      if (batches.views.front().one_hot()) view.offsets = {};
    }
    AnyCommunicator communicator(rank);
    all[static_cast<std::size_t>(rank.rank())] =
        tessera::detail::record_steps<Widths<8, 16, 32, 64, 128>, Optimizer, std::int64_t,
                                      EncodeWithOneOf<Fp32, Bf16, Fp16>, ReportSteps>(
            communicator, c.layout, std::span<const KeyedJagged<std::int64_t>>(own), steps, Host(),
            {.learning_rate = 1e-3f,
             .forward_codec = c.codec,
             .backward_codec = c.codec,
             .deduplicate = c.deduplicate},
            [&] {
              rank.barrier();
              if (rank.rank() == 0) built();
              rank.barrier();
            });
  });
  return all;
}

}  // namespace lab
