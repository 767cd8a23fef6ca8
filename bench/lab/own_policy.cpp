// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A policy of one's own in the laboratory: docs/laboratory.md.
// [program]
#include "run_lab.hpp"

/// Rows in turn, the last rank first.
struct Backwards {
  static constexpr const char* name = "backwards";
  static constexpr int count(const tessera::TableSpec&, const tessera::Topology& t) {
    return t.ranks;
  }
  static constexpr tessera::ShardRequest shard(const tessera::TableSpec& table,
                                               const tessera::Topology& t, int i) {
    const auto cut = [&](int part) { return table.rows * part / t.ranks; };
    return {{cut(i), cut(i + 1), 0, table.width},
            {.kind = tessera::Place::Kind::rank, .index = t.ranks - 1 - i}};
  }
};

int main(int argc, char** argv) { return lab::run_lab<Backwards>(argc, argv); }
// [program end]
