// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// The processors and the memory that are next to a device.
struct NearDevice {
  int node = -1;                ///< of memory (NUMA); -1: not known, or there is one alone
  std::vector<int> processors;  ///< ascending; empty: not known
};

/// Parses the kernel's lists of numbers, as "0-3,8,10-11". Returns nothing for another text.
inline std::optional<std::vector<int>> parse_number_list(std::string_view text) {
  constexpr int most = 1 << 16;
  std::vector<int> numbers;
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(part.size() + 1, text.size()));
    const char* const end = part.data() + part.size();
    int first = 0;
    auto read = std::from_chars(part.data(), end, first);
    int last = first;
    if (read.ec == std::errc() && read.ptr != end && *read.ptr == '-')
      read = std::from_chars(read.ptr + 1, end, last);
    if (read.ec != std::errc() || read.ptr != end || first < 0 || last < first || last > most)
      return std::nullopt;
    for (int n = first; n <= last; ++n) numbers.push_back(n);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

/// Returns what sysfs says of the PCI device `bus` ("0000:3b:00.0", in any case of letters); nothing
/// that it does not say. `root`: where sysfs is mounted.
inline NearDevice near_device(std::string bus, const std::filesystem::path& root = "/sys") {
  for (char& c : bus) c = c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
  const std::filesystem::path device = root / "bus" / "pci" / "devices" / bus;
  const auto text_of = [&](const char* name) {
    std::string text;
    std::ifstream file(device / name);
    std::getline(file, text);
    return text;
  };
  NearDevice near;
  const std::string node = text_of("numa_node");
  std::from_chars(node.data(), node.data() + node.size(), near.node);
  near.node = std::max(near.node, -1);
  near.processors = parse_number_list(text_of("local_cpulist")).value_or(std::vector<int>());
  return near;
}

/// Keeps this thread, and those that it starts, on the processors next to a device, as far as it may
/// use them, and prefers its memory. Returns on how many processors it is kept; 0: it was left as
/// it was, for none of them is its own, or the system refuses.
inline int stay_near(const NearDevice& near) {
  cpu_set_t own, both;
  CPU_ZERO(&both);
  if (pthread_getaffinity_np(pthread_self(), sizeof(own), &own) != 0) return 0;
  for (const int processor : near.processors)
    if (processor < CPU_SETSIZE && CPU_ISSET(static_cast<std::size_t>(processor), &own))
      CPU_SET(static_cast<std::size_t>(processor), &both);
  if (CPU_COUNT(&both) == 0 || pthread_setaffinity_np(pthread_self(), sizeof(both), &both) != 0)
    return 0;
#ifdef SYS_set_mempolicy
  if (near.node >= 0 && near.node < 1024) {
    constexpr int preferred = 1;  // MPOL_PREFERRED of <linux/mempolicy.h>: elsewhere if it is full
    constexpr std::size_t bits = 8 * sizeof(unsigned long);
    unsigned long nodes[1024 / bits] = {};
    nodes[static_cast<std::size_t>(near.node) / bits] |=
        1ul << (static_cast<std::size_t>(near.node) % bits);
    static_cast<void>(syscall(SYS_set_mempolicy, preferred, nodes, 1024ul));
  }
#endif
  return CPU_COUNT(&both);
}

}}}  // namespace tessera::v0::detail
