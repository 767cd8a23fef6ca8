// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace dlrm {

/// Published models with their hyperparameters (docs/models.md has the sources).
inline constexpr std::array<std::string_view, 3> kRecipes{"dlrm", "dcnv2", "wide-deep"};

/// The arguments of a command line behind the options of the recipe that it names: all but those
/// that it gives itself. The first stays the program's name.
std::vector<std::string> with_recipe(int argc, const char* const* argv);

}  // namespace dlrm
