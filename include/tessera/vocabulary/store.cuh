// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/cuda/sort.cuh>
#include <tessera/vocabulary/arrays.cuh>
#include <tessera/vocabulary/kernels.cuh>
#include <tessera/vocabulary/layout.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace gpu { namespace detail {

/// One rank's blocks of a vocabulary: what VocabularyBlock (vocabulary/block.hpp) does for
/// one, in device memory for all at once. The host keeps what is known of a block as a whole, and
/// decides by that.
template <class Own>
class VocabularyStore {
 public:
  /// Makes blocks. `policies`: by table.
  VocabularyStore(const Cuda& backend, const tessera::detail::VocabularyLayout& layout,
                  const std::vector<tessera::detail::KeyPolicy<Own>>& policies)
      : backend_(backend), layout_(layout), own_(layout.own.size()) {
    std::vector<VocabularyBlockInfo> infos;
    for (const tessera::detail::VocabularyLayout::Block& block : layout_.own) {
      const auto table = static_cast<std::size_t>(block.table);
      infos.push_back({tessera::detail::secret_vocabulary_seed(), block.table, block.begin,
                       static_cast<std::uint32_t>(own_rows_), layout_.tables[table].seed});
      policies_.push_back(policies[table]);
      own_rows_ += block.rows;
    }
    upload(backend_, policies_on_device_, policies_);
    require(own_rows_ < no_entry, "Vocabulary: {} rows on one rank; 2^32-2 are the most",
            own_rows_);
    upload(backend_, infos_, infos);
    grow(backend_, row_owners_, own_rows_);
    grow(backend_, free_rows_, own_rows_);
    grow(backend_, tallies_, std::ssize(own_));
    grow(backend_, least_, std::ssize(own_));
    backend_.fill_zero(least_.data(), least_.span().size_bytes());
    relocate(kLeastEntries, 0, 0);
    reindex();
  }
  VocabularyStore(const VocabularyStore&) = delete;
  VocabularyStore& operator=(const VocabularyStore&) = delete;

  /// Returns room for a batch; its keys, blocks and sources are to be written.
  VocabularyBatch batch_of(std::int64_t count) {
    require(count < INT32_MAX, "Vocabulary: {} keys for one rank; 2^31-2 are the most", count);
    return {.keys = grow(backend_, keys_, count),
            .blocks = grow(backend_, blocks_, count),
            .sources = grow(backend_, sources_, count),
            .answers = grow(backend_, answers_, count),
            .entries = grow(backend_, batch_entries_, count),
            .slots = grow(backend_, slots_, count),
            .ranks = grow(backend_, ranks_, count + 1),
            .count = static_cast<std::uint32_t>(count),
            .known = static_cast<std::uint32_t>(size_),
            .step = 0};
  }

  void find(const VocabularyBatch& batch) {
    run("vocabulary_find", batch.count, vocabulary_find<>, state(), batch);
    run("vocabulary_answer", batch.count, vocabulary_answer<>, state(), batch);
  }

  /// Counts the batch of a step, gives rows to keys that have earned one, answers, and forgets.
  /// Adds rows that changed hands; with VocabularyOptions::report_keys keys, too.
  void learn(const VocabularyBatch& batch, tessera::detail::VocabularyChanges& changes) {
    const bool sweeps = batch.step % tessera::detail::kVocabularySweep == 0 &&
                        !std::all_of(policies_.begin(), policies_.end(),
                                     [](const auto& policy) { return policy.steady(); });
    if (batch.count == 0 && !sweeps) return forget();
    if (size_ + batch.count > capacity_) {
      relocate(std::max(2 * capacity_, size_ + batch.count), 0, 0);
      reindex();
    }
    const VocabularyState s = state();
    const std::int64_t n = batch.count;
    const auto add_up = [&](std::uint32_t* values, std::int64_t count) {
      exclusive_sum(backend_, values, static_cast<int>(count));
    };
    backend_.fill_zero(tallies_.data(), tallies_.span().size_bytes());
    run("vocabulary_find", n, vocabulary_find<>, s, batch);
    run("vocabulary_claim", n, vocabulary_claim<>, s, batch);
    run("vocabulary_mark_new", n + 1, vocabulary_mark_new<>, s, batch);
    add_up(batch.ranks, n + 1);
    run("vocabulary_add", n, vocabulary_add<>, s, batch);
    run("vocabulary_number", n, vocabulary_number<>, s, batch);
    run("vocabulary_count", n, vocabulary_count<>, s, batch);
    run("vocabulary_touch", n + 1, vocabulary_touch<Policy>, s, batch, policies_on_device_.data());
    add_up(batch.ranks, n + 1);
    SortBuffers<std::uint32_t> newcomers = sort_buffers(n);
    run("vocabulary_list_newcomers", n, vocabulary_list_newcomers<>, batch, newcomers.values);

    std::vector<VocabularyTally> tallies = download(backend_, tallies_, std::ssize(own_));
    std::int64_t newcomer_count = 0;
    for (std::size_t b = 0; b < own_.size(); ++b) {
      size_ += tallies[b].added;
      own_[b].candidates += tallies[b].added;
      newcomer_count += tallies[b].newcomers;
    }
    if (newcomer_count > 0 || sweeps) {
      // The rows' search sorts, too: newcomers wait elsewhere.
      backend_.copy(grow(backend_, newcomers_, newcomer_count), newcomers.values,
                    static_cast<std::size_t>(newcomer_count) * sizeof(std::uint32_t));
      make_room(tallies, batch.step, sweeps, changes);
      if (newcomer_count > 0) admit(tallies, static_cast<int>(newcomer_count), batch.step, changes);
    }
    run("vocabulary_answer", n, vocabulary_answer<>, s, batch);
    forget();
  }

  /// Prepares for steps that may be lower than those seen so far.
  void forget_steps() {
    backend_.fill_zero(entries_.first.data(), entries_.first.span().size_bytes());
  }

  /// Returns the step in which some key was last seen, or 0. Waits.
  std::int64_t last_step() const {
    std::int64_t last = 0;
    for (const std::uint32_t step : download(backend_, entries_.steps, size_))
      last = std::max<std::int64_t>(last, step);
    return last;
  }

  std::int64_t admitted(int table) const {
    return sum(table, [](const OwnBlock& b) { return b.used - b.free; });
  }
  std::int64_t candidates(int table) const {
    return sum(table, [](const OwnBlock& b) { return b.candidates; });
  }

  /// Returns what this rank knows of a table, keys ascending. Waits.
  tessera::detail::VocabularyRecords export_records(int table) const {
    const std::vector<std::int64_t> keys = download(backend_, entries_.keys, size_);
    const std::vector<std::uint32_t> blocks = download(backend_, entries_.blocks, size_),
                                     counts = download(backend_, entries_.counts, size_),
                                     steps = download(backend_, entries_.steps, size_);
    const std::vector<std::int32_t> rows = download(backend_, entries_.rows, size_);
    std::vector<std::size_t> order;
    for (std::size_t e = 0; e < keys.size(); ++e)
      if (layout_.own[blocks[e]].table == table) order.push_back(e);
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return keys[a] < keys[b]; });
    tessera::detail::VocabularyRecords records;
    for (const int local : layout_.tables.at(static_cast<std::size_t>(table)).local)
      records.used.push_back(local < 0 ? -1 : own_[static_cast<std::size_t>(local)].used);
    for (const std::size_t e : order) {
      records.keys.push_back(keys[e]);
      records.rows.push_back(rows[e] < 0 ? -1 : layout_.own[blocks[e]].begin + rows[e]);
      records.counts.push_back(counts[e]);
      records.steps.push_back(steps[e]);
    }
    return records;
  }

  /// Replaces what is known of a table.
  void import_records(int t, const tessera::detail::VocabularyRecords& records) {
    const tessera::detail::VocabularyLayout::Table& table =
        layout_.tables[static_cast<std::size_t>(t)];
    const auto of_table = [&](const tessera::detail::VocabularyLayout::Block& block) {
      return block.table == t;
    };
    const auto first = std::find_if(layout_.own.begin(), layout_.own.end(), of_table);
    const auto begin = first - layout_.own.begin(),
               end = std::find_if_not(first, layout_.own.end(), of_table) - layout_.own.begin();
    const auto count = std::ssize(records.keys);
    relocate(std::max(capacity_, size_ + count), static_cast<std::uint32_t>(begin),
             static_cast<std::uint32_t>(end));
    for (std::int64_t b = begin; b < end; ++b) own_[static_cast<std::size_t>(b)] = {};
    std::vector<std::uint32_t> blocks, counts(records.counts.begin(), records.counts.end()),
        steps(records.steps.begin(), records.steps.end());
    std::vector<std::int32_t> rows;
    std::vector<bool> taken(static_cast<std::size_t>(table.begin.back()));
    for (std::size_t i = 0; i < records.keys.size(); ++i) {
      const int local =
          table.local[tessera::detail::VocabularyLayout::block_of(table, records.keys[i])];
      const std::int64_t row = records.rows[i];
      blocks.push_back(static_cast<std::uint32_t>(local));
      rows.push_back(row < 0 ? -1
                             : static_cast<std::int32_t>(
                                   row - layout_.own[static_cast<std::size_t>(local)].begin));
      if (row < 0)
        ++own_[static_cast<std::size_t>(local)].candidates;
      else
        taken[static_cast<std::size_t>(row)] = true;
    }
    backend_.copy(entries_.keys.data() + size_, records.keys.data(),
                  records.keys.size() * sizeof(std::int64_t));
    backend_.copy(entries_.blocks.data() + size_, blocks.data(),
                  blocks.size() * sizeof(std::uint32_t));
    backend_.copy(entries_.counts.data() + size_, counts.data(),
                  counts.size() * sizeof(std::uint32_t));
    backend_.copy(entries_.steps.data() + size_, steps.data(),
                  steps.size() * sizeof(std::uint32_t));
    backend_.copy(entries_.rows.data() + size_, rows.data(), rows.size() * sizeof(std::int32_t));
    size_ += count;
    std::int64_t first_row = 0;
    for (std::int64_t b = 0; b < end; ++b) {
      const tessera::detail::VocabularyLayout::Block& block =
          layout_.own[static_cast<std::size_t>(b)];
      if (b >= begin) {
        std::vector<std::int32_t> free;
        OwnBlock& own = own_[static_cast<std::size_t>(b)];
        own.used = records.used[static_cast<std::size_t>(
            std::find(table.local.begin(), table.local.end(), static_cast<int>(b)) -
            table.local.begin())];
        for (std::int64_t row = 0; row < own.used; ++row)
          if (!taken[static_cast<std::size_t>(block.begin + row)])
            free.push_back(static_cast<std::int32_t>(row));
        own.free = std::ssize(free);
        backend_.copy(free_rows_.data() + first_row, free.data(),
                      free.size() * sizeof(std::int32_t));
        backend_.fill_zero(least_.data() + b, sizeof(std::uint32_t));
      }
      first_row += block.rows;
    }
    reindex();
    backend_.synchronize();
  }

 private:
  using Policy = tessera::detail::KeyPolicy<Own>;
  static constexpr std::int64_t kLeastEntries = 1024;

  /// What the host knows of a block.
  struct OwnBlock {
    std::int64_t used = 0;  ///< rows [0, used) were given out at some time
    std::int64_t free = 0;  ///< of those, without a key now
    /// the first of them: its place in the block's part of free_rows_
    std::int64_t free_at = 0;
    std::int64_t candidates = 0;  ///< keys without a row
  };

  struct Entries {
    Buffer<std::int64_t, Cuda> keys;
    Buffer<std::uint32_t, Cuda> blocks, counts, steps, seen;
    Buffer<std::int32_t, Cuda> rows;
    Buffer<unsigned long long, Cuda> first;
  };

  template <class Kernel, class... Arguments>
  void run(std::string_view name, std::int64_t threads, Kernel kernel,
           const Arguments&... arguments) const {
    backend_.launch(name, ceil_divide(threads, vocabulary_threads), vocabulary_threads, kernel,
                    arguments...);
  }
  template <class T>
  void fill_ones(Buffer<T, Cuda>& buffer) const {
    if (buffer.size() > 0)
      check(cudaMemsetAsync(buffer.data(), 0xff, buffer.span().size_bytes(), backend_.stream()),
            "clearing a vocabulary");
  }
  template <class Row>
  static void append(const std::vector<Row>& from, std::vector<Row>& to) {
    to.insert(to.end(), from.begin(), from.end());
  }
  template <class Of>
  std::int64_t sum(int table, Of of) const {
    std::int64_t total = 0;
    for (std::size_t b = 0; b < own_.size(); ++b)
      if (layout_.own[b].table == table) total += of(own_[b]);
    return total;
  }
  std::int64_t vacant(std::size_t b) const {
    return own_[b].free + layout_.own[b].rows - own_[b].used;
  }

  VocabularyState state_of(const Entries& e) const {
    return {.index = index_.data(),
            .mask = static_cast<std::uint64_t>(index_.size()) - 1,
            .keys = e.keys.data(),
            .blocks = e.blocks.data(),
            .counts = e.counts.data(),
            .steps = e.steps.data(),
            .rows = e.rows.data(),
            .first = e.first.data(),
            .seen = e.seen.data(),
            .owners = row_owners_.data(),
            .free_rows = free_rows_.data(),
            .least = least_.data(),
            .tallies = tallies_.data(),
            .infos = infos_.data()};
  }
  VocabularyState state() const { return state_of(entries_); }

  /// Takes rows away in blocks that have too few: a sixteenth of the block at once, or as many as
  /// are needed; and rows of score 0, with `sweeps` also where there are enough.
  void make_room(const std::vector<VocabularyTally>& tallies, std::uint32_t step, bool sweeps,
                 tessera::detail::VocabularyChanges& changes) {
    std::vector<ShortBlock> blocks;
    std::uint32_t rows = 0;
    std::vector<std::uint32_t> least;
    for (std::size_t b = 0; b < own_.size(); ++b) {
      const bool steady = policies_[b].steady(), is_short = tallies[b].newcomers > vacant(b);
      if ((!is_short && (steady || !sweeps)) || own_[b].used == 0) continue;
      if (least.empty()) least = download(backend_, least_, std::ssize(own_));
      if (steady && tallies[b].most <= least[b]) continue;  // no key has a lower score
      blocks.push_back({static_cast<std::uint32_t>(b), rows, is_short, 0, 0, 0});
      rows += static_cast<std::uint32_t>(own_[b].used);
    }
    if (blocks.empty()) return;
    const auto count = static_cast<std::uint32_t>(blocks.size());
    blocks.push_back({0, rows, 0, 0, 0, 0});
    require(rows < INT32_MAX, "Vocabulary: {} rows in full blocks; 2^31-2 are the most", rows);
    const ShortBlock* on_device = upload(backend_, short_blocks_, blocks);
    SortBuffers<std::uint32_t> places = sort_buffers(rows);
    for (int pass = 0; pass < 4; ++pass) {
      run("vocabulary_victim_keys", rows, vocabulary_victim_keys<Policy>, state(),
          policies_on_device_.data(), on_device, count, step, pass, places.values, places.keys);
      places = sort_pairs(backend_, places, static_cast<int>(rows),
                          pass < 3 ? 32 : std::bit_width(count));
    }
    const std::vector<VocabularyTally> found = download(backend_, tallies_, std::ssize(own_));
    std::uint32_t eligible = 0, evicted = 0;
    for (ShortBlock& block : std::span(blocks).first(count)) {
      OwnBlock& own = own_[block.block];
      const std::int64_t needed =
                             block.is_short != 0
                                 ? std::max(tallies[block.block].newcomers - vacant(block.block),
                                            layout_.own[block.block].rows / 16)
                                 : 0,
                         wanted = std::max<std::int64_t>(found[block.block].worthless, needed);
      block.eligible_first = eligible;
      block.victims =
          static_cast<std::uint32_t>(std::min<std::int64_t>(found[block.block].eligible, wanted));
      block.evicted_at = std::exchange(evicted, evicted + block.victims);
      eligible += found[block.block].eligible;
      own.free += block.victims;
      own.free_at = 0;
      own.candidates += block.victims;
    }
    upload(backend_, short_blocks_, blocks);
    const bool reports = layout_.options.report_keys;
    run("vocabulary_evict", eligible, vocabulary_evict<>, state(), on_device, count, places.values,
        eligible, reports ? grow(backend_, key_rows_, evicted) : nullptr);
    if (reports) append(download(backend_, key_rows_, evicted), changes.evicted);
    std::uint32_t* ranks = grow(backend_, row_ranks_, std::int64_t{rows} + 1);
    run("vocabulary_mark_free", std::int64_t{rows} + 1, vocabulary_mark_free<>, state(), on_device,
        count, ranks);
    exclusive_sum(backend_, ranks, static_cast<int>(rows + 1));
    run("vocabulary_list_free", rows, vocabulary_list_free<>, state(), on_device, count, ranks);
  }

  void admit(const std::vector<VocabularyTally>& tallies, int count, std::uint32_t step,
             tessera::detail::VocabularyChanges& changes) {
    std::vector<VocabularyGrant> grants(own_.size());
    std::uint32_t first = 0, reused = 0, given = 0, first_row = 0;
    bool by_score = false;
    for (std::size_t b = 0; b < own_.size(); ++b) {
      OwnBlock& own = own_[b];
      const std::int64_t granted = std::min<std::int64_t>(tallies[b].newcomers, vacant(b)),
                         from_free = std::min(granted, own.free);
      const bool scarce = tallies[b].newcomers > granted;
      grants[b] = VocabularyGrant{
          .first = std::exchange(first, first + tallies[b].newcomers),
          .granted = static_cast<std::uint32_t>(granted),
          .from_free = static_cast<std::uint32_t>(from_free),
          .free_at = first_row + static_cast<std::uint32_t>(own.free_at),
          .used = static_cast<std::uint32_t>(own.used),
          .reused_at = std::exchange(reused, reused + static_cast<std::uint32_t>(from_free)),
          .given_at = std::exchange(given, given + static_cast<std::uint32_t>(granted)),
          .scarce = scarce};
      by_score |= scarce;
      own.free -= from_free;
      own.free_at += from_free;
      own.used += granted - from_free;
      own.candidates -= granted;
      first_row += static_cast<std::uint32_t>(layout_.own[b].rows);
    }
    const VocabularyGrant* on_device = upload(backend_, grants_, grants);
    SortBuffers<std::uint32_t> sorted = sort_buffers(count);
    backend_.copy(sorted.values, newcomers_.data(),
                  static_cast<std::size_t>(count) * sizeof(std::uint32_t));
    for (const bool by_block : {false, true}) {
      if (!by_block && !by_score) continue;
      run("vocabulary_newcomer_keys", count, vocabulary_newcomer_keys<Policy>, state(),
          policies_on_device_.data(), on_device, by_block, step, sorted.values,
          static_cast<std::uint32_t>(count), sorted.keys);
      sorted = sort_pairs(backend_, sorted, count, by_block ? std::bit_width(own_.size()) : 32);
    }
    const bool reports = layout_.options.report_keys;
    run("vocabulary_grant", count, vocabulary_grant<Policy>, state(), policies_on_device_.data(),
        on_device, step, sorted.values, static_cast<std::uint32_t>(count),
        grow(backend_, reused_, reused), reports ? grow(backend_, key_rows_, given) : nullptr);
    append(download(backend_, reused_, reused), changes.reused);
    if (reports) append(download(backend_, key_rows_, given), changes.given);
  }

  /// Halves counts of keys without a row where there are too many of them, until half as many are
  /// left.
  void forget() {
    const auto most = [&](std::size_t b) {
      return std::max(layout_.own[b].rows, tessera::detail::kLeastVocabularyCandidates);
    };
    std::vector<std::uint8_t> chosen(own_.size());
    for (std::size_t b = 0; b < own_.size(); ++b) chosen[b] = own_[b].candidates > most(b);
    if (std::find(chosen.begin(), chosen.end(), 1) == chosen.end()) return;
    while (std::find(chosen.begin(), chosen.end(), 1) != chosen.end()) {
      backend_.fill_zero(tallies_.data(), tallies_.span().size_bytes());
      run("vocabulary_halve", size_, vocabulary_halve<>, state(), static_cast<std::uint32_t>(size_),
          upload(backend_, forgetful_, chosen));
      const std::vector<VocabularyTally> tallies = download(backend_, tallies_, std::ssize(own_));
      for (std::size_t b = 0; b < own_.size(); ++b) {
        if (chosen[b] == 0) continue;
        own_[b].candidates = tallies[b].left;
        chosen[b] = 2 * own_[b].candidates > most(b);
      }
    }
    relocate(capacity_, 0, 0);
    reindex();
  }

  /// Moves the entries that stay (vocabulary_mark_kept) to new memory for `capacity` of them. They
  /// are to be indexed again.
  void relocate(std::int64_t capacity, std::uint32_t drop_begin, std::uint32_t drop_end) {
    require(capacity < std::int64_t{1} << 31,
            "Vocabulary: {} keys on one rank; 2^31-1 are the most", capacity);
    Entries made;
    grow(backend_, made.keys, capacity);
    for (Buffer<std::uint32_t, Cuda>* const each :
         {&made.blocks, &made.counts, &made.steps, &made.seen})
      grow(backend_, *each, capacity);
    grow(backend_, made.rows, capacity);
    grow(backend_, made.first, capacity);
    if (size_ > 0) {
      std::uint32_t* ranks = grow(backend_, row_ranks_, size_ + 1);
      const auto count = static_cast<std::uint32_t>(size_);
      run("vocabulary_mark_kept", size_ + 1, vocabulary_mark_kept<>, state(), count, drop_begin,
          drop_end, ranks);
      exclusive_sum(backend_, ranks, static_cast<int>(size_ + 1));
      run("vocabulary_move_kept", size_, vocabulary_move_kept<>, state(), state_of(made), count,
          ranks);
      std::uint32_t kept = 0;
      backend_.copy(&kept, ranks + size_, sizeof(kept));
      backend_.synchronize();
      size_ = kept;
    }
    backend_.fill_zero(made.seen.data(), made.seen.span().size_bytes());
    backend_.fill_zero(made.first.data(), made.first.span().size_bytes());
    entries_ = std::move(made);
    capacity_ = capacity;
  }

  void reindex() {
    const auto slots =
        static_cast<std::int64_t>(std::bit_ceil(2 * static_cast<std::uint64_t>(capacity_)));
    grow(backend_, index_, slots);
    fill_ones(index_);
    fill_ones(row_owners_);
    run("vocabulary_index", size_, vocabulary_index<>, state(), static_cast<std::uint32_t>(size_));
  }

  SortBuffers<std::uint32_t> sort_buffers(std::int64_t count) {
    return {grow(backend_, sort_keys_, count), grow(backend_, values_, count),
            grow(backend_, other_sort_keys_, count), grow(backend_, other_values_, count)};
  }

  Cuda backend_;
  const tessera::detail::VocabularyLayout& layout_;
  std::vector<OwnBlock> own_;
  std::vector<Policy> policies_;  // by block
  Buffer<Policy, Cuda> policies_on_device_;
  std::int64_t own_rows_ = 0, size_ = 0, capacity_ = 0;
  Buffer<VocabularyBlockInfo, Cuda> infos_;
  Entries entries_;
  Buffer<std::uint32_t, Cuda> index_, row_owners_, least_;
  Buffer<std::int32_t, Cuda> free_rows_;
  Buffer<VocabularyTally, Cuda> tallies_;

  // Memory of a call, kept.
  Buffer<std::int64_t, Cuda> keys_;
  Buffer<std::uint32_t, Cuda> blocks_, sources_, batch_entries_, slots_, ranks_, row_ranks_,
      newcomers_;
  Buffer<std::int32_t, Cuda> answers_;
  Buffer<std::uint32_t, Cuda> sort_keys_, values_, other_sort_keys_, other_values_;
  Buffer<ShortBlock, Cuda> short_blocks_;
  Buffer<VocabularyGrant, Cuda> grants_;
  Buffer<std::uint8_t, Cuda> forgetful_;
  Buffer<tessera::detail::ReusedRow, Cuda> reused_;
  Buffer<tessera::detail::KeyRow, Cuda> key_rows_;
};

}}}}  // namespace tessera::v0::gpu::detail
