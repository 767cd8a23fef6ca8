// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The input is a file for tessera_plan: a cluster, or a model in one of its formats. No text may do
// more harm than a DataError; what is accepted is within the limits that the planner relies on.
#include "../../examples/support/files.cpp"
#include "../../examples/tessera_plan/cluster_file.hpp"
#include "../../examples/tessera_plan/feature_spec.cpp"
#include "../../examples/tessera_plan/model.cpp"

#include <tessera/core/error.hpp>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <unistd.h>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::string path = [] {
    const std::filesystem::path memory("/dev/shm");
    const auto folder =
        std::filesystem::is_directory(memory) ? memory : std::filesystem::temp_directory_path();
    const std::string name =
        (folder / ("tessera_fuzz_plan_" + std::to_string(::getpid()))).string();
    std::filesystem::remove(name + ".yaml");  // of a process that was killed
    std::filesystem::create_symlink(name, name + ".yaml");
    return name;
  }();
  static const auto removed = std::atexit([] {
    std::filesystem::remove(path);
    std::filesystem::remove(path + ".yaml");
  });
  static_cast<void>(removed);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  try {
    const tessera::Cluster cluster = plan::read_cluster(path);
    plan::for_each_member(cluster, [](const char*, const auto& value) {
      if (!(value >= 0) || !std::isfinite(static_cast<double>(value))) std::abort();
    });
  } catch (const tessera::DataError&) {
  }
  for (const std::string& file : {path, path + ".yaml"}) try {
      const plan::Model model = plan::read_model(file, "m", 16);
      for (const tessera::TableSpec& table : model.tables)
        if (table.rows < 1 || table.width < 1) std::abort();
      for (const tessera::FeatureSpec& feature : model.features)
        if (!(feature.hotness > 0)) std::abort();
      if (!std::isfinite(model.workload.dense_flops) || model.workload.dense_parameters < 0)
        std::abort();
    } catch (const tessera::DataError&) {
    }
  return 0;
}
