// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Ranks that do not mean the same: found when the collection is constructed, or, asked for, at each
// stage; and what a plan asks of a communicator.
#include <collection/agreement_bodies.hpp>

#include <doctest/doctest.h>

using namespace tessera;

namespace {

using disagreeing::Query;
using disagreeing::User;
template <class P>
constexpr Collective kNeeds = EmbeddingCollection<P, Sgd, Host, ThreadCommunicator>::needs;
static_assert(kNeeds<Plan<Replicated<Query>, Replicated<User>>> == Collective::all_gather);
static_assert(kNeeds<Plan<RowWise<Query>, ColumnWise<2, User>>> == Collective::all_to_all);
static_assert(kNeeds<Plan<RowWise<Query>, Replicated<User>>> ==
              (Collective::all_gather | Collective::all_to_all));

}  // namespace

TEST_CASE("ranks that construct different things say what differs and where") {
  disagreeing::ranks_construct_different_things<Host>();
}
TEST_CASE("ranks with different types: optimizer, elements, codecs") {
  disagreeing::ranks_with_different_types<Host>();
}
TEST_CASE("ids of different types in one batch") { disagreeing::ids_of_different_types<Host>(); }
TEST_CASE("stages are compared where that is asked for") {
  disagreeing::stages_are_compared<Host>();
}
TEST_CASE("learning rates that differ between ranks are refused where ranks meet") {
  disagreeing::learning_rates_are_compared<Host>();
}
TEST_CASE(
    "a plan of replicated tables needs all_gather alone, and gives what any communicator gives") {
  disagreeing::replicas_need_all_gather_alone<Host>();
}
