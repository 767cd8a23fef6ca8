// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "ids.hpp"

#include <tessera/core/error.hpp>
#include <tessera/io/mapped_file.hpp>
#include <tessera/io/npy_header.hpp>
#include <tessera/planner/power_law.hpp>
#include <tessera_data/compressed_file.hpp>
#include <tessera_data/csv_reader.hpp>
#include <tessera_data/synthetic.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <unordered_set>

namespace lab {
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

/// A header of features' names, then a line a sample; ids of one bag with | between.
std::vector<FeatureIds> read_lines(const fs::path& path, const std::vector<FeatureSpec>& features,
                                   const std::vector<TableSpec>& tables,
                                   const std::vector<int>& feature_table) {
  std::string plain = path.string();
  for (const std::string_view end : {".gz", ".zst"})
    if (plain.ends_with(end)) plain.resize(plain.size() - end.size());
  CsvReaderOptions options;
  options.separator = plain.ends_with(".tsv") ? "\t" : ",";
  CsvReader reader(open_bytes(path), path.string(), options);
  const std::string where = fmt::format("file '{}', line 1", path.string());
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
  for (std::span<const std::string_view> fields = reader.next(); !fields.empty();
       fields = reader.next()) {
    require<DataError>(reader.field_count() == fields.size() && fields.size() == places.size(),
                       "file '{}', line {}: {}", path.string(), reader.line(),
                       reader.wrong_field_count());
    for (std::size_t f = 0; f < features.size(); ++f) {
      std::string_view text = fields[places[f]];
      const TableSpec& table = tables[static_cast<std::size_t>(feature_table[f])];
      while (!text.empty()) {
        const std::size_t end = std::min(text.find('|'), text.size());
        std::int64_t id = 0;
        const auto [rest, error] = std::from_chars(text.data(), text.data() + end, id);
        require<DataError>(
            error == std::errc() && rest == text.data() + end,
            "file '{}', line {}: '{}' of feature '{}' is no id; ids are row numbers, "
            "with | between those of one sample",
            path.string(), reader.line(), text.substr(0, end), features[f].name);
        require<DataError>(id >= 0 && id < table.rows,
                           "file '{}', line {}: id {} of feature '{}' is not in table '{}' of {} "
                           "rows",
                           path.string(), reader.line(), id, features[f].name, table.name,
                           table.rows);
        all[f].ids.push_back(id);
        text.remove_prefix(std::min(end + 1, text.size()));
      }
      all[f].offsets.push_back(static_cast<std::int64_t>(all[f].ids.size()));
    }
  }
  return all;
}

}  // namespace

std::vector<FeatureIds> read_ids(const std::string& path, const std::vector<FeatureSpec>& features,
                                 const std::vector<TableSpec>& tables,
                                 const std::vector<int>& feature_table) {
  require<DataError>(fs::exists(path), "--ids: there is no '{}'", path);
  std::vector<FeatureIds> all = fs::is_directory(path)
                                    ? read_folder(path, features, tables, feature_table)
                                    : read_lines(path, features, tables, feature_table);
  for (std::size_t f = 1; f < all.size(); ++f)
    require<DataError>(all[f].samples() == all[0].samples(),
                       "'{}': feature '{}' has {} samples, '{}' {}; all must have as many", path,
                       features[f].name, all[f].samples(), features[0].name, all[0].samples());
  return all;
}

Batches batches_of(const std::vector<FeatureIds>& features, std::int64_t samples, int most,
                   const std::string& path) {
  const std::int64_t there = features.front().samples();
  require<DataError>(there >= samples,
                     "'{}' has {} samples, fewer than a batch of {}; give --batch {} or less", path,
                     there, samples, there);
  Batches all;
  all.samples = samples;
  const std::int64_t count = std::min<std::int64_t>(most, there / samples);
  bool one_hot = true;  // of all batches, or none
  for (const FeatureIds& feature : features)
    for (std::size_t s = 0; s < static_cast<std::size_t>(count * samples); ++s)
      one_hot = one_hot && feature.offsets[s + 1] - feature.offsets[s] == 1;
  for (std::int64_t b = 0; b < count; ++b) {
    std::vector<std::int64_t>&ids = all.ids.emplace_back(), &offsets = all.offsets.emplace_back();
    if (!one_hot) offsets.push_back(0);
    for (const FeatureIds& feature : features)
      for (std::int64_t s = b * samples; s < (b + 1) * samples; ++s) {
        const auto begin = feature.offsets[static_cast<std::size_t>(s)],
                   end = feature.offsets[static_cast<std::size_t>(s) + 1];
        ids.insert(ids.end(), feature.ids.begin() + begin, feature.ids.begin() + end);
        if (!one_hot) offsets.push_back(static_cast<std::int64_t>(ids.size()));
      }
  }
  all.source = fmt::format("{} ({} samples, {} batches of {})", path, there, count, samples);
  for (std::size_t b = 0; b < all.ids.size(); ++b)
    all.views.push_back(
        {static_cast<std::int64_t>(features.size()), samples, all.ids[b], all.offsets[b], {}});
  return all;
}

Batches draw_batches(const std::vector<FeatureSpec>& features, const std::vector<TableSpec>& tables,
                     const std::vector<int>& feature_table, std::int64_t samples, int count,
                     double skew, bool sorted_ids, std::uint64_t seed) {
  std::vector<SyntheticFeature> drawn;
  for (std::size_t f = 0; f < features.size(); ++f) {
    const TableSpec& table = tables[static_cast<std::size_t>(feature_table[f])];
    const double hotness = features[f].hotness > 0 ? features[f].hotness : table.hotness;
    drawn.push_back({.rows = table.rows,
                     .alpha = table.skew < 0 ? skew : table.skew,
                     .min_hotness = static_cast<std::int32_t>(std::floor(hotness)),
                     .max_hotness = static_cast<std::int32_t>(std::ceil(hotness))});
  }
  const SyntheticClicks clicks(drawn,
                               {.seed = seed, .dense_columns = 0, .scatter_ids = !sorted_ids});
  Batches all;
  all.samples = samples;
  for (std::int64_t b = 0; b < count; ++b) {
    ClickBatch<std::int64_t> batch;
    clicks.generate(b * samples, samples, batch);
    all.ids.emplace_back(batch.ids.begin(), batch.ids.end());
    all.offsets.emplace_back(batch.offsets.begin(), batch.offsets.end());
  }
  for (std::size_t b = 0; b < all.ids.size(); ++b)
    all.views.push_back(
        {static_cast<std::int64_t>(features.size()), samples, all.ids[b], all.offsets[b], {}});
  all.source = fmt::format("drawn by power laws ({} batches of {})", count, samples);
  return all;
}

void count_rows(Batches& batches, std::size_t tables, const std::vector<int>& feature_table) {
  const auto count = static_cast<double>(batches.views.size());
  batches.hotness.assign(feature_table.size(), 0);
  batches.distinct.assign(tables, 0);
  batches.given.assign(tables, 0);
  for (const KeyedJagged<std::int64_t>& batch : batches.views)
    for (std::size_t t = 0; t < tables; ++t) {
      std::unordered_set<std::int64_t> rows;
      for (std::size_t f = 0; f < feature_table.size(); ++f) {
        if (feature_table[f] != static_cast<int>(t)) continue;
        const std::int64_t begin = batch.begin(static_cast<std::int64_t>(f)),
                           end = batch.end(static_cast<std::int64_t>(f));
        rows.insert(batch.ids.begin() + begin, batch.ids.begin() + end);
        batches.given[t] += static_cast<double>(end - begin) / count;
        batches.hotness[f] +=
            static_cast<double>(end - begin) / (count * static_cast<double>(batches.samples));
      }
      batches.distinct[t] += static_cast<double>(rows.size()) / count;
    }
}

double fitted_skew(double ids, double rows, double distinct) {
  double low = 0, high = 4;  // the more skew, the fewer rows
  for (int i = 0; i < 40; ++i) {
    const double middle = (low + high) / 2;
    (tessera::detail::distinct_rows(ids, rows, 0, rows, middle) > distinct ? low : high) = middle;
  }
  return low < 1e-3 ? 0 : low;
}

}  // namespace lab
