// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <simt/every_order.hpp>

#include <gpu/golden_hstu_cases.hpp>
#include <gpu/hstu_cases.hpp>
