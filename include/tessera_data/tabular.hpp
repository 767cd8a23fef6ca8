// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/core/random.hpp>
#include <tessera/io/text.hpp>
#include <tessera_data/click_batch.hpp>
#include <tessera_data/compressed_file.hpp>
#include <tessera_data/csv_reader.hpp>
#include <tessera_data/schema.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// Samples one after the other, as a schema's columns have them. Texts are 64-bit keys at first;
/// `TabularEncoder` puts rows in their place.
struct TabularBlock {
  static constexpr std::uint64_t kMissing = 0;  ///< key of an empty field that is no list

  std::int64_t size = 0;
  std::vector<float> labels;  ///< [size]
  /// [size, numeric columns], as in the file; NaN for an empty field. Doubles: dates and seconds
  /// since 1970 differ by less than floats of their size do.
  std::vector<double> numbers;
  std::vector<std::uint64_t> keys;  ///< sample by sample, column by column
  /// [size, categorical columns]: where the keys of a column end; empty: one key per column
  std::vector<std::size_t> ends;

  void clear() {
    size = 0;
    labels.clear(), numbers.clear(), keys.clear(), ends.clear();
  }
};

/// Returns the key of a category's text, which is never TabularBlock::kMissing.
constexpr std::uint64_t category_key(std::string_view text) {
  return std::max(detail::name_key(text), std::uint64_t{1});
}

/// Returns a number that tells blocks apart, in their order; `before`: that of the blocks before.
inline std::uint64_t checksum(const TabularBlock& block, std::uint64_t before = 0) {
  constexpr std::uint64_t kFactor = 0x9e3779b97f4a7c15u;
  std::uint64_t sum = mix64(before ^ static_cast<std::uint64_t>(block.size));
  for (const float x : block.labels) sum = sum * kFactor + std::bit_cast<std::uint32_t>(x);
  for (const double x : block.numbers) sum = sum * kFactor + std::bit_cast<std::uint64_t>(x);
  for (const std::uint64_t key : block.keys) sum = (sum ^ key) * kFactor;
  for (const std::size_t end : block.ends) sum = sum * kFactor + end;
  return mix64(sum);
}

/// Where the columns of a schema are in a file's records.
struct ColumnPlaces {
  std::size_t fields = 0;  ///< of a record
  std::size_t label = 0;
  std::vector<std::size_t> numeric, categorical;

  /// Finds the places of a header, or of a schema's own `columns`. `where` names the place in
  /// messages. Throws DataError for columns that are missing or there twice.
  ColumnPlaces(const Schema& schema, std::span<const std::string_view> header,
               std::string_view where)
      : fields(header.size()) {
    const std::string who = detail::formatted("'{}'", schema.name);
    const auto place = [&](const std::string& column) {
      return column_place(header, column, where, who);
    };
    label = place(schema.label);
    for (const NumericColumn& column : schema.numeric) numeric.push_back(place(column.name));
    for (const CategoricalColumn& column : schema.categorical)
      categorical.push_back(place(column.name));
  }
};

/// Returns what separates the fields of a file: the schema's separator, or a tab for names that end
/// in .tsv (or .tsv.gz, .tsv.zst), else a comma.
inline std::string separator_of(const Schema& schema, std::filesystem::path path) {
  if (!schema.separator.empty()) return schema.separator;
  if (path.extension() == ".gz" || path.extension() == ".zst") path.replace_extension();
  return path.extension() == ".tsv" ? "\t" : ",";
}

/// Returns how samples are read that a schema describes.
inline CsvReaderOptions csv_options(const Schema& schema, std::string separator) {
  return {.separator = std::move(separator),
          .quote = schema.quote,
          .columns = schema.columns,
          .empty_words = schema.empty_words};
}

/// Returns the columns of a schema.
inline std::vector<WantedColumn> wanted_columns(const Schema& schema) {
  std::vector<WantedColumn> wanted{{schema.label}};
  for (const NumericColumn& column : schema.numeric) wanted.push_back({column.name});
  for (const CategoricalColumn& column : schema.categorical)
    wanted.push_back({column.name, column.list});
  return wanted;
}

/// Returns a reader of a file's records: of rows from `first` on if `open` knows such a file, else
/// of text, which may be compressed.
inline CsvReader open_csv(const std::filesystem::path& path, std::span<const WantedColumn> wanted,
                          CsvReaderOptions options, const OpenRecords& open = {},
                          std::int64_t first = 0) {
  if (open)
    if (RecordSource records = open(path, wanted, first); records.next)
      return {std::move(records),
              path.string(),
              {.empty_words = std::move(options.empty_words), .first_line = first + 1}};
  return {open_bytes(path), path.string(), std::move(options)};
}

/// Reads samples from text, as a schema describes them. A record with a wrong number of fields, a
/// label outside [0, 1], a number that is none or not finite is a DataError with file, line and
/// column, or is counted and skipped. The schema must outlive the reader.
class TabularReader {
 public:
  /// Begins with the header, if the schema lists no columns.
  TabularReader(ByteSource source, std::string name, const Schema& schema, std::string separator,
                BadLines bad_lines = BadLines::fatal)
      : schema_(&schema),
        bad_lines_(bad_lines),
        csv_(std::move(source), std::move(name), csv_options(schema, std::move(separator))),
        places_(places(schema, csv_)) {
    choose_lists();
  }
  /// Reads a whole file, which may be compressed; if `open` knows it, from row `first` on.
  TabularReader(const std::filesystem::path& path, const Schema& schema,
                BadLines bad_lines = BadLines::fatal, const OpenRecords& open = {},
                std::int64_t first = 0)
      : schema_(&schema),
        bad_lines_(bad_lines),
        csv_(open_csv(path, wanted_columns(schema), csv_options(schema, separator_of(schema, path)),
                      open, first)),
        places_(places(schema, csv_)) {
    choose_lists();
  }
  /// Reads from a record on whose line is `line`.
  TabularReader(ByteSource source, std::string name, const Schema& schema, std::string separator,
                BadLines bad_lines, ColumnPlaces places, std::int64_t line)
      : schema_(&schema),
        bad_lines_(bad_lines),
        csv_(std::move(source), std::move(name),
             from_line(csv_options(schema, std::move(separator)), places, line)),
        places_(std::move(places)) {
    choose_lists();
  }

  /// Fills the block with the next `samples` samples, or those that are left; returns how many.
  std::int64_t read(std::int64_t samples, TabularBlock& block) {
    block.clear();
    while (block.size < samples) {
      const std::span<const std::string_view> fields = csv_.next();
      if (fields.empty()) break;
      const std::size_t keys = block.keys.size();
      fault_.clear();
      if (add(fields, block)) {
        if (block.size++ == 0) line_ = csv_.line(), offset_ = csv_.offset();
        continue;
      }
      fault_ = csv_.where() + fault_;
      if (bad_lines_ == BadLines::fatal) throw DataError(fault_);
      if (skipped_++ == 0) first_skipped_ = fault_;
      const auto kept = static_cast<std::size_t>(block.size);
      block.labels.resize(kept);
      block.numbers.resize(kept * schema_->numeric.size());
      block.keys.resize(keys);
      if (lists_) block.ends.resize(kept * schema_->categorical.size());
    }
    return block.size;
  }

  /// Returns where the last block's first record begins in the source: line and byte.
  std::int64_t line() const { return line_; }
  std::int64_t offset() const { return offset_; }
  const ColumnPlaces& places() const { return places_; }
  /// Returns whether the file is no text; then `line` is a row, from 1.
  bool rows() const { return csv_.rows(); }
  /// Return the bad lines so far, and what was wrong with the first.
  std::int64_t bad_lines() const { return skipped_; }
  const std::string& first_bad_line() const { return first_skipped_; }

 private:
  static CsvReaderOptions from_line(CsvReaderOptions csv, const ColumnPlaces& places,
                                    std::int64_t line) {
    csv.first_line = line;
    csv.fields = places.fields;
    return csv;
  }
  static ColumnPlaces places(const Schema& schema, CsvReader& csv) {
    const std::span<const std::string_view> header = csv.header();
    return {schema, header,
            csv.rows()               ? detail::formatted("file '{}'", csv.name())
            : schema.columns.empty() ? csv.where()
                                     : detail::formatted("file '{}'", schema.name)};
  }
  void choose_lists() {
    lists_ = std::any_of(schema_->categorical.begin(), schema_->categorical.end(),
                         [](const CategoricalColumn& column) { return column.list != 0; });
  }

  bool bad(const std::string& column, std::string_view field, std::string_view what) {
    fault_ = detail::formatted(", column {}: {} {}", detail::quoted(column), detail::quoted(field),
                               what);
    return false;
  }

  bool add(std::span<const std::string_view> fields, TabularBlock& block) {
    if (fields.size() != places_.fields) {
      fault_ = ": " + csv_.wrong_field_count();
      return false;
    }
    float label = 0;
    const std::string_view text = fields[places_.label];
    if (parse_number(text, label) != NumberText::number || !(label >= 0 && label <= 1))
      return bad(schema_->label, text, "is no label: a number from 0 to 1");
    block.labels.push_back(label);
    for (std::size_t c = 0; c < places_.numeric.size(); ++c) {
      const NumericColumn& column = schema_->numeric[c];
      const std::string_view field = fields[places_.numeric[c]];
      double x = std::numeric_limits<double>::quiet_NaN();
      if (!field.empty())
        if (const char* const fault = detail::parse_float_range(field, x); fault != nullptr)
          return bad(column.name, field, fault);
      block.numbers.push_back(x);
    }
    for (std::size_t c = 0; c < places_.categorical.size(); ++c) {
      add_keys(fields[places_.categorical[c]], schema_->categorical[c].list, block.keys);
      if (lists_) block.ends.push_back(block.keys.size());
    }
    return true;
  }
  static void add_keys(std::string_view field, char list, std::vector<std::uint64_t>& keys) {
    if (list == 0)
      return keys.push_back(field.empty() ? TabularBlock::kMissing : category_key(field));
    while (!field.empty()) {
      const std::size_t end = std::min(field.find(list), field.size());
      if (end > 0) keys.push_back(category_key(field.substr(0, end)));
      field.remove_prefix(std::min(end + 1, field.size()));
    }
  }

  const Schema* schema_;
  BadLines bad_lines_;
  CsvReader csv_;
  ColumnPlaces places_;
  bool lists_ = false;
  std::int64_t line_ = 0, offset_ = 0, skipped_ = 0;
  std::string fault_, first_skipped_;
};

namespace detail {

/// Appends these samples of a block, in this order, to a batch. Throws InvalidArgument for ids that
/// do not fit Id.
template <IdType Id, class SampleAt>
void append_samples(std::int64_t count, std::size_t features, ClickBatch<Id>& batch,
                    const SampleAt& sample_at) {
  batch.size = count;
  batch.features = static_cast<std::int64_t>(features);
  batch.labels.clear(), batch.dense.clear(), batch.ids.clear(), batch.offsets.clear();
  batch.dense_columns = 0;
  bool lists = false;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto& [block, s] = sample_at(i);
    const std::size_t numbers = block->numbers.size() / static_cast<std::size_t>(block->size);
    batch.labels.push_back(block->labels[s]);
    const auto first = block->numbers.begin() + static_cast<std::ptrdiff_t>(s * numbers);
    for (std::size_t c = 0; c < numbers; ++c)
      batch.dense.push_back(static_cast<float>(first[static_cast<std::ptrdiff_t>(c)]));
    batch.dense_columns = static_cast<std::int64_t>(numbers);
    lists = !block->ends.empty();
  }
  if (lists) batch.offsets.push_back(0);
  for (std::size_t f = 0; f < features; ++f)
    for (std::int64_t i = 0; i < count; ++i) {
      const auto& [block, s] = sample_at(i);
      std::size_t begin = s * features + f, end = begin + 1;
      if (lists) {
        end = block->ends[begin];
        begin = begin == 0 ? 0 : block->ends[begin - 1];
      }
      for (std::size_t k = begin; k < end; ++k)
        batch.ids.push_back(static_cast<Id>(static_cast<std::int64_t>(block->keys[k])));
      if (lists) batch.offsets.push_back(std::ssize(batch.ids));
    }
}

}  // namespace detail

/// Makes a whole block a batch.
template <IdType Id>
void to_batch(const TabularBlock& block, std::size_t features, ClickBatch<Id>& batch) {
  detail::append_samples(block.size, features, batch, [&block](std::int64_t i) {
    return std::pair(&block, static_cast<std::size_t>(i));
  });
}

}}  // namespace tessera::v0
