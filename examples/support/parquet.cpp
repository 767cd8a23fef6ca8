// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "parquet.hpp"

#include <tessera/core/error.hpp>
#include <tessera/io/regular_file.hpp>
#include <tessera/io/text.hpp>
#include <tessera_data/criteo.hpp>

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>
#include <arrow/util/float16.h>
#include <fmt/format.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/arrow/writer.h>
#include <parquet/properties.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <iterator>
#include <utility>

namespace support {
namespace {

using tessera::DataError;
using tessera::RecordSource;
using tessera::WantedColumn;

constexpr std::int64_t kRowsAtATime = 4096;
constexpr std::int64_t kRowGroup = 1 << 16;  // of files that are written

[[noreturn]] void fail(const std::string& file, const std::string& what) {
  throw DataError(
      fmt::format("file '{}': {}; is it damaged, or not written to its end?", file, what));
}

/// Calls f, which may fail in either of Arrow's ways.
template <class F>
auto checked(const std::string& file, const F& f) {
  auto result = [&] {
    try {
      return f();
    } catch (const std::exception& error) {
      fail(file, error.what());
    }
  }();
  if constexpr (requires { result.status(); }) {
    if (!result.ok()) fail(file, result.status().ToString());
    return std::move(result).ValueUnsafe();
  } else {
    if (!result.ok()) fail(file, result.ToString());
  }
}

bool is_list(const arrow::DataType& type) {
  return type.id() == arrow::Type::LIST || type.id() == arrow::Type::LARGE_LIST ||
         type.id() == arrow::Type::FIXED_SIZE_LIST;
}

/// Whether `append` knows the type of a single value.
bool is_value(const arrow::DataType& type) {
  using arrow::Type;
  if (type.id() == Type::DICTIONARY)
    return is_value(*static_cast<const arrow::DictionaryType&>(type).value_type());
  if (type.id() == Type::EXTENSION)
    return is_value(*static_cast<const arrow::ExtensionType&>(type).storage_type());
  switch (type.id()) {
    case Type::INTERVAL_MONTHS:
    case Type::INTERVAL_DAY_TIME:
    case Type::INTERVAL_MONTH_DAY_NANO:
    case Type::RUN_END_ENCODED:
      return false;
    default:
      return !arrow::is_nested(type.id());
  }
}

/// Appends a number as its shortest text that reads as the same; nothing for NaN.
template <class T>
void append_number(T x, std::string& text) {
  if (!std::isnan(x)) fmt::format_to(std::back_inserter(text), "{}", x);
}

template <class Array>
void append_whole(const arrow::Array& array, std::int64_t i, std::string& text) {
  const fmt::format_int digits(static_cast<const Array&>(array).Value(i));
  text.append(digits.data(), digits.size());
}

template <class Array>
void append_view(const arrow::Array& array, std::int64_t i, std::string& text) {
  text += static_cast<const Array&>(array).GetView(i);
}

/// Appends the text of one value, of a type that `is_value`.
void append(const arrow::Array& array, std::int64_t i, std::string& text) {
  using arrow::Type;
  if (array.IsNull(i)) return;
  switch (array.type_id()) {
    case Type::BOOL:
      text += static_cast<const arrow::BooleanArray&>(array).Value(i) ? '1' : '0';
      return;
    case Type::INT8:
      return append_whole<arrow::Int8Array>(array, i, text);
    case Type::INT16:
      return append_whole<arrow::Int16Array>(array, i, text);
    case Type::INT32:
      return append_whole<arrow::Int32Array>(array, i, text);
    case Type::INT64:
      return append_whole<arrow::Int64Array>(array, i, text);
    case Type::UINT8:
      return append_whole<arrow::UInt8Array>(array, i, text);
    case Type::UINT16:
      return append_whole<arrow::UInt16Array>(array, i, text);
    case Type::UINT32:
      return append_whole<arrow::UInt32Array>(array, i, text);
    case Type::UINT64:
      return append_whole<arrow::UInt64Array>(array, i, text);
    case Type::DATE32:
      return append_whole<arrow::Date32Array>(array, i, text);
    case Type::DATE64:
      return append_whole<arrow::Date64Array>(array, i, text);
    case Type::TIME32:
      return append_whole<arrow::Time32Array>(array, i, text);
    case Type::TIME64:
      return append_whole<arrow::Time64Array>(array, i, text);
    case Type::TIMESTAMP:
      return append_whole<arrow::TimestampArray>(array, i, text);
    case Type::DURATION:
      return append_whole<arrow::DurationArray>(array, i, text);
    case Type::HALF_FLOAT: {
      const auto bits = static_cast<const arrow::HalfFloatArray&>(array).Value(i);
      return append_number(arrow::util::Float16::FromBits(bits).ToFloat(), text);
    }
    case Type::FLOAT:
      return append_number(static_cast<const arrow::FloatArray&>(array).Value(i), text);
    case Type::DOUBLE:
      return append_number(static_cast<const arrow::DoubleArray&>(array).Value(i), text);
    case Type::STRING:
      return append_view<arrow::StringArray>(array, i, text);
    case Type::BINARY:
      return append_view<arrow::BinaryArray>(array, i, text);
    case Type::LARGE_STRING:
      return append_view<arrow::LargeStringArray>(array, i, text);
    case Type::LARGE_BINARY:
      return append_view<arrow::LargeBinaryArray>(array, i, text);
    case Type::STRING_VIEW:
      return append_view<arrow::StringViewArray>(array, i, text);
    case Type::BINARY_VIEW:
      return append_view<arrow::BinaryViewArray>(array, i, text);
    case Type::FIXED_SIZE_BINARY:
      return append_view<arrow::FixedSizeBinaryArray>(array, i, text);
    case Type::DECIMAL128:
      text += static_cast<const arrow::Decimal128Array&>(array).FormatValue(i);
      return;
    case Type::DECIMAL256:
      text += static_cast<const arrow::Decimal256Array&>(array).FormatValue(i);
      return;
    case Type::DICTIONARY: {
      const auto& words = static_cast<const arrow::DictionaryArray&>(array);
      return append(*words.dictionary(), words.GetValueIndex(i), text);
    }
    case Type::EXTENSION:
      return append(*static_cast<const arrow::ExtensionArray&>(array).storage(), i, text);
    default:  // nulls alone
      return;
  }
}

/// The entries of list i: an array, and where in it they are.
struct Entries {
  std::shared_ptr<arrow::Array> values;
  std::int64_t begin, end;
};
Entries entries_of(const arrow::Array& array, std::int64_t i) {
  const auto of = [&](const auto& list) -> Entries {
    return {list.values(), list.value_offset(i), list.value_offset(i) + list.value_length(i)};
  };
  if (array.type_id() == arrow::Type::LIST) return of(static_cast<const arrow::ListArray&>(array));
  if (array.type_id() == arrow::Type::LARGE_LIST)
    return of(static_cast<const arrow::LargeListArray&>(array));
  return of(static_cast<const arrow::FixedSizeListArray&>(array));
}

/// A wanted column of the rows that are in memory.
struct Column {
  std::string name;
  std::size_t place = 0;  ///< among all of the file
  char list = 0;
  std::string text = {};               ///< of all rows
  std::vector<std::size_t> ends = {};  ///< of each row's part
};

/// Batches of a file's wanted columns, in their order.
using Batches = std::function<std::shared_ptr<arrow::RecordBatch>()>;

class Rows {
 public:
  Rows(std::string file, Batches batches, std::vector<Column> columns, std::size_t fields,
       std::int64_t first)
      : file_(std::move(file)),
        batches_(std::move(batches)),
        columns_(std::move(columns)),
        fields_(fields),
        row_(first) {}

  /// Passes over rows.
  void skip(std::int64_t rows) { skip_ = rows; }

  std::span<const std::string_view> next() {
    while (at_ == count_)
      if (!load()) return {};
    for (const Column& column : columns_) {
      const std::size_t begin = at_ == 0 ? 0 : column.ends[at_ - 1];
      fields_[column.place] = std::string_view(column.text).substr(begin, column.ends[at_] - begin);
    }
    ++at_;
    return fields_;
  }

 private:
  bool load() {
    while (batch_ == nullptr || from_ == batch_->num_rows()) {
      batch_ = batches_();
      if (batch_ == nullptr) return false;
      // in a damaged file, texts and lists may begin outside of it
      checked(file_, [&] { return batch_->ValidateFull(); });
      from_ = std::min(skip_, batch_->num_rows());
      skip_ -= from_;
    }
    const std::int64_t rows = std::min(kRowsAtATime, batch_->num_rows() - from_);
    for (std::size_t c = 0; c < columns_.size(); ++c)
      to_text(*batch_->column(static_cast<int>(c)), rows, columns_[c]);
    from_ += rows;
    row_ += static_cast<std::int64_t>(count_);
    count_ = static_cast<std::size_t>(rows);
    at_ = 0;
    return true;
  }

  void to_text(const arrow::Array& array, std::int64_t rows, Column& column) const {
    column.text.clear(), column.ends.clear();
    const bool list = is_list(*array.type());
    for (std::int64_t i = from_; i < from_ + rows; ++i) {
      if (!list)
        append(array, i, column.text);
      else if (!array.IsNull(i))
        append_list(entries_of(array, i), row_ + static_cast<std::int64_t>(count_) + i - from_,
                    column);
      column.ends.push_back(column.text.size());
    }
  }
  void append_list(const Entries& entries, std::int64_t row, Column& column) const {
    for (std::int64_t e = entries.begin; e < entries.end; ++e) {
      const std::size_t begin = column.text.size();
      append(*entries.values, e, column.text);
      const std::string_view entry = std::string_view(column.text).substr(begin);
      tessera::require<DataError>(
          entry.find(column.list) == std::string_view::npos,
          "file '{}', row {}, column '{}': the entry {} holds '{}', which separates the entries of "
          "this column; choose another 'list' (an option: --list-separator)",
          file_, row + 1, column.name, tessera::detail::quoted(entry), column.list);
      column.text += column.list;
    }
  }

  std::string file_;
  Batches batches_;
  std::vector<Column> columns_;
  std::vector<std::string_view> fields_;
  std::shared_ptr<arrow::RecordBatch> batch_;
  std::int64_t from_ = 0, skip_ = 0;  ///< rows of the batch that are done; to pass over
  std::int64_t row_;                  ///< of the first in memory
  std::size_t at_ = 0, count_ = 0;
};

/// The columns that are wanted, by the file's names and types.
std::vector<Column> choose(const std::string& file, const arrow::Schema& schema,
                           std::span<const WantedColumn> wanted) {
  std::vector<Column> chosen;
  for (int f = 0; f < schema.num_fields(); ++f) {
    const arrow::Field& field = *schema.field(f);
    const auto found = std::find_if(wanted.begin(), wanted.end(), [&](const WantedColumn& column) {
      return tessera::detail::names_column(field.name(), column.name);
    });
    if (found == wanted.end()) continue;
    const bool list = is_list(*field.type());
    tessera::require<DataError>(
        is_value(list ? *field.type()->field(0)->type() : *field.type()),
        "file '{}', column '{}': the type {} is not read; write a number, a text, a date or a list "
        "of such",
        file, field.name(), field.type()->ToString());
    tessera::require<DataError>(
        !list || found->list != 0,
        "file '{}', column '{}': the type {} is a list, where a single value is needed; if it is a "
        "categorical column, give it 'list', as in 'list: \"|\"'",
        file, field.name(), field.type()->ToString());
    chosen.push_back({field.name(), static_cast<std::size_t>(f), found->list});
  }
  return chosen;
}

void add_leaves(const parquet::arrow::SchemaField& field, std::vector<int>& leaves) {
  if (field.is_leaf()) leaves.push_back(field.column_index);
  for (const auto& child : field.children) add_leaves(child, leaves);
}

struct Opened {
  std::shared_ptr<arrow::Schema> schema;
  std::vector<Column> columns;
  Batches batches;
  std::int64_t passed = 0;  ///< rows before the first batch's
};

Opened open_parquet(const std::string& file, std::span<const WantedColumn> wanted,
                    std::int64_t first) {
  Opened opened;
  parquet::ReaderProperties pages = parquet::default_reader_properties();
  pages.enable_buffered_stream();  // a page at a time, not a row group's column
  parquet::ArrowReaderProperties rows(false);
  rows.set_batch_size(kRowsAtATime);
  rows.set_pre_buffer(false);
  parquet::arrow::FileReaderBuilder builder;
  checked(file, [&] { return builder.OpenFile(file, false, pages); });
  builder.properties(rows);
  std::shared_ptr<parquet::arrow::FileReader> reader =
      checked(file, [&] { return builder.Build(); });
  checked(file, [&] { return reader->GetSchema(&opened.schema); });
  opened.columns = choose(file, *opened.schema, wanted);
  std::vector<int> groups, leaves;
  const auto about = reader->parquet_reader()->metadata();
  for (int g = 0; g < about->num_row_groups(); ++g) {
    const std::int64_t size = about->RowGroup(g)->num_rows();
    if (groups.empty() && opened.passed + size <= first)
      opened.passed += size;
    else
      groups.push_back(g);
  }
  for (const Column& column : opened.columns)
    add_leaves(reader->manifest().schema_fields[column.place], leaves);
  std::shared_ptr<arrow::RecordBatchReader> batches =
      checked(file, [&] { return reader->GetRecordBatchReader(groups, leaves); });
  opened.batches = [file, reader, batches] {
    return checked(file, [&] { return batches->Next(); });
  };
  return opened;
}

Opened open_arrow(const std::string& file, std::span<const WantedColumn> wanted) {
  Opened opened;
  const auto mapped = checked(
      file, [&] { return arrow::io::MemoryMappedFile::Open(file, arrow::io::FileMode::READ); });
  const auto open = [&](const std::vector<int>& fields) {
    arrow::ipc::IpcReadOptions options = arrow::ipc::IpcReadOptions::Defaults();
    options.included_fields = fields;
    options.use_threads = false;
    return checked(file, [&] { return arrow::ipc::RecordBatchFileReader::Open(mapped, options); });
  };
  opened.schema = open({})->schema();
  opened.columns = choose(file, *opened.schema, wanted);
  std::vector<int> fields;
  for (const Column& column : opened.columns) fields.push_back(static_cast<int>(column.place));
  opened.batches = [file, reader = open(fields),
                    next = 0]() mutable -> std::shared_ptr<arrow::RecordBatch> {
    if (next == reader->num_record_batches()) return nullptr;
    return checked(file, [&] { return reader->ReadRecordBatch(next++); });
  };
  return opened;
}

RecordSource open_file(const std::filesystem::path& path, std::span<const WantedColumn> wanted,
                       std::int64_t first) {
  std::array<char, 16> begin{};
  const std::size_t bytes = tessera::detail::RegularFile(path).read(begin.data(), begin.size(), 0);
  const std::string_view kind = tessera::detail::file_kind({begin.data(), bytes}).format;
  if (kind != "Parquet" && kind != "Arrow") return {};
  const std::string file = path.string();
  Opened opened = kind == "Parquet" ? open_parquet(file, wanted, first) : open_arrow(file, wanted);
  RecordSource source;
  for (const auto& field : opened.schema->fields()) source.columns.push_back(field->name());
  const auto rows = std::make_shared<Rows>(file, std::move(opened.batches),
                                           std::move(opened.columns), source.columns.size(), first);
  rows->skip(first - opened.passed);
  source.next = [rows] { return rows->next(); };
  return source;
}

/// A stream of Arrow's over a function.
class Sink final : public arrow::io::OutputStream {
 public:
  explicit Sink(std::function<void(std::string_view)> write) : write_(std::move(write)) {}
  arrow::Status Write(const void* data, std::int64_t bytes) override {
    write_({static_cast<const char*>(data), static_cast<std::size_t>(bytes)});
    at_ += bytes;
    return arrow::Status::OK();
  }
  arrow::Status Close() override {
    closed_ = true;
    return arrow::Status::OK();
  }
  arrow::Result<std::int64_t> Tell() const override { return at_; }
  bool closed() const override { return closed_; }

 private:
  std::function<void(std::string_view)> write_;
  std::int64_t at_ = 0;
  bool closed_ = false;
};

/// Throws for what cannot fail but for memory.
void check(const arrow::Status& status) {
  tessera::require(status.ok(), "Apache Arrow: {}", status.ToString());
}

}  // namespace

tessera::OpenRecords open_records() { return open_file; }

struct ParquetWriter::Content {
  std::vector<arrow::StringBuilder> texts;
  arrow::FloatBuilder numbers;
  std::shared_ptr<arrow::Schema> schema;
  std::unique_ptr<parquet::arrow::FileWriter> writer;

  void write() {
    std::vector<std::shared_ptr<arrow::Array>> columns(texts.size() + 1);
    for (std::size_t c = 0; c < texts.size(); ++c) check(texts[c].Finish(&columns[c]));
    check(numbers.Finish(&columns.back()));
    const std::int64_t rows = columns.back()->length();
    check(writer->WriteTable(*arrow::Table::Make(schema, columns, rows), kRowGroup));
  }
};

ParquetWriter::ParquetWriter(std::span<const std::string> texts, const std::string& number,
                             std::function<void(std::string_view)> write)
    : content_(std::make_unique<Content>()) {
  arrow::FieldVector fields;
  for (const std::string& name : texts) fields.push_back(arrow::field(name, arrow::utf8()));
  fields.push_back(arrow::field(number, arrow::float32()));
  content_->texts.resize(texts.size());
  content_->schema = arrow::schema(std::move(fields));
  auto writer = parquet::arrow::FileWriter::Open(
      *content_->schema, arrow::default_memory_pool(), std::make_shared<Sink>(std::move(write)),
      parquet::WriterProperties::Builder().compression(parquet::Compression::SNAPPY)->build());
  check(writer.status());
  content_->writer = std::move(writer).ValueUnsafe();
}

ParquetWriter::~ParquetWriter() = default;

void ParquetWriter::add(std::span<const std::string> texts, float number) {
  for (std::size_t c = 0; c < texts.size(); ++c) check(content_->texts[c].Append(texts[c]));
  check(content_->numbers.Append(number));
  if (content_->numbers.length() == kRowGroup) content_->write();
}

void ParquetWriter::finish() {
  if (content_->numbers.length() > 0) content_->write();
  check(content_->writer->Close());
}

}  // namespace support
