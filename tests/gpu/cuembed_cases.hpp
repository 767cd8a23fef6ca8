// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// cuEmbed's functions on the shapes of its tests, batches smaller, against plain loops. Values are
// multiples of 1/4 and weights powers of two, so that sums are exact in any order.

#include <tessera/cuembed.cuh>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <gpu/device.hpp>
#include <gpu/graph.hpp>
#include <support/message_of.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using namespace tessera;
using tessera::cuembed::CombineMode;

// The types of cuEmbed's functions, by hand from its documentation.
static_assert(std::is_same_v<decltype(&cuembed::EmbeddingForward<float, __half, int, long, false>),
                             void (*)(const float*, int, const int*, const long*, const float*, int,
                                      int, CombineMode, __half*, cudaStream_t)>);
static_assert(std::is_same_v<decltype(&cuembed::Transpose<int, float>),
                             void (*)(const int*, const int*, const float*, int, int*, int*, float*,
                                      char*, std::size_t*, cudaStream_t)>);
[[maybe_unused]] constexpr void (*backward_on_a_stream)(
    const __half*, int, int, int, const int*, const int*, const int*, const __half*, bool, __half*,
    int*, cudaStream_t) = &cuembed::EmbeddingBackward<__half, int>;
static_assert(std::is_same_v<decltype(&cuembed::ComputeCompressedGradIndices<int>),
                             void (*)(const int*, int, int*, char*, std::size_t*, cudaStream_t)>);
static_assert(std::is_same_v<decltype(&cuembed::ExtractRowIdsFromFixed<int>),
                             void (*)(int, int, int*, cudaStream_t)>);
static_assert(std::is_same_v<decltype(&cuembed::ExtractRowIdsFromCSR<int, long>),
                             void (*)(const long*, int, int*, cudaStream_t)>);
static_assert(std::is_same_v<decltype(&cuembed::ExtractRowIdsForConcat<int>),
                             void (*)(int, int*, cudaStream_t)>);

template <class T>
using Plain = typename cuembed::detail::ElementOf<T>::Type;

/// Numbers and their sums as the types of a caller have them, __half among them.
template <class T>
T of(float x) {
  return std::bit_cast<T>(from_float<Plain<T>>(x));
}
template <class T>
float value(T x) {
  return to_float(std::bit_cast<Plain<T>>(x));
}
/// As floats: the sign of a sum of 0 depends on what it began with.
template <class T>
std::vector<float> floats_of(const std::vector<T>& values) {
  std::vector<float> floats;
  for (const T& x : values) floats.push_back(value(x));
  return floats;
}

template <class T>
std::vector<T> quarters(Random& random, std::int64_t count) {
  std::vector<T> values;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(of<T>(static_cast<float>(random_below(random, 17) - 8) / 4));
  return values;
}
template <class T>
std::vector<T> powers(Random& random, std::int64_t count) {
  constexpr float choices[] = {0.5f, 1, 2, -1, -0.5f};
  std::vector<T> values;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(of<T>(choices[random_below(random, 5)]));
  return values;
}

struct Shape {
  int batch, width, hots;
  CombineMode mode = CombineMode::kSum;
  bool csr = false, weighted = false, compressed = false;
  int rows = 50;
  bool skips_init = false;
};

/// One batch: ids of each sample, in CSR from none to 2 hots - 1 of them.
template <class T, class Id>
struct Batch {
  std::vector<Id> ids, samples;
  std::vector<int> offsets{0};
  std::vector<T> weights, table;

  Batch(Random& random, const Shape& shape) : table(quarters<T>(random, shape.rows * shape.width)) {
    for (int s = 0; s < shape.batch; ++s) {
      const std::int64_t count = shape.csr ? random_below(random, 2 * shape.hots) : shape.hots;
      for (std::int64_t i = 0; i < count; ++i) {
        ids.push_back(static_cast<Id>(random_below(random, shape.rows)));
        samples.push_back(static_cast<Id>(
            shape.mode == CombineMode::kConcat ? static_cast<std::int64_t>(samples.size()) : s));
      }
      offsets.push_back(static_cast<int>(ids.size()));
    }
    weights = powers<T>(random, std::ssize(ids));
  }
  int entries() const { return static_cast<int>(ids.size()); }
};

template <class T, class Out, class Id>
std::vector<Out> look_up_plainly(const Batch<T, Id>& batch, const Shape& shape) {
  std::vector<Out> out;
  const auto at = [&](std::size_t entry, int column) {
    return value(batch.table[static_cast<std::size_t>(batch.ids[entry]) *
                                 static_cast<std::size_t>(shape.width) +
                             static_cast<std::size_t>(column)]);
  };
  if (shape.mode == CombineMode::kConcat) {
    for (std::size_t i = 0; i < batch.ids.size(); ++i)
      for (int c = 0; c < shape.width; ++c) out.push_back(of<Out>(at(i, c)));
    return out;
  }
  for (std::size_t s = 0; s + 1 < batch.offsets.size(); ++s)
    for (int c = 0; c < shape.width; ++c) {
      double sum = 0;
      const auto begin = static_cast<std::size_t>(batch.offsets[s]),
                 end = static_cast<std::size_t>(batch.offsets[s + 1]);
      for (std::size_t i = begin; i < end; ++i)
        sum += double(shape.weighted ? value(batch.weights[i]) : 1.0f) * at(i, c);
      auto result = static_cast<float>(sum);
      if (shape.mode == CombineMode::kMean && end > begin)
        result *= 1.0f / static_cast<float>(end - begin);
      out.push_back(of<Out>(result));
    }
  return out;
}

std::string text_of(const Shape& shape) {
  return fmt::format("batch {}, width {}, hots {}, mode {}{}{}{}", shape.batch, shape.width,
                     shape.hots, static_cast<int>(shape.mode), shape.csr ? ", CSR" : "",
                     shape.weighted ? ", weights" : "", shape.compressed ? ", compressed" : "");
}

template <class T, class Id, class Out = T>
void check_forward(const Shape& shape) {
  INFO(text_of(shape));
  Random random(static_cast<unsigned>(shape.width + shape.batch));
  const Batch<T, Id> batch(random, shape);
  const std::vector<Out> expected = look_up_plainly<T, Out>(batch, shape);
  in_every_order([&] {
    const gpu::Stream stream;
    const Cuda backend({.stream = stream.get()});
    const OnGpu<T> table(backend, batch.table), weights(backend, batch.weights);
    const OnGpu<Id> ids(backend, batch.ids);
    const OnGpu<int> offsets(backend, batch.offsets);
    const OnGpu<Out> out(backend, std::vector<Out>(expected.size() + 8, of<Out>(-77)));
    cuembed::EmbeddingForward<T, Out, Id, int, true>(
        table.data(), shape.width, ids.data(), shape.csr ? offsets.data() : nullptr,
        shape.weighted ? weights.data() : nullptr, shape.batch, shape.csr ? 0 : shape.hots,
        shape.mode, out.data(), stream.get());
    std::vector<Out> padded = expected;
    padded.resize(padded.size() + 8, of<Out>(-77));  // and nothing behind it
    CHECK((floats_of(out.read()) == floats_of(padded)));
  });
}

/// From ids to the table's gradient, by all the functions on the way.
template <class T, class Id>
void check_backward(const Shape& shape) {
  INFO(text_of(shape));
  Random random(static_cast<unsigned>(shape.width * 3 + shape.batch));
  const Batch<T, Id> batch(random, shape);
  const int count = batch.entries();
  const auto width = static_cast<std::size_t>(shape.width);
  const auto gradients = quarters<T>(
      random, std::int64_t{shape.mode == CombineMode::kConcat ? count : shape.batch} * shape.width);

  std::vector<std::size_t> order(batch.ids.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return batch.ids[a] < batch.ids[b]; });
  std::vector<Id> indices, samples, remapped, distinct;
  std::vector<T> weights;
  for (const std::size_t i : order) {
    if (indices.empty() || indices.back() != batch.ids[i]) distinct.push_back(batch.ids[i]);
    indices.push_back(batch.ids[i]);
    samples.push_back(batch.samples[i]);
    weights.push_back(batch.weights[i]);
    remapped.push_back(static_cast<Id>(distinct.size()) - 1);
  }
  const std::size_t rows =
      shape.compressed ? distinct.size() : static_cast<std::size_t>(shape.rows);
  std::vector<double> sums(rows * width);
  std::vector<bool> named(rows);
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const auto row = static_cast<std::size_t>(shape.compressed ? remapped[i] : indices[i]);
    named[row] = true;
    for (std::size_t c = 0; c < width; ++c)
      sums[row * width + c] += double(shape.weighted ? value(weights[i]) : 1.0f) *
                               value(gradients[static_cast<std::size_t>(samples[i]) * width + c]);
  }
  std::vector<T> expected;
  for (std::size_t i = 0; i < sums.size(); ++i)
    expected.push_back(
        of<T>(shape.skips_init && !named[i / width] ? -77.0f : static_cast<float>(sums[i])));

  in_every_order([&] {
    const gpu::Stream stream;
    const Cuda backend({.stream = stream.get()});
    const OnGpu<Id> ids(backend, batch.ids);
    const OnGpu<int> offsets(backend, batch.offsets);
    const OnGpu<T> entry_weights(backend, batch.weights), incoming(backend, gradients);
    const std::vector<Id> none(static_cast<std::size_t>(count), Id{-5});
    const OnGpu<Id> of_entries(backend, none), by_index(backend, none), of_sample(backend, none),
        numbers(backend, none), inverse(backend, none);
    const OnGpu<T> by_index_weights(backend, std::vector<T>(none.size(), of<T>(-5)));
    if (shape.mode == CombineMode::kConcat)
      cuembed::ExtractRowIdsForConcat(count, of_entries.data(), stream.get());
    else if (shape.csr)
      cuembed::ExtractRowIdsFromCSR(offsets.data(), shape.batch, of_entries.data(), stream.get());
    else
      cuembed::ExtractRowIdsFromFixed(shape.batch, shape.hots, of_entries.data(), stream.get());
    CHECK((of_entries.read() == batch.samples));

    const T* const weights_in = shape.weighted ? entry_weights.data() : nullptr;
    std::size_t bytes = 0;
    const auto transpose = [&](char* work) {
      cuembed::Transpose(static_cast<const Id*>(of_entries.data()),
                         static_cast<const Id*>(ids.data()), weights_in, count, by_index.data(),
                         of_sample.data(), by_index_weights.data(), work, &bytes, stream.get());
    };
    transpose(nullptr);
    const auto work = backend.buffer<char>(static_cast<std::int64_t>(bytes) + 1);
    transpose(work.data() + 1);  // at any address
    CHECK((by_index.read() == indices));
    CHECK((of_sample.read() == samples));
    if (shape.weighted) CHECK((floats_of(by_index_weights.read()) == floats_of(weights)));

    if (shape.compressed) {
      const auto compress = [&](char* memory) {
        cuembed::ComputeCompressedGradIndices(static_cast<const Id*>(by_index.data()), count,
                                              numbers.data(), memory, &bytes, stream.get());
      };
      compress(nullptr);
      const auto more = backend.buffer<char>(static_cast<std::int64_t>(bytes));
      compress(more.data());
      CHECK((numbers.read() == remapped));
    }

    const OnGpu<T> out(backend, std::vector<T>(expected.size(), of<T>(-77)));
    cuembed::EmbeddingBackward(
        static_cast<const T*>(incoming.data()), shape.width, static_cast<int>(rows), count,
        static_cast<const Id*>(by_index.data()), static_cast<const Id*>(of_sample.data()),
        shape.compressed ? static_cast<const Id*>(numbers.data()) : nullptr,
        shape.weighted ? static_cast<const T*>(by_index_weights.data()) : nullptr, shape.skips_init,
        out.data(), inverse.data(), stream.get());
    CHECK((floats_of(out.read()) == floats_of(expected)));
    std::vector<Id> mapping = distinct;
    mapping.resize(none.size(), Id{-5});
    if (!shape.compressed) std::fill(mapping.begin(), mapping.end(), Id{-5});
    CHECK((inverse.read() == mapping));
  });
}

}  // namespace

TEST_CASE_TEMPLATE("cuembed forward: its tests' widths and kinds of input", T, float, Half) {
  for (const int width : {2, 4, 32, 36}) {
    const Shape shape{width < 32 ? 3 : 23, width, width < 32 ? 4 : 26};
    for (const CombineMode mode : {CombineMode::kSum, CombineMode::kMean})
      for (const bool csr : {false, true})
        for (const bool weighted : {false, true}) {
          Shape each = shape;
          each.mode = mode, each.csr = csr, each.weighted = weighted;
          check_forward<T, std::int32_t>(each);
        }
    Shape concat = shape;
    concat.mode = CombineMode::kConcat;
    check_forward<T, std::int32_t>(concat);
  }
}

TEST_CASE("cuembed forward: wide rows, rows with kernels of their own, one id a sample") {
  using enum CombineMode;
  check_forward<float, std::int64_t>({3, 512, 63});
  check_forward<float, std::int32_t>({3, 514, 63, kSum, true, true});
  check_forward<__half, std::int64_t>({2, 514, 63, kMean});
  check_forward<float, std::int64_t>({3, 514, 5, kConcat});
  for (const int width : {3, 8, 20, 127, 300})
    check_forward<__half, std::int32_t>({9, width, 7, kSum, true, true});
  for (const int width : {16, 64, 128, 256}) {
    check_forward<float, std::int32_t>({9, width, 16, kSum, true});
    check_forward<float, std::int64_t>({9, width, 1});
    check_forward<__half, std::int32_t>({9, width, 16, kSum, false, true});
    check_forward<__half, std::int32_t>({5, width, 3, kConcat});
  }
  check_forward<__nv_bfloat16, std::int64_t>({9, 32, 7, kMean, true, true});
  check_forward<float, long long>({4, 32, 3});
  check_forward<float, std::int32_t, __half>({9, 64, 4});
  check_forward<__half, std::int32_t, float>({9, 33, 4, kMean});
  check_forward<float, std::int32_t>({1, 1, 1});
}

TEST_CASE_TEMPLATE("cuembed backward: transposed, merged, full and compressed", T, float, Half) {
  using enum CombineMode;
  for (const int width : {2, 4, 32, 36}) {
    const Shape shape{width < 32 ? 3 : 23, width, width < 32 ? 4 : 26};
    for (const bool csr : {false, true})
      for (const bool weighted : {false, true}) {
        Shape each = shape;
        each.csr = csr, each.weighted = weighted, each.compressed = csr != weighted;
        check_backward<T, std::int32_t>(each);
      }
    Shape concat = shape;
    concat.mode = kConcat;
    check_backward<T, std::int32_t>(concat);
    concat.compressed = true;
    check_backward<T, std::int64_t>(concat);
  }
}

TEST_CASE("cuembed backward: wide rows, long runs of one index, indices of 64 bits") {
  using enum CombineMode;
  check_backward<float, std::int64_t>({3, 512, 63});
  check_backward<__half, std::int32_t>({3, 514, 63, kSum, false, true, true});
  check_backward<float, std::int32_t>({3, 514, 63, kSum, true, false, true});
  check_backward<float, std::int32_t>({60, 32, 26, kSum, false, false, false, 2});
  check_backward<float, std::int64_t>({60, 8, 26, kSum, false, true, true, 3});
  check_backward<__nv_bfloat16, std::int64_t>({7, 128, 4});
  Shape skips{5, 33, 4};
  skips.skips_init = true;
  check_backward<float, std::int32_t>(skips);
}

// What docs/bridges.md shows.
// [migrate]
// Was: #include "cuembed/include/embedding_lookup.cuh"
#include <tessera/cuembed.cuh>
namespace cuembed = tessera::cuembed;

/// Means of `batch` samples' rows of 128 halves.
void look_up(const __half* table, const int* ids, const int* offsets, int batch, __half* pooled,
             cudaStream_t stream) {
  const __half* const no_weights = nullptr;
  cuembed::EmbeddingForward<__half, __half, int, int, false>(
      table, 128, ids, offsets, no_weights, batch, 0, cuembed::CombineMode::kMean, pooled, stream);
}
// [migrate end]

TEST_CASE("cuembed: the widths and numbers of ids of its benchmark") {
  for (const int width : {32, 128})
    for (const int hots : {1, 16, 64}) {
      const Shape shape{33, width, hots};
      check_forward<float, int>(shape);
      check_forward<__half, std::int64_t>(shape);
      check_backward<float, int>(shape);
      check_backward<__half, std::int64_t>(shape);
    }
}

TEST_CASE("cuembed: the page's listing") {
  Random random(2);
  const Shape shape{4, 128, 3, CombineMode::kMean, true};
  const Batch<__half, int> batch(random, shape);
  const std::vector<__half> expected = look_up_plainly<__half, __half>(batch, shape);
  const Cuda backend;
  const OnGpu<__half> table(backend, batch.table), out(backend, expected);
  backend.fill_zero(out.data(), expected.size() * sizeof(__half));
  const OnGpu<int> ids(backend, batch.ids), offsets(backend, batch.offsets);
  look_up(table.data(), ids.data(), offsets.data(), shape.batch, out.data(), backend.stream());
  CHECK((floats_of(out.read()) == floats_of(expected)));
}

TEST_CASE("cuembed: nothing to do is done, tables and rows at any address are served") {
  const Cuda backend;
  const OnGpu<float> table(backend, std::vector<float>(65, 1.0f)),
      out(backend, std::vector<float>(66, -7.0f));
  const OnGpu<int> ids(backend, {1, 0});
  cuembed::EmbeddingForward<float, float, int, int>(
      table.data() + 1, 32, ids.data(), nullptr, nullptr, 1, 2, CombineMode::kSum, out.data() + 1);
  std::vector<float> expected(66, -7.0f);
  std::fill_n(expected.begin() + 1, 32, 2.0f);
  CHECK((out.read() == expected));
  cuembed::EmbeddingForward<float, float, int, int>(table.data(), 32, nullptr, nullptr, nullptr, 0,
                                                    2, CombineMode::kSum, out.data());
  CHECK((out.read() == expected));
  const int* const no_ids = nullptr;
  cuembed::EmbeddingBackward<float, int>(table.data(), 32, 2, 0, no_ids, no_ids, nullptr, nullptr,
                                         false, out.data(), nullptr);
  std::fill_n(expected.begin(), 64, 0.0f);
  CHECK((out.read() == expected));
  std::size_t bytes = 0;
  cuembed::Transpose<int, float>(no_ids, no_ids, nullptr, 0, nullptr, nullptr, nullptr, nullptr,
                                 &bytes);
  char some[1] = {};
  bytes = std::max(bytes, sizeof(some));
  cuembed::Transpose<int, float>(no_ids, no_ids, nullptr, 0, nullptr, nullptr, nullptr, some,
                                 &bytes);
}

TEST_CASE("cuembed backward: negative indices add nothing, whichever they are") {
  const Cuda backend;
  const OnGpu<std::int32_t> indices(backend, std::vector<std::int32_t>{0, 2, -1, -2, -70000}),
      samples(backend, std::vector<std::int32_t>{0, 1, 2, 2, 1});
  const OnGpu<float> gradients(backend, std::vector<float>(12, 1.0f)),
      weights(backend, std::vector<float>(5, 1.0f));
  for (const bool weighted : {false, true}) {
    const OnGpu<float> out(backend, std::vector<float>(12, 7.0f));
    cuembed::EmbeddingBackward<float, std::int32_t>(
        gradients.data(), 4, 3, 5, indices.data(), samples.data(), nullptr,
        weighted ? weights.data() : nullptr, false, out.data(), nullptr, backend);
    CHECK((out.read() == std::vector<float>{1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1}));
  }
}

TEST_CASE("cuembed forward is captured, backward with a backend, and both give the same bits") {
  Random random(3);
  const Shape shape{40, 36, 8};
  const Batch<float, int> batch(random, shape);
  std::vector<int> sorted = batch.ids;
  std::sort(sorted.begin(), sorted.end());
  std::vector<float> gradients;
  for (int i = 0; i < shape.batch * shape.width; ++i) gradients.push_back(random_float(random));
  const std::vector<float> zeros(static_cast<std::size_t>(shape.rows * shape.width)),
      pooled_zeros(gradients.size());
  const gpu::Stream stream;
  const Cuda backend({.stream = stream.get()});
  const OnGpu<int> ids(backend, batch.ids), indices(backend, sorted),
      samples(backend, batch.samples);
  const OnGpu<float> table(backend, batch.table), incoming(backend, gradients), out(backend, zeros),
      pooled(backend, pooled_zeros);
  const auto run = [&] {
    cuembed::EmbeddingForward<float, float, int, int>(table.data(), shape.width, ids.data(),
                                                      nullptr, nullptr, shape.batch, shape.hots,
                                                      shape.mode, pooled.data(), stream.get());
    cuembed::EmbeddingBackward<float, int>(incoming.data(), shape.width, shape.rows,
                                           batch.entries(), indices.data(), samples.data(), nullptr,
                                           nullptr, false, out.data(), nullptr, backend);
  };
  run();
  const std::vector<float> gradient = out.read(), vectors = pooled.read();
  CHECK((gradient != zeros));
  CHECK((vectors == look_up_plainly<float, float>(batch, shape)));
  const Graph graph(stream, run);
  backend.fill_zero(out.data(), zeros.size() * sizeof(float));
  backend.fill_zero(pooled.data(), vectors.size() * sizeof(float));
  graph.launch();
  CHECK((out.read() == gradient));
  CHECK((pooled.read() == vectors));
}

TEST_CASE("cuembed refuses what cannot be, and says what to give") {
  float* const none = nullptr;
  int* const no_ids = nullptr;
  int some = 0;
  const auto forward = [&](int width, int* offsets, float* weights, int batch, int hots,
                           CombineMode mode) {
    return message_of<InvalidArgument>([&] {
      cuembed::EmbeddingForward<float, float, int, int>(none, width, no_ids, offsets, weights,
                                                        batch, hots, mode, none);
    });
  };
  using enum CombineMode;
  CHECK(forward(0, nullptr, nullptr, 1, 1, kSum) ==
        "EmbeddingForward: embed_width is 0; give at least 1");
  CHECK(forward(4, nullptr, nullptr, -1, 1, kSum) == "EmbeddingForward: batch_size is -1");
  CHECK(forward(4, nullptr, nullptr, 1, 0, kSum) ==
        "EmbeddingForward: num_hots is 0 without offsets; give num_hots >= 1, or offsets and 0");
  CHECK(forward(4, &some, nullptr, 1, 2, kSum).find("num_hots is 2 with offsets") !=
        std::string::npos);
  CHECK(forward(4, &some, nullptr, 1, 0, kConcat) ==
        "EmbeddingForward: kConcat takes neither offsets nor weights");
  float weight = 1;
  CHECK(forward(4, nullptr, &weight, 1, 1, kConcat).find("neither offsets nor weights") !=
        std::string::npos);

  const auto backward = [&](int width, int rows, int count, int* remapped) {
    return message_of<InvalidArgument>([&] {
      cuembed::EmbeddingBackward<float, int>(none, width, rows, count, no_ids, no_ids, remapped,
                                             none, false, none, no_ids);
    });
  };
  CHECK(backward(-1, 1, 1, nullptr).find("embed_width is -1") != std::string::npos);
  CHECK(backward(1, 1, -1, nullptr) == "EmbeddingBackward: nnz is -1");
  CHECK(backward(1, -1, 1, nullptr) == "EmbeddingBackward: num_grad_embedding_rows is -1");
  CHECK(backward(1, 3, 1, &some).find("without inverse_mapping; give room for 3 indices") !=
        std::string::npos);

  char work[1] = {};
  std::size_t bytes = 1;
  const auto transpose = [&](int count, std::size_t* lwork) {
    return message_of<InvalidArgument>([&] {
      cuembed::Transpose<int, float>(no_ids, no_ids, none, count, no_ids, no_ids, none, work,
                                     lwork);
    });
  };
  CHECK(transpose(-1, &bytes) == "Transpose: nnz is -1");
  CHECK(transpose(8, nullptr) == "Transpose: lwork is null; give the place of a size");
  CHECK(transpose(1000, &bytes).find("1 bytes of workspace, it takes") != std::string::npos);
  CHECK(message_of<InvalidArgument>([&] {
          cuembed::ComputeCompressedGradIndices<int>(no_ids, 1000, no_ids, work, &bytes);
        }).find("ask with work = nullptr") != std::string::npos);
  CHECK(message_of<InvalidArgument>([&] {
          cuembed::ExtractRowIdsFromFixed(3, 0, no_ids);
        }).find("3 samples of 0 ids") != std::string::npos);
  CHECK(message_of<InvalidArgument>([&] { cuembed::ExtractRowIdsFromCSR(no_ids, -3, no_ids); }) ==
        "ExtractRowIdsFromCSR: batch_size is -3");
}
