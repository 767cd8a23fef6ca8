// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The vocabulary against a plain model of its rules, for any number of ranks and threads; saved and
// restored between them.
#include <tessera/checkpoint/load.hpp>
#include <tessera/checkpoint/save.hpp>
#include <tessera/checkpoint/vocabulary.hpp>
#include <tessera/comm/self_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/laws/vocabulary_policy_laws.hpp>
#include <tessera/vocabulary/vocabulary.hpp>

#include <doctest/doctest.h>
#include <support/temporary_folder.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

using namespace tessera;

namespace {

using Keys = std::vector<std::int64_t>;

// [policy]
/// Keys that are even are worth twice as much, and each forgets a half in 16 batches.
struct Fading {
  std::uint32_t score(const SeenKey& seen) const {
    const std::uint32_t age = (seen.now - seen.step) / 16;
    return age > 31 ? 0 : (seen.key % 2 == 0 ? 2 : 1) * std::min(seen.count, 1000u) >> age;
  }
};
// [policy end]

struct Never {
  bool admits(const SeenKey&) const { return false; }
};
struct Moody {
  static constexpr bool scores_never_fall = true;
  mutable std::uint32_t asked = 0;
  std::uint32_t score(const SeenKey& seen) const { return ++asked % 3 == 0 ? 0 : seen.step; }
};

struct FallsAtThree {
  static constexpr bool scores_never_fall = true;
  std::uint32_t score(const SeenKey& seen) const { return seen.count >= 3 ? 1 : 5; }
};
struct Throws {
  bool* throws;
  bool admits(const SeenKey&) const {
    if (*throws) throw std::runtime_error("the policy failed");
    return true;
  }
};

/// The rules, as docs/concepts/vocabulary.md has them, for one table of one block. Slow and plain.
class Model {
 public:
  Model(const detail::VocabularyTable& options, std::uint64_t seed, bool fading = false)
      : options_(options), rows_(options.rows - 1), seed_(seed), fading_(fading) {}

  Keys learn(const Keys& keys) {
    ++step_;
    Keys distinct;
    for (const std::int64_t key : keys) {
      Known& known = known_[key];
      if (known.step != step_) distinct.push_back(key);
      known.step = step_;
      ++known.count;
    }
    Keys newcomers;
    for (const std::int64_t key : distinct)
      if (known_[key].row == 0 && known_[key].count >= options_.admit_after && drawn(key))
        newcomers.push_back(key);
    std::int64_t most = 0;
    for (const std::int64_t key : newcomers) most = std::max(most, score(key, known_[key]));
    evicted.clear();
    given.clear();
    const std::int64_t shortage = std::ssize(newcomers) - std::ssize(free_) - (rows_ - used_);
    const bool falls = fading_ || options_.time_to_live > 0;
    if (shortage > 0 || (falls && step_ % 64 == 0)) {
      std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t>>
          victims;
      std::int64_t worthless = 0;
      for (const auto& [key, known] : known_) {
        if (known.row == 0 || known.step == step_) continue;
        const std::int64_t of = score(key, known);
        if (of != 0 && (shortage <= 0 || of >= most)) continue;
        worthless += of == 0;
        victims.emplace_back(of, known.step, known.count, known.row, key);
      }
      std::sort(victims.begin(), victims.end());
      const std::int64_t wanted =
          std::max(worthless, shortage > 0 ? std::max(shortage, rows_ / 16) : 0);
      for (std::int64_t i = 0; i < std::min(wanted, std::ssize(victims)); ++i) {
        const std::int64_t key = std::get<4>(victims[static_cast<std::size_t>(i)]);
        Known& known = known_[key];
        evicted.insert({0, known.row, key});
        free_.insert(known.row);
        known.row = 0;
      }
    }
    if (std::ssize(newcomers) > std::ssize(free_) + rows_ - used_)
      std::stable_sort(newcomers.begin(), newcomers.end(),
                       [&](auto a, auto b) { return score(a, known_[a]) > score(b, known_[b]); });
    reused.clear();
    for (const std::int64_t key : newcomers) {
      if (!free_.empty()) {
        known_[key].row = *free_.begin();
        reused.insert(*free_.begin());
        free_.erase(free_.begin());
      } else if (used_ < rows_) {
        known_[key].row = ++used_;
      }
      if (known_[key].row != 0) given.insert({0, known_[key].row, key});
    }
    Keys answers;
    for (const std::int64_t key : keys) answers.push_back(known_[key].row);
    const auto candidates = [&] {
      return std::count_if(known_.begin(), known_.end(),
                           [](const auto& k) { return k.second.row == 0; });
    };
    const std::int64_t room = std::max<std::int64_t>(rows_, 1024);
    if (candidates() > room)
      while (2 * candidates() > room)
        for (auto k = known_.begin(); k != known_.end();) {
          const bool gone = k->second.row == 0 && (k->second.count /= 2) == 0;
          k = gone ? known_.erase(k) : std::next(k);
        }
    return answers;
  }

  std::set<std::int64_t> reused;
  std::set<detail::KeyRow> evicted, given;

 private:
  struct Known {
    std::int64_t count = 0, row = 0, step = 0;
  };

  bool drawn(std::int64_t key) const {
    return static_cast<double>(random_word(seed_, key, step_) >> 40) <
           16777216.0 * static_cast<double>(options_.admit_probability);
  }
  std::int64_t score(std::int64_t key, const Known& known) const {
    const std::int64_t age = step_ - known.step;
    if (fading_) {
      const std::int64_t worth = (key % 2 == 0 ? 2 : 1) * std::min<std::int64_t>(known.count, 1000);
      return age / 16 > 31 ? 0 : worth / (std::int64_t{1} << age / 16);
    }
    if (options_.time_to_live > 0 && age > options_.time_to_live) return 0;
    if (options_.eviction == Eviction::none) return 1;
    return options_.eviction == Eviction::oldest ? known.step : known.count;
  }

  detail::VocabularyTable options_;
  std::int64_t rows_;
  std::uint64_t seed_;
  bool fading_;
  std::map<std::int64_t, Known> known_;
  std::set<std::int64_t> free_;
  std::int64_t used_ = 0, step_ = 0;
};

/// A batch of skewed keys that drift with time, so that old ones fall out of use.
Keys batch_of(int step, int size, std::int64_t spread) {
  Keys keys;
  for (int i = 0; i < size; ++i) {
    const double u = unit_float(random_word(5, step, i));
    const auto rank = static_cast<std::int64_t>(std::pow(static_cast<double>(spread), u));
    keys.push_back(static_cast<std::int64_t>(mix64(static_cast<std::uint64_t>(rank + step * 3))));
  }
  return keys;
}

KeyedJagged<std::int64_t> one_hot(const Keys& keys, std::int64_t features = 1) {
  return {.features = features,
          .batch = std::ssize(keys) / features,
          .ids = keys,
          .offsets = {},
          .weights = {}};
}

/// Rank r's part of a batch: features x samples, samples cut unevenly.
Keys part_of(const Keys& keys, std::int64_t features, int ranks, int r) {
  const std::int64_t batch = std::ssize(keys) / features;
  const auto cut = [&](int i) { return batch * i * i / (ranks * ranks); };
  Keys part;
  for (std::int64_t f = 0; f < features; ++f)
    part.insert(part.end(), keys.begin() + f * batch + cut(r),
                keys.begin() + f * batch + cut(r + 1));
  return part;
}

/// Rows of `steps` batches on some ranks, put together as one rank would see them: [step][feature,
/// sample]; and what changed hands.
struct Seen {
  std::vector<Keys> rows;
  std::vector<std::vector<detail::ReusedRow>> reused;
  std::vector<std::vector<detail::KeyRow>> evicted{}, given{};
  friend bool operator==(const Seen&, const Seen&) = default;
};

using Records = std::vector<std::vector<detail::VocabularyRecords>>;  // by table, rank

/// Runs batches [begin, end). Starts from `records` if there are any, and leaves its own there.
template <class Own = detail::NoPolicy>
Seen run(int ranks, VocabularyOptions options, std::int64_t features, int begin, int end,
         const auto& batch_at, Records* records = nullptr, int threads = 1) {
  Seen seen{std::vector<Keys>(static_cast<std::size_t>(end - begin)), {}};
  std::vector<std::vector<Keys>> parts(static_cast<std::size_t>(end - begin),
                                       std::vector<Keys>(static_cast<std::size_t>(ranks)));
  Records saved(options.tables.size(),
                std::vector<detail::VocabularyRecords>(static_cast<std::size_t>(ranks)));
  run_ranks(ranks, [&](ThreadCommunicator& communicator) {
    Vocabulary vocabulary(communicator, Host({.threads = threads}), options,
                          std::vector<Own>(options.tables.size()));
    if (records != nullptr && !records->empty()) {
      for (int t = 0; t < vocabulary.tables(); ++t)
        vocabulary.import_records(t, (*records)[static_cast<std::size_t>(t)]);
      vocabulary.set_step(begin);
    }
    for (int step = begin; step < end; ++step) {
      const Keys part = part_of(batch_at(step), features, ranks, communicator.rank());
      Keys& rows = parts[static_cast<std::size_t>(step - begin)]
                        [static_cast<std::size_t>(communicator.rank())];
      rows.resize(part.size());
      const std::span<const detail::ReusedRow> reused =
          vocabulary.learn(one_hot(part, features), std::span<std::int64_t>(rows));
      if (communicator.rank() == 0) {
        seen.reused.emplace_back(reused.begin(), reused.end());
        seen.evicted.emplace_back(vocabulary.evicted().begin(), vocabulary.evicted().end());
        seen.given.emplace_back(vocabulary.given().begin(), vocabulary.given().end());
      }
      std::vector<std::int32_t> found(part.size());
      vocabulary.find(one_hot(part, features), std::span<std::int32_t>(found));
      if (!std::equal(found.begin(), found.end(), rows.begin(), rows.end()))
        throw Error("find and learn disagree");
    }
    for (int t = 0; t < vocabulary.tables(); ++t)
      saved[static_cast<std::size_t>(t)][static_cast<std::size_t>(communicator.rank())] =
          vocabulary.export_records(t);
  });
  for (std::size_t step = 0; step < parts.size(); ++step)
    for (std::int64_t f = 0; f < features; ++f)
      for (const Keys& part : parts[step]) {
        const std::int64_t n = std::ssize(part) / features;
        seen.rows[step].insert(seen.rows[step].end(), part.begin() + f * n,
                               part.begin() + (f + 1) * n);
      }
  if (records != nullptr) *records = saved;
  return seen;
}

}  // namespace

TEST_CASE("rows, admission and eviction follow the rules, on any number of ranks and threads") {
  std::vector<detail::VocabularyTable> all;
  for (const Eviction eviction : {Eviction::none, Eviction::least_frequent, Eviction::oldest})
    for (const std::uint32_t admit_after : {1u, 3u}) all.push_back({50, admit_after, eviction});
  all.push_back({.rows = 50, .admit_probability = 0.3f});
  all.push_back({.rows = 50, .admit_after = 2, .eviction = Eviction::oldest, .time_to_live = 9});
  all.push_back({.rows = 50, .eviction = Eviction::none, .time_to_live = 20});
  all.push_back({.rows = 2000, .time_to_live = 10});  // rows enough: sweeps alone take some away
  all.push_back({.rows = 50});                        // and a policy of the user's own
  for (std::size_t c = 0; c < all.size(); ++c) {
    CAPTURE(c);
    const detail::VocabularyTable& table = all[c];
    const bool fading = c + 1 == all.size();
    const int steps = table.time_to_live > 0 || fading ? 140 : 60;
    const VocabularyOptions options{
        .tables = {table}, .feature_table = {}, .report_keys = c % 3 != 1};
    const auto batch_at = [](int step) { return batch_of(step, 90, 3000); };
    const std::uint64_t seed = detail::VocabularyLayout(options, 1, 0).tables[0].seed;
    Model model(table, seed, fading);
    Seen expected;
    std::size_t evictions = 0, reuses = 0;
    for (int step = 0; step < steps; ++step) {
      expected.rows.push_back(model.learn(batch_at(step)));
      expected.reused.emplace_back();
      for (const std::int64_t row : model.reused) expected.reused.back().push_back({0, row});
      evictions += model.evicted.size();
      reuses += model.reused.size();
      if (!options.report_keys) model.evicted.clear(), model.given.clear();
      expected.evicted.emplace_back(model.evicted.begin(), model.evicted.end());
      expected.given.emplace_back(model.given.begin(), model.given.end());
    }
    const bool keeps = table.eviction == Eviction::none && table.time_to_live == 0;
    CHECK((evictions > 100) == !keeps);
    CHECK((reuses > 100) == !keeps);
    for (const auto& [ranks, threads] :
         {std::pair(1, 1), std::pair(2, 1), std::pair(3, 2), std::pair(4, 1)})
      CHECK((fading ? run<Fading>(ranks, options, 1, 0, steps, batch_at, nullptr, threads)
                    : run(ranks, options, 1, 0, steps, batch_at, nullptr, threads)) == expected);
  }
}

TEST_CASE(
    "large tables and several features: the same rows on any number of ranks, distinct for "
    "distinct keys") {
  // Tables of 5, 1 and 2 blocks; features 0 and 2 read the first.
  const VocabularyOptions options{.tables = {{20'481, 1, Eviction::oldest}, {70, 2}, {9'000, 2}},
                                  .feature_table = {0, 1, 0, 2}};
  const auto batch_at = [](int step) { return batch_of(step, 4 * 2000, 60'000); };
  Records records;
  const Seen one = run(1, options, 4, 0, 12, batch_at, &records);
  std::map<std::int64_t, std::int64_t> row_of;
  std::set<std::int64_t> rows;
  for (std::size_t i = 0; i < 2000; ++i)
    for (const std::size_t at : {i, 4000 + i}) {  // features 0 and 2 of the last batch
      const std::int64_t key = batch_at(11)[at], row = one.rows[11][at];
      CHECK(row >= 1);
      CHECK(row < 20'481);
      CHECK(row_of.emplace(key, row).first->second == row);
      rows.insert(row);
    }
  CHECK(rows.size() == row_of.size());
  for (const int ranks : {2, 3, 7})
    CHECK(run(ranks, options, 4, 0, 12, batch_at, nullptr, ranks == 3 ? 2 : 1) == one);
}

TEST_CASE("saved on some ranks, restored on others: goes on as if nothing had happened") {
  for (const detail::VocabularyTable& table : {detail::VocabularyTable{},
                                               {.eviction = Eviction::oldest},
                                               {.admit_probability = 0.5f, .time_to_live = 5}}) {
    VocabularyOptions options{.tables = {table, table}, .feature_table = {}, .report_keys = true};
    options.tables[0].rows = 9'001;
    options.tables[0].admit_after = 2;
    options.tables[1].rows = 60;
    const auto batch_at = [](int step) { return batch_of(step, 2 * 700, 40'000); };
    const Seen whole = run(1, options, 2, 0, 30, batch_at);
    Records records;
    Seen parts = run(2, options, 2, 0, 11, batch_at, &records);
    for (const auto& [ranks, begin, end] : {std::tuple(3, 11, 20), std::tuple(1, 20, 30)}) {
      std::reverse(records[0].begin(), records[0].end());
      const Seen next = run(ranks, options, 2, begin, end, batch_at, &records);
      parts.rows.insert(parts.rows.end(), next.rows.begin(), next.rows.end());
      parts.reused.insert(parts.reused.end(), next.reused.begin(), next.reused.end());
      parts.evicted.insert(parts.evicted.end(), next.evicted.begin(), next.evicted.end());
      parts.given.insert(parts.given.end(), next.given.begin(), next.given.end());
    }
    CHECK(parts == whole);
  }
}

TEST_CASE("in a checkpoint, between rank counts") {
  const TemporaryFolder folder;
  const VocabularyOptions options{.tables = {{9'001, 2}, {60, 1}}, .feature_table = {}};
  Records expected;
  run(3, options, 2, 0, 5, [](int step) { return batch_of(step, 2 * 700, 40'000); }, &expected);
  run_ranks(2, [&](ThreadCommunicator& communicator) {
    Vocabulary vocabulary(communicator, options);
    for (int t = 0; t < 2; ++t) vocabulary.import_records(t, expected[static_cast<std::size_t>(t)]);
    vocabulary.set_step(5);
    CheckpointContents contents;
    const SavedVocabulary saved(contents, vocabulary);
    save_checkpoint(communicator, folder.path, contents, 5);
  });
  run_ranks(3, [&](ThreadCommunicator& communicator) {
    Vocabulary vocabulary(communicator, options);
    {
      CheckpointContents contents;
      const SavedVocabulary saved(contents, vocabulary);
      load_checkpoint(communicator, *latest_checkpoint(folder.path), contents);
    }
    load_vocabulary(*latest_checkpoint(folder.path), vocabulary);
    require<Error>(vocabulary.step() == 5, "step {}", vocabulary.step());
    for (int t = 0; t < 2; ++t) {
      const detail::VocabularyRecords now = vocabulary.export_records(t);
      const detail::VocabularyRecords& then =
          expected[static_cast<std::size_t>(t)][static_cast<std::size_t>(communicator.rank())];
      const bool same = now.keys == then.keys && now.rows == then.rows &&
                        now.counts == then.counts && now.steps == then.steps &&
                        now.used == then.used;
      require<Error>(same, "table {} came back otherwise", t);
    }
    VocabularyOptions half = options;  // the first table fits
    half.tables[1].rows = 20;
    Vocabulary other(communicator, half);
    bool refused = false;
    try {
      load_vocabulary(*latest_checkpoint(folder.path), other);
    } catch (const InvalidArgument&) {
      refused = true;
    }
    require<Error>(refused && other.export_records(0).keys.empty(),
                   "records of another table were taken");
  });
}

TEST_CASE("extreme keys, bags of any length, empty batches") {
  SelfCommunicator self;
  Vocabulary vocabulary(self, {.tables = {{100}, {100}}, .feature_table = {}});
  const Keys keys{
      0,  -1, std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max(), 0,
      -1, 7};
  const std::vector<std::int64_t> offsets{0, 0, 4, 4, 7};
  std::vector<std::int32_t> rows(7);
  vocabulary.learn({.features = 2, .batch = 2, .ids = keys, .offsets = offsets, .weights = {}},
                   std::span(rows));
  CHECK(rows == std::vector<std::int32_t>{1, 2, 3, 4, 1, 2, 3});
  CHECK(vocabulary.admitted(0) == 4);
  CHECK(vocabulary.admitted(1) == 3);
  const Keys unknown{5, 5};
  rows.resize(2);
  vocabulary.find(one_hot(unknown, 2), std::span(rows));
  CHECK(rows == std::vector<std::int32_t>{0, 0});
  CHECK(vocabulary.learn(one_hot({}, 2), std::span<std::int32_t>()).empty());
  CHECK(vocabulary.step() == 2);
  CHECK(vocabulary_key("a") != vocabulary_key("b"));
}

TEST_CASE("keys that are seen rarely are forgotten: memory is bounded by the rows") {
  SelfCommunicator self;
  Vocabulary vocabulary(self, {.tables = {{2000, 5}}, .feature_table = {}});
  Keys keys(1000);
  std::vector<std::int32_t> rows(keys.size());
  for (int step = 0; step < 200; ++step) {
    for (std::size_t i = 0; i < keys.size(); ++i)
      keys[i] = i < 10 ? static_cast<std::int64_t>(i) : step * 1000 + static_cast<std::int64_t>(i);
    vocabulary.learn(one_hot(keys), std::span(rows));
    CHECK(vocabulary.candidates(0) <= 2000);
    for (std::size_t i = 0; i < keys.size(); ++i)
      CHECK((rows[i] != 0) == (i < 10 && (step >= 20 || rows[i] != 0)));
    if (step < 4) CHECK(rows[0] == 0);
  }
}

TEST_CASE("laws of policies") {
  // [laws]
  CHECK(laws::vocabulary_policy_laws(Fading()).empty());
  // [laws end]
  for (const Eviction eviction : {Eviction::none, Eviction::least_frequent, Eviction::oldest}) {
    detail::VocabularyTable table{.admit_after = 9, .eviction = eviction};
    CHECK(laws::vocabulary_policy_laws(table).empty());
    table.admit_probability = 0.1f;
    table.time_to_live = 50;
    CHECK(laws::vocabulary_policy_laws(table).empty());
  }
  const auto finds = [](const std::vector<std::string>& faults, std::string_view text) {
    return std::ranges::any_of(faults, [&](const std::string& f) { return f.starts_with(text); });
  };
  CHECK(finds(laws::vocabulary_policy_laws(Never()), "admits: no key"));
  const std::vector<std::string> moody = laws::vocabulary_policy_laws(Moody());
  CHECK(finds(moody, "score: of the same key another answer"));
  CHECK(finds(moody, "score: 0 for a key of this batch"));
  CHECK(finds(moody, "score: falls"));
  CHECK(finds(laws::vocabulary_policy_laws(FallsAtThree()), "score: falls from 5 to 1"));
}

TEST_CASE("a policy that throws: its batch is no step, and the next one has its own rows") {
  for (const int threads : {1, 2}) {
    SelfCommunicator self;
    bool throws = true;
    VocabularyOptions options;
    options.tables = {{.rows = 1000}, {.rows = 1000}};
    options.feature_table = {0, 1};
    Vocabulary<SelfCommunicator, Host, Throws> vocabulary(self, Host({.threads = threads}), options,
                                                          {{&throws}, {&throws}});
    Keys keys(200);
    std::iota(keys.begin(), keys.end(), 5);
    const KeyedJagged<std::int64_t> batch{2, 100, keys, {}, {}};
    std::vector<std::int32_t> rows(keys.size());
    CHECK_THROWS_WITH(vocabulary.learn(batch, std::span(rows)), "the policy failed");
    CHECK(vocabulary.step() == 0);
    throws = false;
    std::reverse(keys.begin(), keys.end());
    for (int i = 0; i < 2; ++i) {
      vocabulary.learn(batch, std::span(rows));
      CHECK(vocabulary.step() == i + 1);
      // each key has a row of its own in its feature's table
      for (const auto begin : {rows.begin(), rows.begin() + 100}) {
        const std::set<std::int32_t> different(begin, begin + 100);
        CHECK(different.size() == 100);
        CHECK(*different.begin() > 0);
      }
    }
  }
}

TEST_CASE("what a vocabulary refuses") {
  SelfCommunicator self;
  {
    Vocabulary vocabulary(self, {.tables = {{.rows = 8}}});
    const std::vector<std::int64_t> keys{3, 4, 3}, offsets{0, 3};
    std::vector<std::int32_t> rows(2);
    const KeyedJagged<std::int64_t> batch{
        .features = 1, .batch = 1, .ids = keys, .offsets = offsets, .weights = {}};
    CHECK_THROWS_AS(vocabulary.learn(batch, std::span(rows)), InvalidArgument);
    CHECK(vocabulary.step() == 0);  // what is refused is not counted
    rows.resize(3);
    vocabulary.learn(batch, std::span(rows));
    CHECK(vocabulary.step() == 1);
  }
  CHECK_THROWS_AS(Vocabulary(self, {.tables = {{1}}, .feature_table = {}}), InvalidArgument);
  CHECK_THROWS_AS(Vocabulary(self, {.tables = {{std::int64_t{1} << 31}}, .feature_table = {}}),
                  InvalidArgument);
  CHECK_THROWS_AS(Vocabulary(self, {.tables = {{5, 0}}, .feature_table = {}}), InvalidArgument);
  CHECK_THROWS_AS(Vocabulary(self, {.tables = {{5}}, .feature_table = {1}}), InvalidArgument);
  for (const float probability : {0.0f, -1.0f, 1.5f, std::nanf("")})
    CHECK_THROWS_AS(Vocabulary(self, {.tables = {{.rows = 5, .admit_probability = probability}}}),
                    InvalidArgument);
  CHECK_THROWS_AS(Vocabulary(self, {.tables = {{5}, {5}}}, std::vector<Fading>(1)),
                  InvalidArgument);
  Vocabulary vocabulary(self, {.tables = {{5}}, .feature_table = {}});
  const Keys keys{1, 2};
  std::vector<std::int32_t> rows(2);
  CHECK_THROWS_AS(vocabulary.learn(one_hot(keys, 2), std::span(rows)), InvalidArgument);
  CHECK_THROWS_AS(vocabulary.learn(one_hot(keys), std::span(rows).first(1)), InvalidArgument);
  const std::vector<std::int64_t> backwards{0, 2, 1};
  CHECK_THROWS_AS(vocabulary.learn(
                      {.features = 1, .batch = 2, .ids = keys, .offsets = backwards, .weights = {}},
                      std::span(rows)),
                  InvalidArgument);
  vocabulary.learn(one_hot(keys), std::span(rows));
  const detail::VocabularyRecords good = vocabulary.export_records(0);
  CHECK(good.keys == keys);
  CHECK(good.used == Keys{2});
  const auto refuses = [&](auto&& damage) {
    detail::VocabularyRecords bad = good;
    damage(bad);
    CHECK_THROWS_AS(vocabulary.import_records(0, std::vector{bad}), InvalidArgument);
    CHECK(vocabulary.export_records(0).rows == good.rows);
  };
  refuses([](detail::VocabularyRecords& r) { r.rows[0] = 5; });
  refuses([](detail::VocabularyRecords& r) { r.rows[0] = 0; });
  refuses([](detail::VocabularyRecords& r) { r.rows[0] = -2; });
  refuses([](detail::VocabularyRecords& r) { r.rows[0] = r.rows[1]; });
  refuses([](detail::VocabularyRecords& r) { r.keys[0] = r.keys[1]; });
  refuses([](detail::VocabularyRecords& r) { r.counts[0] = 0; });
  refuses([](detail::VocabularyRecords& r) { r.counts[0] = std::int64_t{1} << 32; });
  refuses([](detail::VocabularyRecords& r) { r.steps[0] = -1; });
  refuses([](detail::VocabularyRecords& r) { r.used[0] = 1; });
  refuses([](detail::VocabularyRecords& r) { r.used[0] = 5; });
  refuses([](detail::VocabularyRecords& r) { r.used[0] = -1; });
  refuses([](detail::VocabularyRecords& r) { r.used.clear(); });
  refuses([](detail::VocabularyRecords& r) { r.rows.pop_back(); });
}

TEST_CASE("keys that were chosen against the standard seed do not collide") {
  const std::uint64_t seed =
      detail::VocabularyLayout({.tables = {{4097}}, .feature_table = {}}, 1, 0).tables[0].seed;
  Keys keys;  // whose hash with that seed ends in eleven zeros
  for (std::int64_t key = 0; keys.size() < 1000; ++key)
    if ((mix64(static_cast<std::uint64_t>(key) ^ seed) & 2047) == 0) keys.push_back(key);
  detail::VocabularyBlock<> block({.table = 0, .begin = 1, .rows = 4096}, {}, seed);
  std::vector<std::int32_t> rows(keys.size());
  detail::VocabularyChanges changes;
  block.learn(keys, 1, rows, false, changes);
  CHECK(block.longest_search() < 200);  // of 1,000 where they collide
  detail::VocabularyBlock<> another({.table = 0, .begin = 1, .rows = 4096}, {}, seed);
  std::vector<std::int32_t> same(keys.size());
  another.learn(keys, 1, same, false, changes);
  CHECK(same == rows);  // whatever the secret
}

TEST_CASE(
    "records that are imported without a word on their steps: every key keeps its row, and others "
    "get rows of their own") {
  SelfCommunicator self;
  const VocabularyOptions options{.tables = {{100, 1}}, .feature_table = {}};
  tessera::Vocabulary<SelfCommunicator> first(self, options), second(self, options);
  const Keys some{11, 12, 13}, more{21, 22, 23};
  Keys rows(3), found(3);
  first.learn(one_hot(some, 1), std::span<std::int64_t>(rows));
  first.learn(one_hot(more, 1), std::span<std::int64_t>(rows));
  second.import_records(0, std::vector{first.export_records(0)});
  CHECK(second.step() == 2);
  for (const std::int64_t step : {std::int64_t{1}, std::int64_t{-5}, std::int64_t{1} << 32}) {
    CAPTURE(step);
    CHECK_THROWS_AS(second.set_step(step), InvalidArgument);
    CHECK(second.step() == 2);
  }
  const Keys next{99, 12, 13};
  second.find(one_hot(next, 1), std::span<std::int64_t>(found));
  second.learn(one_hot(next, 1), std::span<std::int64_t>(rows));
  CHECK(found[1] == rows[1]);
  CHECK(found[2] == rows[2]);
  CHECK(rows[0] == 7);
  second.set_step(9);
  CHECK(second.step() == 9);
}

TEST_CASE("a vocabulary of another size takes all keys, those seen most first") {
  // keys by their place: key k is seen so often that lower ones are seen more
  const auto trained = [](ThreadCommunicator& c, std::int64_t rows, std::uint64_t seed,
                          std::int64_t keys) {
    auto vocabulary = std::make_unique<Vocabulary<ThreadCommunicator>>(
        c, VocabularyOptions{
               .tables = {{.rows = rows, .admit_after = 1}}, .feature_table = {}, .seed = seed});
    for (std::int64_t times = 1; times <= 4; ++times) {
      Keys batch;
      for (std::int64_t k = keys / times * c.rank() / c.size();
           k < keys / times * (c.rank() + 1) / c.size(); ++k)
        batch.push_back((k * 7919 % keys) * 7 - 50);
      std::vector<std::int64_t> all_offsets(batch.size() + 1);
      std::iota(all_offsets.begin(), all_offsets.end(), std::int64_t{0});
      std::vector<std::int64_t> found(batch.size());
      vocabulary->learn(KeyedJagged<std::int64_t>{.features = 1,
                                                  .batch = std::ssize(batch),
                                                  .ids = batch,
                                                  .offsets = all_offsets,
                                                  .weights = {}},
                        std::span(found));
    }
    return vocabulary;
  };
  struct Case {
    std::int64_t rows, keys, new_rows;
    std::uint64_t new_seed;
  };
  for (const Case& one : {Case{20'001, 9'000, 40'001, 3}, Case{20'001, 9'000, 20'001, 3},
                          Case{20'001, 9'000, 20'001, 4}, Case{9'000, 9'000, 2'001, 3}}) {
    const auto rows = one.rows, keys = one.keys, new_rows = one.new_rows;
    const std::uint64_t new_seed = one.new_seed;
    CAPTURE(rows);
    CAPTURE(new_rows);
    CAPTURE(new_seed);
    std::vector<detail::VocabularyRecords> first;
    std::vector<std::int64_t> first_rows;
    for (const int ranks : {1, 2, 4}) {
      std::vector<detail::VocabularyRecords> old(static_cast<std::size_t>(ranks)),
          now(static_cast<std::size_t>(ranks));
      std::vector<std::vector<std::int64_t>> from(static_cast<std::size_t>(ranks));
      run_ranks(ranks, [&](ThreadCommunicator& c) {
        old[static_cast<std::size_t>(c.rank())] = trained(c, rows, 3, keys)->export_records(0);
      });
      detail::VocabularyRecords joined;
      for (const detail::VocabularyRecords& part : old) {
        joined.keys.insert(joined.keys.end(), part.keys.begin(), part.keys.end());
        joined.rows.insert(joined.rows.end(), part.rows.begin(), part.rows.end());
        joined.counts.insert(joined.counts.end(), part.counts.begin(), part.counts.end());
        joined.steps.insert(joined.steps.end(), part.steps.begin(), part.steps.end());
      }
      run_ranks(ranks, [&](ThreadCommunicator& c) {
        Vocabulary<ThreadCommunicator> vocabulary(
            c, VocabularyOptions{.tables = {{.rows = new_rows, .admit_after = 1}},
                                 .feature_table = {},
                                 .seed = new_seed});
        from[static_cast<std::size_t>(c.rank())] = vocabulary.adopt_records(0, joined);
        now[static_cast<std::size_t>(c.rank())] = vocabulary.export_records(0);
      });
      std::map<std::int64_t, std::int64_t> had;
      for (std::size_t i = 0; i < joined.keys.size(); ++i)
        if (joined.rows[i] >= 0) had[joined.keys[i]] = joined.rows[i];
      std::int64_t kept = 0, wrong = 0, least_kept = 99;
      std::set<std::int64_t> taken;
      for (const detail::VocabularyRecords& part : now)
        for (std::size_t i = 0; i < part.keys.size(); ++i) {
          const std::int64_t row = part.rows[i];
          if (row < 0) continue;
          ++kept;
          least_kept = std::min(least_kept, part.counts[i]);
          wrong += row == 0 || !taken.insert(row).second ||
                   from[0][static_cast<std::size_t>(row)] != had.at(part.keys[i]);
        }
      CHECK(wrong == 0);
      CHECK(from[0][0] == 0);
      for (const auto& other : from) CHECK(other == from[0]);
      CHECK(std::count_if(from[0].begin() + 1, from[0].end(),
                          [](std::int64_t row) { return row >= 0; }) == kept);
      if (new_rows >= rows) CHECK(kept == std::ssize(had));  // nothing is lost
      if (new_rows < rows) {
        CHECK(kept == new_rows - 1);
        CHECK(least_kept > 1);
      }
      if (new_rows == rows && new_seed == 3)
        for (std::size_t row = 1; row < from[0].size(); ++row)
          CHECK((from[0][row] < 0 || from[0][row] == static_cast<std::int64_t>(row)));
      if (ranks == 1) first_rows = from[0];
      CHECK(from[0] == first_rows);
    }
  }
}
