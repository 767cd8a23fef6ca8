// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/lookup.cuh>

#include <doctest/doctest.h>
#include <gpu/device.hpp>

#include <cmath>

namespace {

using namespace tessera;

/// Pools by the contract of op/lookup.hpp, one number at a time.
template <class T, class Id>
void pool_plainly(const std::vector<T>& arena, int width, const HostBags<Id>& bags,
                  std::vector<float>& output, std::int64_t first, std::int64_t stride) {
  for (std::int64_t bag = 0; bag < bags.bags; ++bag)
    for (int c = 0; c < width; ++c) {
      float sum = 0;
      for (std::int64_t i = bags.begin(bag); i < bags.end(bag); ++i) {
        const std::int64_t id = bags.ids[static_cast<std::size_t>(i)];
        if (id < 0) continue;
        const float x = to_float(arena[static_cast<std::size_t>((id + bags.row_bias) * width + c)]);
        sum = bags.weights.empty() ? sum + x
                                   : std::fma(bags.weights[static_cast<std::size_t>(i)], x, sum);
      }
      if (!bags.bag_scale.empty()) sum *= bags.bag_scale[static_cast<std::size_t>(bag)];
      output[static_cast<std::size_t>(first + bag * stride + c)] = sum;
    }
}

/// Groups of every kind in one call, their outputs side by side in one matrix of Out.
template <class T, class Id, int Width, class Out = float>
void check_lookup(int padding) {
  INFO("width ", Width, ", bytes per element ", sizeof(T), ", ", sizeof(Out), ", padding ",
       padding);
  Random random(static_cast<unsigned>(Width * 7 + padding));
  constexpr std::int64_t rows = 37, bags = 45;
  const std::vector<T> arena = random_elements<T>(random, (2 * rows + 1) * Width);
  std::vector<HostBags<Id>> groups;
  for (const Coefficients c : {Coefficients::none, Coefficients::weights, Coefficients::bag_scale})
    for (const int longest : {1, 2, 23})
      groups.push_back(random_bags<Id>(random, bags - longest, longest, rows,
                                       groups.size() % 2 == 0 ? 0 : rows, c));
  for (std::size_t g = 0; g < groups.size(); g += 2)  // and some whose bad ids were taken out
    for (std::size_t i = g; i < groups[g].ids.size(); i += 5) {
      groups[g].ids[i] = -1;
      if (!groups[g].weights.empty()) groups[g].weights[i] = i % 2 == 0 ? INFINITY : NAN;
    }
  if constexpr (sizeof(Id) == 8)  // and a rank's part of a table of more than 2^33 rows
    for (HostBags<Id>& group : groups)
      if (group.row_bias != 0) {
        group.row_bias -= std::int64_t{1} << 33;
        for (Id& id : group.ids)
          if (id >= 0) id += Id{1} << 33;
      }
  groups.push_back({});                                                          // no bags
  groups.push_back(random_bags<Id>(random, 1, 0, rows, 0, Coefficients::none));  // one empty bag
  const std::int64_t columns = static_cast<std::int64_t>(groups.size()) * (Width + padding);

  std::vector<float> sums(static_cast<std::size_t>(bags * columns + padding), -7.0f);
  const std::vector<Out> untouched(sums.size(), from_float<Out>(-7.0f));
  for (std::size_t g = 0; g < groups.size(); ++g)
    pool_plainly(arena, Width, groups[g], sums,
                 padding + static_cast<std::int64_t>(g) * (Width + padding), columns);
  std::vector<Out> expected;
  for (const float sum : sums) expected.push_back(from_float<Out>(sum));

  in_every_order([&] {
    const Cuda backend;
    const OnGpu<T> device_arena(backend, arena);
    const OnGpu<Out> output(backend, untouched);
    std::vector<DeviceBags<Id>> device_bags;
    std::vector<op::LookupGroup<Id, Out>> lookups;
    device_bags.reserve(groups.size());
    for (std::size_t g = 0; g < groups.size(); ++g) {
      device_bags.emplace_back(backend, groups[g]);
      lookups.push_back({device_bags.back().view(),
                         output.data() + padding + static_cast<std::int64_t>(g) * (Width + padding),
                         columns});
    }
    op::run<op::Lookup<T, Id, Width, Out>>(backend, {device_arena.data(), Width, lookups});
    CHECK((output.read() == expected));
  });
}

}  // namespace

TEST_CASE("lookup: every width, one-hot and bags, weights and means, aligned or not") {
  check_lookup<float, std::int64_t, 1>(0);
  check_lookup<float, std::int32_t, 6>(2);
  check_lookup<float, std::int32_t, 12>(4);
  check_lookup<float, std::int64_t, 64>(1);
  check_lookup<float, std::int64_t, 128>(0);
  check_lookup<float, std::int32_t, 130>(0);
  check_lookup<float, std::int32_t, 256>(3);
  check_lookup<float, std::int64_t, 1030>(0);  // wider than a warp's registers
}

TEST_CASE_TEMPLATE("lookup: 16-bit tables", T, BFloat16, Half) {
  check_lookup<T, std::int64_t, 3>(0);
  check_lookup<T, std::int32_t, 16>(8);
  check_lookup<T, std::int64_t, 100>(0);
  check_lookup<T, std::int64_t, 128>(1);
  check_lookup<T, std::int32_t, 1030>(2);
}

TEST_CASE("lookup: outputs of 16 bits are the sums, rounded once") {
  check_lookup<float, std::int64_t, 128, BFloat16>(0);
  check_lookup<float, std::int32_t, 12, Half>(2);  // rows that are not aligned
  check_lookup<BFloat16, std::int32_t, 100, BFloat16>(4);
  check_lookup<float, std::int64_t, 1030, BFloat16>(1);
}

/// So many groups of as many bags each, of up to `longest` ids, every other group's the same.
void check_even_groups(int count, std::int64_t of_group, int longest) {
  INFO(count, " groups of ", of_group, " bags of up to ", longest, " ids");
  Random random(5);
  constexpr int width = 8;
  const std::vector<float> arena = random_elements<float>(random, 20 * width);
  const HostBags<std::int32_t> bags[2] = {
      random_bags<std::int32_t>(random, of_group, longest, 20, 0, Coefficients::none),
      random_bags<std::int32_t>(random, of_group, longest, 20, 0, Coefficients::none)};
  std::vector<float> expected(static_cast<std::size_t>(of_group * count * width));
  for (int g = 0; g < count; ++g)
    pool_plainly(arena, width, bags[g % 2], expected, g * width, count * width);
  const Cuda backend;
  const OnGpu<float> device_arena(backend, arena),
      output(backend, std::vector<float>(expected.size()));
  const DeviceBags<std::int32_t> device_bags[2] = {{backend, bags[0]}, {backend, bags[1]}};
  std::vector<op::LookupGroup<std::int32_t>> groups;
  for (int g = 0; g < count; ++g)
    groups.push_back({device_bags[g % 2].view(), output.data() + g * width, count * width});
  op::run<op::Lookup<float, std::int32_t, width>>(backend, {device_arena.data(), width, groups});
  CHECK((output.read() == expected));
}

TEST_CASE("lookup: more groups than a launch holds; blocks of several groups in turns") {
  check_even_groups(130, 3, 1);
  for (const int longest : {1, 2, 23}) check_even_groups(3, 2100, longest);
}
