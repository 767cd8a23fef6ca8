// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// No batch, whatever its sizes, offsets and ids, may do more harm to a collection than an Error
// that leaves the tables as they were; one that is accepted gives what the definition says. One
// rank or two, data- or model-parallel.
#include <tessera/tessera.hpp>

#include "../support/fuzz_bytes.hpp"

#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

using namespace tessera;
using fuzz::Bytes;
using fuzz::expect;

namespace {

const std::vector<TableSpec> kTables{{"a", 50, 8}, {"b", 20, 8}, {"c", 7, 4}};
const std::vector<FeatureSpec> kFeatures{{"a sum", "a", Pooling::sum, false},
                                         {"a mean", "a", Pooling::mean, false},
                                         {"b mean", "b", Pooling::mean, true},
                                         {"c sum", "c", Pooling::sum, true}};
constexpr std::array<std::size_t, 4> kTableOf{0, 0, 1, 2};

/// a by rows, b by columns, c on the last rank.
Layout layout(int ranks) {
  std::vector<Shard> shards;
  for (int r = 0; r < ranks; ++r)
    shards.push_back({0, {even_cut(50, ranks, r), even_cut(50, ranks, r + 1), 0, 8}, r});
  shards.push_back({1, {0, 20, 0, 4}, 0});
  shards.push_back({1, {0, 20, 4, 8}, ranks - 1});
  shards.push_back({2, {0, 7, 0, 4}, ranks - 1});
  return make_layout({ranks}, kTables, kFeatures, shards);
}

/// A batch: at first a good one but for some ids, then damaged in some places.
struct Batch {
  std::int64_t features, batch;
  bool one_hot;
  std::vector<std::int64_t> ids, offsets, bounds;
  std::vector<float> weights;

  Batch(Bytes& bytes, int of_features)
      : features(of_features), batch(bytes.number(0, 6)), one_hot(bytes.number(0, 3) == 0) {
    if (!one_hot) offsets.push_back(0);
    for (std::int64_t bag = 0; bag < features * batch; ++bag) {
      for (int n = one_hot ? 1 : bytes.number(0, 4); n > 0; --n) {
        ids.push_back(bytes.number(-3, 57));
        weights.push_back(static_cast<float>(bytes.number(-8, 8)) / 4);
      }
      if (!one_hot) offsets.push_back(std::ssize(ids));
    }
    for (int n = bytes.number(0, 3); n > 0; --n) damage(bytes);
  }

  KeyedJagged<std::int64_t> keyed() const {
    return {features, batch, ids, offsets, weights, bounds};
  }

 private:
  static std::int64_t odd_number(Bytes& bytes) {
    switch (bytes.number(0, 4)) {
      case 0:
        return std::numeric_limits<std::int64_t>::max();
      case 1:
        return std::numeric_limits<std::int64_t>::min();
      case 2:
        return std::int64_t{1} << bytes.number(0, 62);
      case 3:
        return -1;
      default:
        return bytes.word();
    }
  }
  static void damage_one(Bytes& bytes, std::vector<std::int64_t>& values) {
    if (!values.empty())
      values[static_cast<std::size_t>(bytes.number(0, static_cast<int>(values.size()) - 1))] =
          odd_number(bytes);
  }
  void damage(Bytes& bytes) {
    switch (bytes.number(0, 9)) {
      case 0:
        features = odd_number(bytes);
        break;
      case 1:
        batch = odd_number(bytes);
        break;
      case 2:
        damage_one(bytes, offsets);
        break;
      case 3:
        damage_one(bytes, ids);
        break;
      case 4:
        ids.resize(ids.size() - (ids.empty() ? 0 : 1));
        break;
      case 5:
        weights.resize(weights.size() - (weights.empty() ? 0 : 1));
        break;
      case 6:
        weights.clear();
        break;
      case 7:
        offsets.resize(offsets.size() - (offsets.empty() ? 0 : 1));
        break;
      case 8:
        bounds.assign(static_cast<std::size_t>(bytes.number(0, 5)), odd_number(bytes));
        break;
      default:
        offsets.clear();
    }
  }
};

using Embeddings = LayoutCollection<Widths<>, RowWiseAdagrad, Host, ThreadCommunicator>;

template <class E>
std::vector<float> state_of(const E& embeddings) {
  std::vector<float> all;
  for (const auto& shard : embeddings.tables().local_shards()) {
    all.insert(all.end(), shard.weights.data,
               shard.weights.data + shard.weights.rows * shard.weights.columns);
    for (const auto& state : shard.states)
      all.insert(all.end(), state.data, state.data + state.rows * state.columns);
  }
  return all;
}

/// What the definition says of a batch that one rank has accepted.
void check_output(BadIds policy, const Embeddings& embeddings, const Batch& given,
                  MatrixView<float> output) {
  const KeyedJagged<std::int64_t> batch = given.keyed();
  std::int64_t column = 0;
  for (std::size_t f = 0; f < kFeatures.size(); ++f) {
    const TableSpec& table = kTables[kTableOf[f]];
    std::vector<float> rows(static_cast<std::size_t>(table.rows * table.width));
    embeddings.tables().get(table.name, {rows.data(), table.rows, table.width});
    for (std::int64_t s = 0; s < batch.batch; ++s)
      for (int c = 0; c < table.width; ++c) {
        const std::int64_t begin = batch.bag_begin(static_cast<std::int64_t>(f), s),
                           end = batch.bag_end(static_cast<std::int64_t>(f), s);
        double sum = 0;
        for (std::int64_t i = begin; i < end; ++i) {
          std::int64_t id = given.ids[static_cast<std::size_t>(i)];
          if (id < 0 || id >= table.rows) {
            expect(policy != BadIds::throw_error, "throw_error lets no bad id pass");
            if (policy == BadIds::zero_vector) continue;
            id = (id % table.rows + table.rows) % table.rows;
          }
          const double weight =
              kFeatures[f].weighted ? given.weights[static_cast<std::size_t>(i)] : 1;
          sum += weight * rows[static_cast<std::size_t>(id * table.width + c)];
        }
        if (kFeatures[f].pooling == Pooling::mean && end > begin)
          sum /= static_cast<double>(end - begin);
        expect(std::abs(sum - output(s, column + c)) <= 1e-4 * (1 + std::abs(sum)),
               "outputs are as defined");
      }
    column += table.width;
  }
}

void drive(BadIds policy, const std::uint8_t* data, std::size_t size, int ranks,
           bool model_parallel) {
  const auto on_rank = [&](ThreadCommunicator& communicator) {
    Bytes bytes(data, size);
    for (int i = 0; i < 2 * communicator.rank(); ++i) bytes.byte();  // ranks read other batches
    Embeddings embeddings(communicator, Host{}, layout(ranks),
                          {.learning_rate = 0.1f, .seed = 3, .bad_ids = policy});
    for (int step = 0; step < 2; ++step) {
      const Batch batch(bytes,
                        model_parallel ? static_cast<int>(embeddings.local_features().size()) : 4);
      const std::vector<float> before = state_of(embeddings);
      try {
        const auto pooled = model_parallel ? embeddings.forward_model_parallel(batch.keyed())
                                           : embeddings.forward(batch.keyed());
        if (ranks == 1) check_output(policy, embeddings, batch, pooled.values);
        const std::vector<float> gradient(
            static_cast<std::size_t>(pooled.values.rows * embeddings.columns()), 0.25f);
        std::vector<float> of_weights(batch.ids.size());
        embeddings.backward(pooled, {gradient.data(), pooled.values.rows, embeddings.columns()},
                            of_weights);
        expect(embeddings.steps() > 0 && embeddings.count_non_finite_weights() == 0,
               "an accepted batch updates, with numbers");
      } catch (const Error&) {
        const std::vector<float> after = state_of(embeddings);
        expect(std::memcmp(before.data(), after.data(), before.size() * sizeof(float)) == 0,
               "a refused batch changes nothing");
        if (ranks > 1) throw;
      }
    }
  };
  try {
    run_ranks(ranks, on_rank, {.timeout = std::chrono::seconds(60)});
  } catch (const Error& error) {
    expect(std::strstr(error.what(), "late:") == nullptr, "no rank waits in vain");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const int ranks = 1 + data[0] % 2;
  const bool model_parallel = data[0] / 2 % 4 == 3;
  constexpr std::array policies{BadIds::throw_error, BadIds::zero_vector, BadIds::wrap};
  drive(policies[data[0] / 8 % 3], data + 1, size - 1, ranks, model_parallel);
  return 0;
}
