// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// What a collection does with input that no trainer means to give: the matrix in docs/errors.md, one test case for each line.
#include <support/small_model.hpp>

#include <doctest/doctest.h>
#include <simt/sanitizer.hpp>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

using namespace tessera;

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <class... Policies>
using OneRank = small_model::Embeddings<SelfCommunicator, Policies...>;

template <class... Sources>
struct CutsOnThree {
  using tables = TableList<Sources...>;
  static constexpr bool whole_rows = true;
  static constexpr int count(const TableSpec&, const Topology& topology) { return topology.ranks == 3 ? 2 : 1; }
  static constexpr ShardRequest shard(const TableSpec& table, const Topology& topology, int i) {
    const std::int32_t width = table.width / count(table, topology);
    return {{0, table.rows, i * width, (i + 1) * width}, {}};
  }
};
template <class... Sources>
struct CopiesOnThree {
  using tables = TableList<Sources...>;
  static constexpr bool whole_rows = true;
  static constexpr int count(const TableSpec&, const Topology&) { return 1; }
  static constexpr ShardRequest shard(const TableSpec& table, const Topology& topology, int) {
    return {{0, table.rows, 0, table.width}, {.kind = topology.ranks == 3 ? Place::Kind::every : Place::Kind::any}};
  }
};

template <class Policy>
void on_ranks(int ranks) {
  run_ranks(ranks, [](ThreadCommunicator& c) { EmbeddingCollection<Plan<Policy>, Sgd, Host, ThreadCommunicator>(c, Host{}, {}); });
}

/// Steps of the small model on some ranks; at step `bad_step` rank `bad_rank` gives a gradient with bad numbers, or (`left_out`) nobody
/// takes that step at all.
template <class... Policies>
std::vector<std::vector<float>> shards_after(int ranks, int bad_step, bool left_out, std::uint64_t rejected, std::uint64_t counted) {
  std::vector<std::vector<float>> shards(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](ThreadCommunicator& thread_rank) {
    small_model::Counting c(thread_rank);
    small_model::Embeddings<small_model::Counting, Policies...> embeddings(c, Host(), small_model::layout(ranks, true), {.seed = 7});
    for (int step = 0; step < 4; ++step) {
      small_model::Batch batch(c.rank(), step, small_model::samples_of(c.rank(), step), embeddings.columns());
      if (step == bad_step && left_out) continue;
      if (step == bad_step && c.rank() == ranks - 1) {
        batch.gradient[3] = kNan;
        batch.gradient[70] = -kInfinity;
      }
      const auto pooled = embeddings.forward(batch.keyed());
      const MatrixView<const float> gradient(batch.gradient.data(), batch.samples, embeddings.columns());
      std::vector<float> of_weights(batch.ids.size(), 1.0f);
      embeddings.backward(pooled, gradient, of_weights);
      if (rejected != 0 && step == bad_step)
        for (const float x : of_weights) require<Error>(x == 0, "a rejected step has weight gradients");
    }
    require<Error>(embeddings.rejected_steps() == (left_out ? 0 : rejected), "{} steps were rejected", embeddings.rejected_steps());
    require<Error>(embeddings.non_finite_gradients() == (left_out || c.rank() != ranks - 1 ? 0 : counted), "{} were counted",
                   embeddings.non_finite_gradients());
    require<Error>(embeddings.steps() == (left_out || rejected != 0 ? 3 : 4), "{} steps", embeddings.steps());
    shards[static_cast<std::size_t>(c.rank())] = small_model::shards_of(embeddings);
    const std::int64_t bad = embeddings.count_non_finite_weights();
    std::int64_t found = 0;
    for (const auto& shard : embeddings.tables().local_shards())
      for (std::int64_t r = 0; r < shard.weights.rows; ++r)
        for (std::int64_t k = 0; k < shard.weights.columns; ++k) found += !std::isfinite(shard.weights(r, k));
    require<Error>(bad == found, "{} weights are said to be no numbers, {} are", bad, found);
  });
  return shards;
}

std::string message_of(auto&& f) {
  try {
    f();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "no exception";
}
void check_message(auto&& f, const std::string& part) {
  const std::string text = message_of(f);
  CAPTURE(text);
  CHECK(text.find(part) != std::string::npos);
}

}  // namespace

TEST_CASE("gradients that are NaN or infinite: a rejected step changes nothing on any rank") {
  for (const int ranks : {1, 3}) {
    const auto expected = shards_after<RejectNonFiniteGradients>(ranks, 2, true, 1, 2);
    const auto rejected = shards_after<RejectNonFiniteGradients>(ranks, 2, false, 1, 2);
    for (int r = 0; r < ranks; ++r)
      CHECK(small_model::same_bits(expected[static_cast<std::size_t>(r)], rejected[static_cast<std::size_t>(r)]));
  }
}

TEST_CASE("gradients that are NaN or infinite: counted or not, they are used") {
  const auto counted = shards_after<CountNonFiniteGradients>(3, 2, false, 0, 2), used = shards_after<>(3, 2, false, 0, 0);
  std::int64_t bad = 0;
  for (std::size_t r = 0; r < 3; ++r) {
    CHECK(small_model::same_bits(counted[r], used[r]));
    for (const float x : used[r]) bad += !std::isfinite(x);
  }
  CHECK(bad > 0);
}

TEST_CASE("offsets that go backwards, counts that are negative or huge") {
  SelfCommunicator self;
  OneRank<> embeddings(self, Host(), small_model::layout(1), {});
  const small_model::Batch good(0, 0, 4, embeddings.columns());
  const std::vector<float> before = small_model::shards_of(embeddings);
  const auto refuses = [&](auto&& damage, const std::string& part) {
    small_model::Batch batch = good;
    KeyedJagged<std::int64_t> ids = batch.keyed();
    damage(batch, ids);
    ids.ids = batch.ids;
    if (!ids.offsets.empty()) ids.offsets = batch.offsets;
    if (!ids.weights.empty()) ids.weights = batch.weights;
    check_message([&] { embeddings.forward(ids); }, part);
  };
  refuses([](auto& b, auto&) { std::swap(b.offsets[7], b.offsets[12]); }, "offsets go backwards at feature");
  refuses([](auto& b, auto&) { b.offsets[3] = std::numeric_limits<std::int64_t>::max(); }, "offsets go backwards");
  refuses([](auto& b, auto&) { b.offsets[3] = std::numeric_limits<std::int64_t>::min(); }, "offsets go backwards");
  refuses([](auto& b, auto&) { b.offsets[0] = -1; }, "first offset must be 0");
  refuses([](auto& b, auto&) { b.offsets.back() += std::int64_t{1} << 40; }, "the last offset is");
  refuses([](auto& b, auto&) { b.offsets.pop_back(); }, "offsets, got");
  refuses([](auto& b, auto&) { b.ids.pop_back(), b.weights.pop_back(); }, "the last offset is");
  refuses([](auto& b, auto&) { b.weights.pop_back(); }, "give one per id");
  refuses([](auto&, auto& ids) { ids.weights = {}; }, "the batch has no weights");
  refuses([](auto&, auto& ids) { ids.batch = -1; }, "must not be negative");
  refuses([](auto&, auto& ids) { ids.batch = std::numeric_limits<std::int64_t>::max(); }, "too many bags");
  refuses([](auto&, auto& ids) { ids.batch = std::int64_t{1} << 61; }, "too many bags");
  refuses([](auto&, auto& ids) { ids.features = 7; }, "7 features");
  refuses([](auto&, auto& ids) { ids.offsets = {}; }, "one-hot batch of");
  CHECK(small_model::same_bits(small_model::shards_of(embeddings), before));
  embeddings.forward(good.keyed());  // as if nothing had happened
}

TEST_CASE("ids around 2^31 and 2^32 are outside, whatever their low bits say") {
  SelfCommunicator self;
  OneRank<> strict(self, Host(), small_model::layout(1), {});
  OneRank<ZeroVector> zero(self, Host(), small_model::layout(1), {});
  for (const std::int64_t id :
       {std::int64_t{1} << 31, (std::int64_t{1} << 31) - 1, -(std::int64_t{1} << 31), std::int64_t{1} << 32, (std::int64_t{1} << 32) + 3,
        std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()}) {
    small_model::Batch batch(0, 0, 4, strict.columns());
    batch.ids[0] = id;
    check_message([&] { strict.forward(batch.keyed()); }, fmt::format("id {} is outside its table of", id));
    zero.forward(batch.keyed());
  }
  std::uint64_t bad = 0;
  for (const std::uint64_t n : zero.bad_ids()) bad += n;
  CHECK(bad == 7);
  std::vector<std::int32_t> ids(6, 0);
  ids[2] = std::numeric_limits<std::int32_t>::min();
  const std::vector<float> weights(6);
  check_message([&] { strict.forward(KeyedJagged<std::int32_t>{6, 1, ids, {}, weights}); }, "id -2147483648");
}

TEST_CASE("batches of no sample, bags of no id") {
  for (const bool offsets : {true, false})
    run_ranks(3, [&](ThreadCommunicator& thread_rank) {
      small_model::Counting c(thread_rank);
      small_model::Embeddings<small_model::Counting> embeddings(c, Host(), small_model::layout(3, true), {.seed = 7});
      const std::vector<float> before = small_model::shards_of(embeddings);
      const std::vector<std::int64_t> none{0}, empty_bags(6 * 5 + 1);
      for (const auto& ids : {KeyedJagged<std::int64_t>{6, 0, {}, offsets ? std::span(none) : std::span<const std::int64_t>(), {}},
                              KeyedJagged<std::int64_t>{6, 5, {}, empty_bags, {}}}) {
        const auto pooled = embeddings.forward(ids);
        require<Error>(pooled.values.rows == ids.batch, "{} samples", pooled.values.rows);
        std::vector<float> gradient(static_cast<std::size_t>(ids.batch * embeddings.columns()), 1.0f);
        for (std::int64_t s = 0; s < ids.batch; ++s)
          for (std::int64_t k = 0; k < embeddings.columns(); ++k) require<Error>(pooled.values(s, k) == 0, "an empty bag is not zero");
        embeddings.backward(pooled, {gradient.data(), ids.batch, embeddings.columns()});
      }
      require<Error>(small_model::same_bits(small_model::shards_of(embeddings), before), "rows changed that nobody read");
      require<Error>(embeddings.steps() == 2, "{} steps", embeddings.steps());
    });
}

TEST_CASE("tables of no width or no rows, shards beyond them") {
  const auto collection_of = [](TableSpec table, Rectangle rectangle) {
    SelfCommunicator self;
    OneRank<> embeddings(self, Host(), make_layout({1}, std::vector{table}, {}, std::vector<Shard>{{0, rectangle, 0}}), {});
  };
  check_message([&] { collection_of({"t", 4, 0}, {0, 4, 0, 0}); }, "'t'");
  check_message([&] { collection_of({"t", 0, 4}, {0, 0, 0, 4}); }, "'t'");
  check_message([&] { collection_of({"t", -5, 4}, {0, -5, 0, 4}); }, "'t'");
  check_message([&] { collection_of({"t", 4, 4}, {0, 5, 0, 4}); }, "'t'");
  CHECK(message_of([&] { collection_of({"t", 1, 1}, {0, 1, 0, 1}); }) == "no exception");
}

TEST_CASE("the gradient of a batch that is not the last one looked up, or of another collection") {
  SelfCommunicator self;
  OneRank<> embeddings(self, Host(), small_model::layout(1), {}), others(self, Host(), small_model::layout(1), {});
  small_model::Batch first(0, 0, 4, embeddings.columns()), second(0, 1, 4, embeddings.columns());
  const MatrixView<const float> gradient(first.gradient.data(), 4, embeddings.columns());
  const std::vector<float> before = small_model::shards_of(embeddings);
  const auto training = embeddings.forward(first.keyed());
  check_message([&] { others.backward(training, gradient); }, "another collection's forward");
  const auto evaluation = embeddings.forward(second.keyed());
  check_message([&] { embeddings.backward(training, gradient); }, "another batch was looked up since this forward");
  CHECK(small_model::same_bits(small_model::shards_of(embeddings), before));
  embeddings.backward(evaluation, gradient);
  CHECK(embeddings.steps() == 1);
  check_message([&] { embeddings.backward(evaluation, gradient); }, "backward once for each forward");

  decltype(embeddings)::StepState<std::int64_t> step;  // a second one: both batches are there
  const auto kept = embeddings.forward(first.keyed());
  embeddings.route(step, second.keyed());
  std::vector<float> output(static_cast<std::size_t>(4 * embeddings.columns()));
  embeddings.forward_routed(step, {output.data(), 4, embeddings.columns()});
  embeddings.backward(kept, gradient);
  CHECK(embeddings.steps() == 2);
}

TEST_CASE("matrices whose rows overlap or that have no memory; states that are not there") {
  SelfCommunicator self;
  OneRank<> embeddings(self, Host(), small_model::layout(1), {});
  small_model::Batch batch(0, 0, 4, embeddings.columns());
  const std::int64_t columns = embeddings.columns();
  std::vector<float> memory(batch.gradient.size());
  check_message([&] { embeddings.forward(batch.keyed(), {memory.data(), 4, columns, columns - 1}); }, "a stride of");
  check_message([&] { embeddings.forward(batch.keyed(), {nullptr, 4, columns}); }, "its data is null");
  const auto pooled = embeddings.forward(batch.keyed());
  check_message([&] { embeddings.backward(pooled, MatrixView<const float>(memory.data(), 4, columns, 0)); }, "a stride of");
  check_message([&] { embeddings.backward(pooled, MatrixView<const float>(nullptr, 4, columns)); }, "its data is null");
  check_message([&] { embeddings.tables().get("country", {memory.data(), 5, 16, 15}); }, "a stride of");
  check_message([&] { embeddings.tables().set("country", MatrixView<const float>(nullptr, 5, 16)); }, "its data is null");
  for (const int state : {-1, 7}) {
    check_message([&] { embeddings.tables().get_state("country", state, {memory.data(), 5, 16}); }, fmt::format("no state {}", state));
    check_message([&] { embeddings.tables().set_state("country", state, {memory.data(), 5, 16}); }, fmt::format("no state {}", state));
  }
  embeddings.backward(pooled, MatrixView<const float>(batch.gradient.data(), 4, columns));
}

TEST_CASE("a learning rate that is no number") {
  SelfCommunicator self;
  for (const float rate : {kNan, kInfinity})
    check_message([&] { OneRank<>(self, Host(), small_model::layout(1), {.learning_rate = rate}); }, "the learning rate is");
  OneRank<> embeddings(self, Host(), small_model::layout(1), {.learning_rate = 0.5f});
  check_message([&] { embeddings.set_learning_rate(kNan); }, "the learning rate is");
  CHECK(embeddings.learning_rate() == 0.5f);
}

TEST_CASE("constants of an optimizer that are no numbers") {
  SelfCommunicator self;
  const auto construct = [&]<class O>(const O& optimizer) {
    ShardedCollection<Widths<16>, O, Host, SelfCommunicator>(self, Host(), small_model::layout(1), {.optimizer = optimizer});
  };
  check_message([&] { construct(RowWiseAdagrad{.epsilon = kNan}); }, " of a weight of 1 and small gradients; check its constants");
  check_message([&] { construct(Adam{.beta1 = 1.0f}); }, "check its constants");
  check_message([&] { construct(Adagrad{.initial_accumulator = kInfinity}); }, "the optimizer makes inf of a first state");
  construct(Adam{});
}

TEST_CASE("tables for which there is no memory") {
  if (simt::has_asan || simt::has_tsan) return;  // which end the program where memory is refused
  const std::int64_t rows = std::int64_t{1} << 48;
  const auto collection = [&] {
    SelfCommunicator self;
    OneRank<>(self, Host(), make_layout({1}, {{"t", rows, 4}}, {}, {{0, {0, rows, 0, 4}, 0}}), {});
  };
  check_message(collection, "no memory for the tables of rank 0: 5629499534213120 bytes");  // 2^48 rows of 4 floats and one of state
}

TEST_CASE("a policy that says whole_rows and cuts columns on three ranks, or copies tables on three ranks alone") {
  check_message([] { on_ranks<CutsOnThree<Table<"t", 10, 4>>>(3); }, "table 't' is cut into columns by a policy that says whole_rows");
  check_message([] { on_ranks<CopiesOnThree<Table<"t", 10, 4>>>(3); },
                "a policy with whole_rows copies table 't' on 3 ranks, but not on two");
  on_ranks<CutsOnThree<Table<"t", 10, 4>>>(2);
  on_ranks<CopiesOnThree<Table<"t", 10, 4>>>(4);
}

TEST_CASE("rows that changed hands start anew, and only those") {
  run_ranks(3, [](ThreadCommunicator& thread_rank) {
    small_model::Counting c(thread_rank);
    small_model::Embeddings<small_model::Counting> embeddings(c, Host(), small_model::layout(3, true), {.learning_rate = 0.5f, .seed = 7});
    const std::vector<float> fresh = small_model::shards_of(embeddings);
    small_model::train(embeddings, c.rank(), 3);
    const std::vector<float> trained = small_model::shards_of(embeddings);
    std::int64_t all = 0;
    for (const int table : {0, 3, 4}) {
      const std::vector<std::int64_t> rows{0, 1, 3};
      embeddings.reset_rows(table, rows);
      for (const auto& shard : embeddings.tables().local_shards())
        for (const std::int64_t row : rows)
          if (shard.table == table && row >= shard.rectangle.row_begin && row < shard.rectangle.row_end) all += shard.weights.columns + 1;
    }
    const std::vector<float> now = small_model::shards_of(embeddings);
    std::int64_t anew = 0;
    for (std::size_t i = 0; i < now.size(); ++i) {
      require<Error>(now[i] == fresh[i] || now[i] == trained[i], "element {} is neither", i);
      anew += now[i] != trained[i];
    }
    require<Error>(anew <= all && (all == 0 || anew > 0), "{} of {} elements start anew", anew, all);
    const std::vector<std::int64_t> outside{200};
    require<Error>(message_of([&] { embeddings.reset_rows(0, outside); }).find("not row 200") != std::string::npos, "row 200 was taken");
    require<Error>(message_of([&] { embeddings.reset_rows(9, outside); }).find("table 9 of 5") != std::string::npos, "table 9 was taken");
    const std::vector<std::int64_t> everything{0, 1, 2, 3, 4};
    embeddings.reset_rows(4, everything);
    std::vector<float> weights(80), first(80);
    embeddings.tables().get("country", {weights.data(), 5, 16});
    small_model::Embeddings<small_model::Counting> untouched(c, Host(), small_model::layout(3, true), {.seed = 7});
    untouched.tables().get("country", {first.data(), 5, 16});
    require<Error>(small_model::same_bits(weights, first), "a reset table is not as at the beginning");
  });
}
