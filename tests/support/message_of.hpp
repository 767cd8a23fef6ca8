// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <string>

/// What the `Fault` that f throws says; empty if it throws none.
template <class Fault = std::exception>
std::string message_of(const auto& f) {
  try {
    f();
  } catch (const Fault& fault) {
    return fault.what();
  }
  return "";
}
