// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A small model with a table of every kind of cut, and a training loop over it that keeps what it
// sees: for tests that compare runs.
#pragma once

#include <tessera/comm/counting_communicator.hpp>
#include <tessera/tessera.hpp>

#include <support/on_backend.hpp>
#include <support/same_bits.hpp>

#include <cmath>
#include <cstdint>
#include <random>
#include <type_traits>
#include <vector>

namespace small_model {

using namespace tessera;  // NOLINT: a header of tests

inline std::vector<TableSpec> tables() {
  return {{"query", 200, 16},
          {"user", 60, 32},
          {"genre", 9, 16},
          {"word", 300, 20},
          {"country", 5, 16}};
}
inline std::vector<FeatureSpec> features() {
  return {{"query", "query", Pooling::sum, false}, {"last query", "query", Pooling::mean, false},
          {"user", "user", Pooling::sum, true},    {"genre", "genre", Pooling::sqrtn, false},
          {"word", "word", Pooling::mean, true},   {"country", "country", Pooling::sum, false}};
}

/// query by rows, user by columns, word by both, genre whole on the last rank, country whole on
/// rank 0 or a copy on every rank.
inline Layout layout(int ranks, bool replicated = false) {
  std::vector<Shard> shards;
  for (int r = 0; r < ranks; ++r)
    shards.push_back({0, {even_cut(200, ranks, r), even_cut(200, ranks, r + 1), 0, 16}, r});
  shards.push_back({1, {0, 60, 0, 16}, 0});
  shards.push_back({1, {0, 60, 16, 32}, ranks - 1});
  shards.push_back({2, {0, 9, 0, 16}, ranks - 1});
  shards.push_back({3, {0, 100, 0, 20}, ranks / 2});
  shards.push_back({3, {100, 300, 0, 4}, ranks - 1});
  shards.push_back({3, {100, 300, 4, 20}, 0});
  shards.push_back({4, {0, 5, 0, 16}, replicated ? every_rank : 0});
  return make_layout({ranks}, tables(), features(), shards);
}

/// Samples of one rank at one step, and the gradient that comes back for them; many ids repeat.
struct Batch {
  std::int64_t samples;
  std::vector<std::int64_t> ids, offsets{0};
  std::vector<float> weights, gradient;

  Batch(int rank, int step, std::int64_t batch, std::int64_t columns, bool one_hot = false)
      : samples(batch), gradient(static_cast<std::size_t>(batch * columns)) {
    std::minstd_rand random(static_cast<unsigned>(1000 * step + rank + 1));
    random.discard(3);
    for (const FeatureSpec& feature : features())
      for (std::int64_t s = 0; s < batch; ++s) {
        std::int64_t rows = 0;
        for (const TableSpec& table : tables())
          if (table.name == feature.table) rows = table.rows;
        for (unsigned n = one_hot ? 1 : random() % 4; n > 0; --n) {
          const std::int64_t id = static_cast<std::int64_t>(random() % static_cast<unsigned>(rows));
          ids.push_back(random() % 2 == 0 ? id % 4 : id);
          weights.push_back(static_cast<float>(static_cast<int>(random() % 17) - 8) / 4);
        }
        offsets.push_back(static_cast<std::int64_t>(ids.size()));
      }
    if (one_hot) offsets.clear();
    for (float& g : gradient)
      g = static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 1000;
  }
  KeyedJagged<std::int64_t> keyed() const {
    return {static_cast<std::int64_t>(features().size()), samples, ids, offsets, weights};
  }
};

struct Result {
  std::vector<float> outputs;           // of all steps of this rank
  std::vector<float> weight_gradients;  // the same
  // this rank's rectangles and their optimizer state at the end
  std::vector<float> shards;
};

/// This rank's rectangles, one after another; behind each, if asked for, its optimizer state.
template <class Embeddings>
std::vector<float> shards_of(const Embeddings& embeddings, bool states = true) {
  std::vector<float> all;
  const auto append = [&](const auto& given) {
    with_matrix(given, [&](const auto& matrix) {
      for (const auto x : on_backend::read(embeddings.backend(), matrix.data,
                                           static_cast<std::size_t>(matrix.rows * matrix.columns)))
        all.push_back(to_float(x));
    });
  };
  for (const auto& shard : embeddings.tables().local_shards()) {
    append(shard.weights);
    for (const auto& state : shard.states)
      if (states) append(state);
  }
  return all;
}

// One optimizer, and kernels for widths known at run time only: so each collection costs a test few
// seconds of the compiler.
template <class Backend, class Comm, class... Policies>
using EmbeddingsOn = LayoutCollection<Widths<>, RowWiseAdagrad, Backend, Comm, Policies...>;
template <class Comm, class... Policies>
using Embeddings = EmbeddingsOn<Host, Comm, Policies...>;
template <class Backend>
using CountingOn = CountingCommunicator<typename on_backend::ThreadRanks<Backend>::type>;
using Counting = CountingOn<Host>;

/// Samples of a rank: ranks have different batches, and rank 1 none at step 2.
inline std::int64_t samples_of(int rank, int step) {
  return rank == 1 && step == 2 ? 0 : 11 + 5 * rank;
}

/// A Batch where a backend reads it, with room for the gradient of its weights.
template <class Backend>
struct Given {
  Given(const Backend& backend, const Batch& batch, std::int64_t columns)
      : ids(backend, batch.keyed()),
        of_gradient(backend, batch.gradient),
        of_weights(backend, std::vector<float>(batch.ids.size(), 1.0f)),
        gradient(of_gradient.data(), batch.samples, columns) {}
  const KeyedJagged<std::int64_t>& keyed() const { return ids.keyed(); }

  on_backend::BatchOn<std::int64_t, Backend> ids;
  on_backend::Array<float, Backend> of_gradient, of_weights;
  MatrixView<const float> gradient;
};

/// Steps to compare two trainings over: in emulation a step costs a tenth of a second, however
/// small. The third is that without samples.
template <class Backend>
inline constexpr int enough_steps = Backend::host_readable ? 4 : 3;

template <class E>
Result train(E& embeddings, int rank, int steps, bool one_hot = false) {
  Result result;
  for (int step = 0; step < steps; ++step) {
    const Batch batch(rank, step, samples_of(rank, step), embeddings.columns(), one_hot);
    const Given given(embeddings.backend(), batch, embeddings.columns());
    const auto pooled = embeddings.forward(given.keyed());
    const std::vector<float> output =
        on_backend::read(embeddings.backend(), pooled.values.data, batch.gradient.size());
    result.outputs.insert(result.outputs.end(), output.begin(), output.end());
    embeddings.backward(pooled, given.gradient, given.of_weights.span());
    const std::vector<float> of_weights = given.of_weights.read();
    result.weight_gradients.insert(result.weight_gradients.end(), of_weights.begin(),
                                   of_weights.end());
  }
  result.shards = shards_of(embeddings);
  return result;
}

/// Runs f(communicator that counts, backend) on each of `ranks` threads.
template <class Backend, class F>
void on_ranks(int ranks, F&& f) {
  on_backend::on_thread_ranks<Backend>(ranks, [&](auto& threads, const Backend& backend) {
    CountingOn<Backend> c(threads);
    f(c, backend);
  });
}

/// Every rank's result. `threads`: of each rank's backend, if it is the host. `deduplicate`: the
/// option.
template <class Backend, class... Policies>
std::vector<Result> train_ranks_on(int ranks, int steps, bool replicated = false, int threads = 1,
                                   bool one_hot = false, bool deduplicate = false) {
  std::vector<Result> results(static_cast<std::size_t>(ranks));
  on_ranks<Backend>(ranks, [&](CountingOn<Backend>& c, Backend backend) {
    if constexpr (std::is_same_v<Backend, Host>) backend = Host({.threads = threads});
    EmbeddingsOn<Backend, CountingOn<Backend>, Policies...> embeddings(
        c, backend, layout(ranks, replicated),
        {.learning_rate = 0.125f, .seed = 7, .deduplicate = deduplicate});
    results[static_cast<std::size_t>(c.rank())] = train(embeddings, c.rank(), steps, one_hot);
  });
  return results;
}
template <class... Policies>
std::vector<Result> train_ranks(int ranks, int steps, bool replicated = false, int threads = 1,
                                bool one_hot = false) {
  return train_ranks_on<Host, Policies...>(ranks, steps, replicated, threads, one_hot);
}

inline double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return 1e300;
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - b[i]);
    if (!(difference <= largest)) largest = difference;  // NaN shows
  }
  return largest;
}

}  // namespace small_model
