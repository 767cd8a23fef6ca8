// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "criteo.hpp"

#include "../support/dataset_files.hpp"
#include "../support/files.hpp"
#include "../support/options.hpp"
#include "new_folder.hpp"

#include <tessera/io/safetensors.hpp>
#include <tessera_data/binary_dataset.hpp>
#include <tessera_data/criteo.hpp>
#include <tessera_data/criteo_encoder.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace convert {
namespace {

using namespace tessera;

constexpr std::size_t kBlock = 4096;
constexpr const char* kOriginals = support::kCriteoFile;

void write_originals(const std::filesystem::path& path, const CriteoEncoder& encoder) {
  SafetensorsWriter writer;
  std::vector<std::vector<std::int64_t>> values;
  for (int f = 0; f < kCriteoCategories; ++f) {
    const std::vector<std::uint32_t> of_rows = encoder.values(f);
    values.emplace_back(of_rows.begin(), of_rows.end());
  }
  for (int f = 0; f < kCriteoCategories; ++f)
    writer.add<std::int64_t>(fmt::format("cat_{}", f),
                             {std::ssize(values[static_cast<std::size_t>(f)])},
                             values[static_cast<std::size_t>(f)]);
  writer.add<float>("shift", {kCriteoIntegers}, encoder.shift());
  writer.add<float>("scale", {kCriteoIntegers}, encoder.scale());
  writer.write(path);
}

/// Turns rows and numbers back into what they were made from; without the file of originals, into
/// the rows and whole numbers.
class Decoder {
 public:
  explicit Decoder(const std::filesystem::path& path) {
    scale_.fill(1.0f);
    if (!std::filesystem::exists(path)) return;
    const SafetensorsReader reader(path);
    for (int f = 0; f < kCriteoCategories; ++f)
      values_.push_back(reader.read<std::int64_t>(fmt::format("cat_{}", f)));
    for (const auto& [name, array] : {std::pair("shift", &shift_), std::pair("scale", &scale_)}) {
      const std::vector<float> numbers = reader.read<float>(name);
      require<DataError>(numbers.size() == array->size(),
                         "file '{}': tensor '{}' must have {} numbers", reader.name(), name,
                         array->size());
      std::copy(numbers.begin(), numbers.end(), array->begin());
    }
  }

  CriteoRecord record(const ClickBatch<std::int32_t>& batch, std::int64_t sample) const {
    CriteoRecord record;
    record.label = batch.labels[static_cast<std::size_t>(sample)] != 0.0f;
    for (int i = 0; i < kCriteoIntegers; ++i) {
      const double log = batch.dense[static_cast<std::size_t>(sample * kCriteoIntegers + i)] /
                             static_cast<double>(scale_[i]) +
                         shift_[i];
      // A missing integer lies at -1.
      record.integers[i] = log < -0.5 ? CriteoRecord::kMissing
                                      : static_cast<std::int32_t>(std::clamp(
                                            std::round(std::exp(log) - 1), 0.0, 2147483647.0));
    }
    for (int f = 0; f < kCriteoCategories; ++f) {
      const auto row =
          static_cast<std::size_t>(batch.ids[static_cast<std::size_t>(f * batch.size + sample)]);
      if (row == CriteoEncoder::kMissingRow) {
        record.missing_categories |= 1u << f;
      } else if (row == CriteoEncoder::kRareRow || values_.empty()) {
        record.categories[f] = static_cast<std::uint32_t>(row);
      } else {
        const std::vector<std::int64_t>& values = values_[static_cast<std::size_t>(f)];
        require<DataError>(row < values.size(), "'{}' has no value for row {} of category {}",
                           kOriginals, row, f);
        record.categories[f] = static_cast<std::uint32_t>(values[row]);
      }
    }
    return record;
  }

 private:
  std::vector<std::vector<std::int64_t>> values_;
  std::array<float, kCriteoIntegers> shift_{}, scale_{};
};

}  // namespace

void criteo_to_binary(const Options& options) {
  const std::filesystem::path to = options.to;
  support::check_paths({{"FILE", options.from}}, {{"DIR", to / kOriginals}});
  CriteoPasses file(options.from, options.skip_bad_lines ? BadLines::skip : BadLines::fatal);
  file.read([](std::span<const CriteoRecord>) {});
  const std::int64_t lines = file.records();
  const std::int64_t train =
      lines - std::llround(static_cast<double>(lines) * options.test_fraction);
  require<DataError>(train > 0, "file '{}' holds no clicks to train on", options.from);
  CriteoStatistics statistics;
  std::int64_t left = train;
  file.read([&](std::span<const CriteoRecord> records) {
    const std::int64_t count = std::min(left, std::ssize(records));
    statistics.add(records.first(static_cast<std::size_t>(count)));
    left -= count;
  });
  const CriteoEncoder encoder({.max_rows = options.max_rows, .min_count = options.min_count},
                              statistics);
  NewFolder made(to);
  BinaryDatasetWriter writer(made.path(), kCriteoIntegers,
                             {encoder.rows().begin(), encoder.rows().end()});
  ClickBatch<std::int32_t> batch;
  left = train;
  file.read([&](std::span<const CriteoRecord> records) {
    const auto count = static_cast<std::size_t>(std::min(left, std::ssize(records)));
    for (const auto& [part, of_part] :
         {std::pair("train", records.first(count)), std::pair("test", records.subspan(count))}) {
      encoder.encode(of_part, batch);
      writer.add(part, batch);
    }
    left -= static_cast<std::int64_t>(count);
  });
  write_originals(made.path() / kOriginals, encoder);
  writer.finish();
  made.finish();
  fmt::print("{} training and {} test samples in '{}'\n", train, lines - train, options.to);
}

void binary_to_criteo(const Options& options) {
  support::check_paths({{"DIR", options.from}}, {{"FILE", options.to}});
  const std::filesystem::path folder = options.from;
  const DatasetSpec spec = read_feature_spec(folder);
  const Decoder decoder(folder / kOriginals);
  support::ResultFile file(options.to, "FILE");
  ClickBatch<std::int32_t> batch;
  std::int64_t written = 0;
  for (const char* part : {"train", "test"}) {
    const BinaryDataset data(folder, spec, part);
    require<DataError>(
        std::ssize(data.rows()) == kCriteoCategories && data.dense_columns() == kCriteoIntegers,
        "'{}' has {} categories and {} numbers; Criteo's have {} and {}", options.from,
        data.rows().size(), data.dense_columns(), kCriteoCategories, kCriteoIntegers);
    for (std::size_t f = 0; f < data.hotness().size(); ++f)
      require<DataError>(data.hotness()[f] == 1,
                         "'{}': feature '{}' has {} ids per sample; Criteo's have one",
                         options.from, data.names()[f], data.hotness()[f]);
    for (std::int64_t first = 0; first < data.size(); first += kBlock) {
      data.read(first, std::min<std::int64_t>(kBlock, data.size() - first), batch);
      std::string text;
      for (std::int64_t s = 0; s < batch.size; ++s)
        append_criteo_line(text, decoder.record(batch, s));
      file.add(text);
    }
    written += data.size();
  }
  file.finish();
  fmt::print("{} lines in '{}'\n", written, options.to);
}

}  // namespace convert
