// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl_double/nccl.h>

#include <tessera/comm/nccl_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>

#include <nccl/through_device.hpp>

#include <chrono>
#include <exception>
#include <string>
#include <vector>

// NCCL ranks over the double, as threads.

using Texts = std::vector<std::string>;

/// Runs `body(communicator, stream)` on thread ranks and returns what each threw ("" for nothing).
template <class Body>
Texts on_ranks(int ranks, Body body,
               tessera::NcclOptions options = {.timeout = std::chrono::seconds(30)}) {
  Texts texts(static_cast<std::size_t>(ranks));
  tessera::run_ranks(ranks, [&](tessera::ThreadCommunicator& threads) {
    nccl_double::log.clear();
    nccl_double::faults = {};
    Stream stream;
    tessera::NcclOptions mine = options;
    mine.stream = stream.get;
    const ncclUniqueId id = tessera::share_nccl_id(threads);
    try {
      tessera::NcclCommunicator c(id, threads.rank(), threads.size(), mine);
      nccl_double::log.clear();
      body(c, stream.get);
    } catch (const std::exception& error) {
      texts[static_cast<std::size_t>(threads.rank())] = error.what();
    }
  });
  return texts;
}
