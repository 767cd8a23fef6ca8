// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The cost model's formulas against samples and against counted traffic.
#include "../../bench/calibration.hpp"

#include <tessera/collection/embedding_collection.hpp>
#include <tessera/comm/counting_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/host/codec.hpp>
#include <tessera/host/copy_rows.hpp>
#include <tessera/host/distinct_ids.hpp>
#include <tessera/host/exchange.hpp>
#include <tessera/host/initialize.hpp>
#include <tessera/host/lookup.hpp>
#include <tessera/host/mark_rows.hpp>
#include <tessera/host/max_pooling.hpp>
#include <tessera/host/non_finite.hpp>
#include <tessera/host/sequence_rows.hpp>
#include <tessera/host/update.hpp>
#include <tessera/host/weight_gradients.hpp>
#include <tessera/optimizer/optimizers.hpp>
#include <tessera/planner/auto_plan.hpp>
#include <tessera/planner/cost.hpp>
#include <tessera/planner/plan_layout.hpp>
#include <tessera/tables/row_directory.hpp>
#include <tessera_data/synthetic.hpp>
#include <tessera_data/synthetic_models.hpp>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

using namespace tessera;

namespace {

/// Ids drawn as tessera_data/synthetic.hpp draws them, most frequent first.
struct Sample {
  std::vector<std::int64_t> ids;
  Sample(std::int64_t rows, double skew, std::int64_t count, unsigned seed) {
    const PowerLaw law(rows, skew);
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<double> uniform(0, 1);
    for (std::int64_t i = 0; i < count; ++i) ids.push_back(law(uniform(random)));
    std::sort(ids.begin(), ids.end());
  }
  double within(std::int64_t begin, std::int64_t end) const {
    return static_cast<double>(std::lower_bound(ids.begin(), ids.end(), end) -
                               std::lower_bound(ids.begin(), ids.end(), begin));
  }
  double distinct_within(std::int64_t begin, std::int64_t end) const {
    double n = 0;
    for (std::size_t i = 0; i < ids.size(); ++i)
      n += ids[i] >= begin && ids[i] < end && (i == 0 || ids[i] != ids[i - 1]);
    return n;
  }
};

/// A law of five standard deviations, and half a percent for the formulas' own approximations.
bool close(double predicted, double drawn) {
  return std::abs(predicted - drawn) < 5 * std::sqrt(drawn + 1) + 0.005 * drawn;
}

}  // namespace

TEST_CASE("exp, log and pow of constant expressions are those of the library") {
  static_assert(detail::constexpr_exp(1) > 2.7182818284590 &&
                detail::constexpr_exp(1) < 2.7182818284591);
  static_assert(detail::constexpr_log(1) == 0 && detail::constexpr_pow(2, 10) > 1023.9999999 &&
                detail::constexpr_pow(2, 10) < 1024.0000001);
  for (double x = -690; x < 690; x += 0.37)
    CHECK(detail::constexpr_exp(x) == doctest::Approx(std::exp(x)).epsilon(1e-13));
  for (double x = 1e-300; x < 1e300; x *= 3.7)
    CHECK(detail::constexpr_log(x) == doctest::Approx(std::log(x)).epsilon(1e-13));
  CHECK(detail::constexpr_exp(-1000) == 0);
  CHECK(detail::constexpr_pow(0, 3) == 0);
  CHECK(detail::constexpr_pow(0.3, 0) == 1);
  CHECK(detail::constexpr_pow(0.3, 7.5) == doctest::Approx(std::pow(0.3, 7.5)).epsilon(1e-13));
}

TEST_CASE("distinct rows and shares of ids, by formula and by drawing") {
  for (const std::int64_t rows : {7, 1000, 200'000, 30'000'000})
    for (const double skew : {0.0, 0.4, 1.0, 1.05, 1.6})
      for (const std::int64_t count : {50, 5000, 400'000}) {
        CAPTURE(rows);
        CAPTURE(skew);
        CAPTURE(count);
        const Sample sample(rows, skew, count, 7);
        const double n = static_cast<double>(count), r = static_cast<double>(rows);
        CHECK(close(detail::distinct_rows(n, r, 0, r, skew), sample.distinct_within(0, rows)));
        const std::int64_t cuts[] = {0, rows / 10, rows / 3, rows};
        double ids = 0, distinct = 0;
        for (int i = 0; i < 3; ++i) {
          const double begin = static_cast<double>(cuts[i]), end = static_cast<double>(cuts[i + 1]);
          CHECK(close(n * detail::share_of_ids(r, begin, end, skew),
                      sample.within(cuts[i], cuts[i + 1])));
          // Within a few rows the smooth law differs from its steps; the sum below is exact again.
          if (rows > 100)
            CHECK(close(detail::distinct_rows(n, r, begin, end, skew),
                        sample.distinct_within(cuts[i], cuts[i + 1])));
          ids += detail::share_of_ids(r, begin, end, skew);
          distinct += detail::distinct_rows(n, r, begin, end, skew);
        }
        CHECK(ids == doctest::Approx(1));
        CHECK(distinct == doctest::Approx(detail::distinct_rows(n, r, 0, r, skew)).epsilon(1e-3));
      }
  CHECK(detail::distinct_rows(0, 100, 0, 100, 1.05) == 0);
}

namespace {

/// Distinct rows of a batch, and those that a cache lacks: means over batches of a cache that is full.
struct DrawnCache {
  double distinct = 0, missed = 0;
  DrawnCache(std::int64_t rows, double skew, std::int64_t ids, std::int64_t slots, int batches) {
    detail::RowDirectory directory(slots);
    const PowerLaw law(rows, skew);
    std::mt19937_64 random(3);
    std::uniform_real_distribution<double> uniform(0, 1);
    std::int64_t filled = 0;
    for (int counted = 0; counted < batches; counted += filled == slots) {
      std::vector<std::int64_t> lacking;
      double used = 0;
      directory.begin_batch();
      for (std::int64_t i = 0; i < ids; ++i) {
        const std::int64_t row = law(uniform(random));
        if (const auto slot = directory.find(row); slot == detail::RowDirectory::none)
          lacking.push_back(row);
        else
          used += directory.use(slot);
      }
      std::sort(lacking.begin(), lacking.end());
      lacking.erase(std::unique(lacking.begin(), lacking.end()), lacking.end());
      const auto victims = directory.victims(std::ssize(lacking));
      REQUIRE(victims.size() == lacking.size());
      for (std::size_t i = 0; i < victims.size(); ++i) {
        directory.remove(victims[i]);
        directory.insert(victims[i], lacking[i]);
        directory.use(victims[i]);
      }
      if (filled == slots) {
        distinct += (used + static_cast<double>(lacking.size())) / batches;
        missed += static_cast<double>(lacking.size()) / batches;
      }
      filled = std::min(slots, filled + std::ssize(lacking));
    }
  }
};

}  // namespace

TEST_CASE("rows that a cache lacks, by formula and by the cache itself") {
  const std::int64_t rows = 20'000, ids = 1500;
  const double n = 1500, r = 20'000;
  for (const double skew : {0.0, 0.6, 1.0, 1.05, 1.3})
    for (const std::int64_t slots : {3'500, 6'000, 12'000}) {
      CAPTURE(skew);
      CAPTURE(slots);
      const DrawnCache drawn(rows, skew, ids, slots, 60);
      const double missed = detail::IdLaw{r, skew}.missed(n, static_cast<double>(slots), 0, r);
      CHECK(missed == doctest::Approx(drawn.missed).epsilon(0.03));
      // The price of misses alone: weights and a row's state go both ways over the bus.
      Cluster cluster = bench::with_one({}, bench::kConstants.size());
      cluster.bus_bandwidth = 1, cluster.directory_seconds = 0;
      Layout layout = uncut_layout(cluster.topology(),
                                   {{.name = "t", .rows = rows, .width = 32, .skew = skew}});
      const Workload workload{.batch = ids};
      const auto predicted = [&](Tier tier, std::int64_t cache) {
        layout.shards = {{0, {0, rows, 0, 32}, 0, tier, cache}};
        return predict(layout, cluster, workload).stages;
      };
      const detail::StageTimes cached = predicted(Tier::host, slots),
                               bare = predicted(Tier::host, 0);
      CHECK(cached.route == doctest::Approx(drawn.missed * 2 * (128 + 64)).epsilon(0.03));
      CHECK(cached.lookup + cached.update == 0);
      CHECK(bare.lookup == doctest::Approx(n * 128));
      CHECK(bare.update == doctest::Approx(drawn.distinct * 2 * (128 + 64)).epsilon(0.02));
      CHECK(predicted(Tier::host, rows).route == 0);
      cluster.bus_bandwidth = bench::kNever, cluster.file_bandwidth = 1;
      CHECK(predicted(Tier::file, slots).route ==
            doctest::Approx(drawn.missed * 3 * (4096 + 132)).epsilon(0.03));
      cluster.file_bandwidth = bench::kNever, cluster.directory_seconds = 1;
      CHECK(predicted(Tier::host, slots).route == doctest::Approx(n));
      CHECK(predicted(Tier::host, 0).route == 0);
      // Where a cache pays: by steps, and by the hit rate from which on it does.
      cluster.bus_bandwidth = 1;
      for (const double directory : {0.0, 100.0, 200.0, 400.0, 1e6}) {
        CAPTURE(directory);
        cluster.directory_seconds = directory;
        const detail::CostModel model(layout.tables, layout.features, layout.feature_table, cluster,
                                      workload);
        const detail::CacheGain gain = model.cache_gain(0, {0, rows, 0, 32}, false, slots);
        const double with = n * directory + drawn.missed * 384,
                     without = n * 128 + drawn.distinct * 384,
                     pays_from = 1 - (without - n * directory) / (drawn.distinct * 384);
        CHECK(gain.hit_rate == doctest::Approx(1 - drawn.missed / drawn.distinct).epsilon(0.03));
        CHECK(gain.seconds == doctest::Approx(with).epsilon(0.03));
        CHECK(gain.seconds_without == doctest::Approx(without).epsilon(0.03));
        CHECK(gain.pays_from == doctest::Approx(pays_from).epsilon(0.03));
        CHECK(gain.pays() == (gain.hit_rate > gain.pays_from));
        if (std::abs(with - without) > 0.1 * without) CHECK(gain.pays() == (with < without));
      }
    }
  // Blocks of sorted rows: each its own.
  for (const auto& [begin, end] : {std::pair(0, 5000), std::pair(5000, 20'000)}) {
    const double first = begin, last = end, slots = 3000;
    CHECK(detail::IdLaw{r, 1.05}.missed(300, slots, first, last) <
          detail::distinct_rows(300, r, first, last, 1.05));
    CHECK(detail::IdLaw{r, 1.05}.missed(300, last - first, first, last) == 0);
  }
}

TEST_CASE("frequencies measured from some ids say what other ids touch, as the law does") {
  const std::int64_t rows = 30'000;
  const double r = static_cast<double>(rows);
  for (const double skew : {0.6, 1.05, 1.4}) {
    CAPTURE(skew);
    const Sample recorded(rows, skew, 400'000, 1), other(rows, skew, 4'000, 2);
    std::vector<std::int64_t> counts;
    for (std::int64_t k = 0; k < rows; ++k)
      if (const double n = recorded.within(k, k + 1); n > 0)
        counts.push_back(static_cast<std::int64_t>(n));
    const detail::RowFrequencies found = detail::row_frequencies(counts, rows);
    double all_rows = 0, all_ids = 0;
    for (const auto& group : found.groups) all_rows += group.rows, all_ids += group.share;
    CHECK(all_rows == r);
    CHECK(all_ids == doctest::Approx(1));
    CHECK(found.groups.size() < 150);
    const detail::IdLaw measured{r, 0, &found}, law{r, skew};
    CHECK(measured.uneven());
    CHECK(measured.distinct(4'000, 0, r) ==
          doctest::Approx(other.distinct_within(0, rows)).epsilon(0.03));
    CHECK(measured.share(0, 500) == doctest::Approx(law.share(0, 500)).epsilon(0.03));
    const double slots = 1.5 * law.distinct(4'000, 0, r);
    CHECK(measured.missed(4'000, slots, 0, r) ==
          doctest::Approx(law.missed(4'000, slots, 0, r)).epsilon(0.05));
    // and a model of them
    Layout layout = uncut_layout({4}, {{.name = "t", .rows = rows, .width = 8, .skew = skew}});
    layout.shards = shards_of(strategy_choice(Strategy::row_wise, layout), layout);
    const Workload workload{.batch = 4'000, .sorted_ids = true};
    const double by_law = predict(layout, cpu_host(4, 0), workload).step_seconds;
    layout.tables[0].frequencies = &found;
    layout.tables[0].skew = 0;
    CHECK(predict(layout, cpu_host(4, 0), workload).step_seconds ==
          doctest::Approx(by_law).epsilon(0.03));
  }
}

TEST_CASE("predicted traffic is what a step sends") {
  // Every way of cutting, one-hot features alone, so that nothing is left to chance but the owner
  // of a row-wise id.
  const std::int64_t batch = 4096;
  const int ranks = 4;
  Layout layout{
      .topology = {ranks},
      .tables = {
          {"whole", 300, 8}, {"columns", 500, 16}, {"rows", 40'000, 8}, {"grid", 40'000, 16}}};
  for (const TableSpec& t : layout.tables) layout.features.push_back({t.name, t.name});
  const std::vector<Shard> shards{{0, {0, 300, 0, 8}, 2},         {1, {0, 500, 0, 4}, 0},
                                  {1, {0, 500, 4, 16}, 3},        {2, {0, 20'000, 0, 8}, 1},
                                  {2, {20'000, 40'000, 0, 8}, 2}, {3, {0, 10'000, 0, 8}, 0},
                                  {3, {0, 10'000, 8, 16}, 1},     {3, {10'000, 40'000, 0, 16}, 3}};
  layout = make_layout({ranks}, layout.tables, layout.features, shards);
  REQUIRE(layout.fault.ok());
  const detail::Prediction p =
      predict(layout, {.ranks = ranks}, {.batch = batch, .skew = 0, .id_bytes = 4}, true);

  std::vector<double> sent(ranks);
  run_ranks(ranks, [&](ThreadCommunicator& threads) {
    using Counting = CountingCommunicator<ThreadCommunicator>;
    Counting communicator(threads);
    LayoutCollection<Widths<8>, Sgd, Host, Counting> embeddings(communicator, Host({.threads = 1}),
                                                                layout, {});
    const std::int64_t n = batch / ranks;
    std::vector<std::int32_t> ids;
    for (std::size_t f = 0; f < layout.tables.size(); ++f)
      for (std::int64_t s = 0; s < n; ++s)
        ids.push_back(static_cast<std::int32_t>(random_word(5, f, threads.rank() * n + s) %
                                                static_cast<std::uint64_t>(layout.tables[f].rows)));
    const KeyedJagged<std::int32_t> keyed{
        static_cast<std::int64_t>(layout.tables.size()), n, ids, {}, {}};
    const auto pooled = embeddings.forward(keyed);
    std::vector<float> gradient(static_cast<std::size_t>(n * embeddings.columns()), 1.0f);
    embeddings.backward(pooled, MatrixView<const float>{gradient.data(), n, embeddings.columns()});
    sent[threads.rank()] = static_cast<double>(communicator.total().bytes);
  });
  for (int r = 0; r < ranks; ++r) {
    double predicted = 0;
    for (int to = 0; to < ranks; ++to)
      if (to != r) {
        predicted += p.id_traffic[r * ranks + to] + p.vector_traffic[r * ranks + to] +
                     p.vector_traffic[to * ranks + r];
      }
    CAPTURE(r);
    CHECK(sent[r] == doctest::Approx(predicted).epsilon(0.02));
  }
}

TEST_CASE("Merlin's synthetic models, scaled down: bytes sent are those predicted") {
  for (const SyntheticModel& model : synthetic_models) {
    const std::string name(model.name);
    const bool large = name == "large" || name == "jumbo" || name == "colossal";
    const std::int64_t batch = name == "tiny" ? 1024 : large ? 64 : 256;
    std::vector<std::string> names;  // of tables and their first features, then of second ones
    for (int i = 0; i < 2; ++i)
      for (const SyntheticTables& group : model.groups)
        for (int t = 0; t < group.tables; ++t) names.push_back(fmt::format("t{}", names.size()));
    std::vector<TableSpec> tables;
    std::vector<FeatureSpec> features;
    std::vector<SyntheticFeature> clicks;
    const auto add = [&](const TableSpec& table, std::int32_t hotness) {
      const std::size_t second = hotness > 1 ? names.size() / 2 : 0;
      features.push_back({.name = names[second + tables.size() - 1],
                          .table = table.name,
                          .hotness = static_cast<double>(hotness)});
      clicks.push_back(
          {.rows = table.rows, .alpha = 1.05, .min_hotness = hotness, .max_hotness = hotness});
    };
    for (const SyntheticTables& group : model.groups)
      for (int t = 0; t < group.tables; ++t) {
        tables.push_back({.name = names[tables.size()],
                          .rows = scaled_rows(group.rows, large ? 1e-6 : 1e-4),
                          .width = group.width});
        add(tables.back(), 1);
        if (group.hotness > 1) add(tables.back(), group.hotness);
      }
    const SyntheticClicks generator(clicks, {.dense_columns = model.numbers, .scatter_ids = false});
    for (const int ranks : {2, 4}) {
      CAPTURE(name);
      CAPTURE(ranks);
      const Cluster cluster{.ranks = ranks};
      const Workload workload{.batch = batch, .sorted_ids = true, .id_bytes = 4};
      const Layout layout =
          plan_layout(tables, features, cluster, workload,
                      {.pins = {{names[2], Cut::row_wise}, {names[3], Cut::column_wise}},
                       .forbidden = {Cut::replicated},
                       .effort = large ? 10'000 : 100'000});
      REQUIRE(layout.fault.ok());
      const detail::Prediction p = predict(layout, cluster, workload, true);
      std::vector<double> sent(static_cast<std::size_t>(ranks));
      run_ranks(ranks, [&](ThreadCommunicator& threads) {
        using Counting = CountingCommunicator<ThreadCommunicator>;
        Counting communicator(threads);
        LayoutCollection<Widths<8>, Sgd, Host, Counting> embeddings(
            communicator, Host({.threads = 1}), layout, {});
        ClickBatch<std::int32_t> part;
        generator.generate(threads.rank() * batch / ranks, batch / ranks, part);
        const auto pooled = embeddings.forward(part.keyed());
        const std::vector<float> gradient(
            static_cast<std::size_t>(part.size * embeddings.columns()), 1.0f);
        embeddings.backward(pooled, {gradient.data(), part.size, embeddings.columns()});
        sent[static_cast<std::size_t>(threads.rank())] =
            static_cast<double>(communicator.total().bytes);
      });
      double predicted = 0;
      for (int from = 0; from < ranks; ++from)
        for (int to = 0; to < ranks; ++to)
          if (to != from)
            predicted += p.id_traffic[static_cast<std::size_t>(from * ranks + to)] +
                         2 * p.vector_traffic[static_cast<std::size_t>(from * ranks + to)];
      CHECK(std::accumulate(sent.begin(), sent.end(), 0.0) ==
            doctest::Approx(predicted).epsilon(0.02));
    }
  }
}

namespace {

/// Adds up the bytes that come from other ranks.
struct Receiving {
  ThreadCommunicator& inner;
  double bytes = 0;

  int rank() const { return inner.rank(); }
  int size() const { return inner.size(); }
  bool host_memory_only() const { return true; }
  void barrier() { inner.barrier(); }
  template <Exchangeable T>
  void all_to_all(std::type_identity_t<std::span<const T>> send,
                  std::span<const std::size_t> send_counts, std::span<T> receive,
                  std::span<const std::size_t> receive_counts) {
    inner.all_to_all<T>(send, send_counts, receive, receive_counts);
    for (int r = 0; r < size(); ++r)
      if (r != rank())
        bytes += static_cast<double>(receive_counts[static_cast<std::size_t>(r)] * sizeof(T));
  }
  template <Exchangeable T>
  void all_gather(std::type_identity_t<std::span<const T>> send, std::span<T> receive,
                  std::span<const std::size_t> counts) {
    inner.all_gather<T>(send, receive, counts);
    for (int r = 0; r < size(); ++r)
      if (r != rank())
        bytes += static_cast<double>(counts[static_cast<std::size_t>(r)] * sizeof(T));
  }
};

double uneven(const std::vector<double>& v) {
  return *std::max_element(v.begin(), v.end()) * static_cast<double>(v.size()) /
         std::accumulate(v.begin(), v.end(), 0.0);
}

/// Tables by frequency, their ids at exponent 1.2, and what 8 ranks receive of them in a step.
struct FrequentRows {
  static constexpr int ranks = 8, width = 8;
  static constexpr std::int64_t batch = 262'144, n = batch / ranks;
  const std::vector<TableSpec> tables{
      {.name = "a", .rows = 200'000, .width = width, .hotness = 2, .skew = 1.2},
      {.name = "b", .rows = 1'000'000, .width = width, .skew = 1.2}};
  const SyntheticClicks generator{
      {{.rows = 200'000, .alpha = 1.2, .min_hotness = 2, .max_hotness = 2},
       {.rows = 1'000'000, .alpha = 1.2, .min_hotness = 1, .max_hotness = 1}},
      {.dense_columns = 0, .scatter_ids = false}};

  Layout cut(const detail::TableCut& how) const {
    Layout layout = uncut_layout({ranks}, tables);
    detail::PlanChoice choice;
    choice.tables.assign(tables.size(), how);
    layout.shards = shards_of(choice, layout);
    return layout;
  }
  /// By rank, without its own part; visit(rank's communicator, its batch) follows the step.
  template <class Visit>
  std::vector<double> received(const Layout& layout, bool deduplicate, const Visit& visit) const {
    std::vector<double> bytes(ranks);
    run_ranks(ranks, [&](ThreadCommunicator& threads) {
      Receiving communicator{threads};
      LayoutCollection<Widths<width>, Sgd, Host, Receiving> embeddings(
          communicator, Host({.threads = 1}), layout, {.deduplicate = deduplicate});
      ClickBatch<std::int32_t> part;
      generator.generate(threads.rank() * n, n, part);
      const double before = communicator.bytes;
      const auto pooled = embeddings.forward(part.keyed());
      const std::vector<float> gradient(static_cast<std::size_t>(n * embeddings.columns()), 1.0f);
      embeddings.backward(pooled, {gradient.data(), n, embeddings.columns()});
      bytes[static_cast<std::size_t>(threads.rank())] = communicator.bytes - before;
      visit(threads, part);
    });
    return bytes;
  }
  static std::vector<double> predicted(const detail::Prediction& p) {
    std::vector<double> bytes(ranks);
    for (std::size_t to = 0; to < ranks; ++to)
      for (std::size_t from = 0; from < ranks; ++from)
        if (to != from)
          bytes[to] += p.id_traffic[from * ranks + to] + p.vector_traffic[from * ranks + to] +
                       p.vector_traffic[to * ranks + from];
    return bytes;
  }
};

}  // namespace

TEST_CASE(
    "dealt rows: what ranks receive is even and as predicted, if each row is asked for once") {
  const FrequentRows model;
  constexpr int ranks = FrequentRows::ranks;
  const Workload workload{
      .batch = FrequentRows::batch, .sorted_ids = true, .id_bytes = 4, .deduplicate = true};
  for (const Cut cut : {Cut::interleaved, Cut::row_wise}) {
    CAPTURE(to_string(cut));
    const Layout layout = model.cut({.cut = cut});
    const std::vector<double> received = model.received(layout, true, [](auto&, auto&) {}),
                              predicted = FrequentRows::predicted(
                                  predict(layout, {.ranks = ranks}, workload, true));
    // Cold blocks get few ids, which chance moves.
    for (std::size_t r = 0; r < ranks; ++r) {
      CAPTURE(r);
      CHECK(received[r] ==
            doctest::Approx(predicted[r]).epsilon(cut == Cut::interleaved ? 0.02 : 0.04));
    }
    CHECK((uneven(received) < 1.10) == (cut == Cut::interleaved));
  }
}

TEST_CASE("hot rows: what ranks receive and look up is even and as predicted") {
  const FrequentRows model;
  constexpr int ranks = FrequentRows::ranks, width = FrequentRows::width;
  constexpr std::int64_t batch = FrequentRows::batch, n = FrequentRows::n;
  const Workload workload{.batch = batch, .sorted_ids = true, .id_bytes = 4};
  constexpr int hot = 4'096;
  for (const Cut cut : {Cut::hot_rows, Cut::interleaved}) {
    CAPTURE(to_string(cut));
    const Layout layout = model.cut({.cut = cut, .parts = cut == Cut::hot_rows ? hot : 1});
    const detail::Prediction p = predict(layout, {.ranks = ranks}, workload, true);
    std::vector<double> looked_up(ranks), predicted = FrequentRows::predicted(p);
    const auto count = [&](ThreadCommunicator& threads, const ClickBatch<std::int32_t>& part) {
      for (int turn = 0; turn < ranks; ++turn) {
        if (turn == threads.rank())
          for (std::int64_t i = 0; i < 3 * n; ++i) {
            const std::pair row(i < 2 * n ? 0 : 1,
                                std::int64_t{part.keyed().ids[static_cast<std::size_t>(i)]});
            const auto behind = std::upper_bound(  // shards ascend, by table and row
                layout.shards.begin(), layout.shards.end(), row, [](const auto& r, const Shard& s) {
                  return r < std::pair(s.table, s.rectangle.row_begin);
                });
            const int rank = std::prev(behind)->rank;
            looked_up[static_cast<std::size_t>(rank == every_rank ? turn : rank)] += 1;
          }
        threads.barrier();
      }
    };
    const std::vector<double> received = model.received(layout, false, count);
    for (std::size_t to = 0; to < ranks && cut == Cut::hot_rows; ++to) {
      // each other rank's rows that its samples ask for: number and gradient
      for (const TableSpec& table : model.tables)
        predicted[to] += (ranks - 1) * (8 + 4 * width) *
                         detail::distinct_rows(table.hotness * n, static_cast<double>(table.rows),
                                               0, hot, table.skew);
    }
    CHECK((uneven(received) <= 1.10) == (cut == Cut::hot_rows));
    CHECK((uneven(looked_up) <= 1.10) == (cut == Cut::hot_rows));
    for (std::size_t r = 0; r < ranks && cut == Cut::hot_rows; ++r)
      CHECK(received[r] == doctest::Approx(predicted[r]).epsilon(0.02));
  }
}

TEST_CASE("the work of a step, by hand") {
  // Two tables of 100 rows, one cut by rows, bags of 3; 2 ranks, 8 samples. One constant at a time
  // is 1, all others cost nothing.
  const Layout layout =
      make_layout({2},
                  {{.name = "whole", .rows = 100, .width = 16, .hotness = 3},
                   {.name = "cut", .rows = 100, .width = 32, .hotness = 3}},
                  {}, {{0, {0, 100, 0, 16}, 0}, {1, {0, 50, 0, 32}, 0}, {1, {50, 100, 0, 32}, 1}});
  REQUIRE(layout.fault.ok());
  const Workload workload{.batch = 8, .skew = 0, .id_bytes = 4};
  const auto work = [&](double Cluster::* constant) {
    Cluster c{.ranks = 2, .flops = 1};
    for (const bench::Constant& k : bench::kConstants) c.*k.member = k.inverse ? bench::kNever : 0;
    c.launch_seconds = c.node_latency = 0;
    c.*constant = 1;
    return bench::work_of(predict(layout, c, workload));
  };
  // Every sample has 6 ids. Half of the samples live on rank 0, which keeps them where the table is
  // whole.
  CHECK(work(&Cluster::check_seconds).route == doctest::Approx(48));
  CHECK(work(&Cluster::route_seconds).route == doctest::Approx(12 + 24));
  // two blocks: two looks per id
  CHECK(work(&Cluster::cut_seconds).route == doctest::Approx(2 * 24));
  // A bag of three misses a half with 1/8: 14 vectors of the cut table, 8 of the whole one, 4 of
  // which do not travel.
  CHECK(work(&Cluster::vector_seconds).assemble == doctest::Approx(2 * (4 + 14)));
  CHECK(work(&Cluster::lookup_seconds).lookup == doctest::Approx(48));
  CHECK(work(&Cluster::merge_seconds).update == doctest::Approx(48));
  CHECK(work(&Cluster::node_bandwidth).exchange == doctest::Approx(4 * 64 + 7 * 128));
  // Own halves of the cut table's vectors pass through the exchange too.
  CHECK(work(&Cluster::stream_bandwidth).exchange == doctest::Approx(7 * 128));
  CHECK(work(&Cluster::stream_bandwidth).update == doctest::Approx(8 * 64 + 14 * 128));
  // A half misses 1 of 8 samples: gaps in the order of 512 bytes, both ways, twice.
  CHECK(work(&Cluster::gather_bandwidth).assemble == doctest::Approx(2 * 2 * 512 / 8));
  // two collectives while ids are routed, one for vectors, none for the update
  CHECK(work(&Cluster::wake_seconds).route == doctest::Approx(2 * 2));
  CHECK(work(&Cluster::wake_seconds).exchange == doctest::Approx(2));
  CHECK(work(&Cluster::wake_seconds).update == 0);
  // Packed vectors and the matrix, both ways; of cut tables the matrix is also zeroed and read.
  CHECK(work(&Cluster::stream_bandwidth).assemble ==
        doctest::Approx(4 * 4 * 64 + 2 * 14 * 128 + 4 * 8 * 128));
}

TEST_CASE("mean squares of whole rows take time, most where columns are cut, by hand") {
  // 100 rows of 32 columns, 8 samples of 3 ids: 100 (1 - exp(-0.24)) rows
  const double rows = 100 * (1 - std::exp(-0.24));
  const std::vector<TableSpec> tables{{.name = "t", .rows = 100, .width = 32, .hotness = 3}};
  const Layout whole = make_layout({2}, tables, {}, {{0, {0, 100, 0, 32}, 0}}),
               halves = make_layout({2}, tables, {},
                                    {{0, {0, 100, 0, 16}, 0}, {0, {0, 100, 16, 32}, 1}});
  const auto update = [&](const Layout& layout, double Cluster::* constant,
                          const detail::MemoryCost& memory) {
    Cluster c{.ranks = 2, .flops = 1};
    for (const bench::Constant& k : bench::kConstants) c.*k.member = k.inverse ? bench::kNever : 0;
    c.launch_seconds = c.node_latency = 0;
    c.*constant = 1;
    return bench::work_of(predict(layout, c, {.batch = 8, .skew = 0, .memory = memory})).update;
  };
  CHECK(update(whole, &Cluster::lookup_seconds, memory_cost_of<Adagrad>) == 0);
  CHECK(update(halves, &Cluster::lookup_seconds, memory_cost_of<Adagrad>) == 0);
  constexpr auto row_wise = memory_cost_of<RowWiseAdagrad>;
  CHECK(update(whole, &Cluster::lookup_seconds, row_wise) == doctest::Approx(rows * 32 / 2));
  // each half: its own columns twice
  CHECK(update(halves, &Cluster::lookup_seconds, row_wise) == doctest::Approx(2 * rows * 16 * 2));
  CHECK(update(whole, &Cluster::merge_seconds, row_wise) == doctest::Approx(24));
  CHECK(update(halves, &Cluster::merge_seconds, row_wise) ==
        doctest::Approx(2 * (24 + rows * 3 * 2)));
}

namespace {

/// Plans of every kind on 1, 2 and 4 ranks, and the work that a machine with these constants would
/// have with them, each stage off by a factor within 1 +- noise.
std::vector<bench::Observation> observe(const Cluster& machine, double noise) {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> factor(1 - noise, 1 + noise);
  std::vector<bench::Observation> all;
  for (const int ranks : {1, 2, 4})
    for (const auto& [rows, width, hotness, skew] :
         {std::tuple(200'000, 16, 1.0, 1.05), std::tuple(1'000'000, 64, 10.0, 0.0),
          std::tuple(20'000, 128, 4.0, 1.05), std::tuple(1000, 8, 1.0, 0.5)}) {
      std::vector<TableSpec> tables;
      for (const char* name : {"a", "b", "c", "d"})
        tables.push_back(
            {.name = name, .rows = rows, .width = width, .hotness = static_cast<double>(hotness)});
      Cluster cluster = machine;
      cluster.ranks = ranks;
      Layout layout = uncut_layout(cluster.topology(), tables);
      for (const Strategy s : detail::all_strategies) {
        if (ranks == 1 && s != Strategy::round_robin) continue;
        layout.shards = shards_of(strategy_choice(s, layout), layout);
        const Workload workload{.batch = 4096, .skew = skew};
        all.push_back({layout, workload, bench::work_of(predict(layout, cluster, workload))});
        for (const bench::StageMember stage : bench::kStages)
          all.back().work.*stage *= factor(random);
      }
    }
  return all;
}

constexpr Cluster kMachine{.stream_bandwidth = 1.1e10,
                           .gather_bandwidth = 6e9,
                           .cache_bandwidth = 4e10,
                           .lookup_seconds = 2e-9,
                           .check_seconds = 6e-10,
                           .route_seconds = 1.5e-9,
                           .cut_seconds = 1.2e-8,
                           .vector_seconds = 3e-9,
                           .merge_seconds = 2e-8,
                           .block_seconds = 6e-8,
                           .launch_seconds = 1e-7,
                           .node_bandwidth = 7e9,
                           .node_latency = 4e-6,
                           .wake_seconds = 2e-5};

Cluster unknown() {
  return {.launch_seconds = kMachine.launch_seconds,
          .node_latency = kMachine.node_latency,
          .wake_seconds = kMachine.wake_seconds};
}

}  // namespace

TEST_CASE("the fit finds the constants that made the timings") {
  const Cluster exact = bench::fit(observe(kMachine, 0), unknown());
  for (const bench::Constant& c : bench::kConstants)
    CHECK(exact.*c.member == doctest::Approx(kMachine.*c.member).epsilon(1e-4));
  // Timings off by up to a tenth, and some of them, as on a machine with other work, by a factor of
  // five.
  std::vector<bench::Observation> noisy = observe(kMachine, 0.1);
  for (std::size_t i = 0; i < noisy.size(); i += 7)
    noisy[i].work.update *= 5, noisy[i].work.route *= 5;
  const Cluster found = bench::fit(noisy, unknown());
  for (const auto member :
       {&Cluster::gather_bandwidth, &Cluster::node_bandwidth, &Cluster::check_seconds,
        &Cluster::cut_seconds, &Cluster::merge_seconds, &Cluster::stream_bandwidth})
    CHECK(found.*member == doctest::Approx(kMachine.*member).epsilon(0.1));
  for (const bench::Observation& o : observe(kMachine, 0)) {
    Cluster cluster = found;
    cluster.ranks = o.layout.ranks();
    CHECK(bench::work_of(predict(o.layout, cluster, o.workload)).embeddings() ==
          doctest::Approx(o.work.embeddings()).epsilon(0.05));
  }
}

TEST_CASE("the fit finds what caches keep of a batch") {
  Cluster machine = kMachine;
  machine.cached_bytes = 2e6, machine.beyond_cache = 2;
  const std::array<double, 2> sizes{2e6, 8e6}, prices{2, 3};
  const Cluster found = bench::fit_with_caches(observe(machine, 0), unknown(), sizes, prices);
  CHECK(found.cached_bytes == 2e6);
  CHECK(found.beyond_cache == 2);
  for (const bench::Constant& c : bench::kConstants)
    CHECK(found.*c.member == doctest::Approx(machine.*c.member).epsilon(1e-4));
  // Where nothing is beyond them, neither costs anything.
  CHECK(bench::fit_with_caches(observe(kMachine, 0), unknown(), sizes, prices).beyond_cache == 1);
}

TEST_CASE("the fit refuses what are no timings, and leaves alone what was not measured") {
  CHECK_THROWS_WITH_AS(bench::fit({}, unknown()), doctest::Contains("no stage was measured"),
                       InvalidArgument);
  for (const double wrong :
       {-1e-3, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    std::vector<bench::Observation> observations = observe(kMachine, 0);
    observations[1].work.lookup = wrong;
    CHECK_THROWS_WITH_AS(bench::fit(observations, unknown()), doctest::Contains("a stage took"),
                         InvalidArgument);
  }
  // One rank exchanges nothing: what that costs stays as it was given.
  std::vector<bench::Observation> one = observe(kMachine, 0);
  std::erase_if(one, [](const bench::Observation& o) { return o.layout.ranks() > 1; });
  const Cluster found = bench::fit(one, unknown());
  CHECK(found.node_bandwidth == unknown().node_bandwidth);
  CHECK(found.vector_seconds == unknown().vector_seconds);
  CHECK(found.check_seconds == doctest::Approx(kMachine.check_seconds).epsilon(1e-4));
}

TEST_CASE("what caches do not keep of a batch takes longer") {
  // 1,000 samples x 2 features: 3 ids of 8 bytes and a vector of 64, and 2 ids with as many vectors
  // of 32 bytes: 168 KB
  const std::vector<TableSpec> tables{{.name = "a", .rows = 1000, .width = 16, .hotness = 3},
                                      {.name = "b", .rows = 1000, .width = 8, .hotness = 2}};
  std::vector<FeatureSpec> features{{.name = "a", .table = "a"}, {.name = "b", .table = "b"}};
  features[1].pooling = Pooling::none;
  Layout layout = uncut_layout({2}, tables, features);
  layout.shards = shards_of(strategy_choice(Strategy::round_robin, layout), layout);
  const Workload workload{.batch = 1000};
  Cluster cluster = kMachine;
  cluster.ranks = 2;
  const detail::StageTimes in_cache = bench::work_of(predict(layout, cluster, workload));
  cluster.beyond_cache = 3;
  for (const double kept : {168e3, 1e6}) {
    cluster.cached_bytes = kept;
    CHECK(bench::work_of(predict(layout, cluster, workload)).embeddings() == in_cache.embeddings());
  }
  // Three quarters of the bytes at three times the price: 2.5 times as long.
  cluster.cached_bytes = 42e3;
  Cluster slow = kMachine;
  slow.ranks = 2;
  for (const auto rate : {&Cluster::stream_bandwidth, &Cluster::gather_bandwidth})
    slow.*rate /= 2.5;
  for (const auto seconds :
       {&Cluster::lookup_seconds, &Cluster::check_seconds, &Cluster::route_seconds,
        &Cluster::vector_seconds, &Cluster::merge_seconds})
    slow.*seconds *= 2.5;
  const detail::StageTimes beyond = bench::work_of(predict(layout, cluster, workload)),
                           slower = bench::work_of(predict(layout, slow, workload));
  for (const bench::StageMember stage : bench::kStages)
    CHECK(beyond.*stage == doctest::Approx(slower.*stage));
  // A model of which only a part is here has the rates of the whole one.
  const Cluster whole =
      detail::for_batches(cluster, tables, features, layout.feature_table, workload);
  const Layout part = uncut_layout({2}, {tables[0]}, {features[0]});
  CHECK(detail::CostModel(part.tables, part.features, part.feature_table, whole, workload)
            .cluster()
            .check_seconds == doctest::Approx(2.5 * kMachine.check_seconds));
}

TEST_CASE("predictions follow the load") {
  const std::vector<TableSpec> tables{{"a", 1'000'000, 64}, {"b", 1'000'000, 64}};
  const Layout level =
      make_layout({2}, tables, {}, {{0, {0, 1'000'000, 0, 64}, 0}, {1, {0, 1'000'000, 0, 64}, 1}});
  const Layout skewed =
      make_layout({2}, tables, {}, {{0, {0, 1'000'000, 0, 64}, 0}, {1, {0, 1'000'000, 0, 64}, 0}});
  const Cluster cluster{.ranks = 2};
  const detail::Prediction a = predict(level, cluster, {}), b = predict(skewed, cluster, {});
  CHECK(a.memory_imbalance() == doctest::Approx(1));
  CHECK(b.memory_imbalance() == doctest::Approx(2));
  CHECK(b.stages.lookup > 1.5 * a.stages.lookup);
  CHECK(b.stages.exchange > 1.5 * a.stages.exchange);
  CHECK(a.most_bytes() == 1'000'000 * (64 * 4 + 4));
  // Fast ranks wait for the slowest; where one core serves both, work adds up instead.
  Cluster one_core = cluster;
  one_core.concurrent_ranks = 1;
  CHECK(predict(level, one_core, {}).stages.lookup == doctest::Approx(2 * a.stages.lookup));
  // Ranks that share cores fairly, by steps of a ten thousandth: more than their sum over the cores
  // where the last ones run alone.
  for (const int cores : {1, 2, 3}) {
    std::vector<double> work{0.5, 0.1, 0.1, 0.3}, left = work;
    double seconds = 0;
    for (std::ptrdiff_t busy = 1; busy > 0; seconds += busy > 0 ? 1e-5 : 0) {
      busy = std::count_if(left.begin(), left.end(), [](double w) { return w > 0; });
      for (double& w : left) w -= 1e-5 * std::min(1.0, cores / static_cast<double>(busy));
    }
    CHECK(detail::shared_seconds(work, cores) == doctest::Approx(seconds).epsilon(1e-3));
  }
  // Dense layers hide the routing of the next batch.
  Workload dense{.dense_flops = 1e9};
  const double apart = predict(level, cluster, dense).step_seconds;
  dense.overlap_route = true;
  CHECK(predict(level, cluster, dense).step_seconds == doctest::Approx(apart - a.stages.route));
  // Frequent rows first: the first block of rows gets nearly all ids.
  const Layout rows = make_layout({2}, tables, {},
                                  {{0, {0, 500'000, 0, 64}, 0},
                                   {0, {500'000, 1'000'000, 0, 64}, 1},
                                   {1, {0, 1'000'000, 0, 64}, 1}});
  const detail::Prediction sorted = predict(rows, cluster, {.sorted_ids = true}, true),
                           mixed = predict(rows, cluster, {}, true);
  CHECK(sorted.id_traffic[1] < 0.6 * mixed.id_traffic[1] + 0.4 * 65536 / 2 * 8 * 1.5);
  CHECK(mixed.id_traffic[0] == doctest::Approx(65536.0 / 4 * 8 + 32));
  CHECK(sorted.id_traffic[0] > 1.7 * mixed.id_traffic[0]);
}

TEST_CASE("a collection takes a plan that the compiler chose, and trains as on one rank") {
  using Tables2 =
      TableList<Table<"query", 4000, 16>, Table<"user", 300, 16>, Table<"country", 20, 16>>;
  using Chosen = AutoPlan<Tables2, Cluster{.ranks = 2}, Workload{.batch = 64},
                          Pin<"query", Cut::row_wise>, Forbid<Cut::replicated, Cut::column_wise>>;
  const auto train = [](int ranks) {
    std::vector<float> all(64 * 48);
    run_ranks(ranks, [&](ThreadCommunicator& threads) {
      CountingCommunicator<ThreadCommunicator> communicator(threads);
      using Embeddings =
          EmbeddingCollection<Chosen, Sgd, Host, CountingCommunicator<ThreadCommunicator>>;
      static_assert(fits<Embeddings, Cluster{.ranks = 2, .memory_per_rank = 1_MiB}>);
      Embeddings embeddings(communicator, Host({.threads = 1}), {.learning_rate = 0.1f, .seed = 3});
      const std::int64_t n = 64 / ranks;
      const std::int64_t rows[] = {4000, 300, 20};
      std::vector<std::int32_t> ids;
      for (int f = 0; f < 3; ++f)
        for (std::int64_t s = 0; s < n; ++s)
          ids.push_back(static_cast<std::int32_t>(random_word(9, f, threads.rank() * n + s) %
                                                  static_cast<std::uint64_t>(rows[f])));
      const KeyedJagged<std::int32_t> keyed{3, n, ids, {}, {}};
      for (int step = 0; step < 3; ++step) {
        const auto pooled = embeddings.forward(keyed);
        std::copy_n(pooled.values.data, n * 48, all.begin() + threads.rank() * n * 48);
        const std::vector<float> gradient(pooled.values.data, pooled.values.data + n * 48);
        embeddings.backward(pooled, MatrixView<const float>{gradient.data(), n, 48});
      }
    });
    return all;
  };
  CHECK(train(2) == train(1));
}
