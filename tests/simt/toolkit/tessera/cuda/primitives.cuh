// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// In place of the library's file of this name: the emulator's primitives.
#pragma once

#include <cuda_runtime.h>
#include <simt/primitives.hpp>
