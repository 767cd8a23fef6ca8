// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <filesystem>
#include <initializer_list>
#include <string_view>

namespace golden {

struct Choice {
  std::string_view name;
  int (*run)(int argc, char** argv);
};

/// Runs the case that argv[1], a path, has the name of.
inline int choose_case(std::initializer_list<Choice> choices, int argc, char** argv) {
  const std::filesystem::path stem =
      argc > 1 ? std::filesystem::path(argv[1]).stem() : std::filesystem::path();
  for (const Choice& choice : choices)
    if (stem == choice.name) return choice.run(argc, argv);
  std::fprintf(stderr,
               "usage: %s CASE.safetensors [RANKS...], one of the cases that it was compiled for\n",
               argv[0]);
  return 2;
}

}  // namespace golden
