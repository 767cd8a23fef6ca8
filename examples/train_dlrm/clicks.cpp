// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "clicks.hpp"

#include "../support/dataset_files.hpp"
#include "../support/parquet.hpp"
#include "model_shape.hpp"

#include <tessera/core/random.hpp>
#include <tessera/io/crc32.hpp>
#include <tessera/io/mapped_file.hpp>
#include <tessera/sharding/policies.hpp>
#include <tessera_data/binary_dataset.hpp>
#include <tessera_data/criteo.hpp>
#include <tessera_data/criteo_encoder.hpp>
#include <tessera_data/metrics.hpp>
#include <tessera_data/permutation.hpp>
#include <tessera_data/schema.hpp>
#include <tessera_data/synthetic.hpp>
#include <tessera_data/synthetic_models.hpp>
#include <tessera_data/tabular_file.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <filesystem>
#include <limits>
#include <numeric>
#include <utility>

namespace dlrm {
namespace {

using namespace tessera;

std::int64_t test_part(std::int64_t samples, double fraction) {
  const auto test =
      static_cast<std::int64_t>(std::llround(static_cast<double>(samples) * fraction));
  require(samples - test >= 1, "{} samples with a test fraction of {} leave nothing to train on",
          samples, fraction);
  return test;
}

/// Without numbers the bottom MLP's input is a 1: its output is a vector that is learned.
template <IdType Id>
void add_number(ClickBatch<Id>& batch) {
  if (batch.dense_columns > 0) return;
  batch.dense_columns = 1;
  batch.dense.assign(static_cast<std::size_t>(batch.size), 1.0f);
}

/// Inputs of data that hold numbers as the model takes them and rows of tables: these, or under a
/// vocabulary its keys.
DataInputs plain_inputs(const DataShape& shape, std::span<const std::string> numbers,
                        bool vocabulary) {
  DataInputs inputs;
  for (const std::string& name : numbers)
    inputs.numeric.push_back({.name = name, .may_be_empty = false});
  for (const DataShape::Table& table : shape.tables)
    inputs.tables.push_back({.name = table.name,
                             .keys = CategoryKey::integer,
                             .rows_by = vocabulary ? KeyRows::vocabulary : KeyRows::key});
  return inputs;
}

/// A list of keys from pairs of rows and keys.
KeyList list_of(std::vector<std::pair<std::uint32_t, std::uint64_t>> pairs) {
  std::sort(pairs.begin(), pairs.end());
  KeyList list;
  bool in_order = true;
  for (const auto& [row, key] : pairs) {
    in_order = in_order && row == 2 + list.keys.size();
    list.keys.push_back(static_cast<std::int64_t>(key));
  }
  if (!in_order)
    for (const auto& [row, key] : pairs) list.rows.push_back(static_cast<std::int32_t>(row));
  return list;
}

/// Criteo's columns of numbers.
std::vector<std::string> integer_names() {
  std::vector<std::string> names;
  for (int i = 0; i < kCriteoIntegers; ++i) names.push_back(fmt::format("I{}", i + 1));
  return names;
}

/// Made on the fly by whoever needs them; each sample is seen once an epoch, the test samples are
/// those behind the training samples.
class Synthetic final : public Clicks {
 public:
  explicit Synthetic(const Options& options)
      : shape_(shape_of(options)),
        generator_(features_of(shape_, options.power),
                   {.seed = options.seed,
                    .dense_columns = shape_.numbers,
                    .scatter_ids = options.synthetic_model.empty(),
                    .threads = options.threads_per_rank}),
        name_(options.synthetic_model),
        with_keys_(options.vocabulary),
        test_(test_part(options.samples, options.held_out())),
        train_(options.samples - test_),
        checksum_(random_word(std::bit_cast<std::uint64_t>(options.power), options.max_rows,
                              options.seed)) {
    for (DataShape::Table& table : shape_.tables) table.rows += options.vocabulary;
    inputs_ = plain_inputs(shape_, integer_names(), with_keys_);
  }

  const DataShape& shape() const override { return shape_; }
  const DataInputs& inputs() const override { return inputs_; }
  std::int64_t train_samples() const override { return train_; }
  std::int64_t test_samples() const override { return test_; }
  std::string description() const override {
    return name_.empty() ? "synthetic clicks with the table sizes of Criteo's 1 TB logs, capped"
                         : fmt::format("synthetic clicks of the model {}, {} tables, {} features",
                                       name_, shape_.tables.size(), shape_.features.size());
  }

  void train_batch(int, std::int64_t first, std::int64_t count, Batch& batch) const override {
    generator_.generate(first, count, batch);
    if (with_keys_) batch.keys.assign(batch.ids.begin(), batch.ids.end());
  }
  void test_batch(std::int64_t first, std::int64_t count, Batch& batch) const override {
    generator_.generate(train_ + first, count, batch);
    if (with_keys_) batch.keys.assign(batch.ids.begin(), batch.ids.end());
  }
  double best_auc() const override {
    constexpr std::int64_t kBlock = 8192;
    Auc auc;
    Batch batch;
    std::vector<float> logits;
    for (std::int64_t first = 0; first < test_; first += kBlock) {
      generator_.generate(train_ + first, std::min(kBlock, test_ - first), batch, &logits);
      auc.add(logits, batch.labels);
    }
    return auc.value();
  }
  std::uint64_t checksum() const override { return checksum_; }

 private:
  static DataShape shape_of(const Options& options) {
    if (options.synthetic_model.empty()) {
      std::vector<std::int64_t> rows;
      for (const SyntheticFeature& feature : criteo_like_features(options.max_rows))
        rows.push_back(feature.rows);
      return criteo_shape(rows);
    }
    const SyntheticModel& model = synthetic_model(options.synthetic_model);
    DataShape shape{.numbers = model.numbers, .tables = {}, .features = {}};
    for (const SyntheticTables& group : model.groups)
      for (int t = 0; t < group.tables; ++t) {
        const std::size_t table = shape.tables.size();
        const std::string name = fmt::format("t{}", table);
        shape.tables.push_back({name, scaled_rows(group.rows, options.scale), group.width});
        shape.features.push_back({.name = name, .table = table});
        if (group.hotness > 1)
          shape.features.push_back({.name = fmt::format("{}x{}", name, group.hotness),
                                    .table = table,
                                    .list = true,
                                    .hotness = group.hotness});
      }
    return shape;
  }
  static std::vector<SyntheticFeature> features_of(const DataShape& shape, double power) {
    std::vector<SyntheticFeature> features;
    for (const DataShape::Feature& feature : shape.features)
      features.push_back({.rows = shape.tables[feature.table].rows,
                          .alpha = power,
                          .min_hotness = feature.hotness,
                          .max_hotness = feature.hotness});
    return features;
  }

  DataShape shape_;  // first: the generator is made of it
  SyntheticClicks generator_;
  std::string name_;
  bool with_keys_;
  std::int64_t test_, train_;
  std::uint64_t checksum_;
  DataInputs inputs_;
};

/// A file's samples, encoded once and kept in memory (160 bytes each); every epoch in a new random
/// order.
class CriteoFile final : public Clicks {
 public:
  explicit CriteoFile(const Options& options)
      : seed_(options.seed), path_(options.data), raw_(options.vocabulary) {
    CriteoPasses file(path_, options.skip_bad_lines ? BadLines::skip : BadLines::fatal);
    file.read([](std::span<const CriteoRecord>) {});
    const std::int64_t lines = file.records();
    bad_lines_ = file.bad_lines();
    first_bad_line_ = file.first_bad_line();
    require<DataError>(lines > 0, "file '{}' holds no clicks", path_);
    test_ = test_part(lines, options.held_out());
    train_ = lines - test_;
    CriteoStatistics statistics;
    std::int64_t left = train_;
    file.read([&](std::span<const CriteoRecord> records) {
      const auto count = std::min(left, static_cast<std::int64_t>(records.size()));
      const std::span<const CriteoRecord> of_training =
          records.first(static_cast<std::size_t>(count));
      statistics.add(of_training);
      checksum_ = criteo_checksum(of_training, checksum_);
      left -= count;
    });
    const CriteoEncoder encoder({.max_rows = options.max_rows, .min_count = options.min_count},
                                statistics);
    if (!raw_)
      for (int f = 0; f < kCriteoCategories; ++f)
        for (const std::uint32_t value : encoder.values(f)) checksum_ = mix64(checksum_ ^ value);
    std::vector<std::int64_t> rows(encoder.rows().begin(), encoder.rows().end());
    if (raw_) rows.assign(kCriteoCategories, options.max_rows);
    shape_ = criteo_shape(rows);
    if (options.describes()) describe_inputs(encoder);
    samples_.reserve(static_cast<std::size_t>(lines));
    Batch batch;
    file.read([&](std::span<const CriteoRecord> records) {
      encoder.encode(records, batch);
      append(batch);
      if (!raw_) return;
      for (std::size_t i = 0; i < records.size(); ++i) {
        Sample& sample = samples_[samples_.size() - records.size() + i];
        sample.missing = records[i].missing_categories;
        for (int f = 0; f < kCriteoCategories; ++f)
          sample.ids[f] = static_cast<std::int32_t>(records[i].categories[f]);
      }
    });
  }

  const DataShape& shape() const override { return shape_; }
  const DataInputs& inputs() const override { return inputs_; }
  std::int64_t train_samples() const override { return train_; }
  std::int64_t test_samples() const override { return test_; }
  std::string description() const override {
    return bad_lines_ == 0
               ? path_
               : fmt::format("{} ({} bad lines skipped; {})", path_, bad_lines_, first_bad_line_);
  }

  void train_batch(int epoch, std::int64_t first, std::int64_t count, Batch& batch) const override {
    const Permutation order(train_, random_word(seed_, epoch));
    fill(count, batch, [&](std::int64_t i) -> const Sample& {
      return samples_[static_cast<std::size_t>(order(first + i))];
    });
  }
  void test_batch(std::int64_t first, std::int64_t count, Batch& batch) const override {
    fill(count, batch, [&](std::int64_t i) -> const Sample& {
      return samples_[static_cast<std::size_t>(train_ + first + i)];
    });
  }
  double best_auc() const override { return std::numeric_limits<double>::quiet_NaN(); }
  std::uint64_t checksum() const override { return checksum_; }

 private:
  struct Sample {
    std::array<std::int32_t, kCriteoCategories> ids;
    std::array<float, kCriteoIntegers> dense;
    float label;
    std::uint32_t missing = 0;  // of raw categories
  };

  void describe_inputs(const CriteoEncoder& encoder) {
    const std::vector<std::string> names = integer_names();
    for (std::size_t i = 0; i < names.size(); ++i)
      inputs_.numeric.push_back({.name = names[i],
                                 .transform = NumberTransform::log,
                                 .shift = encoder.shift()[i],
                                 .scale = encoder.scale()[i],
                                 .empty = encoder.missing_integer()});
    for (int f = 0; f < kCriteoCategories; ++f) {
      TableInput table{.name = shape_.tables[static_cast<std::size_t>(f)].name,
                       .keys = CategoryKey::hex};
      if (raw_) {
        table.rows_by = KeyRows::vocabulary;
        table.empty_key = kMissingKey;
      } else {
        table.unknown_row = CriteoEncoder::kRareRow;
        table.empty_row = CriteoEncoder::kMissingRow;
        std::vector<std::pair<std::uint32_t, std::uint64_t>> pairs;
        encoder.for_each_value(
            f, [&](std::uint32_t value, std::uint32_t row) { pairs.emplace_back(row, value); });
        inputs_.lists[table.name] = list_of(std::move(pairs));
      }
      inputs_.tables.push_back(std::move(table));
    }
  }

  void append(const Batch& batch) {
    for (std::int64_t s = 0; s < batch.size; ++s) {
      Sample& sample = samples_.emplace_back();
      for (int f = 0; f < kCriteoCategories; ++f)
        sample.ids[f] = batch.ids[static_cast<std::size_t>(f * batch.size + s)];
      std::copy_n(batch.dense.begin() + s * kCriteoIntegers, kCriteoIntegers, sample.dense.begin());
      sample.label = batch.labels[static_cast<std::size_t>(s)];
    }
  }

  template <class SampleAt>
  void fill(std::int64_t count, Batch& batch, SampleAt sample_at) const {
    batch.size = count;
    batch.features = kCriteoCategories;
    batch.dense_columns = kCriteoIntegers;
    batch.labels.resize(static_cast<std::size_t>(count));
    batch.dense.resize(static_cast<std::size_t>(count * kCriteoIntegers));
    batch.ids.resize(static_cast<std::size_t>(count * kCriteoCategories));
    batch.offsets.clear();
    if (raw_) batch.keys.resize(batch.ids.size());
    for (std::int64_t s = 0; s < count; ++s) {
      const Sample& sample = sample_at(s);
      batch.labels[static_cast<std::size_t>(s)] = sample.label;
      std::copy_n(sample.dense.begin(), kCriteoIntegers, batch.dense.begin() + s * kCriteoIntegers);
      for (int f = 0; f < kCriteoCategories; ++f)
        batch.ids[static_cast<std::size_t>(f * count + s)] = sample.ids[f];
      if (!raw_) continue;
      for (int f = 0; f < kCriteoCategories; ++f)
        batch.keys[static_cast<std::size_t>(f * count + s)] =
            (sample.missing >> f & 1) != 0
                ? kMissingKey
                : std::int64_t{static_cast<std::uint32_t>(sample.ids[f])};
    }
  }

  static constexpr std::int64_t kMissingKey = -1;  // a missing category is a key of its own

  std::uint64_t seed_;
  std::string path_;
  bool raw_;  // categories as they are in the file, for a vocabulary
  std::int64_t bad_lines_ = 0;
  std::string first_bad_line_;
  std::uint64_t checksum_ = 0;
  std::int64_t test_ = 0, train_ = 0;
  DataShape shape_;
  DataInputs inputs_;  // if Options::describes
  std::vector<Sample> samples_;
};

/// A CSV or TSV file as a schema describes it, in the memory of some windows of it.
class TabularClicks final : public Clicks {
 public:
  explicit TabularClicks(const Options& options)
      : raw_(options.vocabulary),
        file_(options.data, schema_for(options),
              {.test_fraction = options.held_out(),
               .bad_lines = options.skip_bad_lines ? BadLines::skip : BadLines::fatal,
               .window = options.shuffle_window,
               .threads = options.parser_threads,
               .seed = options.seed,
               .max_rows = options.max_rows,
               .min_count = options.min_count,
               .keys = options.vocabulary,
               .open = support::open_records()}),
        path_(options.data) {
    const Schema& schema = file_.schema();
    shape_.numbers = std::max<std::int64_t>(std::ssize(schema.numeric), 1);
    for (std::size_t t = 0; t < schema.tables.size(); ++t)
      shape_.tables.push_back(
          {schema.tables[t].name,
           raw_ && schema.tables[t].rows == 0 ? options.max_rows : file_.rows()[t],
           schema.tables[t].width, schema.tables[t].min_count});
    for (const CategoricalColumn& column : schema.categorical)
      shape_.features.push_back({column.name, column.table, column.pooling, column.list != 0, 1,
                                 column.list != 0 ? column.list : '|'});
    if (options.describes()) describe_inputs();
  }

  const DataShape& shape() const override { return shape_; }
  const DataInputs& inputs() const override { return inputs_; }
  std::int64_t train_samples() const override { return file_.train_samples(); }
  std::int64_t test_samples() const override { return file_.test_samples(); }
  std::string description() const override {
    const std::string text = fmt::format("{} by {}", path_, file_.schema().name);
    return file_.bad_lines() == 0 ? text
                                  : fmt::format("{} ({} bad lines skipped; {})", text,
                                                file_.bad_lines(), file_.first_bad_line());
  }

  void train_batch(int epoch, std::int64_t first, std::int64_t count, Batch& batch) const override {
    read(batch, [&](auto& to) { file_.train_batch(epoch, first, count, to); });
  }
  void test_batch(std::int64_t first, std::int64_t count, Batch& batch) const override {
    read(batch, [&](auto& to) { file_.test_batch(first, count, to); });
  }
  double best_auc() const override { return std::numeric_limits<double>::quiet_NaN(); }
  std::uint64_t checksum() const override { return file_.checksum(); }
  std::string order() const override { return file_.order(); }

 private:
  /// What the model of this program takes.
  static Schema schema_for(const Options& options) {
    Schema schema = read_schema(options.schema);
    const auto refuse = [&](const std::string& column, std::string_view what) {
      throw DataError(fmt::format("file '{}', column '{}': {}", schema.name, column, what));
    };
    for (const CategoricalColumn& column : schema.categorical) {
      const TableColumns& table = schema.tables[column.table];
      if (table.unknown == UnknownCategory::bad_id)
        refuse(column.name,
               "this program's tables refuse bad ids; say 'unknown: shared' or 'error'");
      if (table.width > kMostWidth)
        refuse(column.name,
               fmt::format("a width of {}; this program takes 1 to {}", table.width, kMostWidth));
      if (table.rows_by == RowsBy::vocabulary && !options.vocabulary)
        refuse(column.name, "a vocabulary needs --vocabulary");
    }
    return schema;
  }

  void describe_inputs() {
    const Schema& schema = file_.schema();
    const TabularEncoder& encoder = file_.encoder();
    for (std::size_t c = 0; c < schema.numeric.size(); ++c) {
      const auto [shift, scale] = encoder.shift_and_scale(c);
      inputs_.numeric.push_back(
          {.name = schema.numeric[c].name,
           .transform = schema.numeric[c].log1p ? NumberTransform::log1p : NumberTransform::none,
           .shift = shift,
           .scale = scale,
           .empty = schema.numeric[c].empty});
    }
    for (std::size_t t = 0; t < schema.tables.size(); ++t) {
      const TableColumns& columns = schema.tables[t];
      TableInput table{.name = columns.name, .empty_row = TabularEncoder::kMissingRow};
      if (raw_) {
        table.rows_by = KeyRows::vocabulary;
        table.empty_row.reset();
        table.empty_key = TabularBlock::kMissing;
      } else if (columns.rows_by == RowsBy::hash) {
        table.rows_by = KeyRows::hash;
        table.hash_seed = encoder.hash_seed(t);
      } else {
        if (columns.unknown == UnknownCategory::shared_row)
          table.unknown_row = TabularEncoder::kUnknownRow;
        std::vector<std::pair<std::uint32_t, std::uint64_t>> pairs;
        encoder.for_each_key(
            t, [&](std::uint64_t key, std::uint32_t row) { pairs.emplace_back(row, key); });
        inputs_.lists[table.name] = list_of(std::move(pairs));
      }
      inputs_.tables.push_back(std::move(table));
    }
  }

  template <class Read>
  void read(Batch& batch, const Read& read_to) const {
    if (!raw_) {
      read_to(static_cast<ClickBatch<std::int32_t>&>(batch));
      return add_number(batch);
    }
    ClickBatch<std::int64_t> keys;
    read_to(keys);
    batch.size = keys.size, batch.features = keys.features;
    batch.dense_columns = keys.dense_columns;
    batch.labels = std::move(keys.labels), batch.dense = std::move(keys.dense);
    batch.offsets = std::move(keys.offsets);
    batch.keys = std::move(keys.ids);
    batch.ids.resize(batch.keys.size());
    add_number(batch);
  }

  bool raw_;  // ids stay keys, for a vocabulary
  TabularFile file_;
  std::string path_;
  DataShape shape_;
  DataInputs inputs_;  // if Options::describes
};

/// A folder in the layout of NVIDIA's DeepLearningExamples: read from the mapped files as batches
/// ask for it, in a random order.
class BinaryFolder final : public Clicks {
 public:
  explicit BinaryFolder(const Options& options)
      : seed_(options.seed),
        path_(options.data),
        with_keys_(options.vocabulary),
        spec_(read_feature_spec(path_)),
        threads_(options.threads_per_rank),
        train_(path_, spec_, "train", threads_),
        test_(path_, spec_, "test", threads_) {
    shape_.numbers = std::max<std::int64_t>(train_.dense_columns(), 1);
    add_tables();
    require<DataError>(!shape_.features.empty(),
                       "'{}' has no categorical features; this model needs one at least", path_);
    require<DataError>(train_.size() > 0, "'{}' holds no training samples", path_);
    checksum_ = checksum_of_training();
    inputs_ = plain_inputs(shape_, spec_.channel("numerical"), with_keys_);
    const std::uint64_t texts = checksum_of_texts();
    for (TableInput& table : inputs_.tables) table.hash_seed = texts;
  }

  const DataShape& shape() const override { return shape_; }
  const DataInputs& inputs() const override { return inputs_; }
  std::int64_t train_samples() const override { return train_.size(); }
  std::int64_t test_samples() const override { return test_.size(); }
  std::string description() const override { return path_; }

  void train_batch(int epoch, std::int64_t first, std::int64_t count, Batch& batch) const override {
    const Permutation order(train_.size(), random_word(seed_, epoch));
    std::vector<std::int64_t> samples(static_cast<std::size_t>(count));
#pragma omp parallel for schedule(static) num_threads(threads_)
    for (std::int64_t i = 0; i < count; ++i)
      samples[static_cast<std::size_t>(i)] = order(first + i);
    train_.gather(samples, batch);
    add_number(batch);
    if (with_keys_) batch.keys.assign(batch.ids.begin(), batch.ids.end());
  }
  void test_batch(std::int64_t first, std::int64_t count, Batch& batch) const override {
    test_.read(first, count, batch);
    add_number(batch);
    if (with_keys_) batch.keys.assign(batch.ids.begin(), batch.ids.end());
  }
  double best_auc() const override { return std::numeric_limits<double>::quiet_NaN(); }
  std::uint64_t checksum() const override { return checksum_; }
  void check_test(std::int64_t first, std::int64_t count) const override {
    constexpr std::int64_t kBlock = 8192;
    ClickBatch<std::int32_t> batch;
    for (const std::int64_t end = first + count; first < end; first += kBlock)
      test_.read(first, std::min(kBlock, end - first), batch);
  }

 private:
  /// A table for each feature; where `convert_dataset` made the folder, the schema's tables, and
  /// the widths and poolings that it says.
  void add_tables() {
    const std::vector<std::int64_t>& rows = train_.rows();
    const auto is_list = [&](std::size_t f) {
      return train_.hotness()[f] != 1 || train_.padded()[f];
    };
    const std::filesystem::path path = std::filesystem::path(path_) / support::kSchemaFile;
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) {
      for (std::size_t f = 0; f < rows.size(); ++f) {
        shape_.tables.push_back({train_.names()[f], rows[f] + with_keys_});
        shape_.features.push_back({.name = train_.names()[f], .table = f, .list = is_list(f)});
      }
      return;
    }
    const Schema schema = read_schema(path);
    require<DataError>(schema.categorical.size() == rows.size(),
                       "'{}' has {} categorical features, its schema.yaml {}", path_, rows.size(),
                       schema.categorical.size());
    for (const TableColumns& table : schema.tables)
      shape_.tables.push_back({table.name, 0, table.width});
    for (std::size_t f = 0; f < rows.size(); ++f) {
      const CategoricalColumn& column = schema.categorical[f];
      shape_.features.push_back({column.name, column.table, column.pooling, is_list(f), 1,
                                 column.list != 0 ? column.list : '|'});
      std::int64_t& most = shape_.tables[column.table].rows;
      most = std::max(most, rows[f] + with_keys_);
    }
  }

  /// Of what the ids stand for, as convert_dataset wrote it down; 0: the folder does not say.
  std::uint64_t checksum_of_texts() const {
    std::uint64_t sum = 0;
    std::error_code ignored;
    for (const char* name : {support::kTextsFile, support::kCriteoFile})
      if (const auto file = std::filesystem::path(path_) / name;
          std::filesystem::exists(file, ignored))
        sum = mix64(sum ^ tessera::detail::crc32(tessera::detail::MappedFile(file).bytes()));
    return sum;
  }

  /// Of samples at even distances: the files may be larger than memory.
  std::uint64_t checksum_of_training() const {
    constexpr std::int64_t kMost = 1 << 16;
    std::vector<std::int64_t> samples(static_cast<std::size_t>(std::min(kMost, train_.size())));
    for (std::size_t i = 0; i < samples.size(); ++i)
      samples[i] = even_cut(train_.size(), std::ssize(samples), static_cast<std::int64_t>(i));
    ClickBatch<std::int32_t> batch;
    train_.gather(samples, batch);
    std::uint64_t sum = 0;
    for (const std::int32_t id : batch.ids) sum = mix64(sum ^ static_cast<std::uint32_t>(id));
    for (const float number : batch.dense) sum = mix64(sum ^ std::bit_cast<std::uint32_t>(number));
    for (const float label : batch.labels) sum = mix64(sum ^ std::bit_cast<std::uint32_t>(label));
    return sum;
  }

  std::uint64_t seed_, checksum_ = 0;
  std::string path_;
  bool with_keys_;
  DatasetSpec spec_;
  int threads_;
  BinaryDataset train_, test_;
  DataShape shape_;
  DataInputs inputs_;
};

}  // namespace

std::unique_ptr<Clicks> make_clicks(const Options& options) {
  if (options.data.empty()) return std::make_unique<Synthetic>(options);
  std::error_code ignored;
  if (std::filesystem::is_directory(options.data, ignored))
    return std::make_unique<BinaryFolder>(options);
  if (!options.schema.empty()) return std::make_unique<TabularClicks>(options);
  return std::make_unique<CriteoFile>(options);
}

}  // namespace dlrm
