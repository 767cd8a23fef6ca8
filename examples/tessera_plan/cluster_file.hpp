// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A tessera::Cluster as JSON and as a line of C++. Keys are the names of its members.
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/sharding/cluster.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>
#include <type_traits>

namespace plan {

/// Calls f(name, member) for every member.
template <class C, class F>
void for_each_member(C& c, F&& f) {
  f("ranks", c.ranks);
  f("ranks_per_node", c.ranks_per_node);
  f("memory_per_rank", c.memory_per_rank);
  f("stream_bandwidth", c.stream_bandwidth);
  f("gather_bandwidth", c.gather_bandwidth);
  f("cache_bandwidth", c.cache_bandwidth);
  f("lookup_seconds", c.lookup_seconds);
  f("check_seconds", c.check_seconds);
  f("route_seconds", c.route_seconds);
  f("cut_seconds", c.cut_seconds);
  f("vector_seconds", c.vector_seconds);
  f("merge_seconds", c.merge_seconds);
  f("block_seconds", c.block_seconds);
  f("launch_seconds", c.launch_seconds);
  f("node_bandwidth", c.node_bandwidth);
  f("node_latency", c.node_latency);
  f("network_bandwidth", c.network_bandwidth);
  f("network_latency", c.network_latency);
  f("flops", c.flops);
  f("concurrent_ranks", c.concurrent_ranks);
}

inline nlohmann::ordered_json to_json(const tessera::Cluster& cluster) {
  nlohmann::ordered_json json;
  for_each_member(cluster, [&](const char* name, const auto& value) { json[name] = value; });
  return json;
}

/// Members that the file does not name keep their defaults. Throws tessera::DataError.
inline tessera::Cluster read_cluster(const std::string& path) {
  std::ifstream file(path);
  tessera::require<tessera::DataError>(file.is_open(), "cannot read '{}'", path);
  tessera::Cluster cluster;
  try {
    const nlohmann::json json = nlohmann::json::parse(file);
    for (const auto& [key, value] : json.items()) {
      bool known = false;
      for_each_member(cluster, [&, &name = key, &given = value](const char* member, auto& to) {
        if (name != member) return;
        known = true;
        using Value = std::decay_t<decltype(to)>;
        const double most = std::is_integral_v<Value> ? std::ldexp(1.0, std::numeric_limits<Value>::digits - 1) : 1e300;
        tessera::require<tessera::DataError>(given.is_number() && given.template get<double>() >= 0 && given.template get<double>() <= most,
                                             "{}: '{}' must be a number from 0 to {}", path, name, most);
        to = given.template get<Value>();
      });
      tessera::require<tessera::DataError>(known, "{}: a cluster has no '{}'", path, key);
    }
  } catch (const nlohmann::json::exception& error) {
    throw tessera::DataError(fmt::format("{}: {}", path, error.what()));
  }
  return cluster;
}

/// `tessera::Cluster{.ranks = 8, ...}`
inline std::string to_cpp(const tessera::Cluster& cluster) {
  std::string text;
  for_each_member(cluster,
                  [&](const char* name, const auto& value) { text += fmt::format("{}.{} = {}", text.empty() ? "" : ", ", name, value); });
  return "tessera::Cluster{" + text + "}";
}

/// FOLDER/machine.json, and machine.hpp with a constant of it.
inline void write_machine(const std::string& folder, const tessera::Cluster& cluster) {
  const auto write = [](const std::string& path, const std::string& text) {
    std::ofstream file(path);
    file << text;
    tessera::require<tessera::Error>(file.flush().good(), "cannot write '{}'", path);
    fmt::print("wrote {}\n", path);
  };
  write(folder + "/machine.json", to_json(cluster).dump(1) + "\n");
  write(folder + "/machine.hpp",
        "// Written by bench_sharding --calibrate.\n#pragma once\n\n#include <tessera/sharding/cluster.hpp>\n\n"
        "inline constexpr auto kMachine = " +
            to_cpp(cluster) + ";\n");
}

}  // namespace plan
