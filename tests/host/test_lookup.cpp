// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Lookup and op::WeightGradients against naive sums in double, and bit for bit against themselves for
// other widths and threads.
#include <tessera/host/lookup.hpp>
#include <tessera/host/weight_gradients.hpp>

#include <doctest/doctest.h>

#include <cmath>

#include "cases.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

template <Element T, IdType Id, int Width>
Array<float> look_up(int threads, const Batch<Id>& batch, const Array<T>& arena, int width,
                     std::int64_t stride) {
  Array<float> output(static_cast<std::size_t>(batch.bags * stride));
  std::fill_n(output.data(), output.size(), 77.0f);
  const auto groups = batch.lookup_groups(output.data(), stride);
  op::run<op::Lookup<T, Id, Width>>(Host({.threads = threads}),
                                    {.arena = arena.data(), .width = width, .groups = groups});
  return output;
}

template <Element T, IdType Id, int Width>
void check_lookup(int width, std::int64_t samples) {
  CAPTURE(width);
  const Batch<Id> batch(samples);
  const auto arena = random_elements<T>(static_cast<std::size_t>(batch.rows * width), 7);
  const std::int64_t stride = width + 3;
  const auto output = look_up<T, Id, Width>(1, batch, arena, width, stride);
  CHECK(output == look_up<T, Id, op::dynamic_width>(1, batch, arena, width, stride));
  CHECK(output == look_up<T, Id, Width>(2, batch, arena, width, stride));
  CHECK(output == look_up<T, Id, Width>(5, batch, arena, width, stride));

  const float* out = output.data();
  bool right = true;
  for (const Feature<Id>& feature : batch.features) {
    const op::Bags<Id> bags = feature.view();
    for (std::int64_t bag = 0; bag < bags.bags; ++bag, out += stride) {
      for (int c = 0; c < width; ++c) {
        double sum = 0, size = 0;
        for (std::int64_t i = bags.begin(bag); i < bags.end(bag); ++i) {
          const double term =
              static_cast<double>(bags.coefficient(bag, i)) *
              to_float(arena[static_cast<std::size_t>((bags.ids[i] + bags.row_bias) * width + c)]);
          sum += term;
          size += std::abs(term);
        }
        right = right && std::abs(sum - out[c]) <= 1e-6 * size;
      }
      for (int c = width; c < stride; ++c) right = right && out[c] == 77.0f;
    }
  }
  CHECK(right);
}

}  // namespace

TEST_CASE("lookup sums rows: every element type, id type, width and kind of bag") {
  check_lookup<float, std::int32_t, 16>(16, 300);
  check_lookup<float, std::int64_t, 64>(64, 300);
  check_lookup<float, std::int32_t, 4>(4, 3000);
  check_lookup<float, std::int32_t, 8>(8, 300);
  check_lookup<float, std::int32_t, 128>(128, 300);
  check_lookup<float, std::int32_t, 100>(100, 200);
  check_lookup<float, std::int32_t, 256>(256, 100);
  check_lookup<float, std::int32_t, 300>(300, 100);
  check_lookup<float, std::int32_t, 1>(1, 300);
  check_lookup<float, std::int32_t, 7>(7, 300);
  check_lookup<BFloat16, std::int32_t, 16>(16, 300);
  check_lookup<BFloat16, std::int64_t, 100>(100, 300);
  check_lookup<Half, std::int32_t, 64>(64, 300);
  check_lookup<Half, std::int64_t, 27>(27, 300);
}

TEST_CASE("lookup of nothing, of empty groups and of one bag") {
  Array<float> arena(16);
  arena[5] = 2;
  op::run<op::Lookup<float, std::int32_t, 16>>(Host(), {.arena = arena.data(), .groups = {}});
  const std::int32_t id = 0;
  float output[16] = {};
  const op::LookupGroup<std::int32_t> groups[] = {
      {}, {.bags = {.ids = &id, .bags = 1}, .output = output, .output_stride = 16}, {}};
  op::run<op::Lookup<float, std::int32_t, 16>>(Host({.threads = 3}),
                                               {.arena = arena.data(), .groups = groups});
  CHECK(output[5] == 2);
}

TEST_CASE("one-hot rows are copied bit for bit") {
  Array<float> arena(32);
  for (std::size_t i = 0; i < 32; ++i)
    arena[i] = i % 3 == 0 ? 1e-42f : static_cast<float>(i) * 1e37f;
  const std::int32_t ids[] = {1, 0, 1};
  float output[48];
  const op::LookupGroup<std::int32_t> groups[] = {
      {.bags = {.ids = ids, .bags = 3}, .output = output, .output_stride = 16}};
  op::run<op::Lookup<float, std::int32_t, 16>>(Host(), {.arena = arena.data(), .groups = groups});
  for (int b = 0; b < 3; ++b)
    for (int c = 0; c < 16; ++c)
      CHECK(output[b * 16 + c] == arena[static_cast<std::size_t>(ids[b] * 16 + c)]);
}

TEST_CASE("gradients of weights are dot products in 16 lanes") {
  const auto check = []<Element T, int Width>(int width) {
    CAPTURE(width);
    const Batch<std::int64_t> batch(200);
    const auto arena = random_elements<T>(static_cast<std::size_t>(batch.rows * width), 7);
    const auto gradient = random_elements<float>(static_cast<std::size_t>(batch.bags * width), 8);
    const auto sources = batch.gradient_groups(gradient.data(), width);
    const auto compute = [&]<int W>(int threads) {
      using Operation = op::WeightGradients<T, std::int64_t, W>;
      std::vector<std::vector<float>> results;
      std::vector<typename Operation::Group> groups;
      for (std::size_t f = 0; f < sources.size(); ++f)
        results.emplace_back(batch.features[f].ids.size(), 0.0f);
      for (std::size_t f = 0; f < sources.size(); ++f)
        groups.push_back({sources[f], results[f].data()});
      op::run<Operation>(Host({.threads = threads}),
                         {.arena = arena.data(), .width = width, .groups = groups});
      return results;
    };
    const auto results = compute.template operator()<Width>(1);
    CHECK(results == compute.template operator()<op::dynamic_width>(3));
    for (std::size_t f = 0; f < sources.size(); ++f) {
      const auto& bags = sources[f].bags;
      for (std::int64_t bag = 0; bag < bags.bags; ++bag)
        for (std::int64_t i = bags.begin(bag); i < bags.end(bag); ++i) {
          double dot = 0, size = 0;
          for (int c = 0; c < width; ++c) {
            const double term =
                static_cast<double>(sources[f].gradient[bag * width + c]) *
                to_float(
                    arena[static_cast<std::size_t>((bags.ids[i] + bags.row_bias) * width + c)]);
            dot += term;
            size += std::abs(term);
          }
          REQUIRE(std::abs(dot - results[f][static_cast<std::size_t>(i)]) <= 1e-6 * size);
        }
    }
  };
  check.operator()<float, 16>(16);
  check.operator()<float, 100>(100);
  check.operator()<BFloat16, 64>(64);
  check.operator()<Half, 5>(5);
}
