// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>

#include <tessera/core/format.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace tessera { inline namespace v0 {

/// Tables of one shape: each read by one feature of one id a sample and, if `hotness` is more
/// than 1, by another of so many ids.
struct SyntheticTables {
  int tables = 0;
  int hotness = 1;
  std::int64_t rows = 0;
  std::int32_t width = 0;
};

/// A model of Merlin distributed-embeddings' benchmark of synthetic models (their version 3): sums
/// of ids' vectors, averaged over `stride` neighbouring columns (1: not at all), and numbers go
/// through an MLP of the given hidden layers.
struct SyntheticModel {
  std::string_view name;
  std::int64_t numbers = 0;
  int stride = 1;
  std::span<const std::int64_t> mlp{};
  std::span<const SyntheticTables> groups{};
};

namespace detail {

template <std::int64_t... Sizes>
inline constexpr std::array<std::int64_t, sizeof...(Sizes)> mlp_sizes{Sizes...};

inline constexpr std::array<SyntheticTables, 1> criteo_tables{{{26, 1, 100'000, 128}}};
inline constexpr std::array<SyntheticTables, 9> tiny_tables{{{1, 10, 10'000, 8},
                                                             {1, 10, 1'000'000, 16},
                                                             {1, 10, 25'000'000, 16},
                                                             {1, 1, 25'000'000, 16},
                                                             {16, 1, 10, 8},
                                                             {10, 1, 1'000, 8},
                                                             {4, 1, 10'000, 8},
                                                             {2, 1, 100'000, 16},
                                                             {19, 1, 1'000'000, 16}}};
inline constexpr std::array<SyntheticTables, 9> small_tables{{{5, 30, 10'000, 16},
                                                              {3, 30, 4'000'000, 32},
                                                              {1, 30, 50'000'000, 32},
                                                              {1, 1, 50'000'000, 32},
                                                              {30, 1, 10, 16},
                                                              {30, 1, 1'000, 16},
                                                              {5, 1, 10'000, 16},
                                                              {5, 1, 100'000, 32},
                                                              {27, 1, 4'000'000, 32}}};
inline constexpr std::array<SyntheticTables, 9> medium_tables{{{20, 50, 100'000, 64},
                                                               {5, 50, 10'000'000, 64},
                                                               {1, 50, 100'000'000, 128},
                                                               {1, 1, 100'000'000, 128},
                                                               {80, 1, 10, 32},
                                                               {60, 1, 1'000, 32},
                                                               {80, 1, 100'000, 64},
                                                               {24, 1, 200'000, 64},
                                                               {40, 1, 10'000'000, 64}}};
inline constexpr std::array<SyntheticTables, 9> large_tables{{{40, 100, 100'000, 64},
                                                              {16, 100, 15'000'000, 64},
                                                              {1, 100, 200'000'000, 128},
                                                              {1, 1, 200'000'000, 128},
                                                              {100, 1, 10, 32},
                                                              {100, 1, 10'000, 32},
                                                              {160, 1, 100'000, 64},
                                                              {50, 1, 500'000, 64},
                                                              {144, 1, 15'000'000, 64}}};
inline constexpr std::array<SyntheticTables, 9> jumbo_tables{{{50, 200, 100'000, 128},
                                                              {24, 200, 20'000'000, 128},
                                                              {1, 200, 400'000'000, 256},
                                                              {1, 1, 400'000'000, 256},
                                                              {100, 1, 10, 32},
                                                              {200, 1, 10'000, 64},
                                                              {350, 1, 100'000, 128},
                                                              {80, 1, 1'000'000, 128},
                                                              {216, 1, 20'000'000, 128}}};
inline constexpr std::array<SyntheticTables, 9> colossal_tables{{{100, 300, 100'000, 128},
                                                                 {50, 300, 40'000'000, 256},
                                                                 {1, 300, 2'000'000'000, 256},
                                                                 {1, 1, 1'000'000'000, 256},
                                                                 {100, 1, 10, 32},
                                                                 {400, 1, 10'000, 128},
                                                                 {100, 1, 100'000, 128},
                                                                 {800, 1, 1'000'000, 128},
                                                                 {450, 1, 40'000'000, 256}}};

}  // namespace detail

/// The models of that benchmark.
inline constexpr std::array<SyntheticModel, 7> synthetic_models{
    {{"criteo", 13, 1, detail::mlp_sizes<512, 256, 128>, detail::criteo_tables},
     {"tiny", 10, 1, detail::mlp_sizes<256, 128>, detail::tiny_tables},
     {"small", 10, 1, detail::mlp_sizes<512, 256, 128>, detail::small_tables},
     {"medium", 25, 7, detail::mlp_sizes<1024, 512, 256, 128>, detail::medium_tables},
     {"large", 100, 8, detail::mlp_sizes<2048, 1024, 512, 256>, detail::large_tables},
     {"jumbo", 200, 20, detail::mlp_sizes<2048, 1024, 512, 256>, detail::jumbo_tables},
     {"colossal", 500, 30, detail::mlp_sizes<4096, 2048, 1024, 512, 256>,
      detail::colossal_tables}}};

/// Returns rows of such a table scaled down: no fewer than ten, if it has as many.
constexpr std::int64_t scaled_rows(std::int64_t rows, double scale) {
  const auto scaled = static_cast<std::int64_t>(static_cast<double>(rows) * scale);
  return std::max(scaled, std::min<std::int64_t>(rows, 10));
}

/// Throws InvalidArgument if there is none of that name.
inline const SyntheticModel& synthetic_model(std::string_view name) {
  for (const SyntheticModel& model : synthetic_models)
    if (model.name == name) return model;
  throw InvalidArgument(detail::formatted(
      "there is no synthetic model '{}'; there are criteo, tiny, small, medium, large, jumbo and "
      "colossal",
      name));
}

}}  // namespace tessera::v0
