// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "recorded_ids.hpp"

#include "../support/parquet.hpp"

#include <tessera/core/error.hpp>
#include <tessera/io/mapped_file.hpp>
#include <tessera/io/npy_header.hpp>
#include <tessera_data/binary_dataset.hpp>
#include <tessera_data/csv_reader.hpp>
#include <tessera_data/tabular.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <string_view>

namespace plan {
namespace {

using namespace tessera;
namespace fs = std::filesystem;

/// The whole numbers of a .npy file of one dimension.
std::vector<std::int64_t> read_npy(const fs::path& path) {
  const tessera::detail::MappedFile file(path);
  const std::string name = path.string();
  const tessera::detail::NpyHeader header = tessera::detail::parse_npy_header(
      file.bytes().first(std::min<std::size_t>(file.bytes().size(), 65'536)), file.bytes().size(),
      name);
  require<DataError>(header.shape.size() == 1, "file '{}': the array has {} dimensions; give one",
                     name, header.shape.size());
  using tessera::detail::TensorType;
  require<DataError>(header.type == TensorType::i64 || header.type == TensorType::i32,
                     "file '{}': the elements are {}; give int32 or int64", name,
                     tessera::detail::tensor_type_name(header.type));
  const auto count = static_cast<std::size_t>(header.shape[0]);
  std::vector<std::int64_t> values(count);
  const std::byte* const from = file.bytes().data() + header.data_offset;
  if (header.type == TensorType::i64) {
    if (count != 0) std::memcpy(values.data(), from, 8 * count);
  } else {
    std::vector<std::int32_t> narrow(count);
    if (count != 0) std::memcpy(narrow.data(), from, 4 * count);
    std::copy(narrow.begin(), narrow.end(), values.begin());
  }
  return values;
}

void check_rows(const std::vector<std::int64_t>& ids, const TableSpec& table,
                const std::string& file) {
  for (std::size_t i = 0; i < ids.size(); ++i)
    require<DataError>(ids[i] >= 0 && ids[i] < table.rows,
                       "file '{}', element {}: id {} is not in table '{}' of {} rows", file, i,
                       ids[i], table.name, table.rows);
}

FeatureIds read_feature(const fs::path& folder, const std::string& name, const TableSpec& table) {
  const fs::path values = folder / (name + ".values.npy"),
                 offsets = folder / (name + ".offsets.npy");
  require<DataError>(fs::exists(values), "'{}' has no {}.values.npy, for feature '{}' of the model",
                     folder.string(), name, name);
  FeatureIds feature{read_npy(values), {}};
  check_rows(feature.ids, table, values.string());
  const auto count = static_cast<std::int64_t>(feature.ids.size());
  if (!fs::exists(offsets)) {  // one id a sample
    feature.offsets.resize(feature.ids.size() + 1);
    for (std::int64_t i = 0; i <= count; ++i) feature.offsets[static_cast<std::size_t>(i)] = i;
    return feature;
  }
  feature.offsets = read_npy(offsets);
  require<DataError>(!feature.offsets.empty() && feature.offsets.front() == 0,
                     "file '{}', element 0: offsets begin with 0", offsets.string());
  for (std::size_t i = 1; i < feature.offsets.size(); ++i)
    require<DataError>(feature.offsets[i] >= feature.offsets[i - 1],
                       "file '{}', element {}: {} after {}; offsets never fall", offsets.string(),
                       i, feature.offsets[i], feature.offsets[i - 1]);
  require<DataError>(feature.offsets.back() == count,
                     "file '{}', element {}: the offsets end at {}, but '{}' has {} ids",
                     offsets.string(), feature.offsets.size() - 1, feature.offsets.back(),
                     values.string(), count);
  return feature;
}

std::vector<FeatureIds> read_folder(const fs::path& folder,
                                    const std::vector<FeatureSpec>& features,
                                    const std::vector<TableSpec>& tables,
                                    const std::vector<int>& feature_table) {
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    for (const std::string_view end : {".values.npy", ".offsets.npy"})
      if (name.ends_with(end)) found.push_back(name.substr(0, name.size() - end.size()));
  }
  std::sort(found.begin(), found.end());
  for (const std::string& name : found)
    require<DataError>(std::any_of(features.begin(), features.end(),
                                   [&](const FeatureSpec& f) { return f.name == name; }),
                       "'{}' has ids of '{}', which is no feature of the model", folder.string(),
                       name);
  std::vector<FeatureIds> all;
  for (std::size_t f = 0; f < features.size(); ++f)
    all.push_back(read_feature(folder, std::string(features[f].name),
                               tables[static_cast<std::size_t>(feature_table[f])]));
  return all;
}

/// The training samples of a folder as NVIDIA's DeepLearningExamples and convert_dataset write it.
std::vector<FeatureIds> read_dataset(const fs::path& folder,
                                     const std::vector<FeatureSpec>& features,
                                     const std::vector<TableSpec>& tables,
                                     const std::vector<int>& feature_table) {
  const BinaryDataset data(folder, tessera::read_feature_spec(folder), "train");
  ClickBatch<std::int64_t> all;
  data.read(0, data.size(), all);
  const KeyedJagged<std::int64_t> keyed = all.keyed();
  std::vector<FeatureIds> found;
  for (std::size_t f = 0; f < features.size(); ++f) {
    const auto at = std::find(data.names().begin(), data.names().end(), features[f].name);
    require<DataError>(at != data.names().end(), "'{}' has no feature '{}' of the model",
                       folder.string(), features[f].name);
    const std::int64_t k = at - data.names().begin();
    FeatureIds& feature = found.emplace_back();
    const std::int64_t begin = keyed.begin(k);
    feature.ids.assign(all.ids.begin() + begin, all.ids.begin() + keyed.end(k));
    for (std::int64_t s = 0; s < data.size(); ++s)
      feature.offsets.push_back(keyed.bag_begin(k, s) - begin);
    feature.offsets.push_back(keyed.end(k) - begin);
    check_rows(feature.ids, tables[static_cast<std::size_t>(feature_table[f])],
               fmt::format("{}, feature '{}'", folder.string(), features[f].name));
  }
  return found;
}

/// A header of features' names, then a line a sample; ids of one bag with | between.
std::vector<FeatureIds> read_lines(const fs::path& path, const std::vector<FeatureSpec>& features,
                                   const std::vector<TableSpec>& tables,
                                   const std::vector<int>& feature_table) {
  std::string plain = path.string();
  for (const std::string_view end : {".gz", ".zst"})
    if (plain.ends_with(end)) plain.resize(plain.size() - end.size());
  CsvReaderOptions options;
  options.separator = plain.ends_with(".tsv") ? "\t" : ",";
  std::vector<WantedColumn> wanted;
  for (const FeatureSpec& feature : features) wanted.push_back({std::string(feature.name), '|'});
  CsvReader reader = open_csv(path, wanted, options, support::open_records());
  const std::string where =
      fmt::format("file '{}'{}", path.string(), reader.rows() ? "" : ", line 1");
  std::vector<std::size_t> places;
  {
    const std::span<const std::string_view> header = reader.header();
    for (const FeatureSpec& feature : features)
      places.push_back(column_place(header, feature.name, where, "the model"));
    for (std::size_t c = 0; c < header.size(); ++c)
      require<DataError>(std::find(places.begin(), places.end(), c) != places.end(),
                         "{}: column '{}' is no feature of the model", where, header[c]);
  }
  std::vector<FeatureIds> all(features.size());
  for (FeatureIds& feature : all) feature.offsets.push_back(0);
  std::int64_t line = reader.line();
  for (std::span<const std::string_view> fields = reader.next(); !fields.empty();
       fields = reader.next()) {
    // readers pass over empty lines, which with one column look like samples without ids
    require<DataError>(places.size() > 1 || reader.rows() || reader.line() == line + 1,
                       "{}: there is an empty line before it; write \"\" for a sample without ids",
                       reader.where());
    line = reader.line();
    require<DataError>(reader.field_count() == fields.size() && fields.size() == places.size(),
                       "{}: {}", reader.where(), reader.wrong_field_count());
    for (std::size_t f = 0; f < features.size(); ++f) {
      std::string_view text = fields[places[f]];
      const TableSpec& table = tables[static_cast<std::size_t>(feature_table[f])];
      while (!text.empty()) {
        const std::size_t end = std::min(text.find('|'), text.size());
        std::int64_t id = 0;
        const auto [rest, error] = std::from_chars(text.data(), text.data() + end, id);
        require<DataError>(error == std::errc() && rest == text.data() + end,
                           "{}: '{}' of feature '{}' is no id; ids are row numbers, "
                           "with | between those of one sample",
                           reader.where(), text.substr(0, end), features[f].name);
        require<DataError>(id >= 0 && id < table.rows,
                           "{}: id {} of feature '{}' is not in table '{}' of {} "
                           "rows",
                           reader.where(), id, features[f].name, table.name, table.rows);
        all[f].ids.push_back(id);
        text.remove_prefix(std::min(end + 1, text.size()));
      }
      all[f].offsets.push_back(static_cast<std::int64_t>(all[f].ids.size()));
    }
  }
  return all;
}

}  // namespace

std::vector<FeatureIds> read_ids(const std::string& path, const char* option,
                                 const std::vector<FeatureSpec>& features,
                                 const std::vector<TableSpec>& tables,
                                 const std::vector<int>& feature_table) {
  require<DataError>(fs::exists(path), "{}: there is no '{}'", option, path);
  const auto read = !fs::is_directory(path)                            ? read_lines
                    : fs::exists(fs::path(path) / "feature_spec.yaml") ? read_dataset
                                                                       : read_folder;
  std::vector<FeatureIds> all = read(path, features, tables, feature_table);
  for (std::size_t f = 1; f < all.size(); ++f)
    require<DataError>(all[f].samples() == all[0].samples(),
                       "'{}': feature '{}' has {} samples, '{}' {}; all must have as many", path,
                       features[f].name, all[f].samples(), features[0].name, all[0].samples());
  return all;
}

}  // namespace plan
