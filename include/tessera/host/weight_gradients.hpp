// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/host/bag_parts.hpp>
#include <tessera/host/lanes.hpp>
#include <tessera/op/weight_gradients.hpp>

#include <cstdint>

namespace tessera { inline namespace v0 {

/// The pass of Lookup; an entry's dot product is summed in 16 lanes, a row that ends within them is
/// filled up with zeros.
template <Element T, IdType Id, int Width, Element G>
struct op::Kernel<op::WeightGradients<T, Id, Width, G>, Host> {
  using Operation = op::WeightGradients<T, Id, Width, G>;
  using Group = typename Operation::Group;

  static void run(const Host& backend, const typename Operation::Parameters& p) {
    const int width = Width != op::dynamic_width ? Width : p.width;
    detail::for_bags(
        backend, p.groups, p.arena, p.width, p.width * static_cast<std::int64_t>(sizeof(G)),
        [&](const Group& group, std::int64_t first, std::int64_t last, auto& shared_ahead) {
          auto ahead = shared_ahead;
          const op::Bags<Id>& bags = group.source.bags;
          float* const output = group.output - (group.from_first_entry ? bags.begin(0) : 0);
          for (std::int64_t bag = first; bag < last; ++bag) {
            const G* gradient = group.source.gradient + bag * group.source.gradient_stride;
            for (std::int64_t i = bags.begin(bag); i < bags.end(bag); ++i) {
              ahead.template step<Width>();
              output[i] = dot(gradient, p.arena + (bags.ids[i] + bags.row_bias) * width, width);
            }
          }
          shared_ahead = ahead;
        });
  }

 private:
  static constexpr int lanes = 16, registers = lanes / detail::native_lanes;

  [[gnu::always_inline]] static float dot(const G* gradient, const T* row, int width) {
    using Register = detail::Vector<float, detail::native_lanes>;
    Register sum[registers] = {};
    const auto add = [&](const G* g, const T* w) __attribute__((always_inline)) {
      detail::unrolled<registers>([&](auto r) __attribute__((always_inline)) {
        Register x, y;
        detail::load<detail::native_lanes>(g + r() * detail::native_lanes, x);
        detail::load<detail::native_lanes>(w + r() * detail::native_lanes, y);
        sum[r()] = detail::multiply_add<detail::native_lanes>(x, y, sum[r()]);
      });
    };
    int column = 0;
    for (; column + lanes <= width; column += lanes) add(gradient + column, row + column);
    if (column < width) {
      G rest_of_gradient[lanes] = {};
      T rest_of_row[lanes] = {};
      for (int i = 0; column + i < width; ++i) {
        rest_of_gradient[i] = gradient[column + i];
        rest_of_row[i] = row[column + i];
      }
      add(rest_of_gradient, rest_of_row);
    }
    float lane[lanes];
    std::memcpy(lane, sum, sizeof(lane));
    for (int half = lanes / 2; half > 0; half /= 2)
      for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
    return lane[0];
  }
};

template <>
struct op::Kernel<op::AddEntryValues, Host> {
  static void run(const Host&, const op::AddEntryValues::Parameters& p) {
    for (const op::AddEntryValues::Job& job : p.jobs)
      for (std::int64_t i = 0; i < job.count; ++i) {
        const std::int64_t entry = job.entry(i);
        if (entry < 0) break;
        job.target[job.positions != nullptr ? job.positions[entry] : job.base + entry] +=
            job.values[i];
      }
  }
};

template <>
struct op::Kernel<op::ScaleEntryValues, Host> {
  static void run(const Host&, const op::ScaleEntryValues::Parameters& p) {
    for (const op::ScaleEntryValues::Job& job : p.jobs)
      for (std::int64_t bag = 0; bag < job.bags; ++bag)
        for (std::int64_t entry = job.offsets[bag]; entry < job.offsets[bag + 1]; ++entry)
          job.target[job.positions != nullptr ? job.positions[entry] : job.base + entry] *=
              job.factors[bag];
  }
};

}}  // namespace tessera::v0
