// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/io/mapped_file.hpp>
#include <tessera_data/click_batch.hpp>
#include <tessera_data/feature_spec.hpp>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

static_assert(std::endian::native == std::endian::little,
              "binary datasets are little-endian, and are read unchanged");

namespace detail {

inline constexpr float kMostHalf = 65504;  ///< the largest number that float16 has

/// Calls f with a value of the C++ type of an integer type.
template <class F>
void with_integer_type(DatasetType type, F&& f) {
  switch (type) {
    case DatasetType::int8:
      return f(std::int8_t{});
    case DatasetType::int16:
      return f(std::int16_t{});
    case DatasetType::int32:
      return f(std::int32_t{});
    default:
      return f(std::int64_t{});
  }
}

template <class T>
T load(const std::byte* data, std::int64_t index) {
  T value;
  std::memcpy(&value, data + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

}  // namespace detail

/// One part ("train", "test") of a dataset in the layout of NVIDIA's DeepLearningExamples
/// ("split_binary"): a file of ids per categorical feature, one file [samples, numerical features]
/// of float16 or float32, one file of labels, bool. A feature has `hotness` ids per sample, or
/// where it is padded at most so many. The files are mapped, so that a dataset may be larger than
/// memory; they must not shrink meanwhile. Reading is thread-safe.
class BinaryDataset {
 public:
  /// Opens the data. `folder`: what the specification's paths start from. Throws DataError for
  /// files that are missing or disagree about their length. `threads`: OpenMP threads that read a
  /// batch; lists of ids are read by one.
  BinaryDataset(const std::filesystem::path& folder, const DatasetSpec& spec,
                std::string_view source, int threads = 1)
      : threads_(threads) {
    require(threads >= 1, "BinaryDataset: threads ({}) must be at least 1", threads);
    const std::vector<std::string>& categorical = spec.channel("categorical");
    const std::vector<std::string>& numerical = spec.channel("numerical");
    const std::vector<std::string>& labels = spec.channel("label");
    require<DataError>(labels.size() == 1 && spec.feature(labels[0]).type == DatasetType::boolean,
                       "file '{}': the channel 'label' must hold one feature, a bool", spec.name);
    std::map<std::string_view, const DatasetChunk*> chunk_of;
    for (const DatasetChunk& chunk : spec.source(source)) {
      require<DataError>(
          chunk.type == "split_binary" && chunk.files.size() == 1 && !chunk.features.empty(),
          "file '{}', source '{}': a chunk must be of type split_binary (is '{}'), with features "
          "and one file",
          spec.name, source, chunk.type);
      for (const std::string& f : chunk.features) chunk_of[f] = &chunk;
    }
    // All features of a column are together, in this order, in a file of their own.
    const auto open = [&](std::span<const std::string> features) {
      const auto found = chunk_of.find(features[0]);
      require<DataError>(found != chunk_of.end(), "file '{}': source '{}' lacks the feature '{}'",
                         spec.name, source, features[0]);
      const DatasetChunk& chunk = *found->second;
      require<DataError>(
          std::equal(features.begin(), features.end(), chunk.features.begin(),
                     chunk.features.end()),
          "file '{}', source '{}': the file '{}' must hold {} and nothing else, in this order",
          spec.name, source, chunk.files[0],
          features.size() == 1 ? "'" + features[0] + "'" : "all numerical features");
      Column column;
      column.type = spec.feature(features[0]).type;
      column.path = (folder / chunk.files[0]).string();
      column.file = detail::MappedFile(column.path);
      column.data = column.file.bytes().data();
      const std::size_t bytes = column.file.bytes().size(),
                        record = features.size() *
                                 static_cast<std::size_t>(detail::size_of(column.type)) *
                                 static_cast<std::size_t>(spec.feature(features[0]).hotness);
      require<DataError>(bytes % record == 0,
                         "file '{}' has {} bytes, which is no multiple of {} bytes a sample",
                         column.path, bytes, record);
      const auto samples = static_cast<std::int64_t>(bytes / record);
      if (size_ < 0) size_ = samples;
      require<DataError>(samples == size_, "file '{}' holds {} samples, '{}' holds {}", column.path,
                         samples, label_.path, size_);
      return column;
    };
    label_ = open(labels);
    dense_columns_ = static_cast<std::int64_t>(numerical.size());
    if (!numerical.empty()) {
      for (const std::string& f : numerical) {
        const DatasetType type = spec.feature(f).type;
        require<DataError>(
            (type == DatasetType::float16 || type == DatasetType::float32) &&
                type == spec.feature(numerical[0]).type,
            "file '{}': numerical feature '{}' must be float16 or float32, as all the others",
            spec.name, f);
      }
      dense_ = open(numerical);
    }
    for (const std::string& f : categorical) {
      categories_.push_back(open({&f, 1}));
      names_.push_back(f);
      rows_.push_back(spec.feature(f).cardinality);
      hotness_.push_back(spec.feature(f).hotness);
      padded_.push_back(spec.feature(f).padded);
      lists_ |= hotness_.back() != 1 || padded_.back();
    }
  }

  /// Returns the number of samples.
  std::int64_t size() const { return size_; }
  std::int64_t dense_columns() const { return dense_columns_; }
  /// Names of the categorical features, and how many rows their tables need.
  const std::vector<std::string>& names() const { return names_; }
  const std::vector<std::int64_t>& rows() const { return rows_; }
  /// Return the ids per sample of each, and whether they are padded: whether samples may have
  /// fewer.
  const std::vector<std::int64_t>& hotness() const { return hotness_; }
  const std::vector<bool>& padded() const { return padded_; }

  /// Reads samples [first, first + count), without offsets where every feature has one id. Throws
  /// DataError, with file and sample, for an id outside its table, an id behind padding, a label
  /// that is neither 0 nor 1, a number that is not finite; InvalidArgument for samples that are not
  /// there.
  template <IdType Id>
  void read(std::int64_t first, std::int64_t count, ClickBatch<Id>& batch) const {
    require(first >= 0 && count >= 0 && first <= size_ && count <= size_ - first,
            "BinaryDataset: samples [{}, {} + {}) are not among the {} that there are", first,
            first, count, size_);
    fill(count, batch, [first](std::int64_t i) { return first + i; });
  }

  /// Reads these samples, in this order.
  template <IdType Id>
  void gather(std::span<const std::int64_t> samples, ClickBatch<Id>& batch) const {
    for (const std::int64_t s : samples)
      require(s >= 0 && s < size_, "BinaryDataset: sample {} is not among the {} that there are", s,
              size_);
    fill(std::ssize(samples), batch,
         [samples](std::int64_t i) { return samples[static_cast<std::size_t>(i)]; });
  }

 private:
  struct Column {
    std::string path;
    DatasetType type = DatasetType::boolean;
    detail::MappedFile file;
    const std::byte* data = nullptr;
  };

  template <IdType Id, class SampleAt>
  void fill(std::int64_t count, ClickBatch<Id>& batch, const SampleAt& sample_at) const {
    batch.size = count;
    batch.features = static_cast<std::int64_t>(categories_.size());
    batch.dense_columns = dense_columns_;
    batch.labels.resize(static_cast<std::size_t>(count));
    batch.dense.resize(static_cast<std::size_t>(count * dense_columns_));
    batch.ids.clear();
    batch.offsets.clear();
    for (std::size_t f = 0; f < categories_.size(); ++f)
      require(rows_[f] - 1 <= std::numeric_limits<Id>::max(),
              "BinaryDataset: feature '{}': {} rows need 64-bit ids", names_[f], rows_[f]);
    if (!lists_) batch.ids.resize(static_cast<std::size_t>(batch.features * count));
    bool good = true;
#pragma omp parallel for schedule(static) num_threads(threads_) reduction(&& : good)
    for (int part = 0; part < threads_; ++part)
      good = fill_part(count * part / threads_, count * (part + 1) / threads_, batch, sample_at) &&
             good;
    if (!good) explain(batch, sample_at);
    if (!lists_) return;
    batch.offsets.push_back(0);
    for (std::size_t f = 0; f < categories_.size(); ++f)
      detail::with_integer_type(categories_[f].type, [&]<class T>(T) {
        padded_[f] ? fill_padded<T>(f, count, batch, sample_at)
                   : fill_lists<T>(f, count, batch, sample_at);
      });
  }

  /// Fills labels, numbers and single ids of samples [begin, end) of a batch; false if some are
  /// wrong.
  template <IdType Id, class SampleAt>
  bool fill_part(std::int64_t begin, std::int64_t end, ClickBatch<Id>& batch,
                 const SampleAt& sample_at) const {
    bool good = true;
    for (std::int64_t i = begin; i < end; ++i) {
      const auto label = detail::load<std::uint8_t>(label_.data, sample_at(i));
      batch.labels[static_cast<std::size_t>(i)] = label;
      good &= label <= 1;
    }
    float* const dense = batch.dense.data();
    if (dense_.type == DatasetType::float16) good &= fill_dense<Half>(begin, end, dense, sample_at);
    if (dense_.type == DatasetType::float32)
      good &= fill_dense<float>(begin, end, dense, sample_at);
    for (std::size_t f = 0; !lists_ && f < categories_.size(); ++f)
      detail::with_integer_type(categories_[f].type, [&]<class T>(T) {
        Id* const ids = batch.ids.data() + static_cast<std::int64_t>(f) * batch.size;
        const auto rows = static_cast<std::uint64_t>(rows_[f]);
        for (std::int64_t i = begin; i < end; ++i) {
          const std::int64_t id = detail::load<T>(categories_[f].data, sample_at(i));
          good &= static_cast<std::uint64_t>(id) < rows;
          ids[i] = static_cast<Id>(id);
        }
      });
    return good;
  }

  template <Element T, class SampleAt>
  bool fill_dense(std::int64_t first, std::int64_t end, float* dense,
                  const SampleAt& sample_at) const {
    bool good = true;
    for (std::int64_t i = first; i < end; ++i) {
      const std::int64_t begin = sample_at(i) * dense_columns_;
      for (std::int64_t c = 0; c < dense_columns_; ++c) {
        const float x = dense[i * dense_columns_ + c] =
            to_float(detail::load<T>(dense_.data, begin + c));
        good &= std::isfinite(x);
      }
    }
    return good;
  }

  /// Throws what is wrong with a batch that `fill_part` found fault with.
  template <IdType Id, class SampleAt>
  void explain(const ClickBatch<Id>& batch, const SampleAt& sample_at) const {
    for (std::int64_t i = 0; i < batch.size; ++i) {
      const float label = batch.labels[static_cast<std::size_t>(i)];
      require<DataError>(label <= 1, "file '{}', sample {}: the label {} is neither 0 nor 1",
                         label_.path, sample_at(i), label);
    }
    for (std::int64_t i = 0; i < batch.size * dense_columns_; ++i) {
      const float x = batch.dense[static_cast<std::size_t>(i)];
      require<DataError>(std::isfinite(x), "file '{}', sample {}: number {} is {}", dense_.path,
                         sample_at(i / dense_columns_), i % dense_columns_, x);
    }
    for (std::size_t f = 0; !lists_ && f < categories_.size(); ++f)
      detail::with_integer_type(categories_[f].type, [&]<class T>(T) {
        for (std::int64_t i = 0; i < batch.size; ++i)
          check_id(f, sample_at(i), detail::load<T>(categories_[f].data, sample_at(i)));
      });
  }

  /// Fills the ids of a feature whose samples have equally many.
  template <class T, IdType Id, class SampleAt>
  void fill_lists(std::size_t f, std::int64_t count, ClickBatch<Id>& batch,
                  const SampleAt& sample_at) const {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t begin = sample_at(i) * hotness_[f];
      for (std::int64_t k = 0; k < hotness_[f]; ++k) {
        const std::int64_t id = detail::load<T>(categories_[f].data, begin + k);
        check_id(f, sample_at(i), id);
        batch.ids.push_back(static_cast<Id>(id));
      }
      batch.offsets.push_back(std::ssize(batch.ids));
    }
  }

  /// Fills the ids of a padded feature.
  template <class T, IdType Id, class SampleAt>
  void fill_padded(std::size_t f, std::int64_t count, ClickBatch<Id>& batch,
                   const SampleAt& sample_at) const {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t begin = sample_at(i) * hotness_[f];
      bool ended = false;
      for (std::int64_t k = 0; k < hotness_[f]; ++k) {
        const std::int64_t id = detail::load<T>(categories_[f].data, begin + k);
        if (id != -1) {
          require<DataError>(!ended,
                             "file '{}', sample {}: id {} of feature '{}' is behind padding",
                             categories_[f].path, sample_at(i), id, names_[f]);
          check_id(f, sample_at(i), id);
          batch.ids.push_back(static_cast<Id>(id));
        }
        ended |= id == -1;
      }
      batch.offsets.push_back(std::ssize(batch.ids));
    }
  }

  void check_id(std::size_t f, std::int64_t sample, std::int64_t id) const {
    require<DataError>(id >= 0 && id < rows_[f],
                       "file '{}', sample {}: id {} of feature '{}' is not in [0, {})",
                       categories_[f].path, sample, id, names_[f], rows_[f]);
  }

  int threads_;
  std::int64_t size_ = -1;
  std::int64_t dense_columns_ = 0;
  Column label_, dense_;
  std::vector<Column> categories_;
  std::vector<std::string> names_;
  std::vector<std::int64_t> rows_, hotness_;
  std::vector<bool> padded_;
  bool lists_ = false;  // some feature has other than one id per sample
};

/// Writes a dataset in the layout that `make_feature_spec` describes, batch by batch, in constant
/// memory. The specification is written last: a folder that has one is complete.
class BinaryDatasetWriter {
 public:
  /// Creates the folder and its files. `hotness` empty: 1 each; samples have as many ids, or of
  /// features that are `padded` (empty: none) at most as many. Throws DataError if that can't be
  /// done.
  BinaryDatasetWriter(std::filesystem::path folder, std::int64_t dense_columns,
                      std::vector<std::int64_t> rows, std::vector<std::int64_t> hotness = {},
                      std::vector<bool> padded = {})
      : folder_(std::move(folder)),
        dense_columns_(dense_columns),
        rows_(std::move(rows)),
        hotness_(hotness.empty() ? std::vector<std::int64_t>(rows_.size(), 1) : std::move(hotness)),
        padded_(padded.empty() ? std::vector<bool>(rows_.size()) : std::move(padded)) {
    require(hotness_.size() == rows_.size() && padded_.size() == rows_.size(),
            "BinaryDatasetWriter: {} features have rows, {} a hotness, {} a padding", rows_.size(),
            hotness_.size(), padded_.size());
    spec_ = make_feature_spec(static_cast<int>(dense_columns), rows_, hotness_, padded_);
    std::error_code error;
    std::filesystem::remove(folder_ / kSpecification, error);
    for (const auto& [source, chunks] : spec_.sources) {
      std::filesystem::create_directories(folder_ / source, error);
      for (const DatasetChunk& chunk : chunks) {
        const std::filesystem::path path = folder_ / chunk.files[0];
        std::ofstream& file = files_[chunk.files[0]];
        file.open(path, std::ios::binary | std::ios::trunc);
        require<DataError>(file.is_open(), "cannot create '{}': {}", path.string(),
                           std::strerror(errno));
      }
    }
  }

  /// Appends a batch whose bags are as long as the features' hotness to "train" or "test". Throws
  /// InvalidArgument for labels other than 0 and 1, ids outside their tables, bags of other lengths,
  /// and numbers that are not finite or beyond float16.
  template <IdType Id>
  void add(const std::string& source, const ClickBatch<Id>& batch) {
    require(batch.features == std::ssize(rows_) && batch.dense_columns == dense_columns_,
            "BinaryDatasetWriter: a batch of {} features and {} numbers does not fit the dataset's "
            "{} features and {} numbers",
            batch.features, batch.dense_columns, rows_.size(), dense_columns_);
    scratch_.clear();
    for (std::size_t i = 0; i < batch.labels.size(); ++i) {
      const float label = batch.labels[i];
      require(label == 0 || label == 1,
              "the label of sample {} is {}; a binary dataset holds 0 and 1 only", i, label);
      append(static_cast<std::uint8_t>(label));
    }
    write(source + "/label.bin");
    for (std::size_t i = 0; i < batch.dense.size(); ++i) {
      const auto columns = static_cast<std::size_t>(dense_columns_);
      require(std::abs(batch.dense[i]) <= detail::kMostHalf,
              "number {} of sample {} is {}; a binary dataset holds float16, at most {}",
              i % columns, i / columns, batch.dense[i], detail::kMostHalf);
      append(from_float<Half>(batch.dense[i]));
    }
    if (dense_columns_ > 0) write(source + "/numerical.bin");
    std::size_t at = 0;
    for (std::size_t f = 0; f < rows_.size(); ++f) {
      detail::with_integer_type(detail::id_type_of(rows_[f]), [&]<class T>(T) {
        for (std::int64_t sample = 0; sample < batch.size; ++sample) {
          const std::int64_t length = length_of(f, sample, batch);
          for (const std::size_t end = at + static_cast<std::size_t>(length); at < end; ++at) {
            const Id id = batch.ids[at];
            require(id >= 0 && id < rows_[f],
                    "BinaryDatasetWriter: id {} of feature {} is not in [0, {})", id, f, rows_[f]);
            append(static_cast<T>(id));
          }
          for (std::int64_t k = length; k < hotness_[f]; ++k) append(static_cast<T>(-1));
        }
      });
      write(detail::formatted("{}/cat_{}.bin", source, f));
    }
  }

  /// Completes the dataset. Throws DataError if anything could not be written.
  void finish() {
    for (auto& [name, file] : files_) {
      file.close();
      require<DataError>(file.good(), "cannot write '{}': {}", (folder_ / name).string(),
                         std::strerror(errno));
    }
    const std::filesystem::path path = folder_ / kSpecification,
                                partial = folder_ / "feature_spec.yaml.partial";
    std::ofstream file(partial);
    file << format_feature_spec(spec_);
    file.close();
    require<DataError>(file.good(), "cannot write '{}': {}", partial.string(),
                       std::strerror(errno));
    std::error_code error;
    std::filesystem::rename(partial, path, error);
    require<DataError>(!error, "cannot write '{}': {}", path.string(), error.message());
  }

 private:
  static constexpr const char* kSpecification = "feature_spec.yaml";

  template <IdType Id>
  std::int64_t length_of(std::size_t f, std::int64_t sample, const ClickBatch<Id>& batch) const {
    const std::size_t bag =
        f * static_cast<std::size_t>(batch.size) + static_cast<std::size_t>(sample);
    const std::int64_t length =
        batch.offsets.empty() ? 1 : batch.offsets[bag + 1] - batch.offsets[bag];
    require(padded_[f] ? length <= hotness_[f] : length == hotness_[f],
            "BinaryDatasetWriter: sample {} has {} ids of feature {}, whose hotness is {}{}",
            sample, length, f, hotness_[f], padded_[f] ? " at most" : "");
    return length;
  }

  template <class T>
  void append(T value) {
    const std::size_t at = scratch_.size();
    scratch_.resize(at + sizeof(T));
    std::memcpy(scratch_.data() + at, &value, sizeof(T));
  }

  void write(const std::string& name) {
    std::ofstream& file = files_.at(name);
    file.write(scratch_.data(), static_cast<std::streamsize>(scratch_.size()));
    require<DataError>(file.good(), "cannot write '{}': {}", (folder_ / name).string(),
                       std::strerror(errno));
    scratch_.clear();
  }

  std::filesystem::path folder_;
  std::int64_t dense_columns_;
  std::vector<std::int64_t> rows_, hotness_;
  std::vector<bool> padded_;
  DatasetSpec spec_;
  std::map<std::string, std::ofstream> files_;
  std::vector<char> scratch_;
};

}}  // namespace tessera::v0
