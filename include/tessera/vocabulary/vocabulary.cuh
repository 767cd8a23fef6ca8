// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/core/jagged.hpp>
#include <tessera/cuda/inputs.cuh>
#include <tessera/cuda/sort.cuh>
#include <tessera/vocabulary/layout.hpp>
#include <tessera/vocabulary/store.cuh>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// Vocabulary (vocabulary/vocabulary.hpp) in device memory: the same calls, the same rows and the
/// same records, bit for bit. Keys, offsets and rows of a batch are in device memory.
/// `communicator` moves device and host memory (CudaTransfer). The host waits for what it decides:
/// once in `learn`, more often where rows are taken away or keys forgotten.
template <class Comm, class Own>
class Vocabulary<Comm, Cuda, Own> {
 public:
  static constexpr std::int64_t kSharedRow = 0;

  /// Throws InvalidArgument for tables without a row besides the shared one. `own`: one for each
  /// table; its functions are TESSERA_HOST_DEVICE.
  Vocabulary(Comm& communicator, const Cuda& backend, VocabularyOptions options,
             const std::vector<Own>& own)
      : communicator_(communicator),
        backend_(backend),
        layout_(std::move(options), communicator.size(), communicator.rank()),
        store_(backend, layout_, detail::key_policies<Own>(layout_.options, own)) {
    std::vector<gpu::detail::VocabularyFeature> features;
    std::vector<std::int64_t> first_block{0};
    std::vector<std::int32_t> owners, locals;
    for (const tessera::detail::VocabularyLayout::Table& table : layout_.tables) {
      first_block.push_back(first_block.back() + table.blocks);
      owners.insert(owners.end(), table.owner.begin(), table.owner.end());
      locals.insert(locals.end(), table.local.begin(), table.local.end());
    }
    for (const int t : layout_.options.feature_table) {
      const tessera::detail::VocabularyLayout::Table& table =
          layout_.tables[static_cast<std::size_t>(t)];
      features.push_back({table.seed, table.blocks, first_block[static_cast<std::size_t>(t)]});
    }
    gpu::upload(backend_, features_, features);
    gpu::upload(backend_, owners_, owners);
    gpu::upload(backend_, locals_, locals);
  }
  Vocabulary(Comm& communicator, const Cuda& backend, VocabularyOptions options)
    requires std::is_same_v<Own, detail::NoPolicy>
      : Vocabulary(communicator, backend, options, std::vector<Own>(options.tables.size())) {}
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  /// Learns as Vocabulary::learn does. The rows that changed hands are in host memory.
  template <IdType Id>
  std::span<const detail::ReusedRow> learn(const KeyedJagged<std::int64_t>& keys,
                                           std::span<Id> rows) {
    require(step_ < std::numeric_limits<std::uint32_t>::max(),
            "Vocabulary: 2^32-1 batches are the most");
    gpu::detail::VocabularyBatch batch = receive(keys, rows);
    batch.step = static_cast<std::uint32_t>(++step_);
    own_changes_.clear();
    store_.learn(batch, own_changes_);
    hand_back(batch, rows);
    detail::gather_changes(communicator_, own_changes_, layout_.options.report_keys, changes_);
    return changes_.reused;
  }
  /// Return lists in host memory.
  std::span<const detail::KeyRow> evicted() const { return changes_.evicted; }
  std::span<const detail::KeyRow> given() const { return changes_.given; }
  bool reports_keys() const { return layout_.options.report_keys; }

  /// Does as Vocabulary::find.
  template <IdType Id>
  void find(const KeyedJagged<std::int64_t>& keys, std::span<Id> rows) {
    const gpu::detail::VocabularyBatch batch = receive(keys, rows);
    store_.find(batch);
    hand_back(batch, rows);
  }

  int tables() const { return static_cast<int>(layout_.tables.size()); }
  std::int64_t step() const { return step_; }
  /// Sets the step, as Vocabulary's. The host waits.
  void set_step(std::int64_t step) {
    detail::require_vocabulary_step(step, store_.last_step());
    step_ = step;
    store_.forget_steps();
  }
  std::int64_t admitted(int table) const { return store_.admitted(table); }
  std::int64_t candidates(int table) const { return store_.candidates(table); }

  /// Exports records as Vocabulary's, whose records are the same: they move between the two. The
  /// host waits.
  tessera::detail::VocabularyRecords export_records(int table) const {
    return store_.export_records(table);
  }
  tessera::detail::VocabularyRecords own_records(
      int table, std::span<const tessera::detail::VocabularyRecords> parts) const {
    return layout_.own_records(table, parts);
  }
  void import_records(int table, std::span<const tessera::detail::VocabularyRecords> parts) {
    store_.import_records(table, layout_.own_records(table, parts));
    step_ = std::max(step_, detail::last_vocabulary_step(parts));
    store_.forget_steps();
  }
  std::vector<std::int64_t> adopt_records(int table, tessera::detail::VocabularyRecords records) {
    const auto [placed, from] = layout_.place(table, std::move(records));
    import_records(table, std::span(&placed, 1));
    return from;
  }

 private:
  template <class Kernel, class... Arguments>
  void run(std::string_view name, std::int64_t threads, Kernel kernel,
           const Arguments&... arguments) const {
    backend_.launch(name, gpu::ceil_divide(threads, gpu::detail::vocabulary_threads),
                    gpu::detail::vocabulary_threads, kernel, arguments...);
  }

  /// Sends keys to the ranks that decide about them; brings those that this rank decides about in
  /// order.
  template <IdType Id>
  gpu::detail::VocabularyBatch receive(const KeyedJagged<std::int64_t>& keys, std::span<Id> rows) {
    const std::size_t ranks = static_cast<std::size_t>(communicator_.size()),
                      features = layout_.options.feature_table.size();
    const auto count = std::ssize(keys.ids);
    require(
        keys.features == static_cast<std::int64_t>(features) && rows.size() == keys.ids.size(),
        "Vocabulary: a batch of {} features with {} keys, room for {} rows; it knows {} features",
        keys.features, keys.ids.size(), rows.size(), features);
    keys.validate_sizes();
    for (const int t : layout_.options.feature_table)
      require(layout_.options.tables[static_cast<std::size_t>(t)].rows - 1 <=
                  std::numeric_limits<Id>::max(),
              "Vocabulary: rows need 64-bit ids");
    require(count < INT32_MAX, "Vocabulary: {} keys in one batch; 2^31-2 are the most", count);
    std::vector<std::int64_t> begin(features + 1);
    for (std::size_t f = 0; f <= features; ++f)
      begin[f] = static_cast<std::int64_t>(f) * keys.batch;
    if (!keys.one_hot())
      tessera::op::run<op::ReadNumbers>(
          backend_,
          {keys.offsets.data(), std::vector<std::int64_t>(begin), std::span<std::int64_t>(begin)});
    require(
        begin.front() == 0 && begin.back() == count && std::is_sorted(begin.begin(), begin.end()),
        "Vocabulary: offsets of {} features go from {} to {}, or backwards; there are {} keys",
        features, begin.front(), begin.back(), count);

    std::vector<std::size_t> counts_in(ranks * features);
    send_counts_.assign(ranks, static_cast<std::size_t>(count));
    receive_counts_ = send_counts_;
    const std::int64_t* arrived = keys.ids.data();
    order_ = nullptr;
    if (ranks == 1) {
      for (std::size_t f = 0; f < features; ++f)
        counts_in[f] = static_cast<std::size_t>(begin[f + 1] - begin[f]);
    } else {
      arrived = exchange_keys(keys, begin, counts_in);
    }
    std::vector<std::int64_t> arrived_at(ranks * features), arranged_at(ranks * features);
    std::int64_t total = 0, place = 0;
    for (std::size_t s = 0; s < counts_in.size(); ++s)
      arrived_at[s] = std::exchange(total, total + static_cast<std::int64_t>(counts_in[s]));
    for (std::size_t f = 0; f < features; ++f)
      for (std::size_t r = 0; r < ranks; ++r)
        arranged_at[r * features + f] =
            std::exchange(place, place + static_cast<std::int64_t>(counts_in[r * features + f]));
    const gpu::detail::VocabularyBatch batch = store_.batch_of(total);
    run("vocabulary_arrange", total, gpu::detail::vocabulary_arrange<>, features_.data(),
        static_cast<std::uint32_t>(features), locals_.data(),
        gpu::upload(backend_, segment_from_, arrived_at),
        gpu::upload(backend_, segment_to_, arranged_at),
        static_cast<std::uint32_t>(counts_in.size()), arrived, batch);
    return batch;
  }

  /// Sends keys to their owners, in the order of these; answers where those of this rank have
  /// arrived.
  const std::int64_t* exchange_keys(const KeyedJagged<std::int64_t>& keys,
                                    const std::vector<std::int64_t>& begin,
                                    std::vector<std::size_t>& counts_in) {
    const std::size_t ranks = static_cast<std::size_t>(communicator_.size()),
                      features = begin.size() - 1;
    const auto count = std::ssize(keys.ids);
    gpu::SortBuffers<std::uint32_t> buffers{
        gpu::grow(backend_, key_owners_, count), gpu::grow(backend_, places_, count),
        gpu::grow(backend_, other_key_owners_, count), gpu::grow(backend_, other_places_, count)};
    backend_.fill_zero(gpu::grow(backend_, counts_, static_cast<std::int64_t>(ranks * features)),
                       ranks * features * sizeof(unsigned long long));
    run("vocabulary_owners", count, gpu::detail::vocabulary_owners<>, features_.data(),
        static_cast<std::uint32_t>(features), gpu::upload(backend_, segment_from_, begin),
        owners_.data(), keys.ids.data(), static_cast<std::uint32_t>(count), buffers.keys,
        buffers.values, counts_.data());
    if (count > 0)
      buffers =
          gpu::sort_pairs(backend_, buffers, static_cast<int>(count), std::bit_width(ranks - 1));
    order_ = buffers.values;
    run("vocabulary_gather", count, gpu::detail::vocabulary_gather<>, keys.ids.data(), order_,
        static_cast<std::uint32_t>(count), gpu::grow(backend_, sent_keys_, count));
    const std::vector<unsigned long long> counts_out =
        gpu::download(backend_, counts_, static_cast<std::int64_t>(ranks * features));
    const std::vector<std::size_t> sent(counts_out.begin(), counts_out.end()),
        each(ranks, features);
    communicator_.all_to_all(std::span<const std::size_t>(sent), each,
                             std::span<std::size_t>(counts_in), each);
    const auto of_rank = [&](const std::vector<std::size_t>& counts, std::size_t r) {
      const auto from = counts.begin() + static_cast<std::ptrdiff_t>(r * features);
      return std::accumulate(from, from + static_cast<std::ptrdiff_t>(features), std::size_t{0});
    };
    for (std::size_t r = 0; r < ranks; ++r) {
      send_counts_[r] = of_rank(sent, r);
      receive_counts_[r] = of_rank(counts_in, r);
    }
    const std::size_t total =
        std::accumulate(receive_counts_.begin(), receive_counts_.end(), std::size_t{0});
    std::int64_t* received = gpu::grow(backend_, received_keys_, static_cast<std::int64_t>(total));
    communicator_.all_to_all(std::span<const std::int64_t>(sent_keys_.data(), keys.ids.size()),
                             send_counts_, std::span(received, total), receive_counts_);
    return received;
  }

  /// Brings the rows of this rank's keys back.
  template <IdType Id>
  void hand_back(const gpu::detail::VocabularyBatch& batch, std::span<Id> rows) {
    const std::int32_t* answers = batch.answers;
    if (communicator_.size() > 1) {  // also a rank of no keys, whose order_ may be null
      std::int32_t* received = gpu::grow(backend_, received_answers_, std::ssize(rows));
      communicator_.all_to_all(std::span<const std::int32_t>(answers, batch.count), receive_counts_,
                               std::span(received, rows.size()), send_counts_);
      answers = received;
    }
    run("vocabulary_hand_back", std::ssize(rows), gpu::detail::vocabulary_hand_back<Id>, answers,
        order_, static_cast<std::uint32_t>(rows.size()), rows.data());
  }

  Comm& communicator_;
  Cuda backend_;
  tessera::detail::VocabularyLayout layout_;
  gpu::detail::VocabularyStore<Own> store_;
  std::int64_t step_ = 0;
  Buffer<gpu::detail::VocabularyFeature, Cuda> features_;
  // by block of all tables: its rank, its number among this rank's
  Buffer<std::int32_t, Cuda> owners_, locals_;

  // Memory of a call, kept.
  Buffer<std::int64_t, Cuda> segment_from_, segment_to_, sent_keys_, received_keys_;
  Buffer<unsigned long long, Cuda> counts_;
  Buffer<std::uint32_t, Cuda> key_owners_, other_key_owners_, places_, other_places_;
  Buffer<std::int32_t, Cuda> received_answers_;
  // of this rank's keys, as they were sent; null: unchanged
  const std::uint32_t* order_ = nullptr;
  std::vector<std::size_t> send_counts_, receive_counts_;
  detail::VocabularyChanges own_changes_, changes_;
};

}}  // namespace tessera::v0
