// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/checkpoint/folder.hpp>
#include <tessera/checkpoint/manifest.hpp>
#include <tessera/checkpoint/reader.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/op/bags.hpp>
#include <tessera/op/inputs.hpp>
#include <tessera_serving/freeze.hpp>
#include <tessera_serving/frozen_tables.hpp>
#include <tessera_serving/history_layers.hpp>
#include <tessera_serving/increment.hpp>
#include <tessera_serving/model_description.hpp>
#include <tessera_serving/model_inputs.hpp>
#include <tessera_serving/model_layers.hpp>
#include <tessera_serving/pool_rows.hpp>
#include <tessera_serving/row_format.hpp>
#include <tessera_serving/scratch_pool.hpp>

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// The formats of a FrozenModel's tables, their file, and whether batches are padded.
struct FrozenModelOptions {
  /// Of the tables' rows, and others for tables whose names fit a pattern: see FreezeOptions.
  RowFormat format = RowFormat::fp32;
  std::vector<std::pair<std::string, RowFormat>> formats{};
  /// Where the frozen tables go, for several processes to map; empty: to a temporary file that
  /// no other process sees.
  std::filesystem::path tables_file{};
  /// Batches are cut into pieces of powers of two samples, the last one filled up, so that a few
  /// sizes of matrix products serve all. Without it every size gets its own, and scores the bits
  /// that the trainer's evaluation of as many samples has.
  bool pad_batches = true;
};

namespace detail {

/// A path for a file that only this process uses, removed by the destructor.
class TemporaryPath {
 public:
  TemporaryPath() {
    std::string name = (std::filesystem::temp_directory_path() / "tessera_tables_XXXXXX").string();
    const int file = ::mkstemp(name.data());
    require<DataError>(file >= 0, "cannot make a file in '{}': {}",
                       std::filesystem::temp_directory_path().string(), std::strerror(errno));
    ::close(file);
    path_ = name;
  }
  ~TemporaryPath() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  TemporaryPath(const TemporaryPath&) = delete;
  TemporaryPath& operator=(const TemporaryPath&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace detail

/// A saved model that describes itself, to score with: its frozen tables, its layers, and how the
/// data's columns become numbers and rows. Const; any number of threads score at one time, each call
/// on its caller's thread. Once as many calls as threads have run, nothing is allocated but by
/// oneDNN.
/// Throws DataError, naming the checkpoint, for one that is damaged or does not describe itself.
///
///     const FrozenModel model(*latest_checkpoint("run7"), {.format = RowFormat::int8});
///     EncodedSamples samples;
///     model.inputs().encode(columns, samples);
///     model.score(samples, scores);
class FrozenModel {
 public:
  explicit FrozenModel(const std::filesystem::path& checkpoint, FrozenModelOptions options = {})
      : FrozenModel(CheckpointReader(checkpoint), options) {}

  /// Makes the model `last`, with the rows, layers and vocabulary of an increment of the checkpoint
  /// that it was made of in place of its own, and of those of earlier increments. Shares the
  /// tables' file. Throws DataError, naming the increment, as with_increment does.
  FrozenModel(const FrozenModel& last, const std::filesystem::path& increment)
      : FrozenModel(last, CheckpointReader(increment)) {}

  const ModelDescription& description() const { return inputs_.model(); }
  const ModelInputs& inputs() const { return inputs_; }
  const FrozenTables& tables() const { return *tables_; }
  /// Returns the step of the training run when it saved this.
  std::int64_t step() const { return step_; }

  /// Computes the probability of each sample's label, `scores` [samples].
  void score(const EncodedSamples& batch, std::span<float> scores) const {
    logits(batch, scores);
    to_probabilities(scores);
  }
  /// Scores one user with each candidate: `user` is one sample of some columns, `candidates` have
  /// the others. The user's vectors, and the bottom MLP if all numbers are the user's, are
  /// computed once; so is a history, for 1,024 candidates. Throws InvalidArgument for a column that
  /// both have, or neither.
  void score(const EncodedSamples& user, const EncodedSamples& candidates,
             std::span<float> scores) const {
    logits(user, candidates, scores);
    to_probabilities(scores);
  }

  /// Computes the same before the sigmoid. Both throw InvalidArgument for a logit that is not
  /// finite.
  void logits(const EncodedSamples& batch, std::span<float> output) const {
    check(batch, output);
    for (std::size_t f = 0; f < batch.feature_given.size(); ++f)
      require(batch.feature_given[f] || batch.samples == 0, "column '{}' is missing",
              description().features[f].name);
    for (std::size_t c = 0; c < batch.number_given.size(); ++c)
      require(batch.number_given[c] || batch.samples == 0, "column '{}' is missing",
              description().numeric[c].name);
    if (histories_) return history_logits(batch, batch, output);
    const Clicks::Lease lease(*clicks_);
    for_each_piece(batch.samples, [&](std::int64_t first, std::int64_t count, std::int64_t padded) {
      detail::ModelScratch& scratch = *lease;
      scratch.resize(padded);
      take_numbers(batch, first, count, scratch);
      scratch.run_bottom();
      for (std::size_t f = 0; f < columns_.size(); ++f) pool(batch, f, first, count, scratch);
      clear(scratch, count);
      scratch.run_top();
      std::copy_n(scratch.logits().begin(), count, output.begin() + first);
    });
    check_finite(output);
  }
  void logits(const EncodedSamples& user, const EncodedSamples& candidates,
              std::span<float> output) const {
    check(candidates, output);
    require(user.samples == 1, "a user is one sample; {} are given", user.samples);
    const auto apart = [](bool one, bool other, const std::string& column) {
      require(one != other, "column '{}' {}", column,
              one ? "is the user's and the candidates', too" : "is missing");
    };
    bool users_numbers = true, candidates_numbers = true;
    for (std::size_t c = 0; c < user.number_given.size(); ++c) {
      apart(user.number_given[c], candidates.number_given[c], description().numeric[c].name);
      (user.number_given[c] ? candidates_numbers : users_numbers) = false;
    }
    for (std::size_t f = 0; f < columns_.size(); ++f)
      apart(user.feature_given[f], candidates.feature_given[f], description().features[f].name);
    if (histories_) {
      require(user.feature_given[0] && users_numbers,
              "column '{}' is the candidates', all else the user's",
              description().features[1].name);
      return history_logits(user, candidates, output);
    }
    const Clicks::Lease users(*clicks_), lease(*clicks_);
    detail::ModelScratch& once = *users;
    once.resize(1);
    take_numbers(user, 0, 1, once);
    if (users_numbers) once.run_bottom();
    for (std::size_t f = 0; f < columns_.size(); ++f)
      if (user.feature_given[f]) pool(user, f, 0, 1, once);
    for_each_piece(
        candidates.samples, [&](std::int64_t first, std::int64_t count, std::int64_t padded) {
          detail::ModelScratch& scratch = *lease;
          scratch.resize(padded);
          const MatrixView<float> vectors = scratch.vectors();
          for (std::int64_t s = 0; s < count; ++s)
            std::copy_n(once.vectors().row(0), vectors.columns, vectors.row(s));
          if (!users_numbers) {
            take_numbers(candidates, first, count, scratch);
            for (std::size_t c = 0; !candidates_numbers && c < user.number_given.size(); ++c)
              for (std::int64_t s = 0; s < count && user.number_given[c]; ++s)
                scratch.numbers()(s, static_cast<std::int64_t>(c)) = user.numbers[c];
            scratch.run_bottom();
          }
          for (std::size_t f = 0; f < columns_.size(); ++f)
            if (candidates.feature_given[f]) pool(candidates, f, first, count, scratch);
          clear(scratch, count);
          scratch.run_top();
          std::copy_n(scratch.logits().begin(), count, output.begin() + first);
        });
    check_finite(output);
  }

 private:
  /// Where a feature's vector, or its wide weight, is, and its table.
  struct Column {
    const FrozenTables::Table* table;
    Pooling pooling;
    std::int64_t begin;
  };

  using Clicks = detail::ScratchPool<detail::ModelScratch>;
  using Histories = detail::ScratchPool<detail::HistoryScratch>;

  static constexpr std::int64_t kLargestPiece = 1024;

  FrozenModel(CheckpointReader reader, const FrozenModelOptions& options)
      : inputs_(read_model_description(reader), reader),
        tensors_(reader, inputs_.model()),
        pad_(options.pad_batches),
        step_(reader.manifest().step) {
    const ModelDescription& model = inputs_.model();
    FreezeOptions freeze{.format = options.format, .formats = options.formats};
    for (const TableInput& table : model.tables) {
      freeze.tables.push_back(table.name);
      if (model.wide) freeze.tables.push_back(wide_table(table.name));
    }
    // codes of one column are larger than floats
    if (model.wide && row_bytes(options.format, 1) > sizeof(float))
      freeze.formats.insert(freeze.formats.begin(), {wide_table("*"), RowFormat::fp32});
    std::optional<detail::TemporaryPath> temporary;
    if (options.tables_file.empty()) temporary.emplace();
    const std::filesystem::path& file = temporary ? temporary->path() : options.tables_file;
    freeze_checkpoint(reader.folder(), file, freeze);
    tables_ = std::make_shared<const FrozenTables>(file, FrozenOptions{.verify = false});
    const auto find_table = [&](const std::string& name, std::int64_t rows, std::int32_t width) {
      const FrozenTables::Table& table = tables_->table(name);
      require<DataError>(table.rows == rows && table.width == width,
                         "checkpoint '{}': table '{}' is {} x {}; its '{}' says {} x {}",
                         reader.folder().string(), name, table.rows, table.width,
                         ModelDescription::kFile, rows, width);
      return &table;
    };
    std::int64_t begin = model.first_columns(), wide = model.columns();
    for (std::size_t f = 0; f < model.features.size(); ++f) {
      const TableInput& told = model.tables[inputs_.table_of(f)];
      const Pooling pooling = model.features[f].pooling;
      columns_.push_back({find_table(told.name, told.rows, told.width), pooling, begin});
      begin += told.width;
      if (model.wide)
        wide_.push_back({find_table(wide_table(told.name), told.rows, 1), pooling, wide++});
    }
    check_one(reader);
    make_first_scratch();
  }

  FrozenModel(const FrozenModel& last, CheckpointReader increment)
      : inputs_(last.inputs_, increment),
        tensors_(increment, inputs_.model()),
        pad_(last.pad_),
        step_(increment.manifest().step),
        tables_(std::make_shared<const FrozenTables>(
            detail::with_increment(*last.tables_, increment.folder()))),
        columns_(last.columns_),
        wide_(last.wide_) {
    for (std::vector<Column>* columns : {&columns_, &wide_})
      for (Column& column : *columns) column.table = &tables_->table(column.table->name);
    check_one(increment);
    make_first_scratch();
  }

  /// Checks that tables and layers are of one checkpoint, also if another is copied over it
  /// meanwhile.
  void check_one(const CheckpointReader& reader) const {
    reader.check_unchanged();
    require<DataError>(tables_->checkpoint() == CheckpointMark{step_, reader.crc()},
                       "checkpoint '{}' was changed while it was read", reader.folder().string());
  }

  /// Makes the first scratch memory: what does not fit is an error now.
  void make_first_scratch() {
    if (description().history)
      histories_.emplace([this] {
        return std::make_unique<detail::HistoryScratch>(description(), tensors_.history);
      });
    else
      clicks_.emplace([this] { return make_scratch(); });
  }

  std::unique_ptr<detail::ModelScratch> make_scratch() const {
    auto scratch = std::make_unique<detail::ModelScratch>(inputs_.model(), tensors_);
    if (!pad_) return scratch;
    // Weights are packed for the largest products, and all sizes are ready.
    for (std::int64_t samples = kLargestPiece; samples >= 1; samples /= 2) {
      scratch->resize(samples);
      clear(*scratch, 0);
      const MatrixView<float> numbers = scratch->numbers();
      std::fill_n(numbers.data, numbers.rows * numbers.columns, 0.0f);
      scratch->run_bottom();
      scratch->run_top();
    }
    return scratch;
  }

  void check(const EncodedSamples& batch, std::span<const float> output) const {
    require(std::ssize(output) == batch.samples, "{} scores for {} samples", output.size(),
            batch.samples);
    require(batch.feature_given.size() == columns_.size() &&
                batch.number_given.size() == description().numeric.size(),
            "these samples were not encoded for this model");
  }

  /// Computes logits: neighbours of one history are candidates of one sequence. `histories`: of all
  /// samples, or one.
  void history_logits(const EncodedSamples& histories, const EncodedSamples& samples,
                      std::span<float> output) const {
    const std::span<const std::int64_t> rows = histories.rows;
    const std::span<const float> numbers = histories.event_numbers;
    const auto range = [&](std::int64_t sample) {
      const auto s = static_cast<std::size_t>(&histories == &samples ? sample : 0);
      const auto begin = static_cast<std::size_t>(histories.offsets[s]);
      return std::pair(begin, static_cast<std::size_t>(histories.offsets[s + 1]) - begin);
    };
    const auto numbers_of = [&](std::int64_t s) {
      return numbers.empty() ? numbers : numbers.subspan(range(s).first, range(s).second);
    };
    const auto rows_of = [&](std::int64_t s) {
      return rows.subspan(range(s).first, range(s).second);
    };
    const auto same = [&](std::int64_t a, std::int64_t b) {
      return range(a) == range(b) || (std::ranges::equal(rows_of(a), rows_of(b)) &&
                                      std::ranges::equal(numbers_of(a), numbers_of(b)));
    };
    // offsets of the candidates' column follow those of the histories'
    const std::int64_t* const candidates =
        samples.rows.data() + samples.offsets[static_cast<std::size_t>(samples.samples)];
    const Histories::Lease lease(*histories_);
    detail::HistoryScratch& scratch = *lease;
    const auto flush = [&](std::int64_t end) {
      const std::span<const float> logits = scratch.logits(
          [&](std::span<const std::int64_t> ids, MatrixView<float> to) {
            const FrozenTables::Table& table = *columns_.front().table;
            detail::with_rows(table, [&](auto row, const auto& of) {
              detail::read_rows<decltype(row)>(of, table.width, ids, to);
            });
          },
          pad_);
      std::ranges::copy(logits, output.begin() + (end - std::ssize(logits)));
      scratch.clear();
    };
    scratch.clear();  // of a call that ended with an error
    for (std::int64_t s = 0; s < samples.samples; ++s) {
      const bool next = scratch.histories() == 0 || !same(s - 1, s),
                 full = scratch.candidates() == detail::HistoryScratch::kCandidates ||
                        (next && scratch.histories() == detail::HistoryScratch::kHistories);
      if (full) flush(s);
      if (next || full) scratch.add_history(rows_of(s), numbers_of(s));
      scratch.add_candidate(candidates[s]);
    }
    if (scratch.candidates() > 0) flush(samples.samples);
    check_finite(output);
  }

  /// Calls f(first, count, samples that are computed) for pieces of a batch.
  template <class F>
  void for_each_piece(std::int64_t samples, const F& f) const {
    if (!pad_) return samples == 0 ? void() : f(0, samples, samples);
    for (std::int64_t first = 0; first < samples;) {
      const auto rest = static_cast<std::uint64_t>(samples - first);
      std::uint64_t size = std::min<std::uint64_t>(std::bit_floor(rest), kLargestPiece);
      // a last piece that is nearly twice as large is filled up
      if (size < kLargestPiece && (size < 16 || rest - size > size / 2)) size = std::bit_ceil(rest);
      const auto count = static_cast<std::int64_t>(std::min(size, rest));
      f(first, count, static_cast<std::int64_t>(size));
      first += count;
    }
  }

  void take_numbers(const EncodedSamples& batch, std::int64_t first, std::int64_t count,
                    detail::ModelScratch& scratch) const {
    const MatrixView<float> numbers = scratch.numbers();
    float* const end = std::copy_n(batch.numbers.data() + first * numbers.columns,
                                   count * numbers.columns, numbers.data);
    std::fill(end, numbers.data + numbers.rows * numbers.columns, 0.0f);
  }

  /// Computes the pooled vectors of one feature of samples [first, first + count), and their wide
  /// weights.
  void pool(const EncodedSamples& batch, std::size_t f, std::int64_t first, std::int64_t count,
            detail::ModelScratch& scratch) const {
    pool(batch, f, columns_[f], first, count, scratch);
    if (!wide_.empty()) pool(batch, f, wide_[f], first, count, scratch);
  }
  static void pool(const EncodedSamples& batch, std::size_t f, const Column& column,
                   std::int64_t first, std::int64_t count, detail::ModelScratch& scratch) {
    op::Bags<std::int64_t> bags{
        .ids = batch.rows.data(),
        .offsets = batch.offsets.data() + static_cast<std::int64_t>(f) * batch.samples + first,
        .bags = count};
    const MatrixView<float> to = scratch.vectors();
    if (column.pooling == Pooling::max) return pool_largest(column, bags, to, scratch.row());
    if (op::scales_sums(column.pooling)) {
      for (std::int64_t s = 0; s < count; ++s)
        scratch.scales()[static_cast<std::size_t>(s)] =
            op::pooling_scale(column.pooling, bags.end(s) - bags.begin(s));
      bags.bag_scale = scratch.scales().data();
    }
    detail::with_rows(*column.table, [&](auto row, const auto& rows) {
      detail::pool_rows<decltype(row), false>(rows, column.table->width, bags, 0, count,
                                              to.data + column.begin, to.stride);
    });
  }

  static void pool_largest(const Column& column, const op::Bags<std::int64_t>& bags,
                           MatrixView<float> to, float* row) {
    const int width = column.table->width;
    detail::with_rows(*column.table, [&](auto type, const auto& rows) {
      for (std::int64_t bag = 0; bag < bags.bags; ++bag) {
        float* const largest = to.row(bag) + column.begin;
        std::fill_n(largest, width, 0.0f);
        for (std::int64_t i = bags.begin(bag); i < bags.end(bag); ++i) {
          const bool first = i == bags.begin(bag);
          detail::read_rows<decltype(type)>(rows, width, std::span(bags.ids + i, 1),
                                            MatrixView<float>{first ? largest : row, 1, width});
          for (int c = 0; c < width && !first; ++c) largest[c] = std::max(largest[c], row[c]);
        }
      }
    });
  }

  /// Clears vectors of samples that only fill a piece up.
  void clear(detail::ModelScratch& scratch, std::int64_t from) const {
    const MatrixView<float> vectors = scratch.vectors();
    std::fill(vectors.data + from * vectors.columns, vectors.data + vectors.rows * vectors.columns,
              0.0f);
  }

  /// Throws unless logits are finite. Weights are: it is a sample's numbers that make NaN of them.
  static void check_finite(std::span<const float> logits) {
    for (std::size_t s = 0; s < logits.size(); ++s)
      require(std::isfinite(logits[s]),
              "sample {}: its logit is {}; its numbers are too large for the model's layers", s,
              logits[s]);
  }

  static void to_probabilities(std::span<float> logits) {
    for (float& x : logits) x = static_cast<float>(1 / (1 + std::exp(-double{x})));
  }

  ModelInputs inputs_;
  mutable detail::DenseTensors tensors_;  ///< layers bind it as theirs, and only read
  bool pad_;
  std::int64_t step_;
  std::shared_ptr<const FrozenTables> tables_;
  std::vector<Column> columns_, wide_;    ///< by feature
  mutable std::optional<Clicks> clicks_;  ///< one of them
  mutable std::optional<Histories> histories_;
};

/// Returns the model of a checkpoint, whole, or an increment, whose base is beside it. `last`:
/// null, or the model that this one is to replace, which lends its tables' file to increments of
/// its base. Throws DataError.
inline std::shared_ptr<const FrozenModel> frozen_model_of(const std::filesystem::path& checkpoint,
                                                          const FrozenModelOptions& options = {},
                                                          const FrozenModel* last = nullptr) {
  const detail::Manifest manifest = detail::read_manifest(checkpoint).first;
  if (manifest.base.empty()) return std::make_shared<const FrozenModel>(checkpoint, options);
  if (last != nullptr && last->tables().base().crc == manifest.base_crc)
    return std::make_shared<const FrozenModel>(*last, checkpoint);
  const FrozenModel base(checkpoint.parent_path() / manifest.base, options);
  return std::make_shared<const FrozenModel>(base, checkpoint);
}

}}  // namespace tessera::v0
