// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/checkpoint/reader.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/random.hpp>
#include <tessera/io/text.hpp>
#include <tessera_data/value_map.hpp>
#include <tessera_serving/key_lists.hpp>
#include <tessera_serving/model_description.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// The entries of a categorical column: texts as in the data, or rows of its table; of
/// lists, sample by sample, and how many each sample has.
struct CategoryValues {
  std::span<const std::string_view> texts{};
  std::span<const std::int64_t> rows{};
  std::span<const std::int64_t> lengths{};  ///< [samples], of lists alone
  bool given = false;
};

/// The numbers of a column: floats, or doubles, which seconds since 1970 need. A view.
class NumberValues {
 public:
  NumberValues() = default;
  // An argument: what a caller has becomes one.
  // NOLINTBEGIN(google-explicit-constructor)
  NumberValues(std::span<const float> values) : floats_(values) {}
  NumberValues(std::span<const double> values) : doubles_(values) {}
  template <class T>
  NumberValues(const std::vector<T>& values) : NumberValues(std::span<const T>(values)) {}
  // NOLINTEND(google-explicit-constructor)

  std::size_t size() const { return floats_.size() + doubles_.size(); }
  bool empty() const { return size() == 0; }
  double operator[](std::size_t i) const {
    return doubles_.empty() ? double{floats_[i]} : doubles_[i];
  }
  NumberValues first(std::size_t count) const {
    return doubles_.empty() ? NumberValues(floats_.first(count))
                            : NumberValues(doubles_.first(count));
  }

 private:
  std::span<const float> floats_{};
  std::span<const double> doubles_{};
};

/// Samples as a client has them: views, by column, in the order of ModelDescription::numeric and
/// features. A number that is not there is NaN.
struct ModelColumns {
  std::int64_t samples = 0;
  /// [samples] each, of a history's column one for each of its events; empty: not given
  std::vector<NumberValues> numbers{};
  std::vector<CategoryValues> categories{};
  std::span<const std::int64_t> number_lengths{};  ///< [samples], of a history's column of numbers
};

/// Samples as a model takes them: numbers transformed, rows in the place of texts, checked. Which
/// columns were given is kept, as those of a user and of candidates come apart.
struct EncodedSamples {
  std::int64_t samples = 0;
  std::vector<float> numbers{};         ///< [samples, numeric columns]
  std::vector<float> event_numbers{};   ///< one for each event of the samples' histories
  std::vector<std::int64_t> rows{};     ///< column by column, sample by sample
  std::vector<std::int64_t> offsets{};  ///< [features * samples + 1] into `rows`
  std::vector<char> number_given{}, feature_given{};
};

/// Turns columns of data into what a model takes, as its training run did: transforms of numbers,
/// keys of texts, their rows by list, hash or vocabulary. Const; any number of threads.
class ModelInputs {
 public:
  /// Reads the lists of keys, or the vocabulary, of a checkpoint. Throws DataError.
  ModelInputs(ModelDescription model, CheckpointReader& reader) : model_(std::move(model)) {
    const auto lists = detail::read_key_lists(reader, model_);
    for (std::size_t t = 0; t < model_.tables.size(); ++t) {
      const TableInput& table = model_.tables[t];
      rows_.emplace_back();
      if (table.rows_by == KeyRows::list) {
        const KeyList& list = lists.at(table.name);
        for (std::size_t i = 0; i < list.keys.size(); ++i)
          add(t, list.keys[i],
              1 + (list.rows.empty() ? static_cast<std::int64_t>(i) + 2 : list.rows[i]));
      } else if (table.rows_by == KeyRows::vocabulary) {
        read_vocabulary(t, reader);
      }
    }
    for (const CategoryInput& feature : model_.features)
      feature_table_.push_back(
          static_cast<std::size_t>(&model_.table(feature.table) - model_.tables.data()));
  }

  /// Makes the same with the vocabulary of an increment in place of its own.
  ModelInputs(const ModelInputs& base, CheckpointReader& increment) : ModelInputs(base) {
    for (std::size_t t = 0; t < model_.tables.size(); ++t)
      if (model_.tables[t].rows_by == KeyRows::vocabulary) read_vocabulary(t, increment);
  }

  const ModelDescription& model() const { return model_; }
  /// Returns the index of a feature's table in ModelDescription::tables.
  std::size_t table_of(std::size_t feature) const { return feature_table_[feature]; }

  /// Encodes all columns, or those that are given where `partly`. Throws InvalidArgument that names
  /// the column, the sample and what is expected. Nothing is allocated once `to` has seen as many
  /// samples and entries.
  void encode(const ModelColumns& columns, EncodedSamples& to, bool partly = false) const {
    const std::int64_t n = columns.samples;
    require(n >= 0 && columns.numbers.size() == model_.numeric.size() &&
                columns.categories.size() == model_.features.size(),
            "{} samples of {} numeric and {} categorical columns; the model has {} and {}", n,
            columns.numbers.size(), columns.categories.size(), model_.numeric.size(),
            model_.features.size());
    to.samples = n;
    to.numbers.assign(static_cast<std::size_t>(n) * numbers(), 0.0f);
    to.number_given.assign(model_.numeric.size(), 0);
    to.feature_given.assign(model_.features.size(), 0);
    if (model_.numeric.empty()) std::fill(to.numbers.begin(), to.numbers.end(), 1.0f);
    for (std::size_t c = 0; c < model_.numeric.size(); ++c) {
      const NumberValues& values = columns.numbers[c];
      if (model_.numeric[c].list || (values.empty() && (n == 0 || partly))) continue;
      to.number_given[c] = 1;
      require(values.size() == static_cast<std::size_t>(n),
              "column '{}': {} numbers for {} samples; give one for each", model_.numeric[c].name,
              values.size(), n);
      for (std::size_t s = 0; s < values.size(); ++s)
        to.numbers[s * numbers() + c] = number(model_.numeric[c], values[s], s);
    }
    to.rows.clear();
    to.offsets.assign(1, 0);
    for (std::size_t f = 0; f < model_.features.size(); ++f)
      encode_feature(f, columns.categories[f], n, to, partly);
    to.event_numbers.clear();
    if (model_.history && !model_.numeric.empty()) encode_event_numbers(columns, to, partly);
  }

  /// Returns the row of a text in the table of a feature. Throws InvalidArgument, naming `place`:
  /// the text's sample, or which of a list's entries it is.
  std::int64_t row_of(std::size_t feature, std::string_view text, std::size_t place = 0) const {
    const TableInput& table = model_.tables[feature_table_[feature]];
    const auto refuse = [&](std::string_view what) {
      const CategoryInput& input = model_.features[feature];
      throw InvalidArgument(detail::formatted("column '{}', {} {}: {} {}", input.name,
                                              place_name(input), place, detail::quoted(text),
                                              what));
    };
    std::int64_t key = 0;
    if (text.empty()) {
      if (table.empty_row) return *table.empty_row;
      if (!table.empty_key) refuse("is empty, which this column may not be");
      key = *table.empty_key;
    } else if (table.keys == CategoryKey::text) {
      key = static_cast<std::int64_t>(std::max(detail::name_key(text), std::uint64_t{1}));
    } else {
      std::uint32_t hex = 0;
      const char* const end = text.data() + text.size();
      const bool decimal = table.keys == CategoryKey::integer;
      const auto [stopped, error] = decimal ? std::from_chars(text.data(), end, key)
                                            : std::from_chars(text.data(), end, hex, 16);
      if (error != std::errc() || stopped != end || (!decimal && text.size() > 8))
        refuse(decimal ? "is not a whole number"
                       : "is not a hexadecimal number of at most 8 digits");
      if (!decimal) key = hex;
    }
    switch (table.rows_by) {
      case KeyRows::hash:
        return 1 + detail::scale_hash(mix64(table.hash_seed ^ static_cast<std::uint64_t>(key)),
                                      table.rows - 1);
      case KeyRows::key:
        if (key < 0 || key >= table.rows)
          refuse(detail::formatted("is no row of table '{}': give 0 .. {}", table.name,
                                   table.rows - 1));
        return key;
      case KeyRows::vocabulary:
        return rows_[feature_table_[feature]].find(static_cast<std::uint64_t>(key));
      default:
        break;
    }
    const std::uint32_t row = rows_[feature_table_[feature]].find(static_cast<std::uint64_t>(key));
    if (row != 0) return row - 1;
    if (!table.unknown_row)
      refuse("is not in the training data (often enough), and this column refuses such");
    return *table.unknown_row;
  }

 private:
  std::size_t numbers() const { return std::max<std::size_t>(1, model_.numeric.size()); }

  void read_vocabulary(std::size_t t, CheckpointReader& reader) {
    const TableInput& table = model_.tables[t];
    const auto keys = reader.read<std::int64_t>(detail::formatted("vocabulary.{}.keys", t)),
               of_keys = reader.read<std::int64_t>(detail::formatted("vocabulary.{}.rows", t));
    require<DataError>(keys.size() == of_keys.size(),
                       "checkpoint '{}': table '{}' has {} keys and {} rows in its vocabulary",
                       reader.folder().string(), table.name, keys.size(), of_keys.size());
    rows_[t] = {};
    for (std::size_t i = 0; i < keys.size(); ++i) {
      require<DataError>(of_keys[i] < table.rows,
                         "checkpoint '{}': key {} of table '{}' has row {} of {}",
                         reader.folder().string(), keys[i], table.name, of_keys[i], table.rows);
      if (of_keys[i] > 0) add(t, keys[i], of_keys[i]);
    }
  }

  void add(std::size_t table, std::int64_t key, std::int64_t row) {
    // a key that is listed twice would have the sum of both rows
    if (rows_[table].find(static_cast<std::uint64_t>(key)) == 0)
      rows_[table].add(static_cast<std::uint64_t>(key), static_cast<std::uint32_t>(row));
  }

  /// Tells what the values of a column are counted in.
  static const char* place_name(const auto& input) { return input.list ? "entry" : "sample"; }

  static float number(const NumberInput& input, double x, std::size_t place) {
    // Criteo's in float, as CriteoEncoder: the same bits
    const bool in_float = input.transform == NumberTransform::log;
    const auto scaled = [&](double moved) {
      return in_float ? (static_cast<float>(moved) - static_cast<float>(input.shift)) *
                            static_cast<float>(input.scale)
                      : static_cast<float>((moved - input.shift) * input.scale);
    };
    if (std::isnan(x)) {
      require(input.may_be_empty, "column '{}', {} {}: NaN, and this column may not be empty",
              input.name, place_name(input), place);
      return input.empty ? scaled(double{*input.empty}) : 0.0f;
    }
    require(std::isfinite(x), "column '{}', {} {}: {} is not finite; an empty field is NaN",
            input.name, place_name(input), place, x);
    if (input.transform == NumberTransform::at_least)
      return static_cast<float>(x) >= static_cast<float>(input.shift) ? 1.0f : 0.0f;
    const double given = std::exchange(x, input.needs_double() ? x : double{static_cast<float>(x)});
    const float number =
        scaled(in_float ? double{std::log(1.0f + std::max(static_cast<float>(x), 0.0f))}
               : input.transform == NumberTransform::log1p ? std::log1p(std::max(x, 0.0))
                                                           : x);
    require(std::isfinite(number),
            "column '{}', {} {}: {} is too large: the column's transform makes {} of it",
            input.name, place_name(input), place, given, number);
    return number;
  }

  /// Encodes the column of numbers that a history's events have.
  void encode_event_numbers(const ModelColumns& columns, EncodedSamples& to, bool partly) const {
    const NumberInput& input = model_.numeric[0];
    const CategoryInput& history = model_.features[0];
    const NumberValues& values = columns.numbers[0];
    if (!to.feature_given[0] && values.empty() && (partly || columns.samples == 0)) return;
    to.number_given[0] = 1;
    require(
        std::ranges::equal(columns.number_lengths, columns.categories[0].lengths) &&
            static_cast<std::int64_t>(values.size()) ==
                to.offsets[static_cast<std::size_t>(columns.samples)],
        "column '{}': {} numbers in {} lists; give as many as column '{}' has entries, with the "
        "same lengths",
        input.name, values.size(), columns.number_lengths.size(), history.name);
    for (std::size_t i = 0; i < values.size(); ++i)
      to.event_numbers.push_back(number(input, values[i], i));
  }

  void encode_feature(std::size_t f, const CategoryValues& values, std::int64_t n,
                      EncodedSamples& to, bool partly) const {
    const CategoryInput& feature = model_.features[f];
    const std::int64_t begin = to.offsets.back();
    if (!values.given) {
      require(partly || n == 0, "column '{}' is missing; the model needs it", feature.name);
      to.offsets.insert(to.offsets.end(), static_cast<std::size_t>(n), begin);
      return;
    }
    to.feature_given[f] = 1;
    const bool texts = values.rows.empty();
    const std::int64_t entries = texts ? std::ssize(values.texts) : std::ssize(values.rows);
    if (feature.list) {
      require(std::ssize(values.lengths) == n,
              "column '{}': {} lengths for {} samples; a list needs one for each", feature.name,
              values.lengths.size(), n);
      std::int64_t end = begin;
      for (const std::int64_t length : values.lengths) {
        require(length >= 0 && length <= entries - (end - begin),
                "column '{}': the lengths tell of more entries than the {} that are given, or of "
                "fewer than none",
                feature.name, entries);
        to.offsets.push_back(end += length);
      }
      require(end - begin == entries, "column '{}': the lengths add up to {}, given are {} entries",
              feature.name, end - begin, entries);
    } else {
      require(values.lengths.empty() && entries == n,
              "column '{}': {} entries for {} samples; it is no list: give one for each",
              feature.name, entries, n);
      for (std::int64_t s = 1; s <= n; ++s) to.offsets.push_back(begin + s);
    }
    const std::int64_t rows = model_.tables[feature_table_[f]].rows;
    for (std::size_t i = 0; i < static_cast<std::size_t>(entries); ++i) {
      if (texts) {
        to.rows.push_back(row_of(f, values.texts[i], i));
        continue;
      }
      const std::int64_t row = values.rows[i];
      require(row >= 0 && row < rows,
              "column '{}', entry {}: row {} is not in [0, {}), the rows of table '{}'",
              feature.name, i, row, rows, feature.table);
      to.rows.push_back(row);
    }
  }

  ModelDescription model_;
  std::vector<std::size_t> feature_table_;
  /// Of keys, by table; of a list one more, as 0 is a key that is not there.
  std::vector<detail::ValueMap<std::uint64_t>> rows_;
};

}}  // namespace tessera::v0
