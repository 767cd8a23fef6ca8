// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Ranks that are processes of MPI. CMake target tessera::mpi.
#include <tessera/comm/hierarchical_communicator.hpp>
#include <tessera/comm/mpi_communicator.hpp>
#include <tessera/comm/mpi_environment.hpp>
#include <tessera/concepts/communicator.hpp>
