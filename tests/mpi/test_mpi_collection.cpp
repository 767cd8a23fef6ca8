// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Runs under mpirun.
#include <mpi/engine.hpp>

#include <processes/collection_cases.hpp>
