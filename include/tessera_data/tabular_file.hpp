// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/core/random.hpp>
#include <tessera_data/click_batch.hpp>
#include <tessera_data/permutation.hpp>
#include <tessera_data/tabular.hpp>
#include <tessera_data/tabular_blocks.hpp>
#include <tessera_data/tabular_encoder.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// Which samples of a TabularFile are tests, how they are shuffled, and by how many threads read.
struct TabularFileOptions {
  double test_fraction = 0.1;  ///< share of the samples, the last ones, that are not trained on
  BadLines bad_lines = BadLines::fatal;
  std::int64_t block = 2048;        ///< samples that are parsed at a time
  std::int64_t window = 1 << 17;    ///< samples in memory, among which an epoch's order is random
  int threads = 1;                  ///< that parse a window
  std::uint64_t seed = 0;           ///< of orders and hashes
  std::int64_t max_rows = 1 << 20;  ///< and min_count: see TabularEncoderOptions
  std::int64_t min_count = 1;
  bool keys = false;      ///< ids stay keys, for a Vocabulary
  OpenRecords open = {};  ///< what opens files that are no text
};

/// The samples of a CSV or TSV file of any length, for training and test, in the memory of a few
/// windows. The constructor passes over the file twice: to count, and to learn what the encoder
/// needs. In training each epoch goes through the file's blocks in a new random order (of
/// compressed files, and of those that `open` knows: in the file's), `window` samples at a time,
/// which are mixed; the next window is read meanwhile. A file of one window stays in memory. The
/// order depends on the options alone, not on who asks for which part. Every block must hold at
/// each reading what it held at the first: else the file changed, a DataError. Reading is
/// thread-safe.
class TabularFile {
 public:
  TabularFile(std::filesystem::path path, Schema schema, TabularFileOptions options = {})
      : path_(std::move(path)), schema_(std::move(schema)), options_(options) {
    require(options.block > 0 && options.window > 0 && options.threads > 0,
            "TabularFile: block ({}), window ({}) and threads ({}) must be positive", options.block,
            options.window, options.threads);
    require(options.test_fraction >= 0 && options.test_fraction < 1,
            "TabularFile: test_fraction ({}) must be in [0, 1)", options.test_fraction);
    blocks_.emplace(
        path_, schema_, options.bad_lines, options.block, [](const TabularBlock&) {}, options.open);
    test_ = std::llround(static_cast<double>(samples()) * options.test_fraction);
    train_ = samples() - test_;
    require<DataError>(train_ > 0, "file '{}' holds {} samples, none of them to train on",
                       path_.string(), samples());
    TabularStatistics statistics(schema_);
    blocks_->for_each(
        blocks_->blocks_of(train_), options.threads,
        [&](std::size_t b, TabularBlock& block) { cut(block, train_ - blocks_->first_sample(b)); },
        [&](std::size_t, const TabularBlock& block) {
          statistics.add(block);
          checksum_ = tessera::checksum(block, checksum_);
        });
    encoder_.emplace(statistics, TabularEncoderOptions{.max_rows = options.max_rows,
                                                       .min_count = options.min_count,
                                                       .seed = options.seed});
    group_ = static_cast<std::size_t>(std::max<std::int64_t>(1, options.window / options.block));
  }

  std::int64_t train_samples() const { return train_; }
  std::int64_t test_samples() const { return test_; }
  const Schema& schema() const { return schema_; }
  /// Returns the rows of each table; of each categorical column see
  /// `schema().categorical[c].table`.
  const std::vector<std::int64_t>& rows() const { return encoder_->rows(); }
  const TabularEncoder& encoder() const { return *encoder_; }
  /// Tells training data apart that have as many samples.
  std::uint64_t checksum() const { return checksum_; }
  /// Returns what the order of an epoch depends on besides the seed; nothing if one window holds all.
  std::string order() const {
    if (windows() <= 1) return {};
    return detail::formatted("windows of {} samples{}",
                             group_ * static_cast<std::size_t>(options_.block),
                             blocks_->in_order() ? " in the file's order" : "");
  }
  /// Return the bad lines that were skipped, and what was wrong with the first.
  std::int64_t bad_lines() const { return blocks_->bad_lines(); }
  const std::string& first_bad_line() const { return blocks_->first_bad_line(); }

  /// Makes a batch of samples [first, first + count) of an epoch, in the order of that epoch.
  template <IdType Id>
  void train_batch(std::int64_t epoch, std::int64_t first, std::int64_t count,
                   ClickBatch<Id>& batch) const {
    require(first >= 0 && count >= 0 && first <= train_ && count <= train_ - first,
            "TabularFile: samples [{}, {} + {}) are not among the {} for training", first, first,
            count, train_);
    gather(true, epoch, first, count, batch);
  }
  /// Reads test samples [first, first + count), in the file's order.
  template <IdType Id>
  void test_batch(std::int64_t first, std::int64_t count, ClickBatch<Id>& batch) const {
    require(first >= 0 && count >= 0 && first <= test_ && count <= test_ - first,
            "TabularFile: samples [{}, {} + {}) are not among the {} for the test", first, first,
            count, test_);
    gather(false, 0, first, count, batch);
  }

 private:
  using Blocks = std::vector<TabularBlock>;
  using Key = std::tuple<bool, std::int64_t, std::int64_t>;  // training?, epoch, window

  std::int64_t samples() const { return blocks_->samples(); }
  void cut(TabularBlock& block, std::int64_t size) const {
    if (size >= block.size) return;
    block.size = size;
    const auto kept = static_cast<std::size_t>(size);
    const std::size_t columns = schema_.categorical.size();
    block.labels.resize(kept);
    block.numbers.resize(kept * schema_.numeric.size());
    block.keys.resize(block.ends.empty() ? kept * columns : block.ends[kept * columns - 1]);
    if (!block.ends.empty()) block.ends.resize(kept * columns);
  }

  /// Returns the blocks of a window, encoded.
  std::shared_ptr<const Blocks> load(const Key& key) const {
    const auto [training, epoch, window] = key;
    const std::vector<std::size_t> numbers = blocks(training, epoch, window);
    auto loaded = std::make_shared<Blocks>(numbers.size());
    std::atomic<std::size_t> next{0};
    const auto work = [&, is_training = training] {
      for (std::size_t i = next++; i < numbers.size(); i = next++) {
        TabularBlock& block = (*loaded)[i];
        blocks_->read(numbers[i], block);
        if (is_training) cut(block, train_ - blocks_->first_sample(numbers[i]));
        const std::string where =
            detail::formatted("file '{}', after {}", path_.string(), blocks_->where(numbers[i]));
        options_.keys ? encoder_->encode_numbers(block, where) : encoder_->encode(block, where);
      }
    };
    std::vector<std::future<void>> helpers;
    for (int t = 1; t < options_.threads && !blocks_->in_order(); ++t)
      helpers.push_back(std::async(std::launch::async, work));
    work();
    for (std::future<void>& helper : helpers) helper.get();
    return loaded;
  }

  /// Returns which of the file's blocks a window holds.
  std::vector<std::size_t> blocks(bool training, std::int64_t epoch, std::int64_t window) const {
    const std::size_t first = training ? 0 : static_cast<std::size_t>(train_ / options_.block),
                      end = training ? blocks_->blocks_of(train_) : blocks_->count(),
                      begin = static_cast<std::size_t>(window) * group_;
    std::vector<std::size_t> numbers;
    const Permutation order = block_order(epoch);
    for (std::size_t i = begin; i < std::min(begin + group_, end - first); ++i)
      numbers.push_back(training && shuffles_blocks()
                            ? static_cast<std::size_t>(order(static_cast<std::int64_t>(i)))
                            : first + i);
    return numbers;
  }
  bool shuffles_blocks() const { return !blocks_->in_order() && windows() > 1; }
  std::int64_t windows() const {
    return static_cast<std::int64_t>((blocks_->blocks_of(train_) + group_ - 1) / group_);
  }
  Permutation block_order(std::int64_t epoch) const {
    return {static_cast<std::int64_t>(blocks_->blocks_of(train_)),
            random_word(options_.seed, epoch, 1)};
  }
  /// Returns the window that holds the short block of an epoch: the file's last one for training.
  std::int64_t short_window(std::int64_t epoch) const {
    const std::lock_guard lock(mutex_);
    if (short_window_.first != epoch) {
      const auto blocks = static_cast<std::int64_t>(blocks_->blocks_of(train_));
      std::int64_t at = blocks - 1;
      if (shuffles_blocks())
        for (const Permutation order = block_order(epoch); order(at) != blocks - 1;) --at;
      short_window_ = {epoch, at / static_cast<std::int64_t>(group_)};
    }
    return short_window_.second;
  }
  /// Returns the window that holds sample `first` of an epoch, and that window's first sample.
  std::pair<std::int64_t, std::int64_t> window_of(bool training, std::int64_t epoch,
                                                  std::int64_t first) const {
    const std::int64_t size = static_cast<std::int64_t>(group_) * options_.block;
    if (!training) return {first / size, first / size * size};
    const std::int64_t missing = blocks_->first_sample(blocks_->blocks_of(train_)) - train_,
                       cut = short_window(epoch);
    const bool behind = first >= (cut + 1) * size - missing;
    const std::int64_t window = (first + (behind ? missing : 0)) / size;
    return {window, window * size - (behind ? missing : 0)};
  }

  std::shared_ptr<const Blocks> get(Key key) const {
    const auto& [training, epoch, window] = key;
    std::shared_future<std::shared_ptr<const Blocks>> found;
    std::vector<std::shared_future<std::shared_ptr<const Blocks>>> dropped;  // after the lock
    {
      const std::lock_guard lock(mutex_);
      found = start(key);
      const bool last = window + 1 >= windows();
      if (training && windows() > 1) start({true, epoch + last, last ? 0 : window + 1});
      // What is oldest goes first: ranks are at most a batch apart, so that three are enough.
      while (used_.size() > 3) {
        const auto oldest = std::min_element(
            used_.begin(), used_.end(),
            [](const auto& a, const auto& b) { return a.second.second < b.second.second; });
        dropped.push_back(std::move(oldest->second.first));
        used_.erase(oldest);
      }
    }
    return found.get();
  }
  std::shared_future<std::shared_ptr<const Blocks>> start(const Key& key) const {
    const auto found = used_.find(key);
    if (found != used_.end()) {
      found->second.second = ++clock_;
      return found->second.first;
    }
    auto loading = std::async(std::launch::async, [this, key] { return load(key); }).share();
    used_.emplace(key, std::pair(loading, ++clock_));
    return loading;
  }

  template <IdType Id>
  void gather(bool training, std::int64_t epoch, std::int64_t first, std::int64_t count,
              ClickBatch<Id>& batch) const {
    std::vector<std::shared_ptr<const Blocks>> held;
    std::vector<std::pair<const TabularBlock*, std::size_t>> samples;
    samples.reserve(static_cast<std::size_t>(count));
    if (!training) first += train_ % options_.block;
    while (std::ssize(samples) < count) {
      const auto [window, begin] = window_of(training, epoch, first);
      held.push_back(get({training, training && windows() > 1 ? epoch : 0, window}));
      const Blocks& blocks = *held.back();
      std::vector<std::int64_t> ends;
      for (const TabularBlock& block : blocks)
        ends.push_back((ends.empty() ? 0 : ends.back()) + block.size);
      const Permutation order(ends.back(), windows() > 1
                                               ? random_word(options_.seed, epoch, 2, window)
                                               : random_word(options_.seed, epoch));
      for (; first < begin + ends.back() && std::ssize(samples) < count; ++first) {
        const std::int64_t at = training ? order(first - begin) : first - begin;
        const auto block =
            static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), at) - ends.begin());
        samples.emplace_back(&blocks[block],
                             static_cast<std::size_t>(at - (block == 0 ? 0 : ends[block - 1])));
      }
    }
    detail::append_samples(count, schema_.categorical.size(), batch,
                           [&](std::int64_t i) { return samples[static_cast<std::size_t>(i)]; });
    batch.dense_columns = static_cast<std::int64_t>(schema_.numeric.size());
  }

  std::filesystem::path path_;
  Schema schema_;
  TabularFileOptions options_;
  std::optional<TabularBlocks> blocks_;
  std::int64_t train_ = 0, test_ = 0;
  std::uint64_t checksum_ = 0;
  std::optional<TabularEncoder> encoder_;
  std::size_t group_ = 1;
  mutable std::mutex mutex_;
  mutable std::pair<std::int64_t, std::int64_t> short_window_{-1, 0};
  mutable std::int64_t clock_ = 0;
  mutable std::map<Key, std::pair<std::shared_future<std::shared_ptr<const Blocks>>, std::int64_t>>
      used_;
};

}}  // namespace tessera::v0
