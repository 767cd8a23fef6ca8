// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A tessera::Cluster as JSON, or as what a caller parses, and as a line of C++. Keys are the names of its members; "measured"
// says on what machine they were measured, and when. The constants of this machine are kept in one
// file of the user's cache, measured once.
#pragma once

#include "json_text.hpp"

#include <tessera/core/error.hpp>
#include <tessera/io/regular_file.hpp>
#include <tessera/sharding/cluster.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <unistd.h>

namespace plan {

/// Calls f(name, member) for every member.
template <class C, class F>
void for_each_member(C& c, F&& f) {
  f("ranks", c.ranks);
  f("ranks_per_node", c.ranks_per_node);
  f("memory_per_rank", c.memory_per_rank);
  f("host_memory_per_rank", c.host_memory_per_rank);
  f("file_memory_per_rank", c.file_memory_per_rank);
  f("stream_bandwidth", c.stream_bandwidth);
  f("gather_bandwidth", c.gather_bandwidth);
  f("cache_bandwidth", c.cache_bandwidth);
  f("cached_bytes", c.cached_bytes);
  f("beyond_cache", c.beyond_cache);
  f("bus_bandwidth", c.bus_bandwidth);
  f("file_bandwidth", c.file_bandwidth);
  f("file_queue_depth", c.file_queue_depth);
  f("directory_seconds", c.directory_seconds);
  f("missing_seconds", c.missing_seconds);
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
  f("wake_seconds", c.wake_seconds);
  f("flops", c.flops);
  f("concurrent_ranks", c.concurrent_ranks);
}

/// Where and when constants were measured.
struct Calibration {
  std::string processor;
  int cores = 0;
  std::string date;  // 2026-11-23

  bool operator==(const Calibration&) const = default;
};

/// Constants, and in words where they come from.
struct Constants {
  tessera::Cluster cluster;
  std::string source;
  bool measured = false;               ///< on this machine, or on one that the file names
  bool files_measured = false;         ///< those of file_bandwidth, too
  bool links_alone = false;            ///< the file has none, but Links
  std::vector<std::string> missing{};  ///< members that the file does not name
};

/// How fast ranks send to each other over a communicator, as train_dlrm --check-links found.
struct Links {
  std::string communicator;
  bool one_machine = true;
  int ranks = 0;
  double bandwidth = 0;  ///< bytes/s of a rank: Cluster::node_bandwidth
  Calibration measured;

  std::string name() const { return communicator + (one_machine ? "" : ", several machines"); }
};
/// Where a machine's file has them, by name.
inline constexpr const char* kLinks = "links";

inline nlohmann::ordered_json to_json(const tessera::Cluster& cluster) {
  nlohmann::ordered_json json;
  for_each_member(cluster, [&](const char* name, const auto& value) { json[name] = value; });
  return json;
}

/// This machine, today.
inline Calibration this_machine() {
  Calibration machine{.processor = "unknown processor",
                      .cores = static_cast<int>(std::thread::hardware_concurrency()),
                      .date = {}};
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (const auto colon = line.find(": ");
        line.rfind("model name", 0) == 0 && colon != line.npos) {
      machine.processor = line.substr(colon + 2);
      break;
    }
  const std::time_t now = std::time(nullptr);
  std::tm day{};
  std::array<char, 16> text{};
  if (gmtime_r(&now, &day) != nullptr)
    machine.date.assign(text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d", &day));
  return machine;
}

inline bool same_machine(const Calibration& a, const Calibration& b) {
  return a.processor == b.processor && a.cores == b.cores;
}

/// Parses a file of constants: text, path.
using ParseCluster = nlohmann::json (*)(const std::string&, const std::string&);

/// Reads a file of constants. Members that it does not name keep their defaults. Throws
/// tessera::DataError.
inline Constants read_constants(const std::string& path,
                                ParseCluster parse = parse_json<nlohmann::json>) {
  using tessera::DataError;
  const tessera::detail::RegularFile file(path);
  std::string text(file.size(), '\0');
  text.resize(file.read(text.data(), text.size(), 0));
  Constants constants;
  Calibration measured;
  std::vector<std::string> missing;
  try {
    nlohmann::json json = parse(text, path);
    tessera::require<DataError>(json.is_object(), "{}: a cluster is an object of constants", path);
    if (const auto at = json.find("measured"); at != json.end()) {
      const auto has = [&](const char* member, auto is) {
        return at->is_object() && at->contains(member) && is((*at)[member]);
      };
      const auto text_of = [](const nlohmann::json& value) { return value.is_string(); };
      tessera::require<DataError>(
          has("processor", text_of) && has("date", text_of) &&
              has("cores", [](const nlohmann::json& value) { return value.is_number_integer(); }),
          "{}: 'measured' must hold the texts 'processor' and 'date', and the number 'cores'",
          path);
      measured = {at->at("processor").get<std::string>(), at->at("cores").get<int>(),
                  at->at("date").get<std::string>()};
      constants.measured = true;
      json.erase(at);
    }
    json.erase(kLinks);
    constants.links_alone = json.empty();
    for_each_member(constants.cluster, [&](const char* member, auto& to) {
      const auto given = json.find(member);
      const std::string_view name(member);
      if (given == json.end()) {
        // of no use where no table is OnHost or OnFile, and of no effect as they are by default
        if (name != "cached_bytes" && name != "beyond_cache" && name != "bus_bandwidth" &&
            name != "host_memory_per_rank" && name != "directory_seconds" &&
            name != "missing_seconds" && !name.starts_with("file_"))
          missing.push_back(member);
        return;
      }
      constants.files_measured |= name == "file_bandwidth" && constants.measured;
      using Value = std::decay_t<decltype(to)>;
      const double most = std::is_integral_v<Value>
                              ? std::ldexp(1.0, std::numeric_limits<Value>::digits - 1)
                              : 1e300;
      // what times are divided by, and a price of less than what is in a cache
      const double least =
          name.ends_with("bandwidth") || name == "flops" || name == "beyond_cache" ? 1 : 0;
      const bool whole = std::is_integral_v<Value>;
      tessera::require<DataError>((whole ? given->is_number_integer() : given->is_number()) &&
                                      given->template get<double>() >= least &&
                                      given->template get<double>() <= most,
                                  "{}: '{}' must be a {} from {} to {}", path, member,
                                  whole ? "whole number" : "number", least, most);
      to = given->template get<Value>();
      json.erase(given);
    });
    for (const auto& [key, value] : json.items())
      throw DataError(fmt::format("{}: a cluster has no '{}'", path, key));
  } catch (const nlohmann::json::exception& error) {
    throw DataError(fmt::format("{}: {}", path, error.what()));
  }
  const bool here = same_machine(measured, this_machine());
  constants.source = !constants.measured
                         ? fmt::format("{}, which does not say that they were measured", path)
                         : fmt::format("measured on {} ({}, {} cores, {}; {})",
                                       here ? "this machine" : "another machine",
                                       measured.processor, measured.cores, measured.date, path);
  if (!missing.empty()) {
    constants.source += "; not in the file, so an A100's:";
    for (const std::string& name : missing) constants.source += " " + name;
    constants.measured = false;
    constants.missing = std::move(missing);
  }
  return constants;
}

inline tessera::Cluster read_cluster(const std::string& path) {
  return read_constants(path).cluster;
}

/// The file of this machine's constants: $TESSERA_MACHINE, or tessera/machine.json in
/// $XDG_CACHE_HOME or ~/.cache. Empty: there is no place.
inline std::string machine_cache() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (std::string file = variable("TESSERA_MACHINE"); !file.empty()) return file;
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty())
    return cache + "/tessera/machine.json";
  const std::string user = variable("HOME");
  return user.empty() ? "" : user + "/.cache/tessera/machine.json";
}

/// This machine's constants, where they were measured. A home that several machines share has those
/// of one, and serves no other; a file that TESSERA_MACHINE names is taken as it is.
inline std::optional<Constants> cached_constants() {
  const std::string path = machine_cache();
  if (path.empty() || !std::filesystem::exists(path)) return std::nullopt;
  Constants constants = read_constants(path);
  if (std::getenv("TESSERA_MACHINE") == nullptr &&
      constants.source.rfind("measured on this machine", 0) != 0)
    return std::nullopt;
  if (constants.links_alone) return std::nullopt;
  return constants;
}

/// The machine's file as it is; an empty object where there is none. Throws tessera::DataError.
inline nlohmann::ordered_json machine_json() {
  const std::string path = machine_cache();
  if (path.empty() || !std::filesystem::exists(path)) return nlohmann::ordered_json::object();
  read_constants(path);  // throws what is wrong with it
  std::ifstream file(path);
  return nlohmann::ordered_json::parse(file);
}

/// What was found of links of this name on this machine, or, in a file that TESSERA_MACHINE names,
/// on any. Throws tessera::DataError.
inline std::optional<Links> cached_links(const std::string& communicator, bool one_machine) {
  Links links{.communicator = communicator, .one_machine = one_machine, .measured = {}};
  const nlohmann::ordered_json json = machine_json();
  const auto all = json.find(kLinks);
  if (all == json.end()) return std::nullopt;
  try {
    const auto found = all->find(links.name());
    if (found == all->end()) return std::nullopt;
    links.ranks = found->at("ranks").get<int>();
    links.bandwidth = found->at("bandwidth").get<double>();
    const auto& measured = found->at("measured");
    links.measured = {measured.at("processor").get<std::string>(), measured.at("cores").get<int>(),
                      measured.at("date").get<std::string>()};
  } catch (const nlohmann::json::exception& error) {
    throw tessera::DataError(
        fmt::format("{}: '{}' of '{}': {}", machine_cache(), links.name(), kLinks, error.what()));
  }
  tessera::require<tessera::DataError>(links.bandwidth >= 1 && links.bandwidth < 1e300,
                                       "{}: 'bandwidth' of '{}' must be bytes in a second",
                                       machine_cache(), links.name());
  if (std::getenv("TESSERA_MACHINE") == nullptr && !same_machine(links.measured, this_machine()))
    return std::nullopt;
  return links;
}

/// Returns whether --cluster names a file.
inline bool is_cluster_file(const std::string& name) {
  return name != "dgx-a100" && name != "hgx-h200" && name != "cpu" && name != "host";
}

/// The constants that --cluster names: dgx-a100, hgx-h200, cpu, host, or a file. Throws
/// tessera::DataError, and tessera::InvalidArgument for a host that was not measured.
inline Constants constants_named(const std::string& name, ParseCluster parse) {
  if (is_cluster_file(name)) {
    tessera::require<tessera::DataError>(
        name.find_first_of("./") != name.npos || std::filesystem::exists(name),
        "there is no cluster '{}': dgx-a100, hgx-h200, cpu, host, or a file of constants", name);
    return read_constants(name, parse);
  }
  if (name == "host") {
    const std::optional<Constants> own = cached_constants();
    tessera::require(own.has_value(),
                     "--cluster host: this machine's constants were not measured yet (no {}): run "
                     "bench_sharding once",
                     machine_cache());
    return *own;
  }
  if (name == "cpu") {
    Constants constants{tessera::cpu_host(8, 0),
                        "cpu, of a 2-core x86-64 server; bench_sharding measures this machine's, "
                        "for --cluster host"};
    constants.cluster.concurrent_ranks = this_machine().cores;
    return constants;
  }
  return {name == "dgx-a100" ? tessera::dgx_a100(8) : tessera::hgx_h200(8),
          name + ", from data sheets and assumptions: never measured with this library"};
}

/// `tessera::Cluster{.ranks = 8, ...}`
inline std::string to_cpp(const tessera::Cluster& cluster) {
  std::string text;
  for_each_member(cluster, [&](const char* name, const auto& value) {
    text += fmt::format("{}.{} = {}", text.empty() ? "" : ", ", name, value);
  });
  return "tessera::Cluster{" + text + "}";
}

/// Puts text in a file's place, whole or not at all.
inline void replace_file(const std::string& path, const std::string& text) {
  const std::string unfinished = fmt::format("{}.{}", path, getpid());
  std::ofstream file(unfinished);
  file << text;
  file.close();
  std::error_code error;
  if (file.good()) std::filesystem::rename(unfinished, path, error);
  if (file.good() && !error) return;
  std::error_code ignored;
  std::filesystem::remove(unfinished, ignored);
  throw tessera::Error(fmt::format("cannot write '{}'", path));
}

inline nlohmann::ordered_json to_json(const Calibration& measured) {
  return {{"processor", measured.processor}, {"cores", measured.cores}, {"date", measured.date}};
}

inline std::string machine_text(const tessera::Cluster& cluster, const Calibration& measured) {
  nlohmann::ordered_json json{{"measured", to_json(measured)}};
  json.update(to_json(cluster));
  if (cluster.file_bandwidth == tessera::Cluster{}.file_bandwidth) {  // nobody has measured it
    json.erase("file_bandwidth");
    json.erase("file_queue_depth");
  }
  return json.dump(1) + "\n";
}

/// FOLDER/machine.json, and machine.hpp with a constant of it.
inline void write_machine(const std::string& folder, const tessera::Cluster& cluster,
                          const Calibration& measured) {
  replace_file(folder + "/machine.json", machine_text(cluster, measured));
  replace_file(folder + "/machine.hpp",
               "// Written by bench_sharding --calibrate.\n#pragma once\n\n#include "
               "<tessera/sharding/cluster.hpp>\n\n"
               "inline constexpr auto kMachine = " +
                   to_cpp(cluster) + ";\n");
  fmt::print("wrote {0}/machine.json and {0}/machine.hpp\n", folder);
}

/// Returns the path of this machine's file, in a folder where it can be written. Throws
/// tessera::Error: before minutes of measurements, too.
inline std::string machine_place() {
  const std::string path = machine_cache();
  tessera::require<tessera::Error>(
      !path.empty(), "no place for this machine's constants: set TESSERA_MACHINE to a file");
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  const bool writable = access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) == 0;
  tessera::require<tessera::Error>(
      writable, "cannot write '{}' ({}): set TESSERA_MACHINE to a file in another folder", path,
      std::strerror(errno));
  return path;
}

/// Replaces this machine's file. Returns its path.
inline std::string replace_machine(const std::string& text) {
  const std::string path = machine_place();
  replace_file(path, text);
  return path;
}

/// Keeps this machine's constants where `cached_constants` finds them. Returns the path.
inline std::string write_machine_cache(const tessera::Cluster& cluster) {
  auto json = nlohmann::ordered_json::parse(machine_text(cluster, this_machine()));
  if (const auto kept = machine_json(); kept.contains(kLinks)) json[kLinks] = kept[kLinks];
  return replace_machine(json.dump(1) + "\n");
}

/// Keeps what was measured of files with this machine's other constants, which stay as they were
/// measured. Returns the path.
inline std::string write_files(const tessera::Cluster& cluster) {
  nlohmann::ordered_json json = machine_json();
  json["file_bandwidth"] = cluster.file_bandwidth;
  json["file_queue_depth"] = cluster.file_queue_depth;
  json["directory_seconds"] = cluster.directory_seconds;
  return replace_machine(json.dump(1) + "\n");
}

/// Keeps links where `cached_links` finds them. Returns the path.
inline std::string write_links(const Links& links) {
  nlohmann::ordered_json json = machine_json();
  json[kLinks][links.name()] = {{"ranks", links.ranks},
                                {"bandwidth", links.bandwidth},
                                {"measured", to_json(links.measured)}};
  return replace_machine(json.dump(1) + "\n");
}

}  // namespace plan
