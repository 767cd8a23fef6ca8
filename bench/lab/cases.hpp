// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ids.hpp"
#include "settings.hpp"

#include <tessera/comm/ghost_communicator.hpp>
#include <tessera/planner/cost.hpp>
#include <tessera/sharding/layout.hpp>

#include <string>
#include <vector>

namespace lab {

/// One plan on so many ranks, under one choice of each axis.
struct Case {
  /// "ranks:4/plan:auto/optimizer:adagrad/codec:fp32/deduplicate:off", and if they are others
  /// "/precision:bf16/overlap:on"
  std::string name;
  std::string plan;
  int ranks = 1;
  std::vector<int> ghosts{};  ///< the ranks that run, one after another; empty: all, as threads
  tessera::detail::GhostLinks links{};
  std::string optimizer, codec;
  bool deduplicate = false;
  std::string precision = "fp32";  ///< of the tables
  bool overlap = false;            ///< a thread routes the next batch meanwhile
  tessera::Layout layout;
  std::string files;  ///< the folder of tables OnFile, which is there for a turn
  /// the model does not know what it costs to find duplicates, nor what overlap saves without dense
  /// layers
  bool predicted = false;
  tessera::detail::Prediction prediction{};
  bool fits = true;  ///< the memory of the cluster's ranks

  /// Whether rows come through a cache. Those in the host's memory need none on a host.
  bool cached() const;
  /// Cases that differ in their plans alone.
  std::string group() const;
  /// Of the ghosts that run and their links; 0 of thread ranks.
  std::uint64_t ghost_checksum() const;
};

/// Every plan on every number of ranks, along every axis. Throws tessera::Error for a plan that
/// there is not, that does not fit, or that is of another model.
std::vector<Case> cases_of(const Settings& settings, const Batches& batches);

}  // namespace lab
