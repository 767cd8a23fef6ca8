// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <gpu/need_gpu.hpp>

#include <gpu/golden_cases.hpp>
#include <gpu/golden_group_cases.hpp>
#include <gpu/golden_hstu_cases.hpp>
#include <gpu/golden_model_cases.hpp>
