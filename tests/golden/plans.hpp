// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/tessera.hpp>

#include <cstdlib>
#include <string>
#include <vector>

namespace golden {

namespace ts = tessera;

template <ts::FixedString Name, class PlanT>
struct Named {
  static constexpr auto name = Name.view();
  using plan = PlanT;
};

template <class... Plans>
struct PlanList {
  template <class F>
  static void for_each(F&& f) {
    (f(Plans{}), ...);
  }
};

/// Arguments: FILE [RANKS...].
struct Arguments {
  std::string file;
  std::vector<int> ranks;

  Arguments(int argc, char** argv) : file(argc > 1 ? argv[1] : "") {
    for (int i = 2; i < argc; ++i) ranks.push_back(std::atoi(argv[i]));
    if (ranks.empty()) ranks = {1, 2, 3, 4, 8};
  }
};

/// Ranks of an even number sit on two nodes, so that Grid has something to do.
inline int ranks_per_node(int ranks) { return ranks % 2 == 0 ? ranks / 2 : 0; }

}  // namespace golden
