// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

// Graphs captured from streams. A captured step must be one that any replay repeats, so a stream
// that is being captured refuses more than CUDA does: allocations, copies from and to pageable
// memory. (CUDA makes nodes of allocations, and of copies that read pageable memory when the graph
// runs.)

namespace simt {

/// A piece of a stream's work: done in one go, and not before `ready`, if there is one, has
/// answered true. A copy is as good as new.
struct Work {
  std::function<void()> run;
  std::function<bool()> ready{};
};

/// A number that depends on `seed` and looks random.
inline std::uint64_t scrambled(std::uint64_t seed) {
  seed = (seed ^ seed >> 30) * 0xbf58476d1ce4e5b9u;
  seed = (seed ^ seed >> 27) * 0x94d049bb133111ebu;
  return seed ^ seed >> 31;
}

}  // namespace simt

struct CUstream_st;
struct CUgraph_st {
  struct Node {
    simt::Work work;
    std::vector<std::size_t> after;  ///< nodes that come before
  };
  std::vector<Node> nodes;
};
using cudaGraph_t = CUgraph_st*;
struct CUgraphExec_st : CUgraph_st {};
using cudaGraphExec_t = CUgraphExec_st*;

namespace simt {

/// A capture under way: of the stream where it began, and of those that were made to wait for it.
struct Capture {
  std::unique_ptr<CUgraph_st> graph = std::make_unique<CUgraph_st>();
  const CUstream_st* origin = nullptr;
  bool ended = false;

  /// Returns the number of the new node.
  std::size_t add(Work work, std::vector<std::size_t> after) {
    graph->nodes.push_back({std::move(work), std::move(after)});
    return graph->nodes.size() - 1;
  }
  /// Whether all nodes come before what follows `last`, which is what CUDA demands of a capture's
  /// end: each fork has been joined.
  bool joined(const std::vector<std::size_t>& last) const {
    std::vector<bool> reached(graph->nodes.size());
    std::vector<std::size_t> open = last;
    while (!open.empty()) {
      const std::size_t node = open.back();
      open.pop_back();
      if (reached[node]) continue;
      reached[node] = true;
      open.insert(open.end(), graph->nodes[node].after.begin(), graph->nodes[node].after.end());
    }
    return std::find(reached.begin(), reached.end(), false) == reached.end();
  }
};

/// An order in which a graph may run: `choose(n)` picks one of n nodes that could be next, the
/// oldest first.
template <class Choose>
std::vector<std::size_t> order_of(const CUgraph_st& graph, Choose choose) {
  std::vector<std::size_t> order, open(graph.nodes.size());
  std::vector<bool> done(graph.nodes.size());
  for (std::size_t i = 0; i < open.size(); ++i) open[i] = i;
  while (!open.empty()) {
    std::vector<std::size_t> candidates;
    for (const std::size_t node : open) {
      const auto& after = graph.nodes[node].after;
      if (std::all_of(after.begin(), after.end(), [&](std::size_t n) { return done[n]; }))
        candidates.push_back(node);
    }
    const std::size_t node = candidates[choose(candidates.size())];
    done[node] = true;
    order.push_back(node);
    std::erase(open, node);
  }
  return order;
}

}  // namespace simt
