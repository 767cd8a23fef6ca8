// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "evaluate.hpp"

#include "../support/parquet.hpp"

#include <tessera/checkpoint/folder.hpp>
#include <tessera/core/error.hpp>
#include <tessera/io/crc32.hpp>
#include <tessera_data/csv_reader.hpp>
#include <tessera_data/metrics.hpp>
#include <tessera_data/tabular.hpp>
#include <tessera_serving/frozen_model.hpp>
#include <tessera_serving/row_format.hpp>
#include <tessera_serving/running_threads.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

namespace evaluate {
namespace {

using namespace tessera;
using Clock = std::chrono::steady_clock;

std::shared_ptr<const FrozenModel> load(const std::filesystem::path& folder,
                                        const std::string& format) {
  std::filesystem::path checkpoint = folder;
  if (!std::filesystem::exists(folder / detail::Manifest::kFile)) {
    const auto latest = latest_checkpoint(folder);
    require<DataError>(latest.has_value(), "'{}' is no checkpoint, and holds none",
                       folder.string());
    checkpoint = *latest;
  }
  return frozen_model_of(checkpoint, {.format = parse_row_format(format)});
}

/// Samples of a file, a block at a time.
class Samples {
 public:
  /// With labels; else with the texts of `kept` columns.
  Samples(const DataOptions& options, const ModelDescription& model, bool labels,
          std::span<const std::string> kept = {})
      : options_(options),
        model_(model),
        file_(options.data.string()),
        reader_(open_csv(options.data, wanted(options, model, kept),
                         labels && options.label.empty()
                             ? criteo_lines()
                             : CsvReaderOptions{.separator = options.format.separator.empty()
                                                                 ? ","
                                                                 : options.format.separator,
                                                .quote = options.format.quote,
                                                .columns = options.format.columns,
                                                .empty_words = options.format.empty_words},
                         support::open_records())),
        numbers_(model.numeric.size()),
        texts_(model.features.size()),
        views_(model.features.size()),
        lengths_(model.features.size()) {
    const std::span<const std::string_view> header = reader_.header();
    columns_ = header.size();
    const std::string where = fmt::format("file '{}'", file_);
    const auto place = [&](const std::string& name, std::string_view who) {
      return column_place(header, name, where, who);
    };
    const auto known = [&](const auto& input) {
      return std::ranges::find(header, input.name) != header.end();
    };
    require<DataError>(!labels || !options.label.empty() ||
                           (!reader_.rows() && std::ranges::all_of(model.numeric, known) &&
                            std::ranges::all_of(model.features, known)),
                       "{}: name the column of labels: --label; these are no lines of Criteo's, or "
                       "the model is of other columns",
                       where);
    if (labels) label_ = options.label.empty() ? 0 : place(options.label, "--label");
    for (const std::string& name : kept) kept_.push_back(place(name, "--keep"));
    for (const NumberInput& input : model.numeric)
      places_.push_back(place(input.name, "the model"));
    for (const CategoryInput& input : model.features)
      places_.push_back(place(input.name, "the model"));
  }

  /// Passes over so many.
  void skip(std::int64_t samples) {
    while (samples-- > 0 && !reader_.next().empty()) {
    }
  }
  std::int64_t count() {
    std::int64_t n = 0;
    while (!reader_.next().empty()) ++n;
    return n;
  }

  /// Labels, if asked for, and the kept columns of each sample of a block, one after another.
  std::vector<float> labels;
  std::vector<std::string> kept;

  /// Up to `most` more; false at the end.
  bool next(std::int64_t most, ModelColumns& columns) {
    labels.clear(), kept.clear();
    std::int64_t samples = 0;
    for (auto& column : numbers_) column.clear();
    for (auto& column : texts_) column.clear();
    for (auto& column : lengths_) column.clear();
    number_lengths_.clear();
    for (; samples < most; ++samples) {
      const std::span<const std::string_view> fields = reader_.next();
      if (fields.empty()) break;
      require<DataError>(fields.size() == columns_, "{}: {}", reader_.where(),
                         reader_.wrong_field_count());
      if (label_) labels.push_back(label(fields[*label_]));
      for (const std::size_t place : kept_) kept.emplace_back(fields[place]);
      take(fields);
    }
    columns = {.samples = samples};
    for (const auto& column : numbers_) columns.numbers.emplace_back(column);
    columns.number_lengths = number_lengths_;
    for (std::size_t f = 0; f < texts_.size(); ++f) {
      views_[f].assign(texts_[f].begin(), texts_[f].end());
      columns.categories.push_back({.texts = views_[f], .lengths = lengths_[f], .given = true});
    }
    return samples > 0;
  }

 private:
  static char separator(const DataOptions& options, char of_model = '|') {
    return options.list_separator != 0 ? options.list_separator : of_model;
  }
  /// The columns that are read of a file that is no text.
  static std::vector<WantedColumn> wanted(const DataOptions& options, const ModelDescription& model,
                                          std::span<const std::string> kept) {
    std::vector<WantedColumn> wanted;
    for (const NumberInput& input : model.numeric)
      wanted.push_back({input.name, input.list ? separator(options) : '\0'});
    for (const CategoryInput& input : model.features)
      wanted.push_back({input.name, input.list ? separator(options, input.separator) : '\0'});
    for (const std::string& name : kept) wanted.push_back({name, separator(options)});
    if (!options.label.empty()) wanted.push_back({options.label});
    return wanted;
  }
  /// A file of Criteo's lines has no quotes and no line of names.
  static CsvReaderOptions criteo_lines() {
    CsvReaderOptions lines{.separator = "\t", .quote = 0, .columns = {"label"}};
    for (int i = 1; i <= 13; ++i) lines.columns.push_back(fmt::format("I{}", i));
    for (int i = 1; i <= 26; ++i) lines.columns.push_back(fmt::format("C{}", i));
    return lines;
  }

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) const {
    throw DataError(
        fmt::format("{}: {}", reader_.where(), fmt::format(text, std::forward<Args>(args)...)));
  }
  float label(std::string_view field) const {
    float value = 0;
    if (parse_number(field, value) != NumberText::number || !(value >= 0 && value <= 1))
      fail("the label {} is no number from 0 to 1", detail::quoted(field));
    return value;
  }
  double number(std::string_view field, const std::string& column) const {
    double value = 0;
    if (const char* const fault = detail::parse_float_range(field, value))
      fail("column '{}': {} {}", column, detail::quoted(field), fault);
    return value;
  }

  void take(std::span<const std::string_view> fields) {
    const std::size_t numeric = model_.numeric.size();
    for (std::size_t c = 0; c < numeric; ++c) {
      const std::string_view field = fields[places_[c]];
      if (model_.numeric[c].list) {
        number_lengths_.push_back(
            each_entry(field, separator(options_), [&](std::string_view entry) {
              numbers_[c].push_back(number(entry, model_.numeric[c].name));
            }));
        continue;
      }
      numbers_[c].push_back(field.empty() ? std::numeric_limits<double>::quiet_NaN()
                                          : number(field, model_.numeric[c].name));
    }
    for (std::size_t f = 0; f < texts_.size(); ++f) {
      const std::string_view field = fields[places_[numeric + f]];
      if (model_.features[f].list)
        lengths_[f].push_back(
            each_entry(field, separator(options_, model_.features[f].separator),
                       [&](std::string_view entry) { texts_[f].emplace_back(entry); }));
      else
        texts_[f].emplace_back(field);
    }
  }
  /// Calls f(entry) for those of a list that are not empty; how many there are.
  template <class F>
  std::int64_t each_entry(std::string_view field, char separator, const F& f) const {
    std::int64_t entries = 0;
    while (!field.empty()) {
      const std::size_t end = std::min(field.find(separator), field.size());
      if (end > 0) f(field.substr(0, end)), ++entries;
      field.remove_prefix(std::min(end + 1, field.size()));
    }
    return entries;
  }

  const DataOptions& options_;
  const ModelDescription& model_;
  std::string file_;
  CsvReader reader_;
  std::size_t columns_ = 0;
  std::optional<std::size_t> label_;
  std::vector<std::size_t> kept_;
  std::vector<std::size_t> places_;  ///< of numeric columns, then of categories
  std::vector<std::vector<double>> numbers_;
  std::vector<std::vector<std::string>> texts_;
  std::vector<std::vector<std::string_view>> views_;
  std::vector<std::vector<std::int64_t>> lengths_;
  std::vector<std::int64_t> number_lengths_;  ///< of the list of numbers
};

/// Samples with random content: numbers of a log-normal distribution, rows of which low ones are
/// frequent (their logarithms are uniform).
EncodedSamples random_samples(const FrozenModel& model, std::int64_t samples, int entries,
                              const std::vector<char>& wanted, std::mt19937_64& random) {
  const ModelDescription& about = model.description();
  ModelColumns columns{.samples = samples};
  std::lognormal_distribution<float> lognormal(1, 1);
  std::uniform_real_distribution<double> uniform;
  std::vector<std::vector<double>> numbers(about.numeric.size());
  std::vector<std::int64_t> number_lengths;
  for (std::size_t c = 0; c < numbers.size(); ++c) {
    const bool list = about.numeric[c].list;
    for (std::int64_t s = 0; s < samples * (list ? entries : 1) && wanted[c]; ++s)
      numbers[c].push_back(lognormal(random));
    if (list && wanted[c]) number_lengths.assign(static_cast<std::size_t>(samples), entries);
    columns.numbers.emplace_back(numbers[c]);
  }
  columns.number_lengths = number_lengths;
  std::vector<std::vector<std::int64_t>> rows(about.features.size()), lengths(rows.size());
  for (std::size_t f = 0; f < rows.size(); ++f) {
    const CategoryInput& feature = about.features[f];
    const auto most = static_cast<double>(about.table(feature.table).rows);
    columns.categories.emplace_back();
    if (!wanted[numbers.size() + f]) continue;
    for (std::int64_t i = 0; i < samples * (feature.list ? entries : 1); ++i)
      rows[f].push_back(static_cast<std::int64_t>(std::pow(most, uniform(random)) - 1));
    if (feature.list) lengths[f].assign(static_cast<std::size_t>(samples), entries);
    columns.categories.back() = {.rows = rows[f], .lengths = lengths[f], .given = true};
  }
  EncodedSamples encoded;
  model.inputs().encode(columns, encoded, true);
  return encoded;
}

/// Requests of one batch size, and how to answer one.
class Requests {
 public:
  static constexpr std::size_t kDifferent = 16;

  Requests(const FrozenModel& model, const LatencyOptions& options, std::int64_t batch)
      : model_(model), batch_(batch) {
    std::vector<char> all, users;
    const auto add = [&](const std::string& name) {
      all.push_back(1);
      users.push_back(std::ranges::count(options.user_columns, name) > 0);
    };
    for (const NumberInput& input : model.description().numeric) add(input.name);
    for (const CategoryInput& input : model.description().features) add(input.name);
    for (const std::string& name : options.user_columns)
      require(std::ranges::count_if(model.description().numeric,
                                    [&](const auto& c) { return c.name == name; }) +
                      std::ranges::count_if(model.description().features,
                                            [&](const auto& c) { return c.name == name; }) ==
                  1,
              "--user-columns: the model has no column '{}'", name);
    std::mt19937_64 random(options.seed);
    for (std::size_t i = 0; i < kDifferent; ++i) {
      if (options.user_columns.empty()) {
        batches_.push_back(random_samples(model, batch, options.entries, all, random));
        continue;
      }
      users_.push_back(random_samples(model, 1, options.entries, users, random));
      std::vector<char> others;
      for (const char user : users) others.push_back(!user);
      batches_.push_back(random_samples(model, batch, options.entries, others, random));
    }
  }

  std::int64_t batch() const { return batch_; }
  void answer(std::size_t i, std::span<float> scores) const {
    const EncodedSamples& samples = batches_[i % kDifferent];
    users_.empty() ? model_.score(samples, scores)
                   : model_.score(users_[i % kDifferent], samples, scores);
  }

 private:
  const FrozenModel& model_;
  std::int64_t batch_;
  std::vector<EncodedSamples> users_, batches_;
};

/// `work(thread, latencies)` on each of some threads; what they measured together.
template <class Work>
Latency on_threads(int threads, std::int64_t batch, const Work& work) {
  std::vector<std::vector<float>> latencies(static_cast<std::size_t>(threads));
  std::vector<std::exception_ptr> errors(latencies.size());
  std::atomic<std::size_t> next{0};
  const auto begin = Clock::now();
  {
    const detail::RunningThreads running(
        threads,
        [&] {
          const std::size_t t = next++;
          try {
            work(t, latencies[t]);
          } catch (...) {
            errors[t] = std::current_exception();
          }
        },
        [] {});
  }
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  std::vector<float> all;
  for (const auto& of_thread : latencies) all.insert(all.end(), of_thread.begin(), of_thread.end());
  std::sort(all.begin(), all.end());
  const auto rank = [&](double share) {  // the nearest rank
    const double place = std::ceil(share * static_cast<double>(all.size())) - 1;
    return double{all[static_cast<std::size_t>(std::max(place, 0.0))]};
  };
  return {.threads = threads,
          .batch = batch,
          .requests = std::ssize(all),
          .p50 = rank(0.50),
          .p95 = rank(0.95),
          .p99 = rank(0.99),
          .largest = double{all.back()},
          .samples_per_second = static_cast<double>(std::ssize(all) * batch) / seconds};
}

float microseconds_since(Clock::time_point begin) {
  return std::chrono::duration<float, std::micro>(Clock::now() - begin).count();
}

std::vector<float> room_for(const Requests& requests) {
  return std::vector<float>(static_cast<std::size_t>(requests.batch()));
}

Latency closed_loop(const Requests& requests, int threads, double seconds) {
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  return on_threads(threads, requests.batch(), [&](std::size_t i, std::vector<float>& latencies) {
    std::vector<float> scores = room_for(requests);
    do {
      const auto begin = Clock::now();
      requests.answer(i++, scores);
      latencies.push_back(microseconds_since(begin));
    } while (Clock::now() < end);
  });
}

/// `per_second`: requests that come.
Latency open_loop(const Requests& requests, int threads, double seconds, double per_second,
                  std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::exponential_distribution<double> gap(per_second);
  std::vector<double> due{0};
  while (due.back() < seconds) due.push_back(due.back() + gap(random));
  const auto begin = Clock::now();
  std::atomic<std::size_t> next{0};
  return on_threads(threads, requests.batch(), [&](std::size_t, std::vector<float>& latencies) {
    std::vector<float> scores = room_for(requests);
    for (std::size_t i = next++; i < due.size(); i = next++) {
      const auto at = begin + std::chrono::duration_cast<Clock::duration>(
                                  std::chrono::duration<double>(due[i]));
      // the system wakes threads late; what is left is waited for in a loop
      std::this_thread::sleep_until(at - std::chrono::microseconds(100));
      while (Clock::now() < at) {
      }
      requests.answer(i, scores);
      latencies.push_back(microseconds_since(at));
    }
  });
}

double probability(float logit) { return 1 / (1 + std::exp(-double{logit})); }

/// `first`: the number of the block's first sample in the file.
void score(const FrozenModel& model, const DataOptions& options, std::int64_t first,
           const ModelColumns& columns, EncodedSamples& encoded, std::vector<float>& logits) {
  try {
    model.inputs().encode(columns, encoded);
    logits.resize(static_cast<std::size_t>(columns.samples));
    model.logits(encoded, logits);
  } catch (const InvalidArgument& error) {
    throw DataError(fmt::format("file '{}', samples from {} on: {}", options.data.string(), first,
                                error.what()));
  }
}

}  // namespace

std::int64_t predict(
    const PredictOptions& options,
    const std::function<void(std::span<const std::string> kept, float probability)>& sample) {
  const std::shared_ptr<const FrozenModel> model = load(options.checkpoint, options.row_format);
  Samples data(options, model->description(), false, options.keep);
  ModelColumns columns;
  EncodedSamples encoded;
  std::vector<float> logits;
  std::int64_t done = 0;
  while (data.next(4096, columns)) {
    score(*model, options, done, columns, encoded, logits);
    for (std::size_t s = 0; s < logits.size(); ++s)
      sample(std::span(data.kept).subspan(s * options.keep.size(), options.keep.size()),
             static_cast<float>(probability(logits[s])));
    done += columns.samples;
  }
  require<DataError>(done > 0, "file '{}' holds no samples", options.data.string());
  return done;
}

std::vector<Accuracy> accuracy(const AccuracyOptions& options, std::int64_t& samples) {
  std::vector<Accuracy> all;
  std::vector<float> first;        // scores of the first format
  std::uint32_t first_labels = 0;  // their checksum
  std::int64_t skipped = -1;
  for (const std::string& format : options.formats) {
    const std::shared_ptr<const FrozenModel> model = load(options.checkpoint, format);
    if (skipped < 0) {
      const std::int64_t lines = Samples(options, model->description(), true).count();
      require<DataError>(lines > 0, "file '{}' holds no samples", options.data.string());
      samples = std::max<std::int64_t>(
          1, std::llround(options.test_fraction * static_cast<double>(lines)));
      skipped = lines - samples;
    }
    Samples data(options, model->description(), true);
    data.skip(skipped);
    Accuracy one{.format = format, .bytes = model->tables().bytes()};
    Auc auc;
    LogLoss loss;
    ModelColumns columns;
    EncodedSamples encoded;
    std::vector<float> logits;
    std::size_t done = 0;
    std::uint32_t labels = 0;
    const auto check = [&](bool same) {
      require<DataError>(same,
                         "file '{}' changed while it was read, once for each format; read a copy "
                         "that no program writes to",
                         options.data.string());
    };
    while (data.next(4096, columns)) {
      check(done + data.labels.size() <= static_cast<std::size_t>(samples));
      score(*model, options, skipped + static_cast<std::int64_t>(done), columns, encoded, logits);
      auc.add(logits, data.labels);
      loss.add(logits, data.labels);
      labels = detail::crc32(std::as_bytes(std::span(data.labels)), labels);
      for (std::size_t s = 0; s < logits.size(); ++s, ++done) {
        const auto score = static_cast<float>(probability(logits[s]));
        if (all.empty()) first.push_back(score);
        one.largest_difference =
            std::max(one.largest_difference, double{std::abs(score - first[done])});
      }
    }
    if (all.empty()) first_labels = labels;
    check(done == static_cast<std::size_t>(samples) && labels == first_labels);
    one.auc = auc.value();
    one.log_loss = loss.value();
    all.push_back(one);
  }
  return all;
}

std::vector<Latency> latency(const LatencyOptions& options,
                             const std::function<void(const Latency&)>& done) {
  const std::shared_ptr<const FrozenModel> model = load(options.checkpoint, options.format);
  std::vector<Latency> all;
  const auto add = [&](Latency one, double load) {
    one.load = load;
    done(one);
    all.push_back(one);
  };
  for (const std::int64_t batch : options.batch_sizes) {
    const Requests requests(*model, options, batch);
    for (const int threads : options.threads) {
      closed_loop(requests, threads, options.seconds / 10);  // warms up
      const Latency closed = closed_loop(requests, threads, options.seconds);
      add(closed, 0);
      for (const double load : options.loads)
        add(open_loop(requests, threads, options.seconds,
                      load * closed.samples_per_second / static_cast<double>(batch), options.seed),
            load);
    }
  }
  return all;
}

}  // namespace evaluate
