// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <gpu/need_gpu.hpp>

#include <gpu/hstu_cases.hpp>
#include <gpu/softmax_cases.hpp>
