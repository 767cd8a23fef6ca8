// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Communicators that need no other library: one rank, threads, nodes; wrappers that count or inject
// faults.
#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/bucketed_all_reduce.hpp>
#include <tessera/comm/counting_communicator.hpp>
#include <tessera/comm/fault_injecting_communicator.hpp>
#include <tessera/comm/hierarchical_communicator.hpp>
#include <tessera/comm/job.hpp>
#include <tessera/comm/self_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/concepts/communicator.hpp>
