// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/element.hpp>
#include <tessera/op/bags.hpp>
#include <tessera/op/kernel.hpp>

#include <cstdint>
#include <span>

namespace tessera { inline namespace v0 { namespace op {

/// Bags and where their pooled vectors go: bag b to output + b * output_stride, `width` elements.
template <IdType Id, Element Out = float>
struct LookupGroup {
  Bags<Id> bags;
  Out* output = nullptr;
  std::int64_t output_stride = 0;
};

/// Gathers and pools. For every bag: the sum over its ids, in their order, of weights[i] * row (or
/// of the rows, then scaled by bag_scale[b]), in float; where outputs have 16 bits, rounded to
/// nearest even. An empty bag gives zeros. All groups of all tables of one width are served by one
/// call.
template <Element T, IdType Id, int Width, Element Out = float>
struct Lookup {
  struct Parameters {
    const T* arena = nullptr;  ///< rows x width, row-major, 64-byte aligned
    int width = Width;         ///< equals Width unless that is dynamic_width
    std::span<const LookupGroup<Id, Out>> groups{};
  };
};

}}}  // namespace tessera::v0::op
