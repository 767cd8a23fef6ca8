// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Ranks that are processes without MPI. CMake target tessera::gloo.
#include <tessera/comm/job.hpp>
#include <tessera/comm/meeting.hpp>
