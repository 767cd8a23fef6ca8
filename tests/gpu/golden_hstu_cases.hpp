// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/dense/dense.cuh>
#include <tessera/io/safetensors.hpp>
#include <tessera/sequence/hstu.cuh>

#include <doctest/doctest.h>
#include <gpu/device.hpp>
#include <gpu/golden_folder.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <tuple>
#include <vector>

// Golden vectors of kind "hstu" on Cuda: a block's output and all its gradients.

namespace golden_hstu {

using namespace tessera;

/// Gradients are sums with much cancellation: the tolerance is that of the tensor's largest value.
inline bool close_gradients(std::span<const float> found, std::span<const float> expected) {
  float largest = 1;
  for (const float e : expected) largest = std::max(largest, std::fabs(e));
  for (std::size_t i = 0; i < found.size(); ++i)
    if (!(std::fabs(found[i] - expected[i]) <= 1e-5f * largest + 1e-4f * std::fabs(expected[i])))
      return false;
  return found.size() == expected.size();
}

template <int Heads, int AttentionDim, int HiddenDim>
void run(const SafetensorsReader& file, const nlohmann::json& block) {
  const Cuda backend;
  const std::int64_t width = block["width"];
  HstuLayer<Heads, AttentionDim, HiddenDim, Cuda> layer(
      backend, width,
      {.max_length = block["max_seq_len"],
       .alpha = block["alpha"],
       .norm_epsilon = block["norm_eps"],
       .silu_all = block["silu"] == "uvqk",
       .concat_ux = block["concat_ux"],
       .attention_window = block["max_attn_len"]});
  DenseParameters parameters(backend, 1, layer);
  const std::vector<std::string> names{"norm.weight",  "norm.bias",          "uvqk.weight",
                                       "uvqk.bias",    "output_norm.weight", "output_norm.bias",
                                       "output.weight"};
  std::vector<float> values;
  for (const std::string& name : names) {
    const std::vector<float> some = file.read<float>(name);
    values.insert(values.end(), some.begin(), some.end());
  }
  REQUIRE(values.size() == parameters.values().size());
  backend.copy(parameters.values().data(), values.data(), parameters.values().size_bytes());
  const std::vector<float> x = file.read<float>("x"), output = file.read<float>("output");
  const std::vector<std::int64_t> offsets = file.read<std::int64_t>("offsets"),
                                  targets = file.contains("num_targets")
                                                ? file.read<std::int64_t>("num_targets")
                                                : std::vector<std::int64_t>();
  const std::int64_t rows = std::ssize(x) / width;
  const OnGpu<float> on_x(backend, x), on_dy(backend, file.read<float>("grad_output")),
      on_y(backend, x), on_dx(backend, x);
  const OnGpu<std::int64_t> on_offsets(backend, offsets), on_targets(backend, targets);
  layer.forward({on_x.data(), rows, width},
                {{on_offsets.data(), offsets.size()}, {on_targets.data(), targets.size()}},
                {on_y.data(), rows, width});
  CHECK(golden_close(on_y.read(), output));
  layer.backward({on_dy.data(), rows, width}, {on_dx.data(), rows, width});
  CHECK(close_gradients(on_dx.read(), file.read<float>("grad.x")));
  std::vector<float> gradients(values.size());
  backend.copy(gradients.data(), parameters.gradients().data(),
               parameters.gradients().size_bytes());
  backend.synchronize();
  std::size_t at = 0;
  for (const std::string& name : names) {
    INFO("gradient of ", name);
    const std::vector<float> expected = file.read<float>("grad." + name);
    CHECK(close_gradients(std::span(gradients).subspan(at, expected.size()), expected));
    at += expected.size();
  }
}

inline void run_file(const std::filesystem::path& path) {
  const SafetensorsReader file(path);
  const nlohmann::json block = read_golden_case(path);
  INFO(path.filename().string());
  const std::tuple<int, int, int> shape(block["heads"], block["attention_dim"],
                                        block["hidden_dim"]);
  if (shape == std::tuple(2, 8, 8)) return run<2, 8, 8>(file, block);
  if (shape == std::tuple(2, 8, 12)) return run<2, 8, 12>(file, block);
  if (shape == std::tuple(4, 4, 8)) return run<4, 4, 8>(file, block);
  FAIL_CHECK("no block of this shape is compiled here: add it");
}

}  // namespace golden_hstu

TEST_CASE("golden vectors of HSTU blocks on CUDA: output and all gradients") {
  run_golden_folder({"hstu"}, golden_hstu::run_file);
}
