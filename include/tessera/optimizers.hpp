// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Optimizers of tables and of dense layers, learning rates by step, clipping, and the loss. oneDNN is
// not needed.
#include <tessera/concepts/optimizer.hpp>
#include <tessera/dense/loss.hpp>
#include <tessera/dense/optimizer.hpp>
#include <tessera/dense/parameters.hpp>
#include <tessera/optimizer/clip.hpp>
#include <tessera/optimizer/narrow_states.hpp>
#include <tessera/optimizer/optimizers.hpp>
#include <tessera/optimizer/schedule.hpp>
