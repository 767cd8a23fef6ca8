// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Collections over the doubles of NCCL and the CUDA runtime, beside thread ranks: the same bits,
// and what is NCCL's alone.
#include <nccl_double/nccl.h>

#include <nccl/on_ranks.hpp>

#include <collection/group_bodies.hpp>
#include <collection/sequence_bodies.hpp>
#include <support/small_model.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

using namespace small_model;

namespace {

constexpr int ranks = 3, steps = 4;
template <class Comm>
using E = Embeddings<Comm, EncodeWithOneOf<Fp32, Int8>>;

/// Every rank's training, with codecs of both ways and without duplicates if asked.
template <class Comm, class Start>
std::vector<Result> train_over(const Start& start, const std::string& codec, bool deduplicate) {
  std::vector<Result> results(ranks);
  start([&](Comm& c) {
    E<Comm> e(c, Host{}, layout(ranks, true),
              {.learning_rate = 0.125f,
               .seed = 7,
               .forward_codec = codec,
               .backward_codec = codec,
               .deduplicate = deduplicate});
    results[static_cast<std::size_t>(c.rank())] = train(e, c.rank(), steps);
  });
  return results;
}

}  // namespace

TEST_CASE("over NCCL all blocks begin at multiples of 16 bytes, and training has the same bits") {
  for (const std::string codec : {"fp32", "int8"})
    for (const bool deduplicate : {false, true}) {
      CAPTURE(codec);
      CAPTURE(deduplicate);
      const auto before = nccl_double::unaligned_blocks.load();
      const std::vector<Result> over_nccl = train_over<NcclCommunicator>(
          [](auto body) {
            CHECK(on_ranks(ranks, [&](NcclCommunicator& c, auto) { body(c); }) == Texts(ranks));
          },
          codec, deduplicate);
      CHECK(nccl_double::unaligned_blocks == before);
      const std::vector<Result> over_threads = train_over<ThreadCommunicator>(
          [](auto body) { run_ranks(ranks, body); }, codec, deduplicate);
      for (std::size_t r = 0; r < ranks; ++r) {
        CHECK(!over_nccl[r].shards.empty());
        CHECK(same_bits(over_nccl[r].outputs, over_threads[r].outputs));
        CHECK(same_bits(over_nccl[r].weight_gradients, over_threads[r].weight_gradients));
        CHECK(same_bits(over_nccl[r].shards, over_threads[r].shards));
      }
    }
}

TEST_CASE("sequences and max pooling over NCCL, one rank without a history: the same bits") {
  const auto seen_by = [](auto& c) {
    E<std::remove_cvref_t<decltype(c)>> e(c, Host{}, sequences::layout(ranks, sequences::Cut::both),
                                          {.learning_rate = 0.125f, .seed = 7});
    const sequences::OfRank seen =
        sequences::train_rank(e, ranks, c.rank(), steps, sequences::Give::ids);
    std::vector<float> all = shards_of(e);
    for (const auto* steps_of : {&seen.pooled, &seen.vectors})
      for (const std::vector<float>& some : *steps_of)
        all.insert(all.end(), some.begin(), some.end());
    return all;
  };
  std::vector<std::vector<float>> over_nccl(ranks), over_threads(ranks);
  CHECK(on_ranks(ranks, [&](NcclCommunicator& c, auto) {
          over_nccl[static_cast<std::size_t>(c.rank())] = seen_by(c);
        }) == Texts(ranks));
  run_ranks(ranks, [&](ThreadCommunicator& c) {
    over_threads[static_cast<std::size_t>(c.rank())] = seen_by(c);
  });
  for (std::size_t r = 0; r < ranks; ++r) {
    CHECK(over_nccl[r].size() > 1000);
    CHECK(same_bits(over_nccl[r], over_threads[r]));
  }
}

TEST_CASE(
    "training groups, accumulated and clipped, over NCCL: the same bits, one all-reduce a step") {
  std::vector<std::vector<float>> over_nccl(ranks), over_threads(ranks);
  CHECK(on_ranks(ranks, [&](NcclCommunicator& c, auto) {
          nccl_double::log.clear();
          over_nccl[static_cast<std::size_t>(c.rank())] = groups::accumulate_and_clip(c, Host{});
          CHECK(std::ranges::count_if(nccl_double::log, [](const std::string& call) {
                  return call.find("AllReduce") != std::string::npos;
                }) == 2);
        }) == Texts(ranks));
  run_ranks(ranks, [&](ThreadCommunicator& c) {
    over_threads[static_cast<std::size_t>(c.rank())] = groups::accumulate_and_clip(c, Host{});
  });
  for (std::size_t r = 0; r < ranks; ++r) {
    CHECK(over_nccl[r].size() > 1000);
    CHECK(over_nccl[r][0] > 2);
    CHECK(same_bits(over_nccl[r], over_threads[r]));
  }
}

TEST_CASE(
    "batches routed ahead over NCCL: one order of all calls, and the bits of routing in turn") {
  using Over = E<NcclCommunicator>;
  static_assert(detail::Interruptible<NcclCommunicator>);
  const auto run = [&](bool ahead, std::vector<Result>& results, std::vector<Texts>& logs) {
    CHECK(on_ranks(ranks, [&](NcclCommunicator& c, auto) {
            const auto rank = static_cast<std::size_t>(c.rank());
            NcclCommunicator second = c.split(0);
            Over e(c, Host{}, layout(ranks, true),
                   {.learning_rate = 0.125f, .seed = 7, .deduplicate = true});
            std::vector<Batch> batches;
            for (int step = 0; step < steps; ++step)
              batches.emplace_back(c.rank(), step, samples_of(c.rank(), step), e.columns());
            nccl_double::log.clear();
            Result& mine = results[rank];
            const auto finish = [&](const auto& pooled, const Batch& batch) {
              mine.outputs.insert(mine.outputs.end(), pooled.values.data,
                                  pooled.values.data + batch.samples * e.columns());
              e.backward(pooled, {batch.gradient.data(), batch.samples, e.columns()});
            };
            if (ahead) {
              RouteAhead<Over, std::int64_t, NcclCommunicator, Host> route(e, second, Host{});
              std::vector<float> output;
              route.start(batches[0].keyed());
              for (std::size_t step = 0; step < steps; ++step) {
                output.assign(batches[step].gradient.size(), 0.0f);
                const auto pooled = e.forward_routed(
                    route.take(), {output.data(), batches[step].samples, e.columns()});
                if (step + 1 < steps) route.start(batches[step + 1].keyed());
                finish(pooled, batches[step]);
              }
            } else {
              for (const Batch& batch : batches) finish(e.forward(batch.keyed()), batch);
            }
            for (const std::string& call : nccl_double::log)  // without counts and peers
              logs[rank].push_back(call.substr(0, call.find(' ')));
            mine.shards = shards_of(e);
          }) == Texts(ranks));
  };
  std::vector<Result> in_turn(ranks), ahead(ranks);
  std::vector<Texts> logs_in_turn(ranks), logs(ranks);
  run(false, in_turn, logs_in_turn);
  run(true, ahead, logs);
  for (std::size_t r = 0; r < ranks; ++r) {
    CHECK(!in_turn[r].shards.empty());
    CHECK((ahead[r].outputs == in_turn[r].outputs));
    CHECK((ahead[r].shards == in_turn[r].shards));
    // The thread that calls `start` makes all of NCCL's calls: as many as in turn.
    CHECK(logs[r].size() == logs_in_turn[r].size());
  }
}
