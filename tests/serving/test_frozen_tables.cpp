// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Frozen tables against the collection whose checkpoint they are, and against rows decoded one by
// one; damaged and foreign files.
#include <tessera/checkpoint/save.hpp>
#include <tessera/tessera.hpp>
#include <tessera_serving/frozen_lookup.hpp>

#include <support/message_of.hpp>
#include <support/same_bits.hpp>
#include <support/temporary_folder.hpp>
#include <support/text_of.hpp>

#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

using namespace tessera;

namespace {

using Query = Table<"query", 300, 20>;
using User = Table<"user", 90, 129>;
using Country = Table<"country", 7, 1>;
using Served =
    Plan<TableWise<Query, User, Country>,
         Features<Feature<"query", "query", Sum>, Feature<"recent", "query", Mean>,
                  Feature<"user", "user", Sum, Weighted>,
                  Feature<"friends", "user", Mean, Weighted>, Feature<"country", "country", Mean>>>;
using Cut = Plan<OnFile<RowWise<Query>>, ColumnWise<3, User>, Replicated<Country>>;

const std::vector<FrozenFeature> kFeatures{{"query", "query", Pooling::sum, false},
                                           {"recent", "query", Pooling::mean, false},
                                           {"user", "user", Pooling::sum, true},
                                           {"friends", "user", Pooling::mean, true},
                                           {"country", "country", Pooling::mean, false}};

struct Bags {
  std::vector<std::int64_t> ids, offsets{0};
  std::vector<float> weights;
  std::int64_t samples;

  Bags(unsigned seed, std::int64_t batch, bool one_hot = false) : samples(batch) {
    std::minstd_rand random(seed);
    const std::int64_t rows[] = {300, 300, 90, 90, 7};
    for (const std::int64_t r : rows)
      for (std::int64_t s = 0; s < batch; ++s) {
        for (unsigned n = one_hot ? 1 : random() % 30; n > 0; --n) {
          ids.push_back(static_cast<std::int64_t>(random() % static_cast<unsigned>(r)));
          weights.push_back(static_cast<float>(static_cast<int>(random() % 17) - 8) / 4);
        }
        offsets.push_back(std::ssize(ids));
      }
    if (one_hot) offsets.clear();
  }
  KeyedJagged<std::int64_t> keyed() const { return {5, samples, ids, offsets, weights}; }
};

/// A checkpoint of 3 ranks under another plan than the one that serves, a table in files, a step of
/// training in its caches.
template <class... Policies>
std::filesystem::path saved(const TemporaryFolder& folder) {
  run_ranks(3, [&](ThreadCommunicator& rank) {
    EmbeddingCollection<Cut, RowWiseAdagrad, Host, ThreadCommunicator, Policies...> embeddings(
        rank, Host(),
        {.seed = 11, .files = {.folder = (folder.path / "rows").string(), .cache_bytes = 10'000}});
    const std::vector<std::int64_t> ids{7, 150, 290, 1, 2, 3, 4, 5, 6};
    const auto pooled = embeddings.forward(KeyedJagged<std::int64_t>{3, 3, ids, {}, {}});
    std::vector<float> gradient(static_cast<std::size_t>(3 * embeddings.columns()), 0.25f);
    embeddings.backward(pooled, {gradient.data(), 3, embeddings.columns()});
    CheckpointContents contents;
    contents.add(embeddings);
    save_checkpoint(rank, folder.path / "run", contents, 1);
  });
  return *latest_checkpoint(folder.path / "run");
}

std::vector<float> pooled_by(const FrozenTables& tables, const Bags& batch, int threads = 1) {
  FrozenLookup<std::int64_t> lookup(tables, kFeatures, BadIds::throw_error, threads);
  std::vector<float> values(static_cast<std::size_t>(batch.samples * lookup.columns()), -1.0f);
  lookup.pool(batch.keyed(), {values.data(), batch.samples, lookup.columns()});
  return values;
}

/// By the definition, in double, from rows as `rows` gives them.
std::vector<double> by_hand(const FrozenTables& tables, const Bags& batch) {
  std::vector<double> all;
  const KeyedJagged<std::int64_t> keyed = batch.keyed();
  std::vector<std::vector<double>> samples(static_cast<std::size_t>(batch.samples));
  for (std::size_t f = 0; f < kFeatures.size(); ++f) {
    const FrozenTables::Table& table = tables.table(kFeatures[f].table);
    for (std::int64_t s = 0; s < batch.samples; ++s) {
      const std::int64_t begin = keyed.bag_begin(static_cast<std::int64_t>(f), s),
                         end = keyed.bag_end(static_cast<std::int64_t>(f), s);
      std::vector<double> sum(static_cast<std::size_t>(table.width));
      std::vector<float> row(static_cast<std::size_t>(table.width));
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t id[] = {batch.ids[static_cast<std::size_t>(i)]};
        tables.rows<std::int64_t>(table.name, id, {row.data(), 1, table.width});
        const double weight =
            kFeatures[f].weighted ? batch.weights[static_cast<std::size_t>(i)] : 1.0;
        for (std::size_t c = 0; c < row.size(); ++c) sum[c] += weight * row[c];
      }
      const double scale = kFeatures[f].pooling == Pooling::mean && end > begin
                               ? 1.0 / static_cast<double>(end - begin)
                               : 1.0;
      for (const double x : sum) samples[static_cast<std::size_t>(s)].push_back(scale * x);
    }
  }
  for (const auto& sample : samples) all.insert(all.end(), sample.begin(), sample.end());
  return all;
}

}  // namespace

namespace {

template <class... Policies>
void check_elements(RowFormat format) {
  const TemporaryFolder folder;
  const std::filesystem::path checkpoint = saved<Policies...>(folder);
  freeze_checkpoint(checkpoint, folder.path / "frozen", {.format = format});
  const FrozenTables tables(folder.path / "frozen");
  SelfCommunicator self;
  EmbeddingCollection<Served, Sgd, Host, SelfCommunicator, Policies...> embeddings(self, Host(),
                                                                                   {});
  CheckpointContents contents;
  contents.add(embeddings);
  load_checkpoint(self, checkpoint, contents, {.extra = {"*.sum"}});
  for (const bool one_hot : {false, true}) {
    const Bags batch(5, 37, one_hot);
    const MatrixView<float> expected = embeddings.evaluate(batch.keyed());
    const std::vector<float> values(expected.data,
                                    expected.data + expected.rows * expected.columns);
    CHECK(same_bits(pooled_by(tables, batch), values));
    CHECK(same_bits(pooled_by(tables, batch, 3), values));
  }
}

}  // namespace

TEST_CASE("elements: the bits of the collection's own evaluation, under any plan and ranks") {
  check_elements<>(RowFormat::fp32);
  check_elements<Storage<BFloat16>>(RowFormat::bf16);
  check_elements<Storage<Half>>(RowFormat::fp16);
}

TEST_CASE("codes: sums of the decoded rows, and near the floats") {
  const TemporaryFolder folder;
  const std::filesystem::path checkpoint = saved<>(folder);
  freeze_checkpoint(checkpoint, folder.path / "float");
  const FrozenTables floats(folder.path / "float");
  for (const RowFormat format : {RowFormat::int8, RowFormat::int8_half, RowFormat::int4}) {
    CAPTURE(to_string(format));
    freeze_checkpoint(checkpoint, folder.path / "codes", {.format = format});
    const FrozenTables tables(folder.path / "codes");
    std::int64_t bytes = 0;
    detail::with_row_type(format, [&](auto row) {
      for (const auto& [rows, width] : {std::pair(300, 20), std::pair(90, 129), std::pair(7, 1)})
        bytes += rows * static_cast<std::int64_t>(decltype(row)::bytes(width));
    });
    CHECK(tables.bytes() == bytes);
    for (const bool one_hot : {false, true}) {
      const Bags batch(9, 23, one_hot);
      const std::vector<float> found = pooled_by(tables, batch);
      const std::vector<double> expected = by_hand(tables, batch);
      REQUIRE(found.size() == expected.size());
      for (std::size_t i = 0; i < found.size(); ++i)
        CHECK(std::abs(found[i] - expected[i]) <= 1e-5 + 1e-5 * std::abs(expected[i]));
      CHECK(same_bits(pooled_by(tables, batch, 2), found));
    }
    // Rows: as the encoding says, which golden vectors pin; and within its error of the floats.
    for (const FrozenTables::Table& table : tables.tables())
      for (std::int64_t r = 0; r < table.rows; ++r) {
        const std::int64_t id[] = {r};
        const auto width = static_cast<std::size_t>(table.width);
        std::vector<float> row(width), decoded(width), original(width);
        tables.rows<std::int64_t>(table.name, id, {row.data(), 1, table.width});
        floats.rows<std::int64_t>(table.name, id, {original.data(), 1, table.width});
        const std::byte* const at =
            table.data + static_cast<std::size_t>(r) * row_bytes(format, table.width);
        if (format == RowFormat::int8) Int8Row::decode(at, table.width, decoded.data());
        if (format == RowFormat::int8_half) Int8HalfRow::decode(at, table.width, decoded.data());
        if (format == RowFormat::int4) Int4Row::decode(at, table.width, decoded.data());
        const auto [least, most] = std::minmax_element(original.begin(), original.end());
        for (std::size_t c = 0; c < width; ++c) {
          CHECK(std::abs(row[c] - decoded[c]) <= 1e-7f * std::abs(decoded[c]));
          CHECK(std::abs(row[c] - original[c]) <=
                (*most - *least) * (format == RowFormat::int4 ? 0.036f : 0.0025f) + 2e-4f);
        }
      }
  }
}

TEST_CASE("formats by table, tables by pattern") {
  const TemporaryFolder folder;
  const std::filesystem::path checkpoint = saved<>(folder);
  freeze_checkpoint(checkpoint, folder.path / "frozen",
                    {.tables = {"query", "us*"},
                     .format = RowFormat::bf16,
                     .formats = {{"*", RowFormat::int4}, {"user", RowFormat::int8}}});
  const FrozenTables tables(folder.path / "frozen");
  CHECK(tables.tables().size() == 2);
  CHECK(tables.table("query").format == RowFormat::int4);
  CHECK(tables.table("user").format == RowFormat::int8);
  CHECK(message_of<Error>([&] {
          static_cast<void>(tables.table("country"));
        }).find("no table 'country'") != std::string::npos);
  CHECK(message_of<Error>([&] {
          freeze_checkpoint(checkpoint, folder.path / "other", {.tables = {"query", "nobody"}});
        }).find("has no table 'nobody'") != std::string::npos);
  CHECK(!std::filesystem::exists(folder.path / "other"));
  CHECK(parse_row_format("int8-half") == RowFormat::int8_half);
  CHECK(message_of<Error>([] { parse_row_format("int2"); }).find("choose fp32") !=
        std::string::npos);
}

TEST_CASE("bad ids, features and shapes") {
  const TemporaryFolder folder;
  freeze_checkpoint(saved<>(folder), folder.path / "frozen", {.format = RowFormat::int8});
  const FrozenTables tables(folder.path / "frozen");
  const std::vector<FrozenFeature> one{{"query", "query"}};
  const std::vector<std::int64_t> ids{3, 300, -1}, offsets{0, 1, 3};
  const KeyedJagged<std::int64_t> batch{1, 2, ids, offsets, {}};
  std::vector<float> values(40, 7.0f);
  const MatrixView<float> out{values.data(), 2, 20};
  FrozenLookup<std::int64_t> strict(tables, one);
  CHECK_THROWS_WITH_AS(strict.pool(batch, out),
                       "feature 'query', sample 1: id 300 is outside its table of 300 rows (valid "
                       "ids are 0..299); fix the data, or choose "
                       "BadIds::zero_vector, clamp or wrap",
                       BadId);
  CHECK(std::count(values.begin(), values.end(), 7.0f) == 40);
  const auto pooled = [&](BadIds policy) {
    FrozenLookup<std::int64_t> lookup(tables, one, policy);
    lookup.pool(batch, out);
    CHECK(lookup.bad_ids()[0] + lookup.bad_ids()[1] + lookup.bad_ids()[2] == 2);
    return std::vector<float>(values.begin() + 20, values.end());
  };
  const auto row = [&](std::int64_t id) {
    std::vector<float> floats(20);
    tables.rows<std::int64_t>("query", {&id, 1}, {floats.data(), 1, 20});
    return floats;
  };
  const auto sum = [](std::vector<float> a, const std::vector<float>& b) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
    return a;
  };
  CHECK(pooled(BadIds::zero_vector) == std::vector<float>(20));
  CHECK(pooled(BadIds::clamp) == sum(row(299), row(0)));
  CHECK(pooled(BadIds::wrap) == sum(row(0), row(299)));
  // A vector for each id, side by side with pooled ones; bad ids keep their places.
  const std::vector<FrozenFeature> both{{"query", "query"}, {"each", "query", Pooling::none}};
  const std::vector<std::int64_t> twice{3, 5, 4, 300, -1, 299}, bags{0, 1, 2, 4, 6};
  const auto each = [&](BadIds policy) {
    FrozenLookup<std::int64_t> lookup(tables, both, policy);
    CHECK(lookup.columns() == 20);
    lookup.pool({2, 2, twice, bags, {}}, out);
    CHECK(std::vector<float>(values.begin(), values.begin() + 20) == row(3));
    const MatrixView<const float> rows = lookup.sequence(1);
    CHECK(rows.rows == 4);
    std::vector<std::vector<float>> all;
    for (std::int64_t i = 0; i < 4; ++i) all.emplace_back(rows.row(i), rows.row(i) + rows.columns);
    CHECK_THROWS_AS(lookup.sequence(0), InvalidArgument);
    CHECK_THROWS_AS(lookup.sequence(2), InvalidArgument);
    return all;
  };
  const std::vector<float> nothing(20);
  CHECK(each(BadIds::zero_vector) == std::vector{row(4), nothing, nothing, row(299)});
  CHECK(each(BadIds::clamp) == std::vector{row(4), row(299), row(0), row(299)});
  CHECK(each(BadIds::wrap) == std::vector{row(4), row(0), row(299), row(299)});
  {
    const std::vector<FrozenFeature> weighted{{"query", "query"},
                                              {"each", "query", Pooling::none, true}};
    const std::vector<float> weights{9, 9, 2, 0.5f, 1, -1};
    const std::vector<std::int64_t> good{3, 5, 4, 298, 7, 299};
    FrozenLookup<std::int64_t> lookup(tables, weighted);
    lookup.pool({2, 2, good, bags, weights}, out);
    CHECK(std::vector<float>(values.begin(), values.begin() + 20) == row(3));
    const MatrixView<const float> rows = lookup.sequence(1);
    for (const auto& [i, id, weight] :
         {std::tuple(0, 4, 2.0f), std::tuple(1, 298, 0.5f), std::tuple(3, 299, -1.0f)})
      for (int c = 0; c < 20; ++c)
        CHECK(rows.row(i)[c] == weight * row(id)[static_cast<std::size_t>(c)]);
  }
  CHECK_THROWS_AS(each(BadIds::throw_error), BadId);
  CHECK_THROWS_AS(row(300), BadId);
  CHECK_THROWS_AS(strict.pool(batch, {values.data(), 2, 19}), InvalidArgument);
  CHECK_THROWS_AS(strict.pool({2, 1, ids, {}, {}}, {values.data(), 1, 20}), InvalidArgument);
  CHECK(message_of<Error>([&] {
          FrozenLookup<std::int32_t> lookup(tables, std::vector<FrozenFeature>{{"x", "nobody"}});
        }).find("has no table 'nobody'") != std::string::npos);
  CHECK(message_of<Error>([&] {
          FrozenLookup<std::int32_t> lookup(
              tables, std::vector<FrozenFeature>{{"x", "query", Pooling::max}});
        }).find("feature 'x' has pooling max") != std::string::npos);
  CHECK_THROWS_AS(FrozenLookup<std::int32_t>(tables, std::vector<FrozenFeature>{}),
                  InvalidArgument);
  CHECK(message_of<Error>([&] {
          FrozenLookup<std::int32_t> lookup(
              tables, std::vector<FrozenFeature>{{"x", "query"}, {"x", "user"}});
        }).find("'x'") != std::string::npos);
  FrozenLookup<std::int64_t> empty(tables, one);
  empty.pool({1, 0, {}, {}, {}}, {values.data(), 0, 20});
}

TEST_CASE("damaged and foreign files are refused, with their names") {
  const TemporaryFolder folder;
  const std::filesystem::path checkpoint = saved<>(folder), file = folder.path / "frozen";
  freeze_checkpoint(checkpoint, file, {.format = RowFormat::int4});
  const std::string good = text_of(file);
  const auto fault = [&](const std::string& bytes, bool verify = true) {
    write_text(file, bytes);
    return message_of<Error>([&] { const FrozenTables tables(file, {.verify = verify}); });
  };
  CHECK(fault(good) == "");
  std::string damaged = good;
  damaged[good.size() - 200] ^= 1;
  CHECK(fault(damaged).find("the file is damaged") != std::string::npos);
  CHECK(fault(damaged, false) == "");
  // Any change is refused or leaves tables that can be read.
  std::minstd_rand random(3);
  for (int i = 0; i < 1000; ++i) {
    std::string bytes = good;
    for (unsigned n = 1 + random() % 3; n > 0; --n)
      bytes[i % 2 == 0 ? random() % 600 : random() % bytes.size()] = static_cast<char>(random());
    if (i % 5 == 0) bytes.resize(random() % bytes.size());
    write_text(file, bytes);
    try {
      const FrozenTables tables(file, {.verify = i % 3 != 0});
      for (const FrozenTables::Table& table : tables.tables()) {
        std::vector<float> row(static_cast<std::size_t>(table.width));
        const std::int64_t last[] = {table.rows - 1};
        tables.rows<std::int64_t>(table.name, last, {row.data(), 1, table.width});
      }
    } catch (const DataError& error) {
      CHECK(std::string(error.what()).find("frozen") != std::string::npos);
    }
  }
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint))
    if (entry.path().extension() == ".safetensors") {
      CHECK(fault(text_of(entry.path())).find("holds no frozen tables") != std::string::npos);
      break;
    }
  CHECK_THROWS_AS(FrozenTables(folder.path / "nothing"), DataError);
}

TEST_CASE("what cannot be frozen leaves no file") {
  const TemporaryFolder folder;
  SelfCommunicator self;
  EmbeddingCollection<Served, Sgd, Host, SelfCommunicator> embeddings(self, Host(), {});
  std::vector<float> values(300 * 20, 0.5f);
  values[17 * 20 + 3] = NAN;
  embeddings.tables().set("query", {values.data(), 300, 20});
  CheckpointContents contents;
  contents.add(embeddings);
  save_checkpoint(self, folder.path / "run", contents, 1);
  const std::filesystem::path checkpoint = *latest_checkpoint(folder.path / "run");
  for (std::size_t f = 0; f < row_format_names.size(); ++f) {
    const std::string text = message_of<Error>([&] {
      freeze_checkpoint(checkpoint, folder.path / "frozen", {.format = static_cast<RowFormat>(f)});
    });
    CAPTURE(text);
    CHECK(text.find("query.safetensors', table 'query', row 17, column 3: nan") !=
          std::string::npos);
    CHECK(!std::filesystem::exists(folder.path / "frozen"));
    for (const auto& entry : std::filesystem::directory_iterator(folder.path))
      CHECK(entry.path().filename() == "run");
  }
  CHECK_THROWS_WITH_AS(freeze_checkpoint(checkpoint, checkpoint / "tables"),
                       doctest::Contains("is in a checkpoint's folder"), InvalidArgument);
  values[17 * 20 + 3] = 70000;  // no half
  embeddings.tables().set("query", {values.data(), 300, 20});
  save_checkpoint(self, folder.path / "run", contents, 2);
  const std::filesystem::path large = *latest_checkpoint(folder.path / "run");
  CHECK_THROWS_WITH_AS(
      freeze_checkpoint(large, folder.path / "frozen", {.format = RowFormat::fp16}),
      doctest::Contains("row 17, column 3: 70000 does not fit fp16"), DataError);
  freeze_checkpoint(large, folder.path / "frozen", {.format = RowFormat::bf16});
  CHECK_THROWS_AS(freeze_checkpoint(folder.path / "nothing", folder.path / "x"), DataError);
}

/// Bytes of a mapped file that this process has copies of.
std::int64_t own_bytes(const std::filesystem::path& file) {
  std::ifstream maps("/proc/self/smaps");
  std::int64_t own = 0, mappings = 0;
  bool of_file = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.find('-') < 20) {  // addresses
      of_file = line.find(file.string()) != std::string::npos;
      mappings += of_file;
    } else if (of_file && line.starts_with("Anonymous:")) {
      own += std::stoll(line.substr(10)) << 10;
    }
  }
  return mappings > 0 ? own : -1;
}

TEST_CASE("threads that freeze one file at a time leave a whole one") {
  const TemporaryFolder folder;
  SelfCommunicator self;
  EmbeddingCollection<Served, Sgd, Host, SelfCommunicator> embeddings(self, Host(), {});
  CheckpointContents contents;
  contents.add(embeddings);
  save_checkpoint(self, folder.path / "run", contents, 1);
  const std::filesystem::path checkpoint = *latest_checkpoint(folder.path / "run");
  std::vector<std::string> texts(4);
  std::vector<std::thread> threads;
  for (std::string& text : texts)
    threads.emplace_back([&] {
      try {
        for (int i = 0; i < 10; ++i) {
          freeze_checkpoint(checkpoint, folder.path / "frozen");
          static_cast<void>(FrozenTables(folder.path / "frozen"));
        }
      } catch (const std::exception& error) {
        text = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) CHECK(text == "");
}

TEST_CASE("processes serve parts of one file, whose memory they share") {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path / "frozen";
  freeze_checkpoint(saved<>(folder), file, {.format = RowFormat::int4});
  std::vector<float> whole;
  {
    const FrozenTables tables(file);
    whole.resize(300 * 20);
    std::vector<std::int64_t> ids(300);
    std::iota(ids.begin(), ids.end(), 0);
    tables.rows("query", std::span<const std::int64_t>(ids),
                MatrixView<float>{whole.data(), 300, 20});
  }
  std::vector<pid_t> processes;
  for (std::int64_t part = 0; part < 3; ++part) {
    const pid_t process = ::fork();
    REQUIRE(process >= 0);
    if (process == 0) {  // rows [100 part, 100 (part + 1)) of a table
      int code = 1;
      try {
        const FrozenTables tables(file);
        std::vector<std::int64_t> ids(100);
        std::iota(ids.begin(), ids.end(), 100 * part);
        std::vector<float> rows(100 * 20);
        tables.rows("query", std::span<const std::int64_t>(ids),
                    MatrixView<float>{rows.data(), 100, 20});
        const bool same = std::equal(rows.begin(), rows.end(), whole.begin() + 2000 * part);
        code = !same ? 2 : own_bytes(file) != 0 ? 3 : 0;
      } catch (...) {
      }
      ::_exit(code);
    }
    processes.push_back(process);
  }
  for (const pid_t process : processes) {
    int status = -1;
    ::waitpid(process, &status, 0);
    CHECK(status == 0);
  }
}

TEST_CASE("many threads look up at one time") {
  const TemporaryFolder folder;
  freeze_checkpoint(saved<>(folder), folder.path / "frozen", {.format = RowFormat::int8});
  const FrozenTables tables(folder.path / "frozen");
  std::vector<std::vector<float>> expected;
  for (unsigned seed = 0; seed < 4; ++seed)
    expected.push_back(pooled_by(tables, Bags(seed, 11 + seed)));
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (unsigned t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      FrozenLookup<std::int64_t> lookup(tables, kFeatures);
      std::vector<float> values;
      for (unsigned round = 0; round < 20; ++round) {
        const Bags batch((t + round) % 4, 11 + (t + round) % 4);
        values.assign(static_cast<std::size_t>(batch.samples * lookup.columns()), 0.0f);
        lookup.pool(batch.keyed(), {values.data(), batch.samples, lookup.columns()});
        wrong[t] += !same_bits(values, expected[(t + round) % 4]);
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(4));
}
