// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Which processors and memory are next to a device, by made-up trees of sysfs; threads that stay
// there.
#include <tessera/comm/near_device.hpp>

#include <support/temporary_folder.hpp>

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

using namespace tessera;

namespace {

std::vector<int> allowed() {
  cpu_set_t own;
  REQUIRE(pthread_getaffinity_np(pthread_self(), sizeof(own), &own) == 0);
  std::vector<int> numbers;
  for (int n = 0; n < CPU_SETSIZE; ++n)
    if (CPU_ISSET(static_cast<std::size_t>(n), &own)) numbers.push_back(n);
  return numbers;
}

}  // namespace

TEST_CASE("lists of numbers as the kernel writes them") {
  using Numbers = std::vector<int>;
  CHECK(detail::parse_number_list("0-3,8,10-11\n") == Numbers{0, 1, 2, 3, 8, 10, 11});
  CHECK(detail::parse_number_list("7") == Numbers{7});
  CHECK(detail::parse_number_list("8,0-1") == Numbers{0, 1, 8});
  CHECK(detail::parse_number_list("\n") == Numbers{});
  for (const char* bad : {"x", "1-", "-1", "3-1", "1,,2", "1;2", "0-99999999", "99999999999999"})
    CHECK(detail::parse_number_list(bad) == std::nullopt);
}

TEST_CASE("what sysfs says of a device, and what it does not say") {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& bus, const std::string& node, const std::string& list) {
    const std::filesystem::path device = folder.path / "bus" / "pci" / "devices" / bus;
    std::filesystem::create_directories(device);
    std::ofstream(device / "numa_node") << node;
    std::ofstream(device / "local_cpulist") << list;
  };
  write("0000:3b:00.0", "0\n", "0-13,28-41\n");
  write("0000:d8:00.0", "1\n", "14-27\n");
  write("0000:01:00.0", "-1\n", "0-3\n");
  write("0000:02:00.0", "many\n", "all of them\n");
  const detail::NearDevice first = detail::near_device("0000:3B:00.0", folder.path),
                           second = detail::near_device("0000:d8:00.0", folder.path);
  CHECK(first.node == 0);
  CHECK(first.processors.size() == 28);
  CHECK(first.processors[14] == 28);
  CHECK(second.node == 1);
  CHECK(second.processors.front() == 14);
  const detail::NearDevice alone = detail::near_device("0000:01:00.0", folder.path);
  CHECK(alone.node == -1);
  CHECK(alone.processors.size() == 4);
  for (const char* bus : {"0000:02:00.0", "0000:ff:00.0", ""}) {
    const detail::NearDevice none = detail::near_device(bus, folder.path);
    CHECK(none.node <= 0);
    CHECK(none.processors.empty());
  }
}

TEST_CASE("a thread stays on the processors that it may use, with those that it starts") {
  const std::vector<int> before = allowed();
  std::thread([&] {
    CHECK(detail::stay_near({.node = 0, .processors = {before.back(), 5000}}) == 1);
    CHECK(allowed() == std::vector<int>{before.back()});
    std::thread([&] { CHECK(allowed() == std::vector<int>{before.back()}); }).join();
  }).join();
  std::thread([&] {
    CHECK(detail::stay_near({.node = -1, .processors = {}}) == 0);
    CHECK(detail::stay_near({.node = 0, .processors = {1023}}) == (before.back() == 1023 ? 1 : 0));
    CHECK(allowed() == before);
  }).join();
  CHECK(allowed() == before);
}
