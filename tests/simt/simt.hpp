// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Runs CUDA kernels on the processor, for tests: README.md.
#include <simt/runtime.hpp>
