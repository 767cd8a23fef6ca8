// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/thread_communicator.hpp>
#include <tessera_data/broadcasting_loader.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace ts = tessera;
using Batch = ts::ClickBatch<std::int32_t>;
using Loader = ts::BroadcastingLoader<std::int32_t, ts::ThreadCommunicator>;

namespace {

/// Every value says which sample of which batch it is: no generator to trust.
float label_of(int batch, std::int64_t sample) { return static_cast<float>(1000 * batch + sample); }
std::int32_t id_of(int batch, std::int64_t feature, std::int64_t sample, std::int64_t i) {
  return static_cast<std::int32_t>(((batch * 10 + feature) * 1000 + sample) * 10 + i);
}
std::int64_t bag_size(std::int64_t feature, std::int64_t sample) { return (feature + sample) % 4; }

Batch global_batch(int number, std::int64_t size, bool one_hot) {
  Batch b{.size = size,
          .features = 3,
          .dense_columns = 2,
          .labels = {},
          .dense = {},
          .ids = {},
          .offsets = {}};
  for (std::int64_t s = 0; s < size; ++s) {
    b.labels.push_back(label_of(number, s));
    b.dense.insert(b.dense.end(), {label_of(number, s) + 0.25f, label_of(number, s) + 0.5f});
  }
  if (!one_hot) b.offsets.push_back(0);
  for (std::int64_t f = 0; f < 3; ++f)
    for (std::int64_t s = 0; s < size; ++s) {
      for (std::int64_t i = 0; i < (one_hot ? 1 : bag_size(f, s)); ++i)
        b.ids.push_back(id_of(number, f, s, i));
      if (!one_hot) b.offsets.push_back(static_cast<std::int64_t>(b.ids.size()));
    }
  return b;
}

void check_part(const Batch& part, int number, std::int64_t first, std::int64_t count,
                bool one_hot) {
  REQUIRE(part.size == count);
  REQUIRE(part.features == 3);
  REQUIRE(part.dense_columns == 2);
  REQUIRE(std::ssize(part.labels) == count);
  REQUIRE(std::ssize(part.dense) == 2 * count);
  CHECK(part.offsets.size() == (one_hot ? 0u : static_cast<std::size_t>(3 * count + 1)));
  const auto keyed = part.keyed();
  std::size_t at = 0;
  for (std::int64_t s = 0; s < count; ++s) {
    CHECK(part.labels[static_cast<std::size_t>(s)] == label_of(number, first + s));
    CHECK(part.dense[static_cast<std::size_t>(2 * s + 1)] == label_of(number, first + s) + 0.5f);
  }
  for (std::int64_t f = 0; f < 3; ++f)
    for (std::int64_t s = 0; s < count; ++s) {
      for (std::int64_t i = 0; i < (one_hot ? 1 : bag_size(f, first + s)); ++i)
        CHECK(keyed.ids[at++] == id_of(number, f, first + s, i));
      if (!one_hot)
        CHECK(part.offsets[static_cast<std::size_t>(f * count + s + 1)] ==
              static_cast<std::int64_t>(at));
    }
  CHECK(at == part.ids.size());
}

}  // namespace

TEST_CASE("every rank gets its samples, batch by batch, until the end") {
  // 11 samples over 4 ranks: 3 3 3 2. The second batch leaves a rank without any, the third is
  // empty.
  const std::vector<std::int64_t> sizes{11, 3, 0, 8};
  for (const bool prefetch : {false, true})
    for (const bool one_hot : {false, true})
      for (const int root : {0, 2}) {
        CAPTURE(prefetch);
        CAPTURE(one_hot);
        CAPTURE(root);
        std::mutex doctest_is_not_thread_safe_in_captures;
        ts::run_ranks(4, [&](ts::ThreadCommunicator& c) {
          int number = 0;
          const auto read = [&](Batch& whole) {
            if (number == 4) return false;
            whole = global_batch(number, sizes[static_cast<std::size_t>(number)], one_hot);
            ++number;
            return true;
          };
          Loader loader(c, c.rank() == root ? Loader::Read(read) : Loader::Read(),
                        {.root = root, .prefetch = prefetch});
          Batch part;
          for (int batch = 0; batch < 4; ++batch) {
            REQUIRE(loader.next(part));
            const std::int64_t size = sizes[static_cast<std::size_t>(batch)], r = c.rank();
            const auto cut = [&](std::int64_t i) { return size / 4 * i + std::min(i, size % 4); };
            const std::lock_guard lock(doctest_is_not_thread_safe_in_captures);
            check_part(part, batch, cut(r), cut(r + 1) - cut(r), one_hot);
          }
          CHECK_FALSE(loader.next(part));
          CHECK_FALSE(loader.next(part));
        });
      }
}

TEST_CASE("an error of the reader is every rank's, and the loader can go on") {
  for (const bool prefetch : {false, true}) {
    std::vector<std::string> texts(3);
    ts::run_ranks(3, [&](ts::ThreadCommunicator& c) {
      int calls = 0;
      Loader loader(c,
                    [&](Batch& whole) {
                      if (++calls == 2) throw std::runtime_error("line 41 has 3 fields");
                      whole = global_batch(calls, 6, true);
                      return calls < 4;
                    },
                    {.prefetch = prefetch});
      Batch part;
      CHECK(loader.next(part));
      try {
        loader.next(part);
      } catch (const ts::DataError& error) {
        texts[static_cast<std::size_t>(c.rank())] = error.what();
      }
      CHECK(loader.next(part));
      CHECK(part.labels[0] == label_of(3, 2 * c.rank()));
      CHECK_FALSE(loader.next(part));
      CHECK(calls == (c.rank() == 0 ? 4 : 0));
    });
    for (const std::string& text : texts)
      CHECK(text == "rank 0, which reads for all: line 41 has 3 fields");
  }
}

TEST_CASE("a rank that fails ends the others' wait for the next batch") {
  ts::ThreadGroup group(2);
  ts::ThreadCommunicator c(group, 0);
  Loader loader(c, [](Batch& whole) { return whole = global_batch(0, 4, true), true; });
  std::thread failing([&] { group.fail(1, "the disk is full"); });
  Batch part;
  CHECK_THROWS_WITH_AS(
      loader.next(part),
      "broadcast (call 1) on rank 0 cannot finish: rank 1 failed: the disk is full",
      ts::CommunicatorError);
  failing.join();
}

TEST_CASE("bad arguments") {
  ts::ThreadGroup group(1);
  ts::ThreadCommunicator c(group, 0);
  CHECK_THROWS_WITH_AS(Loader(c, {}),
                       "BroadcastingLoader: rank 0 reads, but was given no function to read with",
                       ts::InvalidArgument);
  CHECK_THROWS_AS(Loader(c, {}, {.root = 1}), ts::InvalidArgument);
}
