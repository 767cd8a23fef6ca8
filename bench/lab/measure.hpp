// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cases.hpp"
#include "ids.hpp"

#include <tessera/measure/measure_steps.hpp>

#include <functional>
#include <vector>

namespace lab {

/// Records a case's steps on thread ranks, by rank. `built`: called by one rank when the tables of
/// all stand.
using Recorder = std::vector<tessera::detail::RecordedSteps> (*)(
    const Case&, const Batches&, int steps, const std::function<void()>& built);

// one source each, so that they compile side by side
std::vector<tessera::detail::RecordedSteps> record_sgd(const Case&, const Batches&, int,
                                                       const std::function<void()>&);
std::vector<tessera::detail::RecordedSteps> record_adagrad(const Case&, const Batches&, int,
                                                           const std::function<void()>&);
std::vector<tessera::detail::RecordedSteps> record_rowwise_adagrad(const Case&, const Batches&, int,
                                                                   const std::function<void()>&);
std::vector<tessera::detail::RecordedSteps> record_adam(const Case&, const Batches&, int,
                                                        const std::function<void()>&);

}  // namespace lab
