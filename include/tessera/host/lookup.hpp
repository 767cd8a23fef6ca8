// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/host/bag_parts.hpp>
#include <tessera/host/lanes.hpp>
#include <tessera/op/lookup.hpp>

#include <cstdint>

namespace tessera { inline namespace v0 {

/// One pass over all bags of all groups. A bag is summed in registers, a chunk of columns at a
/// time; rows are prefetched ahead across bags and groups. Threads get runs of bags of equal bytes.
template <Element T, IdType Id, int Width, Element Out>
struct op::Kernel<op::Lookup<T, Id, Width, Out>, Host> {
  using Parameters = typename op::Lookup<T, Id, Width, Out>::Parameters;
  using Group = op::LookupGroup<Id, Out>;

  static void run(const Host& backend, const Parameters& p);

 private:
  static constexpr std::int64_t output_distance = 16;  ///< bags ahead

  static void copy_row(Out* to, const T* from) {
    constexpr int lanes = detail::native_lanes;
    for (int c = 0; c < Width; c += lanes) {
      detail::Vector<float, lanes> x;
      detail::load<lanes>(from + c, x);
      detail::store<lanes>(x, to + c);
    }
  }

  template <bool Weighted>
  static void pool(const Parameters& p, const Group& group, std::int64_t first, std::int64_t last,
                   detail::RowPrefetcher<T, Group>& shared_ahead) {
    detail::RowPrefetcher<T, Group> ahead = shared_ahead;
    const op::Bags<Id> bags = group.bags;
    const std::int64_t width = Width != op::dynamic_width ? Width : p.width;
    const T* const base = p.arena + bags.row_bias * width;
    Out* output = group.output + first * group.output_stride;
    std::int64_t begin = bags.begin(first);
    // a stream is foreseen by the processor, columns of a wider matrix are not
    const bool scattered = group.output_stride != width;
    constexpr bool copies =
        !Weighted && Width != op::dynamic_width && Width % detail::native_lanes == 0;
    if constexpr (copies)
      if (bags.offsets == nullptr && bags.bag_scale == nullptr && !scattered) {
        for (std::int64_t bag = first; bag < last; ++bag, output += width) {
          ahead.template step<Width>();
          copy_row(output, base + bags.ids[bag] * width);
        }
        shared_ahead = ahead;
        return;
      }
    for (std::int64_t bag = first; bag < last; ++bag, output += group.output_stride) {
      if (scattered)
        detail::prefetch<true>(output + output_distance * group.output_stride,
                               width * static_cast<std::int64_t>(sizeof(Out)));
      const std::int64_t end = bags.end(bag);
      detail::for_column_chunks<Width>(p.width, [&]<int C>(int column) {
        detail::RowSum<C> sum;
        sum.clear();
        for (std::int64_t i = begin; i < end; ++i) {
          if (column == 0) ahead.template step<Width>();
          const T* row = base + bags.ids[i] * width + column;
          if constexpr (Weighted) {
            sum.add(row, bags.weights[i]);
          } else {
            sum.add(row);
          }
        }
        if (!Weighted && bags.bag_scale != nullptr) sum.scale(bags.bag_scale[bag]);
        sum.store(output + column);
      });
      begin = end;
    }
    shared_ahead = ahead;
  }
};

/// Runs by itself: what the compiler does with its loops does not depend on who calls.
template <Element T, IdType Id, int Width, Element Out>
[[gnu::noinline]] void op::Kernel<op::Lookup<T, Id, Width, Out>, Host>::run(const Host& backend,
                                                                            const Parameters& p) {
  detail::for_bags(backend, p.groups, p.arena, p.width,
                   p.width * static_cast<std::int64_t>(sizeof(Out)),
                   [&](const Group& group, std::int64_t first, std::int64_t last, auto& ahead) {
                     if (group.bags.weights != nullptr) {
                       pool<true>(p, group, first, last, ahead);
                     } else {
                       pool<false>(p, group, first, last, ahead);
                     }
                   });
}

}}  // namespace tessera::v0
