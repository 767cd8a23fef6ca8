// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tables of TorchRec's checkpoints, and back.
#include <tessera/checkpoint/torchrec.hpp>
