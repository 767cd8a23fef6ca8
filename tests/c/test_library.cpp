// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// libtessera_c beside the collections that it is made of: the same bits; and everything that a caller may do wrong.
#include "library_cases.hpp"

#include <tessera/collection.hpp>
#include <tessera/comm.hpp>
#include <tessera/optimizers.hpp>
#include <tessera/planner.hpp>
#include <tessera/version.hpp>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

namespace {

namespace ts = tessera;

ts::KeyedJagged<std::int64_t> keyed(const Batch& batch) {
  return {static_cast<std::int64_t>(kFeatures.size()), batch.samples, batch.ids, batch.offsets,
          batch.weights};
}

/// What training leaves: everything that was looked up on rank 0, and the tables.
struct Trained {
  std::vector<float> looked_up, weight_gradients, whole;
  std::vector<std::vector<float>> tables{kTables.size()};

  bool operator==(const Trained&) const = default;
};

void add_tables(const Collection& from, Trained& to) {
  for (std::size_t t = 0; t < kTables.size(); ++t) {
    to.tables[t].resize(static_cast<std::size_t>(kTables[t].rows * kWidth));
    ok(tessera_read_table(from.collection, kTables[t].name, -1, to.tables[t].data(), kWidth));
  }
}

Trained train_in_c(tessera_communicator* communicator) {
  Trained result;
  const Collection made(communicator);
  const int ranks = ranks_of(communicator);
  for (int n = 0; n < kSteps; ++n) {
    const Batch batch(n, made.rank, ranks);
    const tessera_batch view = batch.view();
    std::vector<float> pooled(static_cast<std::size_t>(batch.samples * kColumns));
    ok(tessera_route(made.step, &view));
    ok(tessera_lookup(made.step, pooled.data(), kColumns));
    std::int64_t ids = 0, width = 0;
    ok(tessera_sequence(made.step, 3, nullptr, 0, &ids, &width));
    CHECK(ids == batch.ids_of(3));
    CHECK(width == kWidth);
    std::vector<float> sequence(static_cast<std::size_t>(ids * width));
    ok(tessera_sequence(made.step, 3, sequence.data(), width, nullptr, nullptr));
    const std::vector<float> of_pooled = gradient_of(pooled, n),
                             of_sequence = gradient_of(sequence, n);
    const tessera_sequence_gradient of_d{3, of_sequence.data(), width};
    std::vector<float> of_weights(batch.ids.size());
    const tessera_gradients gradients{of_pooled.data(), kColumns, &of_d, 1, of_weights.data()};
    ok(tessera_update(made.step, &gradients));
    result.looked_up.insert(result.looked_up.end(), pooled.begin(), pooled.end());
    result.looked_up.insert(result.looked_up.end(), sequence.begin(), sequence.end());
    result.weight_gradients.insert(result.weight_gradients.end(), of_weights.begin(),
                                   of_weights.end());
  }
  // The whole table on each rank: of parts of rows, of columns, of copies.
  for (const tessera_table& table : kTables)
    for (int state = -1; state < 2; ++state) {
      std::vector<float> whole(static_cast<std::size_t>(table.rows * kWidth), -9),
          part(whole.size(), -9);
      ok(tessera_gather_table(made.collection, table.name, state, whole.data(), kWidth));
      ok(tessera_read_table(made.collection, table.name, state, part.data(), kWidth));
      for (std::size_t i = 0; i < whole.size(); ++i)
        CHECK((whole[i] == part[i] || (part[i] == -9 && whole[i] != -9)));
      if (state < 0) result.whole.insert(result.whole.end(), whole.begin(), whole.end());
    }
  std::int64_t steps = 0;
  ok(tessera_steps(made.collection, &steps));
  CHECK(steps == kSteps);
  add_tables(made, result);
  return result;
}

Trained train_in_cpp(ts::ThreadCommunicator& communicator, const std::string& plan) {
  std::vector<ts::TableSpec> tables;
  for (const tessera_table& t : kTables)
    tables.push_back({.name = t.name, .rows = t.rows, .width = t.width});
  const std::vector<ts::FeatureSpec> features{{"a", "a", ts::Pooling::sum, true},
                                              {"b", "b", ts::Pooling::mean},
                                              {"c", "c"},
                                              {"d", "d", ts::Pooling::none},
                                              {"a2", "a"}};
  const ts::Topology topology{communicator.size()};
  ts::LayoutCollection<ts::Widths<kWidth>, ts::Adam, ts::Host, ts::ThreadCommunicator> collection(
      communicator, ts::Host(), ts::read_plan_file(plan, tables, features, topology),
      {.learning_rate = 0.05f, .seed = 7});
  Trained result;
  for (int n = 0; n < kSteps; ++n) {
    const Batch batch(n, communicator.rank(), communicator.size());
    const auto pooled = collection.forward(keyed(batch));
    std::vector<float> values(pooled.values.data,
                              pooled.values.data + pooled.values.rows * kColumns);
    const auto view = pooled.sequence(3);
    std::vector<float> sequence(static_cast<std::size_t>(view.ids() * kWidth));
    view.materialize({sequence.data(), view.ids(), kWidth});
    std::vector<float> of_pooled = gradient_of(values, n), of_sequence = gradient_of(sequence, n),
                       of_weights(batch.ids.size());
    collection.backward(pooled, {of_pooled.data(), batch.samples, kColumns}, of_weights,
                        {view.per_id({of_sequence.data(), view.ids(), kWidth})});
    result.looked_up.insert(result.looked_up.end(), values.begin(), values.end());
    result.looked_up.insert(result.looked_up.end(), sequence.begin(), sequence.end());
    result.weight_gradients.insert(result.weight_gradients.end(), of_weights.begin(),
                                   of_weights.end());
  }
  for (std::size_t t = 0; t < kTables.size(); ++t) {
    result.tables[t].resize(static_cast<std::size_t>(kTables[t].rows * kWidth));
    collection.tables().get(kTables[t].name, {result.tables[t].data(), kTables[t].rows, kWidth});
  }
  return result;
}

/// Messages between threads by mailboxes: what a caller of tessera_communicator_messages brings.
struct Mailboxes {
  struct Rank {
    Mailboxes* all = nullptr;
    int rank = 0;
    std::vector<std::tuple<int, int, void*, std::size_t>> receives{};
    int waits_until_failure = std::numeric_limits<int>::max();
  };

  static int send(void* context, int peer, int tag, const void* bytes, std::size_t count) {
    const Rank& from = *static_cast<Rank*>(context);
    const std::lock_guard lock(from.all->mutex);
    from.all->boxes[{from.rank, peer, tag}].emplace_back(static_cast<const char*>(bytes), count);
    from.all->changed.notify_all();
    return 0;
  }
  static int receive(void* context, int peer, int tag, void* bytes, std::size_t count) {
    static_cast<Rank*>(context)->receives.emplace_back(peer, tag, bytes, count);
    return 0;
  }
  static int wait(void* context) {
    Rank& to = *static_cast<Rank*>(context);
    if (to.waits_until_failure-- == 0) return 7;
    std::unique_lock lock(to.all->mutex);
    for (const auto& [peer, tag, bytes, count] : to.receives) {
      auto& box = to.all->boxes[{peer, to.rank, tag}];
      to.all->changed.wait(lock, [&] { return !box.empty() || to.all->failed; });
      if (box.empty()) return 8;
      if (box.front().size() != count) return 9;
      std::memcpy(bytes, box.front().data(), count);
      box.erase(box.begin());
    }
    to.receives.clear();
    return 0;
  }
  static void fail(void* context, const char* /*text*/) {
    const Rank& of = *static_cast<Rank*>(context);
    const std::lock_guard lock(of.all->mutex);
    of.all->failed = true;
    of.all->changed.notify_all();
  }

  tessera_messages functions(Rank& rank, int size) {
    return {sizeof(tessera_messages), &rank, rank.rank, size, send, receive, wait, fail};
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::tuple<int, int, int>, std::vector<std::string>> boxes;
  bool failed = false;
};

}  // namespace

TEST_CASE("C: the version is the headers'") {
  CHECK(std::string(tessera_version()) == fmt::format("{}.{}.{}", TESSERA_VERSION_MAJOR,
                                                      TESSERA_VERSION_MINOR,
                                                      TESSERA_VERSION_PATCH));
}

TEST_CASE("C: training gives the bits of the C++ collection of the same layout") {
  for (const int ranks : {1, 2, 3}) {
    CAPTURE(ranks);
    const TemporaryFolder folder;
    const std::string plan = folder.path / "plan.json";
    tessera_layout* layout = layout_for(ranks);
    const char* text = nullptr;
    ok(tessera_layout_text(layout, &text));
    std::ofstream(plan) << text;
    tessera_layout_destroy(layout);

    std::vector<Trained> in_c(static_cast<std::size_t>(ranks)), in_cpp(in_c.size());
    on_threads(ranks, [&](tessera_communicator* communicator) {
      in_c[static_cast<std::size_t>(rank_of(communicator))] = train_in_c(communicator);
    });
    ts::run_ranks(ranks, [&](ts::ThreadCommunicator& communicator) {
      in_cpp[static_cast<std::size_t>(communicator.rank())] = train_in_cpp(communicator, plan);
    });
    for (std::size_t r = 0; r < in_c.size(); ++r) {
      CHECK(in_c[r].looked_up == in_cpp[r].looked_up);
      CHECK(in_c[r].weight_gradients == in_cpp[r].weight_gradients);
      CHECK(in_c[r].tables == in_cpp[r].tables);
      CHECK(in_c[r].whole == in_c[0].whole);
    }
  }
}

TEST_CASE("C: the caller's messages carry the same bits as threads, and their failures are told") {
  constexpr int ranks = 3;
  std::vector<Trained> by_threads(ranks), by_messages(ranks);
  on_threads(ranks, [&](tessera_communicator* communicator) {
    by_threads[static_cast<std::size_t>(rank_of(communicator))] = train_in_c(communicator);
  });
  for (const bool fails : {false, true}) {
    Mailboxes mailboxes;
    std::vector<Mailboxes::Rank> of_ranks(ranks);
    std::vector<std::string> errors(ranks);
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks; ++r)
      threads.emplace_back([&, r] {
        Mailboxes::Rank& mine = of_ranks[static_cast<std::size_t>(r)];
        mine = {.all = &mailboxes, .rank = r};
        if (fails && r == 1) mine.waits_until_failure = 9;
        const tessera_messages functions = mailboxes.functions(mine, ranks);
        tessera_communicator* communicator = nullptr;
        try {
          ok(tessera_communicator_messages(&functions, &communicator));
          by_messages[static_cast<std::size_t>(r)] = train_in_c(communicator);
        } catch (const std::exception& error) {
          errors[static_cast<std::size_t>(r)] = error.what();
          tessera_communicator_fail(communicator, error.what());
        }
        tessera_communicator_destroy(communicator);
      });
    for (std::thread& thread : threads) thread.join();
    if (fails) {
      CHECK(errors[1].find("rank 1: the caller's function wait returned 7") != std::string::npos);
      CHECK(errors[0].find("returned 8") != std::string::npos);
    } else {
      CHECK(errors == std::vector<std::string>(ranks));
      CHECK(by_messages == by_threads);
    }
  }
}

TEST_CASE("C: a rank that fails ends the others' waits with its text") {
  std::vector<tessera_communicator*> ranks(2);
  ok(tessera_communicator_threads(2, 0, ranks.data()));
  std::thread other(
      [&] { CHECK(tessera_communicator_fail(ranks[1], "no more data") == TESSERA_OK); });
  refused(tessera_barrier(ranks[0]), TESSERA_COMMUNICATOR_ERROR, "no more data");
  other.join();
  for (tessera_communicator* one : ranks) tessera_communicator_destroy(one);
}

TEST_CASE("C: gradients that are accumulated and clipped are those of one step") {
  tessera_communicator* communicator = alone();
  Trained once, twice;
  const Batch batch(0, 0, 1);
  const tessera_batch view = batch.view();
  std::vector<float> output(static_cast<std::size_t>(batch.samples * kColumns));
  const auto norm_of = [&](int times, float by, Trained& left) {
    const Collection made(communicator, "sgd");
    ok(tessera_route(made.step, &view));
    ok(tessera_lookup(made.step, output.data(), kColumns));
    const std::vector<float> pooled(output.size(), by),
        sequence(static_cast<std::size_t>(batch.ids_of(3) * kWidth), by);
    const tessera_sequence_gradient of_d{3, sequence.data(), kWidth};
    const tessera_gradients gradients{pooled.data(), kColumns, &of_d, 1, nullptr};
    for (int i = 0; i < times; ++i)  // another loss on the same vectors
      ok(tessera_accumulate(made.step, &gradients));
    std::vector<float> dense{3, 4};
    double norm = 0;
    ok(tessera_apply(made.collection, 0.5f, dense.data(), dense.size(), &norm));
    CHECK(norm > 5);
    CHECK(dense[1] == doctest::Approx(4 * 0.5 / norm));
    add_tables(made, left);
    return norm;
  };
  const double norm_once = norm_of(1, 0.5f, once), norm_twice = norm_of(2, 0.25f, twice);
  CHECK(norm_once == norm_twice);
  CHECK(once == twice);
  tessera_communicator_destroy(communicator);
}

TEST_CASE("C: checkpoints, vocabularies and frozen tables") {
  const TemporaryFolder folder;
  const std::string saves = folder.path / "saves", frozen_file = folder.path / "tables.frozen";
  const std::string step_folder = saves + "/step-000000000003";
  // Keys far outside the tables: a vocabulary gives them rows.
  const auto keys_of = [](int rank, int ranks) {
    Batch keys(5, rank, ranks);
    for (std::int64_t& id : keys.ids) id = id * 1'000'000'007 + 3;
    return keys;
  };
  std::vector<Trained> saved(2);
  std::vector<std::vector<std::int64_t>> rows(2);
  on_threads(2, [&](tessera_communicator* communicator) {
    const Collection made(communicator, "rowwise-adagrad:a,sgd:*");
    tessera_vocabulary* vocabulary = nullptr;
    ok(tessera_vocabulary_create(made.collection, 1, &vocabulary));
    const Batch keys = keys_of(made.rank, 2);
    const tessera_batch view = keys.view();
    auto& mine = rows[static_cast<std::size_t>(made.rank)];
    mine.resize(keys.ids.size());
    ok(tessera_vocabulary_learn(vocabulary, &view, mine.data()));
    CHECK(std::any_of(mine.begin(), mine.end(), [](std::int64_t row) { return row != 0; }));
    add_tables(made, saved[static_cast<std::size_t>(made.rank)]);
    int states = 0;
    std::int64_t columns = 0;
    ok(tessera_table_states(made.collection, "a", 0, &states, &columns));
    CHECK(states == 1);
    CHECK(columns == 1);
    ok(tessera_save(made.collection, vocabulary, saves.c_str(), 3));
    tessera_vocabulary_destroy(vocabulary);
  });

  tessera_communicator* communicator = alone();
  const Collection loaded(communicator, "rowwise-adagrad:a,sgd:*");
  tessera_vocabulary* vocabulary = nullptr;
  ok(tessera_vocabulary_create(loaded.collection, 1, &vocabulary));
  ok(tessera_load(loaded.collection, vocabulary, step_folder.c_str()));
  for (int r = 0; r < 2; ++r) {
    const Batch keys = keys_of(r, 2);
    const tessera_batch view = keys.view();
    std::vector<std::int64_t> found(keys.ids.size());
    ok(tessera_vocabulary_find(vocabulary, &view, found.data()));
    CHECK(found == rows[static_cast<std::size_t>(r)]);
  }
  tessera_vocabulary_destroy(vocabulary);
  refused(tessera_load(loaded.collection, nullptr, (saves + "/none").c_str()), TESSERA_DATA_ERROR,
          "none");

  // Frozen tables give what evaluation gives.
  std::vector<float> row(40 * kWidth, 0.5f);
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = static_cast<float>(i);
  ok(tessera_write_table(loaded.collection, "a", -1, row.data(), kWidth));
  std::vector<float> back(row.size());
  ok(tessera_read_table(loaded.collection, "a", -1, back.data(), kWidth));
  CHECK(back == row);
  ok(tessera_save(loaded.collection, nullptr, saves.c_str(), 4));
  ok(tessera_freeze((saves + "/step-000000000004").c_str(), frozen_file.c_str(), "fp32"));
  tessera_frozen* frozen = nullptr;
  ok(tessera_frozen_open(frozen_file.c_str(), kFeatures.data(), 3, 0, 1, &frozen));
  std::int64_t columns = 0;
  ok(tessera_frozen_columns(frozen, &columns));
  CHECK(columns == 3 * kWidth);
  const Batch batch(8, 0, 1);
  const tessera_batch all = batch.view();
  tessera_batch first_three = all;
  first_three.features = 3;
  first_three.id_count = static_cast<std::size_t>(batch.offsets[3 * kSamples]);
  std::vector<float> evaluated(static_cast<std::size_t>(kSamples * kColumns)),
      served(static_cast<std::size_t>(kSamples * columns));
  ok(tessera_evaluate(loaded.step, &all, evaluated.data(), kColumns));
  ok(tessera_frozen_lookup(frozen, &first_three, served.data(), columns));
  for (int s = 0; s < kSamples; ++s)
    CHECK(std::memcmp(&served[static_cast<std::size_t>(s * columns)],
                      &evaluated[static_cast<std::size_t>(s * kColumns)],
                      sizeof(float) * 3 * kWidth) == 0);
  const std::vector<std::int32_t> narrow_ids(batch.ids.begin(), batch.ids.end());
  tessera_batch narrow = first_three;
  narrow.ids = narrow_ids.data();
  narrow.id_bits = 32;
  std::vector<float> of_narrow(served.size());
  ok(tessera_frozen_lookup(frozen, &narrow, of_narrow.data(), columns));
  CHECK(of_narrow == served);
  refused(tessera_frozen_lookup(frozen, &all, served.data(), columns), TESSERA_INVALID_ARGUMENT,
          "5 features");
  tessera_frozen_destroy(frozen);
  refused(tessera_frozen_open((saves + "/none").c_str(), nullptr, 0, 0, 1, &frozen),
          TESSERA_DATA_ERROR, "none");
  refused(tessera_freeze(step_folder.c_str(), frozen_file.c_str(), "fp7"), TESSERA_INVALID_ARGUMENT,
          "'fp7'");
  tessera_communicator_destroy(communicator);
}

TEST_CASE("C: wrong input is named, and nothing is written") {
  tessera_communicator* communicator = alone();
  const Collection made(communicator);
  tessera_layout* layout = nullptr;
  const auto create = [&](const std::vector<tessera_table>& tables,
                          const std::vector<tessera_feature>& features, int ranks = 1, int node = 0,
                          const char* policy = nullptr) {
    return tessera_layout_create(tables.data(), tables.size(), features.data(), features.size(),
                                 ranks, node, policy, &layout);
  };
  const tessera_status bad = TESSERA_INVALID_ARGUMENT;
  refused(create({{nullptr, 5, 4, nullptr}}, {}), bad, "table 0 has no name");
  refused(create({{"t", 0, 4, nullptr}}, {}), bad, "'t' has 0 rows");
  refused(create({{"t", 5, -4, nullptr}}, {}), bad, "width -4");
  refused(create({{"t", 5, 4, "diagonal"}}, {}), bad, "there is no policy 'diagonal'");
  refused(create({{"t", 5, 4, "column-wise:3"}}, {}), bad, "'column-wise:3'");
  refused(create({{"t", 5, 4, "row-wise:2"}}, {}), bad, "'row-wise:2'");
  refused(create({{"t", 5, 4, nullptr}, {"t", 5, 4, nullptr}}, {}), bad, "'t' is placed twice");
  refused(create({{"t", 5, 4, nullptr}}, {{"f", "u", TESSERA_SUM, 0}}), bad, "reads table 'u'");
  refused(create({{"t", 5, 4, nullptr}}, {{"f", "t", 9, 0}}), bad, "pooling 9");
  refused(create({{"t", 5, 4, nullptr}}, {}, 0), bad, "0 ranks");
  refused(create({{"t", 5, 4, nullptr}}, {}, 1 << 30), bad, "1073741824 ranks; give 1 to 32767");
  refused(create({{"t", 5, 4, nullptr}}, {}, 2, 3), bad, "3 ranks per node of 2 ranks");
  refused(tessera_layout_create(nullptr, 2, nullptr, 0, 1, 0, nullptr, &layout), bad,
          "tables is NULL, but has 2");
  refused(tessera_layout_create(kTables.data(), 1, nullptr, 0, 1, 0, nullptr, nullptr), bad,
          "out is NULL");
  refused(
      tessera_layout_from_file("/nowhere/plan.json", kTables.data(), 4, nullptr, 0, 1, 0, &layout),
      TESSERA_DATA_ERROR, "/nowhere/plan.json");
  CHECK(layout == nullptr);

  layout = layout_for(1);
  std::int64_t columns = 0;
  ok(tessera_layout_columns(layout, &columns));
  CHECK(columns == kColumns);
  tessera_collection_options options;
  ok(tessera_collection_defaults(&options));
  tessera_collection* none = nullptr;
  const auto with = [&](auto change) {
    tessera_collection_options changed = options;
    change(changed);
    return tessera_collection_create(communicator, layout, &changed, &none);
  };
  using Options = tessera_collection_options;
  refused(with([](Options& o) { o.struct_size = 3; }), bad, "struct_size of options is 3");
  refused(with([](Options& o) { o.optimizer = "adm"; }), bad, "there is no optimizer 'adm'");
  refused(with([](Options& o) { o.optimizer = "adam:x*,sgd:*"; }), bad, "no table matches 'x*'");
  refused(with([](Options& o) { o.optimizer = nullptr; }), bad, "options.optimizer is NULL");
  refused(with([](Options& o) { o.precision = "fp8"; }), bad, "'fp8'");
  refused(with([](Options& o) { o.codec = "zip"; }), bad, "'zip'");
  refused(with([](Options& o) { o.learning_rate = -1; }), bad, "learning rate is -1");
  refused(with([](Options& o) { o.initial_bound = std::numeric_limits<float>::quiet_NaN(); }), bad,
          "initial_bound is nan");
  refused(with([](Options& o) { o.initial_bound = 3e38f; }), bad, "initial_bound is 3e+38");
  refused(with([](Options& o) { o.threads = 0; }), bad, "0 threads");
  refused(with([](Options& o) { o.bad_ids = 4; }), bad, "bad_ids is 4");
  refused(with([](Options& o) { o.gradient_blocks = -1; }), bad, "gradient_blocks is -1");
  refused(tessera_collection_create(nullptr, layout, &options, &none), bad, "communicator is NULL");
  tessera_layout_destroy(layout);
  for (const int ranks : {2, 1}) {
    layout = nullptr;
    ok(create({}, {}, ranks));
    refused(tessera_collection_create(communicator, layout, &options, &none), bad,
            ranks == 1 ? "a collection without tables" : "");
    tessera_layout_destroy(layout);
  }
  CHECK(none == nullptr);

  const Batch batch(1, 0, 1);
  std::vector<float> output(static_cast<std::size_t>(kSamples * kColumns), 8);
  refused(tessera_lookup(made.step, output.data(), kColumns), bad, "route it first");
  const auto route = [&](auto change) {
    tessera_batch changed = batch.view();
    change(changed);
    return tessera_route(made.step, &changed);
  };
  refused(route([](tessera_batch& b) { b.features = 4; }), bad, "4");
  refused(route([](tessera_batch& b) { b.samples = -1; }), bad, "samples (-1)");
  refused(route([](tessera_batch& b) { b.samples = std::int64_t{1} << 62; }), bad, "too many bags");
  refused(route([](tessera_batch& b) { b.ids = nullptr; }), bad, "ids is NULL");
  refused(route([](tessera_batch& b) { b.id_bits = 16; }), bad, "id_bits is 16");
  refused(route([](tessera_batch& b) { b.id_count -= 1; }), bad, "the last offset is");
  refused(route([](tessera_batch& b) { b.offsets = nullptr; }), bad, "needs");
  Batch outside(1, 0, 1);
  outside.ids[0] = 40;
  const tessera_batch view_outside = outside.view();
  refused(tessera_route(made.step, &view_outside), TESSERA_BAD_ID,
          "id 40 is outside its table of 40 rows");
  std::vector<std::uint64_t> counts(kTables.size());
  ok(tessera_bad_ids(made.collection, counts.data(), counts.size()));
  CHECK(counts == std::vector<std::uint64_t>(kTables.size()));  // an error is not counted
  refused(tessera_bad_ids(made.collection, counts.data(), 2), bad, "room for 2 counts");

  ok(route([](tessera_batch&) {}));
  refused(tessera_lookup(made.step, output.data(), kColumns - 1), bad,
          "the stride of output is 63");
  refused(tessera_lookup(made.step, nullptr, kColumns), bad, "output is NULL");
  CHECK(output[0] == 8);
  ok(tessera_lookup(made.step, output.data(), kColumns));
  refused(tessera_sequence(made.step, 0, nullptr, 0, nullptr, nullptr), bad, "");
  refused(tessera_sequence(made.step, 77, nullptr, 0, nullptr, nullptr), bad, "");
  tessera_gradients gradients{output.data(), kColumns, nullptr, 0, nullptr};
  refused(tessera_update(made.step, &gradients), bad, "sequence");
  refused(tessera_update(made.step, nullptr), bad, "gradients is NULL");
  const tessera_sequence_gradient of_nothing{9, output.data(), kWidth};
  gradients.sequences = &of_nothing;
  gradients.sequence_count = 1;
  refused(tessera_update(made.step, &gradients), bad, "feature 9");
  refused(tessera_apply(made.collection, -1, nullptr, 0, nullptr), bad, "most_norm is -1");
  refused(tessera_set_learning_rate(made.collection, "zz", 1), bad, "there is no table 'zz'");
  refused(
      tessera_set_learning_rate(made.collection, nullptr, std::numeric_limits<float>::quiet_NaN()),
      bad, "nan");
  refused(tessera_read_table(made.collection, "a", 5, output.data(), kWidth), bad, "no state 5");
  refused(tessera_write_table(made.collection, "a", -1, nullptr, kWidth), bad, "values is NULL");
  const std::int64_t row = 99;
  refused(tessera_reset_rows(made.collection, "a", &row, 1), bad, "99");
  tessera_vocabulary* vocabulary = nullptr;
  refused(tessera_vocabulary_create(made.collection, 0, &vocabulary), bad, "admit_after is 0");
  ok(tessera_vocabulary_create(made.collection, 1, &vocabulary));
  const Collection other(communicator);
  refused(tessera_save(other.collection, vocabulary, "/nowhere", 1), bad,
          "tessera_save: the vocabulary is of another collection");
  refused(tessera_load(other.collection, vocabulary, "/nowhere"), TESSERA_DATA_ERROR,
          "tessera_load: the vocabulary is of another collection");
  tessera_vocabulary_destroy(vocabulary);

  refused(tessera_communicator_threads(0, 0, &communicator), bad, "0");
  refused(tessera_communicator_threads(1, -1, &communicator), bad, "timeout_seconds is -1");
  const tessera_messages empty{
      sizeof(tessera_messages), nullptr, 0, 2, nullptr, nullptr, nullptr, nullptr};
  refused(tessera_communicator_messages(&empty, &communicator), bad,
          "send, receive and wait are needed");
  tessera_messages wrong = empty;
  wrong.rank = 2;
  refused(tessera_communicator_messages(&wrong, &communicator), bad, "rank 2 of 2");
  // NULL in place of each thing that is used.
  refused(tessera_route(nullptr, nullptr), bad, "tessera_route: step is NULL");
  refused(tessera_evaluate(made.step, nullptr, nullptr, 0), bad, "batch is NULL");
  refused(tessera_step_create(nullptr, nullptr), bad, "out is NULL");
  refused(tessera_barrier(nullptr), bad, "communicator is NULL");
  refused(tessera_save(made.collection, nullptr, nullptr, 1), bad, "directory is NULL");
  refused(tessera_steps(nullptr, nullptr), bad, "collection is NULL");
  tessera_communicator_destroy(nullptr);
  tessera_collection_destroy(nullptr);
  tessera_communicator_destroy(communicator);
}

TEST_CASE("C: ids outside their table are zero vectors where that is asked for, and counted") {
  tessera_communicator* communicator = alone();
  const tessera_table table{"t", 5, 4, nullptr};
  tessera_layout* layout = nullptr;
  ok(tessera_layout_create(&table, 1, nullptr, 0, 1, 0, nullptr, &layout));
  tessera_collection_options options;
  ok(tessera_collection_defaults(&options));
  options.bad_ids = 1;
  tessera_collection* collection = nullptr;
  ok(tessera_collection_create(communicator, layout, &options, &collection));
  tessera_communicator_destroy(communicator);  // before what was made of them
  tessera_layout_destroy(layout);
  tessera_step* step = nullptr;
  ok(tessera_step_create(collection, &step));
  const std::vector<std::int32_t> ids{4, 5, -1};
  const tessera_batch batch{1, 3, ids.data(), ids.size(), 32, nullptr, nullptr};
  std::vector<float> output(12, 8), row(20);
  ok(tessera_evaluate(step, &batch, output.data(), 4));
  ok(tessera_read_table(collection, "t", -1, row.data(), 4));
  CHECK(std::memcmp(output.data(), &row[16], 4 * sizeof(float)) == 0);
  CHECK(std::vector<float>(output.begin() + 4, output.end()) == std::vector<float>(8, 0));
  std::uint64_t count = 0;
  ok(tessera_bad_ids(collection, &count, 1));
  CHECK(count == 2);
  tessera_step_destroy(step);
  tessera_collection_destroy(collection);
}

TEST_CASE("C: a child of fork is told that it may not go on") {
  tessera_communicator* communicator = alone();
  const pid_t child = ::fork();
  if (child == 0) {
    const bool told = tessera_barrier(communicator) == TESSERA_INVALID_ARGUMENT &&
                      std::strstr(tessera_last_error(), "is a fork of the one") != nullptr;
    ::_exit(told ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(tessera_barrier(communicator) == TESSERA_OK);
  tessera_communicator_destroy(communicator);
}
