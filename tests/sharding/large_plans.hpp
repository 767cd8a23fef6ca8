// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Plans that compilers check within their default limits of constant evaluation: g++, clang, nvcc.
#pragma once

#include <tessera/planner/auto_plan.hpp>
#include <tessera/sharding/plan.hpp>
#include <tessera/sharding/policies.hpp>

#include <array>
#include <string_view>

namespace tessera::test {

template <int N>
struct Names {
  std::array<std::array<char, 4>, N> text{};
  constexpr Names() {
    for (int i = 0; i < N; ++i)
      text[i] = {'t', static_cast<char>('0' + i / 100), static_cast<char>('0' + i / 10 % 10),
                 static_cast<char>('0' + i % 10)};
  }
};
template <int N>
inline constexpr Names<N> kNames{};
template <int N>
inline constexpr auto kManyTables = [] {
  std::array<TableSpec, N> specs{};
  for (int i = 0; i < N; ++i)
    specs[i] = {
        .name = std::string_view(kNames<N>.text[i].data(), 4), .rows = 1000 + i, .width = 16};
  return specs;
}();

// Not by the checked standard library, whose own checks take most of clang's steps.
#ifndef _GLIBCXX_ASSERTIONS
using ManyColumns = Plan<ColumnWise<1024, Table<"wide", 100'000, 1024>>>;
using ManyRectangles = Plan<Grid<257, Table<"wide", 100'000, 257>>>;
using ManyTables = Plan<TableWise<Tables<kManyTables<1000>>>>;
static_assert(ManyColumns::widths[0] == 1 && ManyRectangles::widths[0] == 1);
static_assert(ManyTables::table_count == 1000);
/// With places, as `fits` needs them.
static_assert(Plan<TableWise<Tables<kManyTables<600>>>>::layout({8}).fault.ok());
/// In rounds, each in an evaluation of its own.
using ManyChosen = AutoPlan<Tables<kManyTables<300>>, dgx_a100(8), Workload{}>;
static_assert(ManyChosen::widths.size() > 0);
#endif

}  // namespace tessera::test
