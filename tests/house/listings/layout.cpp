// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A listing of docs/concepts/collection.md; house.listings compiles it.
#include <tessera/planner.hpp>
#include <tessera/tessera.hpp>

#include <vector>

namespace ts = tessera;

// [layout]
// The widths that kernels are compiled for; parts of other widths are served by kernels for any.
using Embeddings =
    ts::LayoutCollection<ts::Widths<16, 64>, ts::RowWiseAdagrad, ts::Host, ts::ThreadCommunicator>;

ts::Layout rows_on_all_ranks(int ranks) {
  const std::vector<ts::TableSpec> tables{{.name = "user", .rows = 50'000, .width = 64}};
  ts::Layout layout = ts::uncut_layout({ranks}, tables);  // one feature per table
  layout.shards = ts::shards_of(ts::strategy_choice(ts::Strategy::row_wise, layout), layout);
  return layout;
}
// [layout end]

void use(ts::ThreadCommunicator& communicator, const ts::KeyedJagged<int>& ids) {
  Embeddings embeddings(communicator, ts::Host(), rows_on_all_ranks(communicator.size()), {});
  embeddings.forward(ids);
}
