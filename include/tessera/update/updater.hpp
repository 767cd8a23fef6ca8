// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/optional_collectives.hpp>
#include <tessera/core/pod_vector.hpp>
#include <tessera/core/row_observer.hpp>
#include <tessera/ids/agreement.hpp>
#include <tessera/ids/resident_rows.hpp>
#include <tessera/tables/arena_kernels.hpp>
#include <tessera/tables/buffer.hpp>
#include <tessera/tables/marked_rows.hpp>
#include <tessera/tables/rank_tables.hpp>
#include <tessera/update/arena_streams.hpp>
#include <tessera/update/cut_rows.hpp>
#include <tessera/update/merged_lists.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

template <Shared Tables, class Backend, class Comm>
class Accumulator;

/// Stage `update` on one rank's arenas. Most arenas are updated by one fused operation. Replicated
/// ones first gather all ranks' merged gradients; those whose columns are cut, under a row-wise
/// optimizer, first exchange parts of the mean squares.
template <Shared Tables, class Backend, class Comm>
class Updater {
 public:
  using Now = AnyUpdateStep;
  using Kernels = MergedRowKernels<Backend>;

  /// Takes tables. `kernels`: if tables are shared.
  Updater(const Backend& backend, Comm& communicator, const RankTables<Backend>& tables,
          const Kernels& kernels)
      : backend_(backend),
        communicator_(communicator),
        tables_(tables),
        kernels_(kernels),
        routing_(tables.routing()),
        arenas_(tables.arenas()),
        cut_rows_(backend, communicator, tables, kernels),
        merged_(arenas_.size()),
        merged_rows_(arenas_.size()),
        merged_gradients_(arenas_.size()),
        replicas_(arenas_.size()),
        held_(arenas_.size()) {
    for (std::size_t a = 0; a < arenas_.size(); ++a)
      if (shared(a) && routing_.arenas()[a].replicated) replicated_.push_back(a);
  }

  const Backend& backend() const { return backend_; }
  /// Returns who is told of rows before they change.
  PodVector<RowObserver*>& observers() { return observers_; }
  /// Returns who remembers which rows change.
  PodVector<MarkedRows<Backend>*>& marks() { return marks_; }

  /// Updates add the number of rows to it, in the backend's memory; null: they do not. Rows whose
  /// columns are cut count in `split_rows`.
  void count_rows(std::int64_t* counter) {
    merged_row_counter_ = counter;
    split_rows_ = 0;
  }
  std::int64_t split_rows() const { return split_rows_; }

  /// Sets whose sums rows lose that start anew.
  void accumulates_in(Accumulator<Tables, Backend, Comm>& accumulator) {
    accumulator_ = &accumulator;
  }

  /// Tells them of rows of arena `a` that will change by other means than an update.
  void tell_rows(std::size_t a, std::span<const std::int64_t> rows) {
    for (MarkedRows<Backend>* marks : marks_) marks->mark_rows(a, rows);
    for (RowObserver* observer : observers_) observer->touch(static_cast<int>(a), rows);
    if (accumulator_ != nullptr) accumulator_->drop(a, rows);
  }

  /// Returns whether ranks must talk about arena `a` before its rows can be updated.
  bool shared(std::size_t a) const {
    const ArenaPlan& arena = routing_.arenas()[a];
    return copies && arena.trains && (arena.replicated || arena.columns_split);
  }

  /// Merges the gradients of a shared arena. No table changes. `fixed_sizes`: every rank's groups
  /// have as much room (see Step).
  template <IdType Id, Element G>
  void merge_own(std::size_t a, const PodVector<op::GradientGroup<Id, G>>& groups, bool fixed_sizes,
                 MergeRows<Id, G, Backend> kernel) {
    merged_[a].assign(1, merge(a, groups, fixed_sizes, kernel));
  }
  /// Does the same if they are merged already.
  void take(std::size_t a, const MergedLists& merged) { merged_[a] = merged; }

  /// Gathers, after all shared arenas have merged their own: those of replicated arenas get all
  /// ranks' gradients, in three exchanges for all of them, or two if blocks are packed. Throws
  /// InvalidArgument if ranks' learning rates differ: their copies would. `rates`: as in Step.
  /// Collective if an arena is replicated.
  void gather(double rates) {
    if constexpr (copies) {
      pack_copies(false, rates);
      send_copies();
    }
  }

  /// Exchanges, in place of `gather`, all that updates need of other ranks. Collective. No table
  /// changes. `most_entries`: as MeanSquareExchange's, given in steps of fixed sizes.
  void exchange(std::span<const std::int64_t> most_entries, double rates, const Now& now) {
    if constexpr (copies) {
      pack_copies(!most_entries.empty(), rates);
      // Rows that are cut are merged before they are measured, those behind caches are brought.
      const bool first = std::any_of(replicated_.begin(), replicated_.end(), [&](std::size_t a) {
        return routing_.arenas()[a].columns_split || tables_.cache(a) != nullptr;
      });
      if (first) send_copies();
      if constexpr (splits_rows)
        for (std::size_t a = 0; a < arenas_.size(); ++a)
          if (routing_.arenas()[a].columns_split && routing_.arenas()[a].replicated)
            merged_[a].assign(1, merge_replicas(a, !most_entries.empty()));
      for (std::size_t a = 0; a < arenas_.size(); ++a)
        if (shared(a) && tables_.cache(a) != nullptr) hold(a, shared_bags(a));
      exchange_merged(now, most_entries, !first);
    }
  }
  /// Brings rows behind caches, before `exchange_merged`, if all arenas' gradients are merged.
  void hold_merged() {
    for (std::size_t a = 0; a < arenas_.size(); ++a)
      if (routing_.arenas()[a].trains && tables_.cache(a) != nullptr) hold(a, rows_of(merged_[a]));
  }
  /// Does the same if copies are merged already, or wait to be sent.
  void exchange_merged(const Now& now, std::span<const std::int64_t> most_entries = {},
                       bool copies_wait = false) {
    const auto send = [&] {
      if (copies_wait) send_copies();
    };
    if constexpr (splits_rows)
      if (!routing_.split_groups().empty())
        return cut_rows_.exchange(
            now, merged_, most_entries,
            [&](std::size_t a) -> const MergedLists& { return placed(a, merged_[a]); }, send);
    send();
  }

  /// Makes a step's update, which observers are told of: f(arena, backend) for all arenas that
  /// train; `backend` is for the arena's `apply`. Nothing else of a step changes rows.
  template <class F>
  void update(F&& f) {
    const ObservedUpdate observed(observers_);
    const auto apart = [&](std::size_t a) {
      return !tells() && routing_.arenas()[a].trains && !shared(a) && tables_.cache(a) == nullptr;
    };
    streams_.for_each(backend_, arenas_.size(), apart, [&](std::size_t a, const Backend& backend) {
      if (routing_.arenas()[a].trains) f(a, backend);
    });
  }
  /// Applies the optimizer to arena `a`, which trains; `groups`, sorted if `sorted` has them, are
  /// for arenas that are not shared. Asks no other rank.
  template <IdType Id, Element G>
  void apply(std::size_t a, const Now& now, const PodVector<op::GradientGroup<Id, G>>& groups,
             const op::SortedBatch& sorted, const Backend& backend,
             UpdateArena<Id, G, Backend> kernel) {
    if constexpr (copies)
      if (shared(a)) return apply_shared(a, now, backend);
    kernel(backend, tables_, a, now, groups, merged_row_counter_, sorted);
  }

  /// Returns whether somebody is told which rows change, by `tell` before `apply`.
  bool tells() const { return !observers_.empty() || !marks_.empty(); }
  /// Tells observers. `groups`: as apply's, with ids that are rows of the arena.
  template <IdType Id, Element G>
  void tell(std::size_t a, const PodVector<op::GradientGroup<Id, G>>& groups) {
    if constexpr (copies)
      if (shared(a)) return tell_bags<std::int64_t>(a, shared_bags(a));
    tell_bags<Id>(a, bags_of(groups));
  }

  // ---- for gradients that are merged already (Accumulator), over all ranks if rows are
  // replicated, in place of `gather` and `apply` ----

  /// Returns, after `gather`, the gradients of an arena, of all ranks if it is replicated.
  MergedLists merged_over_ranks(std::size_t a) {
    if (copies && routing_.arenas()[a].replicated) return {merge_replicas(a, false)};
    return merged_[a];
  }

  /// Applies, after `exchange`.
  void apply_merged(std::size_t a, const Now& now, const Backend& backend, const Kernels& kernels) {
    const auto groups = groups_of(merged_[a], arenas_[a].width());
    if (tells()) tell_bags<std::int64_t>(a, bags_of(groups));
    held_[a].mark_changed();
    if (splits_rows && routing_.arenas()[a].columns_split)
      apply_cut(a, now);
    else
      kernels.update(backend, tables_, a, now, placed(a, groups), merged_row_counter_, {});
    held_[a].release(false);
  }

 private:
  static constexpr bool copies = Tables != Shared::nothing, splits_rows = Tables == Shared::rows;
  /// All ranks' merged gradients of a replicated arena, in rank order.
  using Replicas = PodVector<op::GradientGroup<std::int64_t>>;

  /// Brings rows of an arena that is behind a cache into its slots, until they are applied.
  void hold(std::size_t a, const PodVector<op::Bags<std::int64_t>>& bags) {
    held_[a].clear();
    for (const op::Bags<std::int64_t>& each : bags) held_[a].append(backend_, each);
    held_[a].hold(backend_, tables_.cache(a), AnyRowCache<Backend>::For::task);
  }
  /// Returns what is held, by where the arena's memory has it.
  Replicas placed(std::size_t a, Replicas groups) const {
    if (tables_.cache(a) != nullptr)
      for (std::size_t i = 0; i < groups.size(); ++i)
        groups[i].bags = held_[a].placed(i, groups[i].bags);
    return groups;
  }
  const MergedLists& placed(std::size_t a, const MergedLists& merged) {
    if (tables_.cache(a) == nullptr) return merged;
    placed_ = merged;
    std::size_t i = 0;
    for (op::MergedGradients& list : placed_)
      if (list.count != 0)
        list.rows = const_cast<std::int64_t*>(held_[a].placed(i++, rows_of(list)).ids);
    return placed_;
  }

  /// What a rank tells before its merged gradients of a replicated arena.
  struct Gathered {
    std::int64_t count = 0;  ///< rows
    double learning_rate = 0;
  };

  /// Returns the rows of a shared arena that change.
  PodVector<op::Bags<std::int64_t>> shared_bags(std::size_t a) const {
    return routing_.arenas()[a].columns_split ? rows_of(merged_[a]) : bags_of(replicas_[a]);
  }
  void apply_shared(std::size_t a, const Now& now, const Backend& backend) {
    held_[a].mark_changed();
    if (routing_.arenas()[a].columns_split)
      apply_cut(a, now);
    else
      kernels_.update(backend, tables_, a, now, placed(a, replicas_[a]), merged_row_counter_, {});
    held_[a].release(false);
  }
  void apply_cut(std::size_t a, const Now& now) {
    if constexpr (splits_rows) split_rows_ += cut_rows_.apply(a, now, placed(a, merged_[a]));
  }

  static std::size_t total(const std::vector<std::size_t>& counts) {
    std::size_t sum = 0;
    for (const std::size_t n : counts) sum += n;
    return sum;
  }

  template <IdType Id, Element G>
  static std::int64_t entries_of(const PodVector<op::GradientGroup<Id, G>>& groups) {
    std::int64_t entries = 0;
    for (const op::GradientGroup<Id, G>& group : groups) entries += group.bags.entry_bound;
    return entries;
  }

  /// Merges into this collection's buffers of the arena.
  template <IdType Id, Element G>
  op::MergedGradients merge(std::size_t a, const PodVector<op::GradientGroup<Id, G>>& groups,
                            bool padded, MergeRows<Id, G, Backend> kernel) {
    const std::size_t room =
        static_cast<std::size_t>(std::min(entries_of(groups), routing_.arenas()[a].rows));
    op::MergedGradients merged{
        0, merged_rows_[a].resize(backend_, room).data(),
        merged_gradients_[a]
            .resize(backend_, room * static_cast<std::size_t>(arenas_[a].width()))
            .data()};
    // room that is left over travels, too
    if (padded) backend_.fill_zero(merged.gradients, merged_gradients_[a].size() * sizeof(float));
    kernel(backend_, {.arena_rows = routing_.arenas()[a].rows,
                      .width = arenas_[a].width(),
                      .groups = groups,
                      .merged = &merged,
                      .padded = padded});
    return merged;
  }

  template <IdType Id, Element G>
  static PodVector<op::Bags<Id>> bags_of(const PodVector<op::GradientGroup<Id, G>>& groups) {
    PodVector<op::Bags<Id>> bags;
    for (const op::GradientGroup<Id, G>& group : groups) bags.push_back(group.bags);
    return bags;
  }

  template <IdType Id>
  void tell_bags(std::size_t a, std::span<const op::Bags<Id>> all) {
    for (MarkedRows<Backend>* marks : marks_) marks->template mark<Id>(a, all);
    if (observers_.empty()) return;
    for (const op::Bags<Id>& bags : all) tell_observers(a, bags);
  }

  template <IdType Id>
  void tell_observers(std::size_t a, const op::Bags<Id>& bags) {
    if (bags.bags == 0) return;
    for (std::int64_t i = bags.begin(0), end = bags.end(bags.bags - 1); i < end;) {
      touched_.clear();
      for (const std::int64_t last = std::min<std::int64_t>(end, i + 4096); i < last; ++i)
        touched_.push_back(bags.ids[i] + bags.row_bias);
      for (RowObserver* observer : observers_) observer->touch(static_cast<int>(a), touched_);
    }
  }

  op::MergedGradients merge_replicas(std::size_t a, bool padded) {
    return merge(a, replicas_[a], padded, kernels_.merge);
  }

  /// Returns whether a message is this rank's merged gradients, unchanged.
  bool sends_merged() const { return replicated_.size() == 1 && blocks_.bytes == 1; }
  /// Returns the floats of so many rows in a message: where blocks of several arenas follow each
  /// other, each begins where vector loads may.
  std::size_t block_floats(std::size_t a, std::int64_t count) const {
    const std::size_t floats =
        static_cast<std::size_t>(count) * static_cast<std::size_t>(arenas_[a].width());
    return sends_merged() ? floats : (floats + 31) / 32 * 32;
  }

  /// Packs for `send_copies`: every rank has merged its own gradients of replicated tables; all get
  /// all, as one group per rank, so that they are added in rank order.
  void pack_copies(bool fixed_sizes, double rates) {
    if (replicated_.empty()) return;
    const std::size_t ranks = static_cast<std::size_t>(routing_.ranks()),
                      arenas = replicated_.size();
    const int own = routing_.rank();
    told_.clear();
    for (const std::size_t a : replicated_) told_.push_back({count_of(merged_[a]), rates});
    gathered_.clear();
    for (std::size_t r = 0; r < ranks; ++r)
      gathered_.insert(gathered_.end(), told_.begin(), told_.end());
    counts_.assign(ranks, arenas);
    if (!fixed_sizes) all_gather<Gathered>(communicator_, told_, gathered_, counts_);
    row_counts_.assign(ranks, 0);
    float_counts_.assign(ranks, 0);
    for (std::size_t r = 0; r < ranks; ++r)
      for (std::size_t i = 0; i < arenas; ++i) {
        const Gathered& other = gathered_[r * arenas + i];
        require_same_rate("update", own, rates, static_cast<int>(r), other.learning_rate);
        row_counts_[r] += static_cast<std::size_t>(other.count);
        float_counts_[r] += block_floats(replicated_[i], other.count);
      }
    for (std::size_t& count : row_counts_) count = blocks_.template padded<std::int64_t>(count);
    packed_ = pack_own(row_counts_[own], float_counts_[own]);
    const bool joined = joins_gathers();
    counts_ = row_counts_;
    for (std::size_t r = 0; joined && r < ranks; ++r) counts_[r] += float_counts_[r] / 2;
    all_rows_.resize(backend_, total(counts_));
    if (!joined) all_gradients_.resize(backend_, total(float_counts_));
    for (const std::size_t a : replicated_) replicas_[a].clear();
    const std::int64_t* block = all_rows_.data();
    const float* gradients = all_gradients_.data();
    for (std::size_t r = 0; r < ranks; block += counts_[r++]) {
      const std::int64_t* rows = block;
      if (joined) gradients = reinterpret_cast<const float*>(block + row_counts_[r]);
      for (std::size_t i = 0; i < arenas; ++i) {
        const std::size_t a = replicated_[i];
        op::Bags<std::int64_t> bags;
        bags.ids = rows;
        bags.bags = bags.entry_bound = gathered_[r * arenas + i].count;
        if (bags.bags != 0) replicas_[a].push_back({bags, gradients, arenas_[a].width()});
        rows += bags.bags;
        gradients += block_floats(a, bags.bags);
      }
    }
  }

  void send_copies() {
    if (replicated_.empty()) return;
    const auto own = static_cast<std::size_t>(routing_.rank());
    all_gather<std::int64_t>(communicator_, {packed_.rows, counts_[own]}, all_rows_.span(),
                             counts_);
    if (!joins_gathers())
      all_gather<float>(communicator_, {packed_.gradients, float_counts_[own]},
                        all_gradients_.span(), float_counts_);
  }

  /// Returns whether rows and gradients travel as one message: where blocks are packed anyway.
  bool joins_gathers() const { return blocks_.bytes > 1; }

  /// Packs this rank's rows and gradients of all replicated arenas, one arena after another; in one
  /// message gradients follow the rows.
  op::MergedGradients pack_own(std::size_t rows, std::size_t floats) {
    if (sends_merged() && merged_[replicated_[0]].size() == 1) return merged_[replicated_[0]][0];
    std::int64_t* const own_rows =
        own_rows_.resize(backend_, joins_gathers() ? rows + floats / 2 : rows).data();
    const op::MergedGradients packed{static_cast<std::int64_t>(rows), own_rows,
                                     joins_gathers()
                                         ? reinterpret_cast<float*>(own_rows + rows)
                                         : own_gradients_.resize(backend_, floats).data()};
    op::MergedGradients at = packed;
    for (const std::size_t a : replicated_) {
      const std::size_t width = static_cast<std::size_t>(arenas_[a].width());
      float* gradients = at.gradients;
      for (const op::MergedGradients& list : merged_[a]) {
        const auto count = static_cast<std::size_t>(list.count);
        if (count == 0) continue;
        backend_.copy(at.rows, list.rows, count * sizeof(std::int64_t));
        backend_.copy(gradients, list.gradients, count * width * sizeof(float));
        at.rows += count;
        gradients += count * width;
      }
      at.gradients += block_floats(a, count_of(merged_[a]));
    }
    return packed;
  }

  const Backend& backend_;
  Comm& communicator_;
  const BlockAlignment blocks_ = block_alignment(communicator_);
  const RankTables<Backend>& tables_;
  const Kernels kernels_;
  const RankLayout& routing_;
  const std::vector<Arena<Backend>>& arenas_;
  ArenaStreams<Backend> streams_;
  std::conditional_t<splits_rows, CutRows<Backend, Comm>, NoCutRows> cut_rows_;
  std::vector<MergedLists> merged_;  // by arena, as what follows
  MergedLists placed_;
  std::vector<Buffer<std::int64_t, Backend>> merged_rows_;
  std::vector<Buffer<float, Backend>> merged_gradients_;
  std::vector<Replicas> replicas_;
  std::vector<HeldRows<std::int64_t, Backend>> held_;  // of shared arenas behind caches
  std::vector<std::size_t> replicated_;                // arenas that train
  std::vector<Gathered> told_, gathered_;
  std::vector<std::size_t> counts_, row_counts_, float_counts_;  // by rank
  op::MergedGradients packed_;                                   // this rank's
  Buffer<std::int64_t, Backend> own_rows_, all_rows_;
  Buffer<float, Backend> own_gradients_, all_gradients_;
  PodVector<RowObserver*> observers_;
  PodVector<MarkedRows<Backend>*> marks_;
  Accumulator<Tables, Backend, Comm>* accumulator_ = nullptr;
  std::vector<std::int64_t> touched_;
  std::int64_t* merged_row_counter_ = nullptr;
  std::int64_t split_rows_ = 0;
};

}  // namespace detail

}}  // namespace tessera::v0
