// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// One fault of the kind that the argument names: a sanitizer's build that lets it pass finds nothing.
#include <limits>
#include <memory>
#include <string_view>
#include <thread>

int main(int count, char** arguments) {
  const std::string_view kind = count == 2 ? arguments[1] : "";
  if (kind == "memory") {
    auto values = std::make_unique<int[]>(4);
    volatile int* const behind = values.get() + 4;
    return *behind;
  }
  if (kind == "undefined") {
    volatile int largest = std::numeric_limits<int>::max();
    return largest + count > 0;
  }
  if (kind == "race") {
    int value = 0;
    std::thread other([&value] { ++value; });
    ++value;
    other.join();
    return value;
  }
  return 2;
}
