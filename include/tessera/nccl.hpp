// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Ranks that are GPUs, by NCCL. CMake target tessera::nccl.
#include <tessera/comm/hierarchical_communicator.hpp>
#include <tessera/comm/nccl_communicator.hpp>
#include <tessera/comm/nccl_memory.hpp>
#include <tessera/concepts/communicator.hpp>
