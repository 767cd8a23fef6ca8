// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Tables of more than 2^31 elements, of more than 2^31 and more than 2^32 rows: lookup and update
// reach the right ones. The memory is mapped and never touched but for a few rows.
#include <tessera/host/lookup.hpp>
#include <tessera/host/update.hpp>
#include <tessera/optimizer/optimizers.hpp>

#include <doctest/doctest.h>
#include <sys/mman.h>

#include <cstdint>
#include <span>
#include <vector>

using namespace tessera;

namespace {

struct Mapping {
  std::size_t bytes;
  void* data;
  explicit Mapping(std::size_t size)
      : bytes(size),
        data(mmap(nullptr, size, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    if (data != MAP_FAILED) madvise(data, size, MADV_NOHUGEPAGE);
  }
  ~Mapping() {
    if (data != MAP_FAILED) munmap(data, bytes);
  }
};

template <class T, int Width>
void check(std::int64_t rows, int width) {
  const Mapping mapping(static_cast<std::size_t>(rows) * static_cast<std::size_t>(width) *
                        sizeof(T));
  if (mapping.data == MAP_FAILED) {
    MESSAGE("no address space for " << mapping.bytes << " bytes: skipped");
    return;
  }
  T* const table = static_cast<T*>(mapping.data);
  std::vector<std::int64_t> ids{rows - 1, 0, rows / 2, rows - 1, (std::int64_t{1} << 31) / width};
  // the last row's low 32 bits
  if (rows > std::int64_t{1} << 32) ids.push_back(rows - 1 - (std::int64_t{1} << 32));
  const auto row = [&](std::int64_t id) { return table + id * width; };
  for (std::size_t i = 0; i < ids.size(); ++i)
    for (int c = 0; c < width; ++c)
      row(ids[i])[c] = from_float<T>(static_cast<float>(ids[i] % 7 + c));
  const op::Bags<std::int64_t> bags{.ids = ids.data(), .bags = std::ssize(ids)};
  std::vector<float> output(ids.size() * static_cast<std::size_t>(width));
  const std::vector<op::LookupGroup<std::int64_t>> lookups{{bags, output.data(), width}};
  op::run<op::Lookup<T, std::int64_t, Width>>(Host(), {table, width, lookups});
  for (std::size_t i = 0; i < ids.size(); ++i)
    for (int c = 0; c < width; ++c)
      CHECK(output[i * static_cast<std::size_t>(width) + static_cast<std::size_t>(c)] ==
            static_cast<float>(ids[i] % 7 + c));

  const std::vector<float> gradient(output.size(), -1.0f);
  const std::vector<op::GradientGroup<std::int64_t>> gradients{{bags, gradient.data(), width}};
  const std::vector<op::ArenaSegment> segments{{0, rows, 1, 0, 0}};
  op::ArenaState<T, Sgd> state;
  state.arena = table;
  state.rows = rows;
  state.width = width;
  state.segments = segments;
  op::run<op::Update<T, std::int64_t, Width, Sgd>>(Host(), {state, Sgd{}.at(1.0f, 1), gradients});
  for (const std::int64_t id : ids)
    for (int c = 0; c < width;
         ++c)  // the last row is there twice; small whole numbers are exact in every type
      CHECK(to_float(row(id)[c]) == static_cast<float>(id % 7 + c + (id == rows - 1 ? 2 : 1)));
  CHECK(to_float(row(1)[0]) == 0);
  CHECK(to_float(row(rows - 2)[width - 1]) == 0);
}

}  // namespace

TEST_CASE("more than 2^31 elements") { check<float, 16>((std::int64_t{1} << 27) + 10, 16); }
TEST_CASE("more than 2^31 rows") {
  check<BFloat16, op::dynamic_width>((std::int64_t{1} << 31) + 100, 1);
}
TEST_CASE("more than 2^32 rows") {
  check<BFloat16, op::dynamic_width>((std::int64_t{1} << 32) + 100, 1);
  check<BFloat16, 64>((std::int64_t{1} << 32) + 100, 64);
}
