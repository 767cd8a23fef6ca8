// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Ranks that are processes without MPI. CMake target tessera::gloo.
#include <tessera/comm/folder_meeting.hpp>
#include <tessera/comm/gloo_communicator.hpp>
#include <tessera/comm/gloo_device.hpp>
#include <tessera/comm/gloo_messenger.hpp>
#include <tessera/comm/hierarchical_communicator.hpp>
#include <tessera/comm/job.hpp>
#include <tessera/comm/meeting.hpp>
#include <tessera/concepts/communicator.hpp>
