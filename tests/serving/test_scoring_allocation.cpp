// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A model that has scored once takes no more memory: counted in operator new.
#include <tessera/dense/mlp.hpp>
#include <tessera_serving/frozen_model.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include <serving/saved_history.hpp>
#include <serving/saved_model.hpp>

using namespace tessera;

namespace {

std::atomic<std::int64_t> allocations{0};

}  // namespace

void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* const p = std::malloc(bytes)) return p;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return std::malloc(bytes); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

TEST_CASE("what has run once allocates nothing, but for oneDNN") {
  using namespace saved_model;
  const Saved saved(description("dot"));
  const FrozenModel model(saved.checkpoint);
  // what a matrix product allocates
  Mlp<> bottom({2, 7, kWidth}, {.last_relu = true}), top({16, 9, 1});
  std::vector<float> parameters(static_cast<std::size_t>(bottom.parameter_count())),
      others(static_cast<std::size_t>(top.parameter_count())), x(1024 * 16), y(1024 * 16);
  bottom.bind(parameters, parameters);
  top.bind(others, others);
  bottom.keep_weights();
  top.keep_weights();
  std::int64_t expected = 0;
  for (const std::int64_t rows : {1024, 64, 64}) {
    const std::int64_t before = allocations;
    bottom.forward({x.data(), rows, 2}, {y.data(), rows, kWidth});
    top.forward({x.data(), rows, 16}, {y.data(), rows, 1});
    expected = allocations - before;
  }
  const Samples samples(2, 64);
  const ModelColumns columns = samples.columns();
  EncodedSamples encoded;
  std::vector<float> scores(64);
  for (int i = 0; i < 3; ++i) {
    const std::int64_t before = allocations;
    model.inputs().encode(columns, encoded);
    model.score(encoded, scores);
    if (i > 0) CHECK(allocations - before == expected);
  }
}

TEST_CASE("histories that have been as long allocate nothing, but for oneDNN's last product") {
  const saved_history::Saved saved(saved_history::description(true));
  const FrozenModel model(saved.checkpoint);
  const saved_history::Samples samples(2, 64, 2);
  Linear head(saved_history::kWidth, 1);
  std::vector<float> parameters(static_cast<std::size_t>(head.parameter_count())), x(64 * 16),
      y(64);
  head.bind(parameters, parameters);
  head.keep_weights();
  const ModelColumns columns = samples.columns();
  EncodedSamples encoded;
  std::vector<float> scores(64);
  for (int i = 0; i < 3; ++i) {
    const std::int64_t start = allocations;
    head.forward({x.data(), 64, saved_history::kWidth}, {y.data(), 64, 1});
    const std::int64_t before = allocations;
    model.inputs().encode(columns, encoded);
    model.score(encoded, scores);
    if (i > 0) CHECK(allocations - before == before - start);
  }
}
