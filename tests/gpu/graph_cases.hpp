// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/stream.cuh>
#include <tessera/dense/dense.cuh>
#include <tessera/interaction/dot.cuh>
#include <tessera/tessera.cuh>

#include <doctest/doctest.h>
#include <gpu/array.hpp>
#include <gpu/graph.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

// Whole training steps as CUDA graphs: what was captured once is replayed on other batches, and
// must give the bits of steps that are called.

namespace {

using namespace tessera;

constexpr std::int64_t samples = 300;
constexpr int width = 8, numbers = 5;

/// The inputs of one step.
struct StepInput {
  std::vector<std::int32_t> ids;
  std::vector<std::int64_t> offsets;
  std::vector<float> numbers, labels, weights;
};

/// Bags have bounds, and room for more ids than a step has; or as many ids in every step, which
/// features share anew.
enum class Batches { one_hot, bounded, as_many };

/// Ids of table a are below 10, of table b below 6; `capacity` of them, whatever the step has.
StepInput input_of(int step, Batches batches, std::int64_t capacity) {
  const bool bags = batches != Batches::one_hot;
  const auto length = [&](int feature, std::int64_t s) {
    const std::int64_t n = (s + step) % 4;
    if (batches == Batches::bounded) return n;
    return (s < step) == (feature == 0) ? n + 1 : n;
  };
  StepInput input;
  std::int64_t count = 0;
  for (int feature = 0; feature < 2; ++feature)
    for (std::int64_t s = 0; s < samples; ++s) {
      if (bags) input.offsets.push_back(count);
      for (std::int64_t i = 0, n = bags ? length(feature, s) : 1; i < n; ++i, ++count)
        input.ids.push_back(
            static_cast<std::int32_t>((s * 7 + i * 5 + step * 3) % (feature == 0 ? 10 : 6)));
    }
  if (bags) input.offsets.push_back(count);
  input.ids.resize(static_cast<std::size_t>(capacity), -1);
  for (std::int64_t i = 0; i < capacity; ++i)
    input.weights.push_back(static_cast<float>((i * 3 + step) % 7) * 0.25f - 0.5f);
  for (std::int64_t i = 0; i < samples * numbers; ++i)
    input.numbers.push_back(static_cast<float>((i * 5 + step) % 11) * 0.125f - 0.5f);
  for (std::int64_t s = 0; s < samples; ++s)
    input.labels.push_back(static_cast<float>((s + step) % 3 == 0));
  return input;
}

/// All that a training gives, to the bit.
struct Trained {
  std::vector<float> tables, parameters, weight_gradients;  // the last step's
  std::vector<double> loss;
  friend bool operator==(const Trained&, const Trained&) = default;
};

using Plain = Plan<TableWise<Table<"a", 10, width>>, TableWise<Table<"b", 6, width, Mean>>>;
using WithWeights =
    Plan<TableWise<Table<"a", 10, width>>, TableWise<Table<"b", 6, width>>,
         Features<Feature<"a", "a", Sum, Weighted>, Feature<"b", "b", Mean, Weighted>>>;

/// DLRM in small: embeddings, bottom and top layers, dot interaction, loss, and the updates of all,
/// on one stream. `T`: of pooled vectors, the interaction's products, and their gradients.
template <class Small, class T = float>
Trained train(bool captured, Batches batches, bool epilogues) {
  constexpr int vectors = 3, steps = 4;
  constexpr bool weighted = std::is_same_v<Small, WithWeights>;
  using One = BasicSelfCommunicator<CudaTransfer>;
  using Dot = DotInteraction<vectors, width, 8, T>;
  constexpr DensePrecision precision =
      std::is_same_v<T, float> ? DensePrecision::float32 : DensePrecision::bfloat16;
  const gpu::Stream stream;
  const Cuda backend({.stream = stream.get()});
  One self{CudaTransfer(backend)};
  EmbeddingCollection<Small, RowWiseAdagrad, Cuda, One, OutputType<T>> embeddings{
      self, backend, {.learning_rate = 0.5f, .seed = 3, .non_finite = NonFinite::count}};
  Mlp<Cuda> bottom(backend, {numbers, 16, width},
                   {.last_relu = true, .precision = precision, .gradient_epilogues = epilogues}),
      top(backend, {Dot::columns(), 12, 1},
          {.precision = precision, .gradient_epilogues = epilogues});
  DenseParameters parameters(backend, 5, bottom, top);
  DenseOptimizer dense(backend, Adagrad{});

  const std::vector<std::int64_t> bounds{3 * samples, 2 * samples};
  const std::int64_t capacity = batches == Batches::bounded   ? bounds[0] + bounds[1]
                                : batches == Batches::as_many ? 2 * samples * 3 / 2 + samples
                                                              : 2 * samples;
  const StepInput first = input_of(0, batches, capacity);
  const Array<std::int32_t, Cuda> ids(backend, first.ids);
  const Array<std::int64_t, Cuda> offsets(backend, first.offsets);
  const Array<float, Cuda> x(backend, first.numbers), labels(backend, first.labels),
      weights(backend, first.weights), weight_gradients(backend, first.weights);
  const auto matrix = [&]<class E>(E, std::int64_t columns) {
    return Array<E, Cuda>(backend, std::vector<E>(static_cast<std::size_t>(samples * columns)));
  };
  const Array<T, Cuda> v = matrix(T{}, vectors * width), dv = matrix(T{}, vectors * width),
                       z = matrix(T{}, Dot::columns()), dz = matrix(T{}, Dot::columns());
  const Array<float, Cuda> y = matrix(0.0f, 1), dy = matrix(0.0f, 1);
  const Array<double, Cuda> loss(backend, std::vector<double>{0.0});
  const MatrixView<T> all(v.data(), samples, vectors * width),
      d_all(dv.data(), samples, vectors * width), products(z.data(), samples, Dot::columns()),
      d_products(dz.data(), samples, Dot::columns());
  const MatrixView<float> logits(y.data(), samples, 1), d_logits(dy.data(), samples, 1),
      given(x.data(), samples, numbers);

  const auto step = [&] {
    KeyedJagged<std::int32_t> batch{2, samples, ids.span(), offsets.span(), {}};
    if (weighted) batch.weights = weights.span();
    if (batches == Batches::bounded) batch.bounds = bounds;
    bottom.forward(given, all.column_range(0, width));
    const auto pooled = embeddings.forward(batch, all.column_range(width, 2 * width));
    Dot::forward(backend, all, products);
    top.forward(MatrixView<const T>(products), logits);
    BinaryCrossEntropyWithLogits{}.forward_backward(backend, logits, labels.span(), d_logits,
                                                    loss.data());
    top.backward(d_logits, d_products);
    Dot::backward(backend, all, d_products, d_all);
    bottom.backward(MatrixView<const T>(d_all.column_range(0, width)));
    dense.step(parameters, 0.25f);
    if (weighted) {
      embeddings.backward(pooled, d_all.column_range(width, 2 * width), weight_gradients.span());
    } else {
      embeddings.backward(pooled, d_all.column_range(width, 2 * width));
    }
  };
  const auto set = [&](const StepInput& input) {
    backend.copy(ids.data(), input.ids.data(), input.ids.size() * sizeof(std::int32_t));
    backend.copy(offsets.data(), input.offsets.data(), input.offsets.size() * sizeof(std::int64_t));
    backend.copy(weights.data(), input.weights.data(), input.weights.size() * sizeof(float));
    backend.copy(x.data(), input.numbers.data(), input.numbers.size() * sizeof(float));
    backend.copy(labels.data(), input.labels.data(), input.labels.size() * sizeof(float));
    backend.synchronize();
  };
  step();  // buffers get their sizes, cuBLASLt chooses its algorithms
  if (captured) {
    const Graph graph(stream, step);
    for (int s = 1; s < steps; ++s) {
      set(input_of(s, batches, capacity));
      graph.launch();
    }
    backend.synchronize();
  } else {
    for (int s = 1; s < steps; ++s) {
      set(input_of(s, batches, capacity));
      step();
    }
  }
  Trained result{std::vector<float>(16 * width),
                 std::vector<float>(static_cast<std::size_t>(parameters.size())),
                 weight_gradients.read(), loss.read()};
  embeddings.tables().get("a", {result.tables.data(), 10, width});
  embeddings.tables().get("b", {result.tables.data() + 10 * width, 6, width});
  backend.copy(result.parameters.data(), parameters.values().data(),
               result.parameters.size() * sizeof(float));
  backend.synchronize();
  CHECK(embeddings.bad_ids()[0] + embeddings.bad_ids()[1] == 0);
  CHECK(embeddings.non_finite_gradients() == 0);
  return result;
}

}  // namespace

TEST_CASE(
    "a whole training step is captured in a graph and replayed on other batches: the bits of steps "
    "that are called") {
  const auto compare = []<class Small>(std::type_identity<Small>, Batches batches, bool epilogues) {
    CAPTURE(static_cast<int>(batches));
    CAPTURE(epilogues);
    const Trained called = train<Small>(false, batches, epilogues);
    CHECK((train<Small>(true, batches, epilogues) == called));
    CHECK(called.loss[0] > 0);
  };
  for (const Batches batches : {Batches::one_hot, Batches::bounded, Batches::as_many}) {
    for (const bool epilogues : {false, true})
      compare(std::type_identity<Plain>{}, batches, epilogues);
    compare(std::type_identity<WithWeights>{}, batches, false);
  }
}

TEST_CASE("a model whose vectors, products and gradients are bf16 trains as one in float, nearly") {
  const Trained wide = train<Plain>(false, Batches::bounded, false),
                narrow = train<Plain, BFloat16>(false, Batches::bounded, false);
  CHECK((train<Plain, BFloat16>(true, Batches::bounded, false) == narrow));
  CHECK(narrow.loss[0] == doctest::Approx(wide.loss[0]).epsilon(0.01));  // of all steps
  CHECK(narrow.loss[0] != wide.loss[0]);
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < wide.tables.size(); ++i) {
    difference += std::abs(narrow.tables[i] - wide.tables[i]);
    size += std::abs(wide.tables[i]);
  }
  CHECK(difference < 0.15 * size);  // of Adagrad's first steps, as long whatever the gradient
}

namespace {

/// Steps of an optimizer on 16-bit tables, and of Adam on dense parameters, with two learning rates.
struct Counted {
  std::vector<float> tables, parameters;
  std::int64_t steps = 0, dense_steps = 0;
  friend bool operator==(const Counted&, const Counted&) = default;
};
template <class O>
Counted count_steps(bool captured, int steps) {
  using One = BasicSelfCommunicator<CudaTransfer>;
  constexpr std::int64_t batch = 6;
  const gpu::Stream stream;
  const Cuda backend({.stream = stream.get()});
  One self{CudaTransfer(backend)};
  EmbeddingCollection<Plan<TableWise<Table<"a", 10, width>>>, O, Cuda, One, Storage<BFloat16>>
      embeddings{self, backend, {.learning_rate = 0.01f, .seed = 3}};
  Mlp<Cuda> layer(backend, {3, 2});
  DenseParameters parameters(backend, 5, layer);
  DenseOptimizer dense(backend, Adam{});
  dense.set_learning_rate(0.01f);
  const Array<std::int32_t, Cuda> ids(backend, std::vector<std::int32_t>{0, 3, 3, 7, 9, 1});
  const Array<float, Cuda> output(backend, std::vector<float>(batch * width));
  std::vector<float> values;
  for (int i = 0; i < batch * width; ++i)
    values.push_back(static_cast<float>(i % 11) * 0.13f - 0.6f);
  const Array<float, Cuda> gradient(backend, values);
  backend.copy(parameters.gradients().data(), gradient.data(), parameters.gradients().size_bytes());
  const auto step = [&] {
    const auto pooled = embeddings.forward(KeyedJagged<std::int32_t>{1, batch, ids.span(), {}, {}},
                                           {output.data(), batch, width});
    embeddings.backward(pooled, {gradient.data(), batch, width});
    dense.step(parameters);
  };
  const auto all_steps = [&](const auto& one) {
    for (int s = 0; s < steps; ++s) {
      if (s == steps / 2) embeddings.set_learning_rate(0.003f), dense.set_learning_rate(0.002f);
      one();
    }
  };
  step();
  if (captured) {
    const Graph graph(stream, step);
    all_steps([&] { graph.launch(); });
  } else {
    all_steps(step);
  }
  Counted result{std::vector<float>(10 * width),
                 std::vector<float>(static_cast<std::size_t>(parameters.size())),
                 embeddings.steps(), dense.steps()};
  step();  // goes on from what the replays counted
  embeddings.tables().get("a", {result.tables.data(), 10, width});
  backend.copy(result.parameters.data(), parameters.values().data(),
               result.parameters.size() * sizeof(float));
  backend.synchronize();
  return result;
}

}  // namespace

TEST_CASE(
    "Adam and 16-bit tables: 100 replays count their steps and follow the learning rate, with the "
    "bits of steps that are called") {
  const Counted called = count_steps<Adam>(false, 100);
  CHECK(called.steps == 101);
  CHECK(called.dense_steps == 101);
  CHECK((count_steps<Adam>(true, 100) == called));
}

TEST_CASE("Lamb, whose rows are measured first, counts its steps in a graph, too") {
  CHECK((count_steps<Lamb>(true, 10) == count_steps<Lamb>(false, 10)));
}
