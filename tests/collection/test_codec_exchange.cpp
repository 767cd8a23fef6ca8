// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Codecs under the collection: a user's codec that loses nothing gives the bits of no codec,
// whatever the cut; the library's codecs err and save as they say.
#include <collection/codec_exchange_bodies.hpp>

#include <doctest/doctest.h>

using namespace tessera;
using namespace small_model;

TEST_CASE("a user's codec that loses nothing gives the bits of no codec") {
  encoded::a_users_codec_that_loses_nothing<Host>();
}
TEST_CASE("errors of codecs stay within their bounds, and bytes shrink as they should") {
  encoded::errors_and_bytes<Host>();
}
TEST_CASE("codecs and duplicate removal chosen at run time are those chosen by type, to the bit") {
  encoded::chosen_by_name<Host>();
}
TEST_CASE("outputs in bf16 are those in float, rounded once; updates have the same bits") {
  encoded::outputs_in_bf16<Host>();
}
TEST_CASE("a name that is no codec's, choices that ranks do not share") {
  encoded::wrong_choices_are_refused<Host>();
}

TEST_CASE("same inputs, same bits, whatever the number of threads") {
  const auto once = train_ranks<EncodeWith<Int8, Fp16>>(3, 3, false, 1),
             again = train_ranks<EncodeWith<Int8, Fp16>>(3, 3, false, 2);
  for (std::size_t r = 0; r < 3; ++r) {
    CHECK(same_bits(once[r].outputs, again[r].outputs));
    CHECK(same_bits(once[r].shards, again[r].shards));
  }
}

TEST_CASE("messages and bytes of a step under every policy, counted by hand") {
  encoded::traffic_counted_by_hand<Host>();
}
