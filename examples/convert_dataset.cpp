// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// CSV and TSV files that a schema describes, and Criteo's click files, to the binary dataset layout
// of NVIDIA's DeepLearningExamples, and back.
//   convert_dataset --help
#include "convert_dataset/criteo.hpp"
#include "convert_dataset/new_folder.hpp"
#include "support/dataset_files.hpp"
#include "support/files.hpp"
#include "support/options.hpp"
#include "support/parquet.hpp"

#include <tessera_data/binary_dataset.hpp>
#include <tessera_data/tabular.hpp>
#include <tessera_data/tabular_blocks.hpp>
#include <tessera_data/tabular_encoder.hpp>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace {

using namespace tessera;
using convert::Options;

constexpr std::int64_t kBlock = 2048;
constexpr const char *kSchema = support::kSchemaFile, *kTexts = support::kTextsFile,
                     *kNumbers = support::kNumbersFile;

std::string in_quotes(std::string_view text, char quote = '"') {
  std::string out(1, quote);
  for (const char c : text) out += std::string(c == quote ? 2 : 1, c);
  return out + quote;
}

/// Writes fields so that a reader with the same schema finds them again.
class FieldWriter {
 public:
  FieldWriter(const Schema& schema, const std::string& separator)
      : schema_(schema),
        blanks_(separator == CsvReaderOptions::kBlanks),
        separator_(blanks_ ? " " : separator) {}

  const std::string& separator() const { return separator_; }

  /// Returns the text as a field. Throws DataError if it needs quotes and the schema has none.
  std::string operator()(std::string_view text, std::string_view column, bool quoted) const {
    const bool needs_quotes =
        (text.empty() && blanks_) || text.find_first_of("\r\n") != text.npos ||
        (blanks_ ? text.find_first_of(" \t") : text.find(separator_)) != text.npos ||
        std::find(schema_.empty_words.begin(), schema_.empty_words.end(), text) !=
            schema_.empty_words.end();
    if (schema_.quote == 0) {
      require<DataError>(
          !needs_quotes,
          "file '{}': {} of column '{}' can only be written in quotes, and there is 'quote: none'; "
          "take that out of this file, or give another 'separator'",
          schema_.name, text.empty() ? "an empty field" : detail::quoted(text), column);
      return std::string(text);
    }
    return needs_quotes || quoted || text.find(schema_.quote) != text.npos
               ? in_quotes(text, schema_.quote)
               : std::string(text);
  }

 private:
  const Schema& schema_;
  bool blanks_;
  std::string separator_;
};

/// Which of the label, the numeric and the categorical columns each column of a file is, counted in
/// this order; -1 for those that the schema does not use.
std::vector<std::ptrdiff_t> columns_of(const Schema& schema, const std::vector<std::string>& used) {
  std::vector<std::ptrdiff_t> order;
  for (const std::string& name : schema.columns.empty() ? used : schema.columns) {
    const auto found = std::find(used.begin(), used.end(), name);
    order.push_back(found == used.end() ? -1 : found - used.begin());
  }
  return order;
}

/// Samples [first, first + count) of a block.
TabularBlock part_of(const TabularBlock& block, std::int64_t first, std::int64_t count,
                     std::size_t columns) {
  TabularBlock part;
  part.size = count;
  const auto numbers =
      static_cast<std::ptrdiff_t>(block.numbers.size() / static_cast<std::size_t>(block.size));
  part.labels.assign(block.labels.begin() + first, block.labels.begin() + first + count);
  part.numbers.assign(block.numbers.begin() + first * numbers,
                      block.numbers.begin() + (first + count) * numbers);
  const auto key = [&](std::int64_t sample) {
    const std::size_t bag = static_cast<std::size_t>(sample) * columns;
    return static_cast<std::ptrdiff_t>(block.ends.empty() ? bag
                                       : bag == 0         ? 0
                                                          : block.ends[bag - 1]);
  };
  part.keys.assign(block.keys.begin() + key(first), block.keys.begin() + key(first + count));
  for (std::size_t bag = static_cast<std::size_t>(first) * columns;
       !block.ends.empty() && bag < static_cast<std::size_t>(first + count) * columns; ++bag)
    part.ends.push_back(block.ends[bag] - static_cast<std::size_t>(key(first)));
  return part;
}

/// The text of each row that has one, as rows come up.
void write_texts(const Options& options, const std::filesystem::path& to, const Schema& schema,
                 const TabularEncoder& encoder) {
  support::ResultFile file(to, "DIR");
  file.add("table,row,text\n");
  std::vector<std::vector<bool>> seen;
  for (const std::int64_t rows : encoder.rows()) seen.emplace_back(static_cast<std::size_t>(rows));
  CsvReader csv =
      open_csv(options.from, wanted_columns(schema),
               csv_options(schema, separator_of(schema, options.from)), support::open_records());
  const ColumnPlaces places(schema, csv.header(), options.from);
  for (auto fields = csv.next(); !fields.empty(); fields = csv.next()) {
    if (fields.size() != places.fields) continue;  // a bad line that was skipped
    for (std::size_t c = 0; c < places.categorical.size(); ++c) {
      const CategoricalColumn& column = schema.categorical[c];
      for (std::string_view rest = fields[places.categorical[c]]; !rest.empty();) {
        const std::size_t end =
            column.list == 0 ? rest.size() : std::min(rest.find(column.list), rest.size());
        const std::string_view text = rest.substr(0, end);
        rest.remove_prefix(std::min(end + 1, rest.size()));
        const std::int64_t row = encoder.row_of(column.table, text);
        if (text.empty() || row < 0 ||
            (schema.tables[column.table].rows_by == RowsBy::appearance &&
             row == TabularEncoder::kUnknownRow) ||
            seen[column.table][static_cast<std::size_t>(row)])
          continue;
        seen[column.table][static_cast<std::size_t>(row)] = true;
        file.add(fmt::format("{},{},{}\n", column.table, row, in_quotes(text)));
      }
    }
  }
  file.finish();
}

void to_binary(const Options& options) {
  const std::filesystem::path folder = options.to;
  support::check_paths({{"FILE", options.from}},
                       {{"DIR", folder / kTexts}, {"DIR", folder / kNumbers}});
  const Schema schema = read_schema(options.schema);
  for (const TableColumns& table : schema.tables) {
    require<DataError>(table.rows_by != RowsBy::vocabulary,
                       "file '{}', table '{}': a folder holds rows, which a vocabulary gives in "
                       "training only; remove 'vocabulary'",
                       schema.name, table.name);
    require<DataError>(table.unknown != UnknownCategory::bad_id,
                       "file '{}', table '{}': a folder holds no bad ids; choose another 'unknown'",
                       schema.name, table.name);
  }
  const std::size_t columns = schema.categorical.size();
  // Of a list, the most entries; it is padded where a sample has fewer.
  std::vector<std::int64_t> hotness(columns, 1);
  std::vector<bool> padded(columns);
  std::int64_t samples = 0;
  const TabularBlocks file(
      options.from, schema, options.skip_bad_lines ? BadLines::skip : BadLines::fatal, kBlock,
      [&](const TabularBlock& block) {
        for (const float label : block.labels)
          require<DataError>(
              label == 0 || label == 1,
              "file '{}': the label {} is neither 0 nor 1, all that a folder can hold",
              options.from, label);
        std::size_t begin = 0;
        for (std::size_t bag = 0; bag < block.ends.size(); ++bag) {
          const auto length = static_cast<std::int64_t>(block.ends[bag] - begin);
          begin = block.ends[bag];
          std::int64_t& known = hotness[bag % columns];
          if (samples == 0 && bag < columns) known = length;
          if (length != known || length == 0) padded[bag % columns] = true;
          known = std::max({known, length, std::int64_t{1}});
          require<DataError>(length <= kMostHotness,
                             "file '{}', sample {}, column '{}': a list of {} entries; in a folder "
                             "lists have at most {}",
                             options.from, samples + static_cast<std::int64_t>(bag / columns),
                             schema.categorical[bag % columns].name, length, kMostHotness);
        }
        samples += block.size;
      },
      support::open_records());
  const std::int64_t train =
      samples - std::llround(static_cast<double>(samples) * options.test_fraction);
  require<DataError>(train > 0, "file '{}' holds no samples to train on", options.from);
  TabularStatistics statistics(schema);
  const auto for_training = [&](std::size_t b, std::int64_t size) {
    return std::clamp<std::int64_t>(train - file.first_sample(b), 0, size);
  };
  const auto nothing = [](std::size_t, const TabularBlock&) {};
  file.for_each(file.blocks_of(train), options.threads, nothing,
                [&](std::size_t b, const TabularBlock& block) {
                  statistics.add(part_of(block, 0, for_training(b, block.size), columns));
                });
  const TabularEncoder encoder(statistics,
                               {.max_rows = options.max_rows, .min_count = options.min_count});
  std::vector<std::int64_t> rows;
  for (const CategoricalColumn& column : schema.categorical)
    rows.push_back(encoder.rows()[column.table]);
  convert::NewFolder made(folder);
  BinaryDatasetWriter writer(made.path(), std::ssize(schema.numeric), rows, hotness, padded);
  ClickBatch<std::int32_t> batch;
  const auto encode = [&](std::size_t b, TabularBlock& block) {
    const std::string where = fmt::format("file '{}', after {}", options.from, file.where(b));
    encoder.encode(block, where);
    for (std::size_t i = 0; i < block.numbers.size(); ++i)
      require<DataError>(std::abs(static_cast<float>(block.numbers[i])) <= detail::kMostHalf,
                         "{}, sample {}, column '{}': the number becomes {:.6g}; in a folder they "
                         "are float16, at most {}: choose another 'transform' in '{}', or mend it",
                         where, i / schema.numeric.size(),
                         schema.numeric[i % schema.numeric.size()].name, block.numbers[i],
                         detail::kMostHalf, schema.name);
  };
  file.for_each(
      file.count(), options.threads, encode, [&](std::size_t b, const TabularBlock& block) {
        const std::int64_t count = for_training(b, block.size);
        for (const auto& [name, first, size] : {std::tuple("train", std::int64_t{0}, count),
                                                std::tuple("test", count, block.size - count)}) {
          if (size == 0) continue;
          to_batch(part_of(block, first, size, columns), columns, batch);
          writer.add(name, batch);
        }
      });
  write_texts(options, made.path() / kTexts, schema, encoder);
  support::ResultFile numbers(made.path() / kNumbers, "DIR");
  numbers.add("shift,scale\n");
  for (std::size_t c = 0; c < schema.numeric.size(); ++c) {
    const auto [shift, scale] = encoder.shift_and_scale(c);
    numbers.add(fmt::format("{},{}\n", shift, scale));
  }
  numbers.finish();
  support::ResultFile(made.path() / kSchema, "DIR")
      .write(support::read_file(options.schema, "--schema"));
  writer.finish();
  made.finish();
  fmt::print("{} training and {} test samples in '{}'\n", train, samples - train, options.to);
}

template <class T>
T number_of(const CsvReader& csv, std::string_view text) {
  T value{};
  require<DataError>(parse_number(text, value) == NumberText::number,
                     "file '{}', line {}: {} is not a number, or too large", csv.name(), csv.line(),
                     detail::quoted(text));
  return value;
}

/// Calls visit(reader, fields) for each record behind the header.
template <class Visit>
void for_each_record(const std::filesystem::path& path, std::size_t fields, Visit visit) {
  CsvReader csv(open_bytes(path), path.string());
  csv.next();
  for (auto record = csv.next(); !record.empty(); record = csv.next()) {
    require<DataError>(record.size() == fields, "file '{}', line {}: {} fields must be {}",
                       csv.name(), csv.line(), csv.field_count(), fields);
    visit(csv, record);
  }
}

void to_csv(const Options& options) {
  support::check_paths({{"DIR", options.from}}, {{"FILE", options.to}});
  const std::filesystem::path folder = options.from;
  const DatasetSpec spec = read_feature_spec(folder);
  const Schema schema = read_schema(folder / kSchema);
  std::vector<std::vector<std::string>> texts(schema.tables.size());
  for_each_record(folder / kTexts, 3, [&](const CsvReader& csv, auto record) {
    const auto table = number_of<std::size_t>(csv, record[0]),
               row = number_of<std::size_t>(csv, record[1]);
    require<DataError>(table < texts.size() && row < std::size_t{1} << 31,
                       "file '{}', line {}: there is no such row", csv.name(), csv.line());
    if (texts[table].size() <= row) texts[table].resize(row + 1);
    texts[table][row] = record[2];
  });
  std::vector<std::pair<double, double>> numbers;
  for_each_record(folder / kNumbers, 2, [&](const CsvReader& csv, auto record) {
    numbers.emplace_back(number_of<double>(csv, record[0]), number_of<double>(csv, record[1]));
  });
  support::ResultFile file(options.to, "FILE");
  const FieldWriter field(schema, separator_of(schema, options.to));
  std::vector<std::string> used{schema.label};
  for (const NumericColumn& column : schema.numeric) used.push_back(column.name);
  for (const CategoricalColumn& column : schema.categorical) used.push_back(column.name);
  const std::vector<std::ptrdiff_t> order = columns_of(schema, used);
  std::string lines;
  const auto add_line = [&](const std::vector<std::string>& values) {
    for (std::size_t c = 0; c < order.size(); ++c) {
      if (c > 0) lines += field.separator();
      lines += order[c] >= 0 ? values[static_cast<std::size_t>(order[c])]
                             : field("", schema.columns[c], false);
    }
    lines += '\n';
  };
  if (schema.columns.empty()) {
    std::vector<std::string> names;
    for (const std::string& name : used) names.push_back(field(name, name, true));
    add_line(names);
  }
  ClickBatch<std::int32_t> batch;
  std::int64_t written = 0;
  for (const char* part : {"train", "test"}) {
    const BinaryDataset data(folder, spec, part);
    require<DataError>(std::ssize(data.rows()) == std::ssize(schema.categorical) &&
                           data.dense_columns() == std::ssize(schema.numeric) &&
                           numbers.size() == schema.numeric.size(),
                       "'{}' does not hold the columns that its {} names", options.from, kSchema);
    for (std::int64_t first = 0; first < data.size(); first += kBlock) {
      data.read(first, std::min(kBlock, data.size() - first), batch);
      for (std::int64_t s = 0; s < batch.size; ++s) {
        std::vector<std::string> values{
            field(batch.labels[static_cast<std::size_t>(s)] != 0 ? "1" : "0", schema.label, false)};
        for (std::size_t c = 0; c < numbers.size(); ++c) {
          const double x = batch.dense_view()(s, static_cast<std::int64_t>(c)) / numbers[c].second +
                           numbers[c].first;
          // six digits of what differs between samples
          const double size = std::abs(numbers[c].first * numbers[c].second);
          values.push_back(field(fmt::format("{:.{}g}", schema.numeric[c].log1p ? std::expm1(x) : x,
                                             6 + static_cast<int>(std::log10(std::max(1.0, size)))),
                                 schema.numeric[c].name, false));
        }
        for (std::size_t c = 0; c < schema.categorical.size(); ++c) {
          const std::vector<std::string>& known = texts[schema.categorical[c].table];
          const std::size_t bag =
              c * static_cast<std::size_t>(batch.size) + static_cast<std::size_t>(s);
          const auto begin =
              batch.offsets.empty() ? static_cast<std::int64_t>(bag) : batch.offsets[bag];
          const auto end = batch.offsets.empty() ? begin + 1 : batch.offsets[bag + 1];
          std::string text;
          for (std::int64_t k = begin; k < end; ++k) {
            const auto row = static_cast<std::size_t>(batch.ids[static_cast<std::size_t>(k)]);
            if (k > begin) text += schema.categorical[c].list;
            const std::size_t first =  // before it: no value; a value that training did not hold
                schema.tables[schema.categorical[c].table].rows_by == RowsBy::appearance
                    ? TabularEncoder::kUnknownRow + 1
                    : TabularEncoder::kMissingRow + 1;
            require<DataError>(row < first || (row < known.size() && !known[row].empty()),
                               "file '{}': it has no text of row {} of table {}, column '{}'",
                               (folder / kTexts).string(), row, schema.categorical[c].table,
                               schema.categorical[c].name);
            if (row >= first) text += known[row];
          }
          values.push_back(field(text, schema.categorical[c].name, !text.empty()));
        }
        add_line(values);
      }
      file.add(std::exchange(lines, {}));
    }
    written += data.size();
  }
  file.finish();
  fmt::print("{} samples in '{}'\n", written, options.to);
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app(
      "CSV and TSV files that a schema describes, and Criteo's click files, to the binary dataset "
      "layout of NVIDIA's DeepLearningExamples, and back (docs/your_own_data.md).",
      "convert_dataset");
  app.require_subcommand(1);
  CLI::App* binary = app.add_subcommand(
      "to-binary", "FILE, CSV or TSV with a schema, else a Criteo click file, to the folder DIR");
  binary->add_option("FILE", options.from)->required();
  binary->add_option("DIR", options.to)->required();
  CLI::Option* schema =
      binary->add_option("--schema", options.schema, "YAML file that says what the columns mean")
          ->option_text("FILE [Criteo's columns]");
  support::limit(binary->add_option("--test-fraction", options.test_fraction,
                                    "Share of the samples, the last ones, for the test"),
                 0.0, 0.9, "SHARE", fmt::format("{}", options.test_fraction));
  binary
      ->add_option("--max-rows", options.max_rows,
                   "Cap of tables that the schema gives no rows; values beyond it share rows")
      ->check(CLI::Range(std::int64_t{3}, std::int64_t{2147483646}))
      ->capture_default_str();
  binary
      ->add_option("--min-count", options.min_count,
                   "Values that training holds less often share row 1 of their table")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 31))
      ->capture_default_str();
  binary
      ->add_option("--threads", options.threads, "That read and encode; of a compressed file, one")
      ->check(CLI::Range(1, 256))
      ->option_text("T [as many as the machine has]")
      ->needs(schema);
  binary->add_flag("--skip-bad-lines", options.skip_bad_lines, "Leave bad lines out");
  CLI::App* csv = app.add_subcommand(
      "to-csv",
      "The folder DIR, made by to-binary with a schema, to FILE. Unknown texts come back empty, "
      "numbers nearly, "
      "of texts that share a row the first, empty numbers as what they counted as");
  CLI::App* tsv = app.add_subcommand(
      "to-tsv",
      "The folder DIR, of Criteo's shape, to the click file FILE. Values come back where DIR holds "
      "criteo.safetensors, else rows; rare values as 1; integers nearly");
  for (CLI::App* command : {csv, tsv}) {
    command->add_option("DIR", options.from)->required();
    command->add_option("FILE", options.to)->required();
  }
  for (CLI::App* command : {binary, csv, tsv})
    for (CLI::Option* path :
         command->get_options([](const CLI::Option* option) { return option->get_positional(); }))
      path->check([](const std::string& text) {
        return std::string(text.empty() ? "the name is empty" : "");
      });
  if (!support::parse(app, argc, argv)) return 0;
  if (*csv)
    to_csv(options);
  else if (*tsv)
    convert::binary_to_criteo(options);
  else
    options.schema.empty() ? convert::criteo_to_binary(options) : to_binary(options);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return support::run_program("convert_dataset", "convert on a machine with more",
                              [&] { return run(argc, argv); });
}
