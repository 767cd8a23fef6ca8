// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace processes {

/// What a job of several processes printed, and how it ended.
struct Outcome {
  std::string output;
  int status = 0;
  bool has(const std::string& part) const { return output.find(part) != std::string::npos; }
};

}  // namespace processes
