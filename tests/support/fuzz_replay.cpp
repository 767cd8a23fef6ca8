// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Runs a fuzz target without libFuzzer: every file of the folders that are named, then 200
// mutations of each, the same on every run. With clang the same target fuzzes for real: clang++
// -fsanitize=fuzzer,address tests/fuzz/fuzz_X.cpp.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

void run(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
}

std::string mutate(std::string input, std::mt19937_64& random) {
  const auto below = [&](std::size_t n) {
    return static_cast<std::size_t>(random() % (n ? n : 1));
  };
  for (std::size_t edits = 1 + below(4); edits > 0; --edits) {
    const std::size_t at = below(input.size() + 1);
    switch (below(5)) {
      case 0:
        input.insert(at, 1, static_cast<char>(below(256)));
        break;
      case 1:
        input.erase(at, below(16));
        break;
      case 2:
        input.insert(at, input.substr(below(input.size() + 1), below(64)));
        break;
      case 3:
        input.resize(at);
        break;
      default:
        if (at < input.size()) input[at] = static_cast<char>(below(256));
    }
  }
  return input;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::filesystem::path> files;
  for (int i = 1; i < argc; ++i)
    for (const auto& entry : std::filesystem::directory_iterator(argv[i]))
      files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  if (files.empty()) {
    std::fprintf(stderr, "usage: %s FOLDER...: no input found\n", argv[0]);
    return 2;
  }
  std::mt19937_64 random(1);
  for (const auto& file : files) {
    std::ifstream stream(file, std::ios::binary);
    const std::string input{std::istreambuf_iterator<char>(stream), {}};
    run(input);
    for (int i = 0; i < 200; ++i) run(mutate(input, random));
  }
  std::printf("%zu inputs and 200 mutations of each\n", files.size());
}
