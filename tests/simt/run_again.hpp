// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>

namespace {

/// What this binary prints when it runs the test case of this name and nothing else.
std::string output_of(const std::string& test_case) {
  std::array<char, 4096> path{};
  REQUIRE(readlink("/proc/self/exe", path.data(), path.size() - 1) > 0);
  const std::string command =
      "'" + std::string(path.data()) + "' --no-skip --test-case='" + test_case + "' 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string text;
  std::array<char, 4096> buffer{};
  while (std::fgets(buffer.data(), buffer.size(), pipe) != nullptr) text += buffer.data();
  pclose(pipe);
  return text;
}

}  // namespace
