// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

// Bits of weights and states after some steps of every optimizer, by single floats, by vectors of
// columns and by the dense optimizers. contraction.cpp is compiled once with every product and sum
// apart, once with as many fused as the compiler likes.
std::vector<std::uint32_t> trained_uncontracted();
std::vector<std::uint32_t> trained_contracted();
