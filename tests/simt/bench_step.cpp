// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

// The GPU benchmark as a program for the emulator: ctest runs its cases with few samples.
#include <gpu/bench_step.cu>
