// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/bucketed_all_reduce.hpp>
#include <tessera/tessera.cuh>

#include <gpu/rank_graph_cases.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

// Two communicators of the same ranks at work together, each on a stream of its own: batches routed
// ahead, and gradients summed in buckets. For communicators whose exchanges are work of the stream.

namespace {

/// Everything that a rank sees of some steps: routed in turn, or ahead over `second`. One id per
/// bag with equal batches; otherwise bags of 0 to 3, whose number the ranks tell each other.
template <class Comm>
std::vector<float> train_rank_ahead(Comm& communicator, Comm& second, const gpu::Stream& stream,
                                    const gpu::Stream& routing_stream, bool ahead,
                                    bool equal_batches) {
  using E = LayoutCollection<Widths<4, 8>, Sgd, Cuda, Comm>;
  constexpr int steps = 4;
  const Cuda backend({.stream = stream.get()}), routing({.stream = routing_stream.get()});
  const Layout layout = rank_layout(communicator.size(), true);
  E embeddings(communicator, backend, layout,
               {.learning_rate = 0.25f, .seed = 5, .equal_batches = equal_batches});
  const std::int64_t features = std::ssize(layout.features), bags = features * rank_samples;
  const auto room = static_cast<std::size_t>(equal_batches ? bags : features * rank_bound);
  // Two of each, filled anew as soon as the step that was routed before is done with one.
  const Array<std::int32_t, Cuda> ids(backend, std::vector<std::int32_t>(2 * room));
  const Array<std::int64_t, Cuda> offsets(
      backend, std::vector<std::int64_t>(2 * static_cast<std::size_t>(bags + 1)));
  const Array<float, Cuda> weights(backend, std::vector<float>(room, 0.5f)),
      output(backend,
             std::vector<float>(static_cast<std::size_t>(rank_samples * layout.columns())));
  const MatrixView<float> rows(output.data(), rank_samples, layout.columns());
  const auto batch = [&](int step) {
    std::vector<std::int32_t> values;
    std::vector<std::int64_t> ends{0};
    for (int bag = 0; bag < bags; ++bag) {
      for (int i = 0, n = equal_batches ? 1 : (bag + step + communicator.rank()) % 4; i < n; ++i)
        values.push_back((bag * 5 + i * 3 + step * 7 + communicator.rank()) % 7);
      ends.push_back(std::ssize(values));
    }
    const auto turn = static_cast<std::size_t>(step % 2);
    const auto own = ids.span().subspan(turn * room, values.size());
    const auto own_ends = offsets.span().subspan(turn * ends.size(), ends.size());
    backend.copy(own.data(), values.data(), own.size_bytes());
    backend.copy(own_ends.data(), ends.data(), own_ends.size_bytes());
    return KeyedJagged<std::int32_t>{features, rank_samples, own,
                                     equal_batches ? std::span<std::int64_t>() : own_ends,
                                     weights.span().first(own.size())};
  };

  std::vector<float> seen;
  const auto finish = [&](const auto& pooled) {
    const std::vector<float> got = output.read();
    seen.insert(seen.end(), got.begin(), got.end());
    embeddings.backward(pooled, rows);
  };
  if (ahead) {
    RouteAhead<E, std::int32_t, Comm, Cuda> route(embeddings, second, routing);
    route.start(batch(0));
    for (int step = 0; step < steps; ++step) {
      const auto pooled = embeddings.forward_routed(route.take(), rows);
      if (step + 1 < steps) route.start(batch(step + 1));
      finish(pooled);
    }
  } else {
    for (int step = 0; step < steps; ++step) finish(embeddings.forward(batch(step), rows));
  }
  see_tables(embeddings, layout, seen);
  return seen;
}

/// Everything that a rank sees of some steps whose gradients are summed: in buckets over `second`
/// while later ones are written and `communicator` exchanges something else, or in one call at the
/// end over `communicator`. `captured`: all steps but the first are replayed from a graph.
template <class Comm>
std::vector<float> sum_rank(Comm& communicator, Comm& second, const gpu::Stream& stream,
                            const gpu::Stream& summing_stream, bool in_buckets, bool captured) {
  constexpr std::size_t count = 1003, part = 118;  // 9 parts in 4 buckets of two or three
  const Cuda backend({.stream = stream.get()}), summing({.stream = summing_stream.get()});
  const auto ranks = static_cast<std::size_t>(communicator.size());
  const Array<float, Cuda> written(backend, std::vector<float>(count)),
      gradients(backend, std::vector<float>(count)), sums(backend, std::vector<float>(count)),
      sent(backend, std::vector<float>(ranks * 50)), received(backend, sent.read());
  const std::vector<std::size_t> counts(ranks, 50);
  BucketedAllReduce<Comm> buckets(second, gradients.span(), 250 * sizeof(float), backend, summing);
  const auto step = [&] {
    for (std::size_t end = count; end != 0;) {
      const std::size_t begin = end > part ? end - part : 0;
      const auto own = gradients.span().subspan(begin, end - begin);
      backend.copy(own.data(), written.data() + begin, own.size_bytes());
      communicator.template all_to_all<float>(sent.span(), counts, received.span(), counts);
      backend.copy(sent.data(), received.data(), sent.span().size_bytes());
      if (in_buckets) buckets.ready(own);
      end = begin;
    }
    if (in_buckets)
      buckets.wait();
    else
      communicator.all_reduce(gradients.span());
    backend.copy(sums.data(), gradients.data(), gradients.span().size_bytes());
  };
  std::vector<float> seen;
  std::optional<Graph> graph;
  for (int n = 0; n < 5; ++n) {
    // Two terms have one order; sums of more are in the communicator's, so those here are exact.
    std::vector<float> values(count), others(ranks * 50);
    for (std::size_t i = 0; i < count; ++i) {
      const auto v =
          static_cast<float>((static_cast<int>(i) * 7 + n + 5 * communicator.rank()) % 61 - 30);
      values[i] = ranks <= 2 ? v / 3 : v / 4;
    }
    for (std::size_t i = 0; i < others.size(); ++i)
      others[i] = static_cast<float>(static_cast<int>(i) + 100 * communicator.rank() + n);
    backend.copy(written.data(), values.data(), count * sizeof(float));
    backend.copy(sent.data(), others.data(), others.size() * sizeof(float));
    backend.synchronize();
    if (!captured || n == 0) {
      step();
    } else {
      if (!graph) graph.emplace(stream, step);
      graph->launch();
    }
    for (const auto* array : {&sums, &received}) {
      const std::vector<float> got = array->read();
      seen.insert(seen.end(), got.begin(), got.end());
    }
  }
  return seen;
}

template <class Comm>
bool ahead_trains_like_in_turn(Comm& communicator, Comm& second, const gpu::Stream& stream,
                               const gpu::Stream& other) {
  bool equal = true;
  for (const bool equal_batches : {true, false})
    equal &= train_rank_ahead(communicator, second, stream, other, true, equal_batches) ==
             train_rank_ahead(communicator, second, stream, other, false, equal_batches);
  return equal;
}

template <class Comm>
bool buckets_sum_like_one_call(Comm& communicator, Comm& second, const gpu::Stream& stream,
                               const gpu::Stream& other) {
  const std::vector<float> expected = sum_rank(communicator, second, stream, other, false, false);
  bool equal = true;
  for (const bool captured : {false, true})
    equal &= sum_rank(communicator, second, stream, other, true, captured) == expected;
  return equal;
}

}  // namespace
