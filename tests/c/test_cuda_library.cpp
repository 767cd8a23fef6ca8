// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// libtessera_c's tables on GPUs beside its tables in host memory; and what a caller may give wrong.
#include "gpu_memory.h"
#include "library_cases.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

/// Numbers in the memory of a collection: the host's (`device` -1) or a GPU's.
template <class T>
class Numbers {
 public:
  Numbers(int device, std::vector<T> values)
      : host_(std::move(values)),
        on_gpu_(device < 0 ? nullptr : gpu_allocate(bytes() + sizeof(T))) {
    if (on_gpu_ != nullptr) CHECK(gpu_copy(on_gpu_, host_.data(), bytes()) == 0);
  }
  Numbers(const Numbers&) = delete;
  Numbers& operator=(const Numbers&) = delete;
  ~Numbers() {
    if (on_gpu_ != nullptr) gpu_free(on_gpu_);
  }

  T* data() { return on_gpu_ == nullptr ? host_.data() : static_cast<T*>(on_gpu_); }
  std::size_t size() const { return host_.size(); }
  const std::vector<T>& read() {
    if (on_gpu_ != nullptr) CHECK(gpu_copy(host_.data(), on_gpu_, bytes()) == 0);
    return host_;
  }

 private:
  std::size_t bytes() const { return host_.size() * sizeof(T); }
  std::vector<T> host_;
  void* on_gpu_;
};

/// A batch in the memory of a collection.
struct PlacedBatch {
  PlacedBatch(int device, int step, int rank, int ranks)
      : PlacedBatch(device, Batch(step, rank, ranks)) {}
  PlacedBatch(int device, const Batch& batch)
      : samples(batch.samples),
        ids(device, batch.ids),
        offsets(device, batch.offsets),
        weights(device, batch.weights) {}

  tessera_batch view() {
    return {static_cast<std::int64_t>(kFeatures.size()),
            samples,
            ids.data(),
            ids.size(),
            64,
            offsets.data(),
            weights.data()};
  }

  std::int64_t samples;
  Numbers<std::int64_t> ids, offsets;
  Numbers<float> weights;
};

struct Stream {
  explicit Stream(int device) : stream(device < 0 ? nullptr : gpu_stream(device)) {}
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() {
    if (stream != nullptr) gpu_end_stream(stream);
  }
  void* stream;
};

/// A rank's collection. GPUs' work is done in the order of a stream of its own.
struct PlacedCollection : Stream, Collection {
  explicit PlacedCollection(tessera_communicator* communicator, int device,
                            const char* optimizer = "adam")
      : Stream(device), Collection(communicator, optimizer, device, stream) {}

  std::map<std::string, std::vector<float>> tables() const {
    std::map<std::string, std::vector<float>> all;
    for (const tessera_table& table : kTables) {
      int states = 0;
      ok(tessera_table_states(collection, table.name, -1, &states, nullptr));
      for (int state = -1; state < states; ++state) {
        std::int64_t columns = 0;
        ok(tessera_table_states(collection, table.name, state, nullptr, &columns));
        std::vector<float>& whole = all[table.name + std::to_string(state)];
        whole.resize(static_cast<std::size_t>(table.rows * columns));
        ok(tessera_gather_table(collection, table.name, state, whole.data(), columns));
      }
    }
    return all;
  }
};

/// What training shows: everything that was looked up on a rank, and what is left.
using Seen = std::map<std::string, std::vector<float>>;

void append(std::vector<float>& to, const std::vector<float>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

Seen train(tessera_communicator* communicator, int device) {
  const int ranks = ranks_of(communicator);
  const PlacedCollection made(communicator, device);
  std::map<std::string, std::vector<float>> seen;
  for (int n = 0; n < kSteps; ++n) {
    const bool accumulates = n == 2;
    PlacedBatch batch(device, n, made.rank, ranks);
    const tessera_batch view = batch.view();
    Numbers<float> pooled(device,
                          std::vector<float>(static_cast<std::size_t>(batch.samples * kColumns)));
    ok(tessera_route(made.step, &view));
    ok(tessera_lookup(made.step, pooled.data(), kColumns));
    std::int64_t ids = 0, width = 0;
    ok(tessera_sequence(made.step, 3, nullptr, 0, &ids, &width));
    Numbers<float> sequence(device, std::vector<float>(static_cast<std::size_t>(ids * width)));
    ok(tessera_sequence(made.step, 3, sequence.data(), width, nullptr, nullptr));
    Numbers<float> of_pooled(device, gradient_of(pooled.read(), n)),
        of_sequence(device, gradient_of(sequence.read(), n)),
        of_weights(device, std::vector<float>(batch.ids.size())), dense(device, {3, 4});
    const tessera_sequence_gradient of_d{3, of_sequence.data(), width};
    const tessera_gradients gradients{of_pooled.data(), kColumns, &of_d, 1,
                                      accumulates ? nullptr : of_weights.data()};
    if (accumulates) {
      double norm = 0;
      ok(tessera_accumulate(made.step, &gradients));
      ok(tessera_apply(made.collection, 0.5f, dense.data(), dense.size(), &norm));
      append(seen["clipped"], dense.read());
      append(seen["clipped"], {static_cast<float>(norm)});
    } else {
      ok(tessera_update(made.step, &gradients));
    }
    append(seen["pooled"], pooled.read());
    append(seen["sequences"], sequence.read());
    append(seen["weight gradients"], of_weights.read());
  }
  PlacedBatch last(device, 9, made.rank, ranks);
  const tessera_batch view = last.view();
  Numbers<float> evaluated(device,
                           std::vector<float>(static_cast<std::size_t>(last.samples * kColumns)));
  ok(tessera_evaluate(made.step, &view, evaluated.data(), kColumns));
  append(seen["evaluated"], evaluated.read());
  seen.merge(made.tables());
  CHECK((device < 0 || gpu_current() == 0));  // each call leaves the thread its GPU
  return seen;
}

/// Returns what each rank has seen of f(communicator, rank), on threads.
std::vector<Seen> seen_on_threads(int ranks,
                                  const std::function<Seen(tessera_communicator*, int)>& f) {
  std::vector<Seen> seen(static_cast<std::size_t>(ranks));
  on_threads(ranks, [&](tessera_communicator* communicator) {
    const int rank = rank_of(communicator);
    seen[static_cast<std::size_t>(rank)] = f(communicator, rank);
  });
  return seen;
}

}  // namespace

TEST_CASE("C: tables on a GPU learn what the host's do") {
  for (const int ranks : {1, 2, 3}) {
    CAPTURE(ranks);
    const auto host = seen_on_threads(ranks, [](auto* ranks_, int) { return train(ranks_, -1); });
    const auto gpu = seen_on_threads(ranks, [](auto* ranks_, int) { return train(ranks_, 0); });
    for (std::size_t r = 0; r < host.size(); ++r) {
      REQUIRE(host[r].size() == gpu[r].size());
      for (const auto& seen : host[r]) {
        const std::string& what = seen.first;
        const std::vector<float>& values = seen.second;
        CAPTURE(what);
        const std::vector<float>& others = gpu[r].at(what);
        REQUIRE(others.size() == values.size());
        REQUIRE(!values.empty());
        float most = 0;
        for (std::size_t i = 0; i < values.size(); ++i)
          most = std::max(most, std::abs(values[i] - others[i]));
        CHECK(most < 2e-5f);
        if (what != "clipped") CHECK(gpu[r].at("a-1") == gpu[0].at("a-1"));
      }
    }
  }
}

TEST_CASE("C: a GPU for each rank, by NCCL, gives the bits of ranks that share one") {
  if (gpu_joined() < 2) {
    MESSAGE("no second GPU, or no NCCL");
    return;
  }
  const auto shared = seen_on_threads(2, [](auto* ranks, int) { return train(ranks, 0); });
  const auto by_nccl = seen_on_threads(2, [](auto* ranks, int rank) { return train(ranks, rank); });
  CHECK(by_nccl == shared);
}

TEST_CASE("C: a failure ends the wait of a rank in NCCL") {
  if (gpu_joined() < 2) {
    MESSAGE("no second GPU, or no NCCL");
    return;
  }
  std::vector<tessera_communicator*> all(2);
  ok(tessera_communicator_threads(2, 0, all.data()));
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      const PlacedCollection made(all[static_cast<std::size_t>(r)], r);
      ok(tessera_barrier(all[static_cast<std::size_t>(r)]));  // both have one
      if (r == 1) return ok(tessera_communicator_fail(all[1], "no more data"));
      PlacedBatch batch(0, 0, 0, 2);
      const tessera_batch view = batch.view();
      refused(tessera_route(made.step, &view), TESSERA_COMMUNICATOR_ERROR, "no more data");
    });
  for (std::thread& thread : threads) thread.join();
  for (tessera_communicator* one : all) tessera_communicator_destroy(one);
}

TEST_CASE("C: ranks whose tables are in other kinds of memory are told") {
  seen_on_threads(2, [](auto* ranks, int rank) {
    tessera_layout* layout = nullptr;
    ok(tessera_layout_create(kTables.data(), 1, kFeatures.data(), 1, 2, 0, nullptr, &layout));
    tessera_collection_options options;
    ok(tessera_collection_defaults(&options));
    options.device = rank - 1;
    tessera_collection* none = nullptr;
    refused(tessera_collection_create(ranks, layout, &options, &none), TESSERA_INVALID_ARGUMENT,
            "ranks differ: rank 0 has its tables in host memory, rank 1 on GPU 0");
    tessera_layout_destroy(layout);
    return Seen();
  });
}

TEST_CASE("C: checkpoints and vocabularies are those of the host") {
  const TemporaryFolder folder;
  const std::string saves = folder.path, step_folder = saves + "/step-000000000003";
  tessera_communicator* communicator = alone();
  std::map<std::string, std::vector<float>> saved;
  std::vector<std::int64_t> rows[2];
  for (const int device : {0, -1}) {
    const PlacedCollection made(communicator, device, "rowwise-adagrad:a,sgd:*");
    tessera_vocabulary* vocabulary = nullptr;
    ok(tessera_vocabulary_create(made.collection, 1, &vocabulary));
    PlacedBatch keys(-1, 5, 0, 1);
    const tessera_batch view = keys.view();
    auto& mine = rows[device + 1];
    mine.resize(keys.ids.size());
    if (device == 0) {
      ok(tessera_vocabulary_learn(vocabulary, &view, mine.data()));
      std::vector<float> changed(static_cast<std::size_t>(40 * kWidth), 0.5f);
      ok(tessera_write_table(made.collection, "a", -1, changed.data(), kWidth));
      const std::int64_t anew = 7;
      ok(tessera_reset_rows(made.collection, "a", &anew, 1));
      saved = made.tables();
      CHECK(saved.at("a-1")[6 * kWidth] == 0.5f);
      CHECK(saved.at("a-1")[7 * kWidth] != 0.5f);
      ok(tessera_save(made.collection, vocabulary, saves.c_str(), 3));
    } else {
      ok(tessera_load(made.collection, vocabulary, step_folder.c_str()));
      ok(tessera_vocabulary_find(vocabulary, &view, mine.data()));
      CHECK(made.tables() == saved);
    }
    tessera_vocabulary_destroy(vocabulary);
  }
  CHECK(rows[0] == rows[1]);
  const PlacedCollection again(communicator, 0);
  refused(tessera_load(again.collection, nullptr, step_folder.c_str()), TESSERA_DATA_ERROR,
          "the checkpoint has no 'a.m'");
  tessera_communicator_destroy(communicator);
}

TEST_CASE("C: what is not in the GPU's memory is named, and nothing is done") {
  tessera_communicator* communicator = alone();
  const PlacedCollection made(communicator, 0);
  PlacedBatch good(0, 0, 0, 1), hosts(-1, 0, 0, 1);
  const tessera_batch view = good.view(), wrong = hosts.view();
  Numbers<float> output(0, std::vector<float>(kSamples * kColumns));
  std::vector<float> host(kSamples * kColumns);
  for (const auto& [member, what] :
       {std::pair(0, "ids"), std::pair(1, "offsets"), std::pair(2, "weights")}) {
    tessera_batch mixed = view;
    if (member == 0) mixed.ids = wrong.ids;
    if (member == 1) mixed.offsets = wrong.offsets;
    if (member == 2) mixed.weights = wrong.weights;
    refused(tessera_route(made.step, &mixed), TESSERA_INVALID_ARGUMENT,
            std::string("tessera_route: ") + what + " is in host memory");
    refused(tessera_evaluate(made.step, &mixed, output.data(), kColumns), TESSERA_INVALID_ARGUMENT,
            std::string("tessera_evaluate: ") + what + " is in host memory");
  }
  ok(tessera_route(made.step, &view));
  refused(tessera_lookup(made.step, host.data(), kColumns), TESSERA_INVALID_ARGUMENT,
          "output is in host memory; this collection's tables, and all that its steps read and "
          "write, are on GPU 0");
  ok(tessera_lookup(made.step, output.data(), kColumns));
  std::int64_t ids = 0;
  ok(tessera_sequence(made.step, 3, nullptr, 0, &ids, nullptr));
  Numbers<float> of_sequence(0, std::vector<float>(static_cast<std::size_t>(ids * kWidth)));
  refused(tessera_sequence(made.step, 3, host.data(), kWidth, nullptr, nullptr),
          TESSERA_INVALID_ARGUMENT, "output is in host memory");
  const tessera_sequence_gradient of_d{3, of_sequence.data(), kWidth},
      of_host{3, host.data(), kWidth};
  for (const auto& [gradients, what] :
       {std::pair(tessera_gradients{host.data(), kColumns, &of_d, 1, nullptr}, "gradients.pooled"),
        std::pair(tessera_gradients{output.data(), kColumns, &of_host, 1, nullptr},
                  "a sequence's gradient"),
        std::pair(tessera_gradients{output.data(), kColumns, &of_d, 1, host.data()},
                  "gradients.weight_gradients")})
    refused(tessera_update(made.step, &gradients), TESSERA_INVALID_ARGUMENT,
            what + std::string(" is in host memory"));
  const tessera_gradients gradients{output.data(), kColumns, &of_d, 1, nullptr};
  ok(tessera_accumulate(made.step, &gradients));
  refused(tessera_apply(made.collection, 1, host.data(), 2, nullptr), TESSERA_INVALID_ARGUMENT,
          "dense is in host memory");
  ok(tessera_apply(made.collection, 0, nullptr, 0, nullptr));

  // A bad id of a GPU's batch is told at the latest when it is asked for.
  PlacedBatch bad(0, 1, 0, 1);
  const std::int64_t beyond = 40;
  CHECK(gpu_copy(bad.ids.data(), &beyond, sizeof(beyond)) == 0);
  const tessera_batch bad_view = bad.view();
  tessera_status status = tessera_route(made.step, &bad_view);
  if (status == TESSERA_OK) status = tessera_lookup(made.step, output.data(), kColumns);
  std::uint64_t counts[4];
  if (status == TESSERA_OK) status = tessera_bad_ids(made.collection, counts, 4);
  refused(status, TESSERA_BAD_ID, "40");

  tessera_layout* layout = nullptr;
  ok(tessera_layout_create(kTables.data(), 1, kFeatures.data(), 1, 1, 0, nullptr, &layout));
  tessera_collection_options options;
  ok(tessera_collection_defaults(&options));
  tessera_collection* none = nullptr;
  const auto create = [&] {
    return tessera_collection_create(communicator, layout, &options, &none);
  };
  options.device = 99;
  refused(create(), TESSERA_INVALID_ARGUMENT, "options.device of rank 0 is 99, but CUDA sees ");
  options.device = -2;
  refused(create(), TESSERA_INVALID_ARGUMENT, "options.device is -2; give -1 (host memory)");
  options.device = -1;
  options.stream = made.stream;
  refused(create(), TESSERA_INVALID_ARGUMENT, "options.stream is of a GPU");
  CHECK(none == nullptr);
  tessera_layout_destroy(layout);
  tessera_communicator_destroy(communicator);
}
