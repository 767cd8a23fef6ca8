// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Whole models, from checkpoints that say what they are, against the same computed by the
// definitions in double; users with candidates; requests joined over threads; what does not fit.
#include <tessera/checkpoint/folder.hpp>
#include <tessera/checkpoint/increments.hpp>
#include <tessera/checkpoint/save.hpp>
#include <tessera/comm/self_communicator.hpp>
#include <tessera_data/criteo.hpp>
#include <tessera_data/criteo_encoder.hpp>
#include <tessera_data/tabular_encoder.hpp>
#include <tessera_serving/batching_scorer.hpp>
#include <tessera_serving/frozen_model.hpp>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <support/text_of.hpp>

#include <atomic>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <serving/saved_model.hpp>

using namespace tessera;
using namespace saved_model;

namespace {

std::vector<double> layer(const Saved& saved, const std::string& name, const std::vector<double>& x,
                          bool relu) {
  const std::vector<float>&weight = saved.tensors.at(name + ".weight"),
        &bias = saved.tensors.at(name + ".bias");
  std::vector<double> y;
  for (std::size_t o = 0; o < bias.size(); ++o) {
    double sum = bias[o];
    for (std::size_t i = 0; i < x.size(); ++i) sum += double{weight[o * x.size() + i]} * x[i];
    y.push_back(relu ? std::max(sum, 0.0) : sum);
  }
  return y;
}

/// The score of one sample by the definitions.
double by_hand(const Saved& saved, const ModelDescription& model, const Samples& samples,
               std::size_t s) {
  std::vector<double> x(2);
  x[0] = std::isnan(samples.price[s])
             ? 0
             : (std::log1p(std::max(double{samples.price[s]}, 0.0)) - 0.5) * 2;
  x[1] = ((std::isnan(samples.age[s]) ? 3.0 : samples.age[s]) - 0.25) * 0.5;
  if (!model.bottom_mlp.empty())
    x = layer(saved, "bottom.1", layer(saved, "bottom.0", x, true), true);
  double wide = 0;
  const auto town = [&](const std::string& text) -> std::size_t {
    if (text.empty()) return 0;
    return 1 + static_cast<std::size_t>(((mix64(77 ^ detail::name_key(text)) >> 32) * 29) >> 32);
  };
  // column c of a table's rows, pooled
  const auto pooled = [&](const std::string& table, std::size_t width, std::size_t c,
                          const std::vector<std::size_t>& rows, Pooling pooling) {
    double sum = 0, largest = rows.empty() ? 0 : -INFINITY;
    for (const std::size_t row : rows) {
      const double x = saved.tensors.at(table + ".weight")[row * width + c];
      sum += x;
      largest = std::max(largest, x);
    }
    const double mean = rows.empty() ? 0 : sum / static_cast<double>(rows.size());
    return pooling == Pooling::sum ? sum : pooling == Pooling::mean ? mean : largest;
  };
  const auto add = [&](const char* table, std::vector<std::size_t> rows, bool list) {
    const Pooling pooling = list ? model.features[1].pooling : Pooling::sum;
    const auto width = static_cast<std::size_t>(model.table(table).width);
    std::vector<double> vector;
    for (std::size_t c = 0; c < width; ++c)
      vector.push_back(pooled(table, width, c, rows, pooling));
    if (model.wide) wide += pooled(wide_table(table), 1, 0, rows, pooling);
    if (model.interaction == "dot" && width != kWidth) {  // one more layer
      const std::vector<float>& weight =
          saved.tensors.at(fmt::format("projection.{}.weight", width));
      for (std::size_t c = 0; c < kWidth; ++c)
        x.push_back(
            std::inner_product(vector.begin(), vector.end(), weight.data() + c * width, 0.0));
    } else {
      x.insert(x.end(), vector.begin(), vector.end());
    }
  };
  const std::string& text = samples.c1[s];
  add("C1",
      {text.empty()         ? 0u
       : text == "1f"       ? 2u
       : text == "ABCDEF01" ? 39u
       : text == "77"       ? 1u
                            : 7u},
      false);
  std::size_t begin = 0;
  for (std::size_t i = 0; i < s; ++i) begin += static_cast<std::size_t>(samples.lengths[i]);
  std::vector<std::size_t> towns;
  for (std::int64_t i = 0; i < samples.lengths[s]; ++i)
    towns.push_back(town(samples.cities[begin + static_cast<std::size_t>(i)]));
  add("city", towns, true);  // the mean, or with cross layers the largest
  add("city", {town(samples.home[s])}, false);
  std::vector<double> z;
  if (model.interaction == "dot") {
    z.assign(x.begin(), x.begin() + kWidth);
    for (int i = 1; i < 4; ++i)
      for (int j = 0; j < i; ++j) {
        z.push_back(0);
        for (int c = 0; c < kWidth; ++c)
          z.back() += x[static_cast<std::size_t>(i * kWidth + c)] *
                      x[static_cast<std::size_t>(j * kWidth + c)];
      }
    z.resize(16);
  } else {
    z = x;
    for (std::int64_t l = 0; l < model.cross_layers; ++l) {
      const auto &v = saved.tensors.at(fmt::format("cross.{}.v", l)),
                 &u = saved.tensors.at(fmt::format("cross.{}.u", l)),
                 &bias = saved.tensors.at(fmt::format("cross.{}.bias", l));
      double inner[3] = {};
      for (std::size_t r = 0; r < 3; ++r)
        for (std::size_t i = 0; i < 24; ++i) inner[r] += v[r * 24 + i] * z[i];
      for (std::size_t i = 0; i < 24; ++i)
        z[i] += x[i] *
                (bias[i] + u[i * 3] * inner[0] + u[i * 3 + 1] * inner[1] + u[i * 3 + 2] * inner[2]);
    }
  }
  const double logit = layer(saved, "top.1", layer(saved, "top.0", z, true), false)[0] + wide;
  return 1 / (1 + std::exp(-logit));
}

std::vector<float> scores_of(const FrozenModel& model, const Samples& samples) {
  EncodedSamples encoded;
  model.inputs().encode(samples.columns(), encoded);
  std::vector<float> scores(samples.price.size());
  model.score(encoded, scores);
  return scores;
}

double difference(const std::vector<float>& a, const std::vector<float>& b) {
  double worst = a.size() == b.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    worst = std::max(worst, std::abs(double{a[i]} - b[i]));
  return worst;
}

/// One to three places of a text changed, cut out, doubled, or cut off.
std::string mutated(std::string text, std::minstd_rand& random) {
  for (auto n = 1 + random() % 3; n > 0 && !text.empty(); --n) {
    const std::size_t at = random() % text.size(), length = 1 + random() % 20;
    switch (random() % 6) {
      case 0:
        text[at] = static_cast<char>(text[at] ^ (1 << random() % 8));
        break;
      case 1:
        text[at] = "0123456789-[]{}\",."[random() % 18];
        break;
      case 2:
        text.erase(at, length);
        break;
      case 3:
        text.insert(at, text.substr(at, length));
        break;
      case 4:
        text.resize(at);
        break;
      default:
        std::fill_n(text.begin() + static_cast<std::ptrdiff_t>(at),
                    std::min(length, text.size() - at), static_cast<char>(random()));
    }
  }
  return text;
}

}  // namespace

TEST_CASE("scores are those of the definitions, whatever the batch and the format") {
  for (const std::string kind : {"dot", "cross", "wide", "projected"}) {
    CAPTURE(kind);
    const Saved saved(description(kind));
    const FrozenModel model(saved.checkpoint), exact(saved.checkpoint, {.pad_batches = false}),
        coarse(saved.checkpoint, {.format = RowFormat::int8, .formats = {{"C*", RowFormat::bf16}}});
    CHECK(model.step() == 12);
    for (const int count : {0, 1, 3, 17, 70, 1100}) {
      CAPTURE(count);
      const Samples samples(7, count);
      const std::vector<float> scores = scores_of(model, samples);
      double worst = 0;
      for (std::size_t s = 0; s < scores.size(); ++s)
        worst =
            std::max(worst, std::abs(scores[s] - by_hand(saved, description(kind), samples, s)));
      CHECK(worst < 1e-6);
      CHECK(difference(scores, scores_of(exact, samples)) < 1e-6);
      const double rounded = difference(scores, scores_of(coarse, samples));
      CHECK(rounded < 2e-3);
      CHECK((count < 17 || rounded > 0));
    }
  }
}

TEST_CASE("a user's side is given once") {
  const Samples all(3, 40);
  for (const std::string kind : {"dot", "wide", "projected"})
    for (const int users_numbers : {0, 1, 2}) {
      CAPTURE(kind);
      CAPTURE(users_numbers);
      const Saved saved(description(kind));
      const FrozenModel model(saved.checkpoint);
      // column by column: the user's first one for all, or the candidates' own
      Samples whole = all;
      ModelColumns user = all.columns(), candidates = all.columns();
      user.samples = 1;
      for (std::size_t c = 0; c < 2; ++c) {
        std::vector<float>& values = c == 0 ? whole.price : whole.age;
        if (static_cast<int>(c) < users_numbers) {
          values.assign(values.size(), values[0]);
          user.numbers[c] = user.numbers[c].first(1);
          candidates.numbers[c] = {};
        } else {
          user.numbers[c] = {};
        }
      }
      whole.views[0].assign(40, all.views[0][0]);
      user.categories[0].texts = user.categories[0].texts.first(1);
      candidates.categories[0] = {};
      user.categories[1] = {};
      user.categories[2] = {};
      EncodedSamples one, many, together;
      model.inputs().encode(user, one, true);
      model.inputs().encode(candidates, many, true);
      model.inputs().encode(whole.columns(), together);
      std::vector<float> scores(40), expected(40);
      model.score(one, many, scores);
      model.score(together, expected);
      CHECK(difference(scores, expected) < 1e-6);
      CHECK_THROWS_WITH_AS(model.score(many, scores), doctest::Contains("is missing"),
                           InvalidArgument);
      CHECK_THROWS_WITH_AS(model.score(one, together, scores),
                           doctest::Contains("candidates', too"), InvalidArgument);
    }
}

TEST_CASE("threads share a model, and requests are joined") {
  const Saved saved(description("cross"));
  const FrozenModel model(saved.checkpoint);
  std::atomic<int> wrong{0};
  {
    BatchingScorer joined(
        model, {.max_samples = 50, .max_delay = std::chrono::microseconds(300), .threads = 2});
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        for (unsigned i = 0; i < 20; ++i) {
          const Samples samples(100 * t + i, static_cast<int>(1 + (7 * t + i) % 30));
          EncodedSamples encoded;
          model.inputs().encode(samples.columns(), encoded);
          std::vector<float> scores(samples.price.size());
          joined.score(encoded, scores);
          wrong += difference(scores, scores_of(model, samples)) > 1e-6;
        }
      });
    for (std::thread& thread : threads) thread.join();
  }
  CHECK(wrong == 0);

  // what waits is scored before the end, and what is too much is refused
  const Samples samples(1, 30);
  EncodedSamples encoded;
  model.inputs().encode(samples.columns(), encoded);
  std::vector<float> first(30), second(30);
  std::atomic<int> done{0};
  BatchingScorer::Request a{.samples = &encoded, .scores = first}, b = a, c = a;
  b.scores = second;
  a.done = b.done = c.done = [&](std::exception_ptr error) { done += error ? 100 : 1; };
  {
    BatchingScorer slow(model, {.max_delay = std::chrono::seconds(100), .max_waiting = 60});
    CHECK(slow.submit(a));
    CHECK(slow.submit(b));
    CHECK_FALSE(slow.submit(c));
  }
  CHECK(done == 2);
  CHECK(difference(first, second) == 0);
  CHECK_THROWS_AS(BatchingScorer(model, {.threads = 0}), InvalidArgument);
}

TEST_CASE("Criteo's fields become what the training run's encoder makes of them") {
  std::minstd_rand random(9);
  std::vector<CriteoRecord> records(500);
  for (CriteoRecord& record : records) {
    for (std::int32_t& x : record.integers)
      x = random() % 7 == 0 ? CriteoRecord::kMissing
                            : static_cast<std::int32_t>(random() % 4000) - 3;
    record.missing_categories = random() & 0xff;
    for (std::uint32_t& value : record.categories)
      value = static_cast<std::uint32_t>(random() % 12) << (random() % 20);
  }
  CriteoStatistics statistics;
  statistics.add(records);
  for (const std::int64_t max_rows : {1000, 9}) {
    const CriteoEncoder encoder({.max_rows = max_rows, .min_count = 2}, statistics);
    ModelDescription model{.vector_width = 4, .bottom_mlp = {13, 4}, .top_mlp = {368, 1}};
    std::map<std::string, KeyList> lists;
    for (int i = 0; i < kCriteoIntegers; ++i)
      model.numeric.push_back({fmt::format("I{}", i + 1), NumberTransform::log,
                               encoder.shift()[static_cast<std::size_t>(i)],
                               encoder.scale()[static_cast<std::size_t>(i)], true,
                               CriteoEncoder::missing_integer()});
    for (int f = 0; f < kCriteoCategories; ++f) {
      const std::string name = fmt::format("C{}", f + 1);
      model.tables.push_back({name,
                              encoder.rows()[static_cast<std::size_t>(f)],
                              4,
                              CategoryKey::hex,
                              KeyRows::list,
                              0,
                              1,
                              0,
                              {}});
      model.features.push_back({name, name});
      encoder.for_each_value(f, [&](std::uint32_t value, std::uint32_t row) {
        lists[name].keys.push_back(value);
        lists[name].rows.push_back(static_cast<std::int32_t>(row));
      });
    }
    const TemporaryFolder folder;
    SelfCommunicator self;
    CheckpointContents contents;
    add_model_description(contents, model, lists);
    save_checkpoint(self, folder.path, contents, 1);
    CheckpointReader reader(*latest_checkpoint(folder.path));
    const ModelInputs inputs(read_model_description(reader), reader);

    ClickBatch<std::int64_t> batch;
    encoder.encode(std::span<const CriteoRecord>(records), batch);
    std::vector<std::vector<float>> numbers(13);
    std::vector<std::vector<std::string>> texts(26);
    std::vector<std::vector<std::string_view>> views(26);
    ModelColumns columns{.samples = 500};
    for (std::size_t i = 0; i < 13; ++i) {
      for (const CriteoRecord& record : records)
        numbers[i].push_back(record.integers[i] == CriteoRecord::kMissing
                                 ? NAN
                                 : static_cast<float>(record.integers[i]));
      columns.numbers.emplace_back(numbers[i]);
    }
    for (int f = 0; f < 26; ++f) {
      const auto c = static_cast<std::size_t>(f);
      for (const CriteoRecord& record : records)
        texts[c].push_back(record.missing(f) ? "" : fmt::format("{:08x}", record.categories[c]));
      views[c].assign(texts[c].begin(), texts[c].end());
      columns.categories.push_back({.texts = views[c], .given = true});
    }
    EncodedSamples encoded;
    inputs.encode(columns, encoded);
    CHECK(encoded.numbers == batch.dense);
    CHECK(encoded.rows == batch.ids);
  }
}

TEST_CASE("numbers are standardized as in training: dates, seconds since 1970, small prices") {
  const Schema schema = parse_schema(
      "label: y\nnumeric: [{name: date, transform: standardize}, {name: second, transform: "
      "standardize},\n  {name: price, transform: [log1p, standardize], empty: 0}]\n"
      "categorical: [c]",
      "s.yaml");
  TabularBlock block;
  for (int i = 0; i < 10; ++i) {
    block.labels.push_back(1);
    block.keys.push_back(7);
    for (const double x : {20180113.0 + i, 1517356830.0 + i, (1.0 + i * i) * 1e-8})
      block.numbers.push_back(x);
    ++block.size;
  }
  TabularStatistics statistics(schema);
  statistics.add(block);
  const TabularEncoder encoder(statistics);
  ModelDescription model{.vector_width = 4, .bottom_mlp = {3, 4}, .top_mlp = {5, 1}};
  for (std::size_t c = 0; c < 3; ++c) {
    const auto [shift, scale] = encoder.shift_and_scale(c);
    model.numeric.push_back({schema.numeric[c].name,
                             c == 2 ? NumberTransform::log1p : NumberTransform::none, shift,
                             scale});
  }
  model.tables.push_back(
      {.name = "c", .rows = 9, .width = 4, .keys = CategoryKey::integer, .rows_by = KeyRows::key});
  model.features.push_back({"c", "c"});
  CHECK_FALSE(model.numeric[2].needs_double());
  CHECK(model.numeric[1].needs_double());
  const TemporaryFolder folder;
  SelfCommunicator self;
  CheckpointContents contents;
  add_model_description(contents, model);
  save_checkpoint(self, folder.path, contents, 1);
  CheckpointReader reader(*latest_checkpoint(folder.path));
  const ModelInputs inputs(read_model_description(reader), reader);
  std::vector<std::vector<double>> numbers(3);
  for (std::size_t i = 0; i < block.numbers.size(); ++i) numbers[i % 3].push_back(block.numbers[i]);
  const std::vector<std::int64_t> rows(10, 3);
  ModelColumns columns{.samples = 10, .categories = {{.rows = rows, .given = true}}};
  for (const auto& column : numbers) columns.numbers.emplace_back(column);
  EncodedSamples encoded;
  inputs.encode(columns, encoded);
  encoder.encode_numbers(block);
  ClickBatch<std::int64_t> batch;
  to_batch(block, 1, batch);
  CHECK(encoded.numbers == batch.dense);
  CHECK(encoded.numbers[4] - encoded.numbers[1] == doctest::Approx(0.3481553));  // of numpy
  const std::vector<double> far(10, 1e300);
  columns.numbers[2] = far;
  CHECK_THROWS_WITH_AS(inputs.encode(columns, encoded),
                       doctest::Contains("column 'price', sample 0: 1e+300 is too large"),
                       InvalidArgument);
}

TEST_CASE("what does not fit is refused by name") {
  const ModelDescription good = description("dot");
  const Saved saved(good);
  const FrozenModel model(saved.checkpoint);
  const Samples samples(1, 4);
  EncodedSamples encoded;
  const auto refused = [&](const char* text, const auto& change) {
    ModelColumns columns = samples.columns();
    change(columns);
    CHECK_THROWS_WITH_AS(model.inputs().encode(columns, encoded), doctest::Contains(text),
                         InvalidArgument);
  };
  const std::vector<std::string_view> bad{"1f", "xyz", "1f", "1f"};
  const std::vector<std::int64_t> outside{0, 40, 1, 2}, lengths{1, 1, 1, 99};
  const std::vector<float> infinite{1, 2, INFINITY, 3};
  refused("column 'C1', sample 1: 'xyz' is not a hex",
          [&](ModelColumns& c) { c.categories[0].texts = bad; });
  refused("column 'C1', entry 1: row 40 is not in [0, 40)",
          [&](ModelColumns& c) { c.categories[0] = {.rows = outside, .given = true}; });
  refused("column 'age', sample 2: inf", [&](ModelColumns& c) { c.numbers[1] = infinite; });
  refused("column 'price': 3 numbers for 4",
          [&](ModelColumns& c) { c.numbers[0] = c.numbers[0].first(3); });
  refused("column 'cities': the lengths",
          [&](ModelColumns& c) { c.categories[1].lengths = lengths; });
  refused("column 'home' is missing", [&](ModelColumns& c) { c.categories[2] = {}; });
  refused("2 numeric and 2 categorical", [&](ModelColumns& c) { c.categories.pop_back(); });

  ModelDescription other = good;
  other.top_mlp[1] = 10;
  const Saved misdescribed(good);
  {
    SelfCommunicator self;
    CheckpointContents contents;
    auto tensors = misdescribed.tensors;
    for (auto& [name, values] : tensors)
      contents.add(Host(), name, {std::ssize(values)}, std::span(values));
    add_model_description(contents, other, {{"C1", {{1}, {}}}});
    save_checkpoint(self, misdescribed.folder.path, contents, 13);
  }
  CHECK_THROWS_WITH_AS(FrozenModel(*latest_checkpoint(misdescribed.folder.path)),
                       doctest::Contains("'top.0.weight' has 144 numbers"), DataError);
}

TEST_CASE("weights, transformed numbers and logits that are not finite are refused by name") {
  for (const char* kind : {"dot", "wide"}) {
    const ModelDescription model = description(kind);
    Saved saved(model);
    SelfCommunicator self;
    std::int64_t step = 12;
    // the checkpoint with one number changed, or an increment of it
    const auto with = [&](const std::string& tensor, std::size_t place, float value) {
      auto tensors = saved.tensors;
      tensors.at(tensor).at(place) = value;
      CheckpointContents contents;
      for (auto& [name, values] : tensors)
        contents.add(Host(), name, CheckpointReader(saved.checkpoint).tensor(name).shape,
                     std::span(values));
      add_model_description(contents, model, {{"C1", {{0x1f, 0xabcdef01, 0}, {2, 39, 7}}}});
      save_checkpoint(self, saved.folder.path, contents, ++step);
      return *latest_checkpoint(saved.folder.path);
    };
    for (const float bad : {NAN, INFINITY, -INFINITY})
      for (const RowFormat format : {RowFormat::fp32, RowFormat::bf16, RowFormat::int4}) {
        CHECK_THROWS_WITH_AS(FrozenModel(with("city.weight", 13, bad), {.format = format}),
                             doctest::Contains("table 'city', row 2, column 1"), DataError);
        CHECK_THROWS_WITH_AS(FrozenModel(with("top.0.bias", 3, bad), {.format = format}),
                             doctest::Contains("layer 'top.0.bias', row 3"), DataError);
      }
    if (model.wide)
      CHECK_THROWS_WITH_AS(FrozenModel(with("wide.C1.weight", 13, NAN)),
                           doctest::Contains("table 'wide.C1', row 13"), DataError);
    // finite weights whose logit is not
    saved.tensors.at("top.0.bias")[0] = 1000;
    const FrozenModel large(with("top.1.weight", 0, 3e38f));
    EncodedSamples encoded;
    large.inputs().encode(Samples(1, 4).columns(), encoded);
    std::vector<float> scores(4);
    CHECK_THROWS_WITH_AS(large.score(encoded, scores),
                         doctest::Contains("sample 0: its logit is inf"), InvalidArgument);
  }
  // of numbers that the transform makes infinite
  ModelDescription model = description("dot");
  model.numeric[1].scale = 1e10f;
  const Saved saved(model);
  const FrozenModel steep(saved.checkpoint);
  Samples samples(1, 4);
  samples.age.assign({1, 1, 3e38f, 1});
  EncodedSamples encoded;
  CHECK_THROWS_WITH_AS(
      steep.inputs().encode(samples.columns(), encoded),
      doctest::Contains("column 'age', sample 2: 3.0000000054977558e+38 is too large"),
      InvalidArgument);
}

TEST_CASE("an increment gives a model its rows and layers, and another's is refused") {
  for (const std::string kind : {"cross", "wide", "projected"}) {
    CAPTURE(kind);
    const Saved saved(description(kind)), other(description(kind));
    SelfCommunicator self;
    auto tensors = saved.tensors;
    CheckpointContents contents;
    for (auto& [name, values] : tensors)
      contents.add(Host(), name, CheckpointReader(saved.checkpoint).tensor(name).shape,
                   std::span(values));
    add_model_description(contents, description(kind),
                          {{"C1", {{0x1f, 0xabcdef01, 0}, {2, 39, 7}}}});
    const TemporaryFolder run;
    const CheckpointBase base = save_checkpoint(self, run.path, contents, 1);
    const FrozenModel first(*latest_checkpoint(run.path));
    const ChangedRows changed(contents);
    const Samples samples(7, 40);
    std::shared_ptr<const FrozenModel> last;
    for (const int step : {2, 3}) {
      for (auto& [name, values] : tensors)
        for (float& x : values) x *= -0.75f;
      save_increment(self, run.path, changed, base, step);
      const auto increment = *latest_checkpoint(run.path);
      // from what was served, and alone; beside a whole one of the same numbers
      last = frozen_model_of(increment, {}, step == 2 ? &first : last.get());
      CHECK(last->step() == step);
      CHECK(last->tables().file() == first.tables().file());
      const TemporaryFolder whole;
      save_checkpoint(self, whole.path, contents, step);
      const std::vector<float> expected =
          scores_of(FrozenModel(*latest_checkpoint(whole.path)), samples);
      CHECK(scores_of(*last, samples) == expected);
      CHECK(scores_of(*frozen_model_of(increment), samples) == expected);
      CHECK(scores_of(first, samples) != expected);
      CHECK_THROWS_WITH_AS(FrozenModel(FrozenModel(other.checkpoint), increment),
                           doctest::Contains("made of another"), DataError);
      CHECK_THROWS_WITH_AS(FrozenModel{increment}, doctest::Contains("it is an increment"),
                           DataError);
    }
  }
}

TEST_CASE("a thousand damaged checkpoints are refused by name, or are whole ones") {
  std::minstd_rand random(11);
  const Samples samples(1, 4);
  int refused = 0, taken = 0;
  const auto load = [&](const std::filesystem::path& checkpoint) {
    try {
      const FrozenModel model(checkpoint, {.pad_batches = false});
      ++taken;
      if (model.inputs().model().features.size() == 3 && model.inputs().model().numeric.size() == 2)
        scores_of(model, samples);
    } catch (const DataError& error) {
      ++refused;
      CHECK_MESSAGE(std::string(error.what()).find(checkpoint.string()) != std::string::npos,
                    error.what());
    } catch (const InvalidArgument&) {  // by the changed description these samples are none of it
    }
  };
  for (const std::string kind : {"cross", "wide", "projected"}) {
    // a file as it is not any more: all but changes of texts that nobody reads
    const Saved saved(description(kind));
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(saved.checkpoint))
      files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    for (int i = 0; i < 250; ++i) {
      const std::filesystem::path& file = files[random() % files.size()];
      const std::string whole = text_of(file);
      write_text(file, mutated(whole, random));
      load(saved.checkpoint);
      write_text(file, whole);
    }
    // what the files say of each other, with checksums that are right
    const CheckpointReader whole(saved.checkpoint);
    SelfCommunicator self;
    for (int i = 0; i < 84; ++i) {
      CheckpointContents contents;
      auto tensors = saved.tensors;
      for (auto& [name, values] : tensors) {
        const detail::StoredTensor& stored = whole.tensor(name);
        if (random() % 40 == 0) continue;
        if (random() % 40 == 0) values.pop_back();
        const bool fits = std::ssize(values) == stored.rows() * stored.columns();
        contents.add(Host(), name,
                     fits ? stored.shape : std::vector<std::int64_t>{std::ssize(values)},
                     std::span(values));
      }
      const std::string about = text_of(saved.checkpoint / ModelDescription::kFile),
                        keys = text_of(saved.checkpoint / ModelDescription::kKeysFile);
      contents.set_file(std::string(ModelDescription::kFile),
                        random() % 3 == 0 ? about : mutated(about, random));
      contents.set_file(std::string(ModelDescription::kKeysFile),
                        random() % 3 == 0 ? mutated(keys, random) : keys);
      const TemporaryFolder folder;
      save_checkpoint(self, folder.path, contents, 1);
      load(*latest_checkpoint(folder.path));
    }
  }
  CHECK(refused > 800);
  CHECK(taken > 0);
}
