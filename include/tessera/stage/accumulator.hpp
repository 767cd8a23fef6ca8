// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/op/gradients.hpp>
#include <tessera/op/update.hpp>
#include <tessera/stage/mean_square_exchange.hpp>
#include <tessera/stage/served_groups.hpp>
#include <tessera/stage/updater.hpp>
#include <tessera/tables/buffer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::inline v0 {

namespace detail {

/// Gradients of several batches, merged by row, until one optimizer step takes them. A row's sum goes
/// on from batch to batch, entry by entry: on the host it has the bits of one batch that holds all
/// of them one after another. Memory: the distinct rows so far, with an eighth to spare at most; and
/// while a batch is merged in, the new sums of one arena beside its old ones.
template <class Store, class Backend, class Comm>
class Accumulator {
 public:
  Accumulator(const Backend& backend, Comm& communicator, const Store& store,
              Updater<Store, Backend, Comm>& updater)
      : backend_(backend),
        communicator_(communicator),
        store_(store),
        updater_(updater),
        arenas_(store.arenas().size()) {}

  void require_none(std::string_view call) const {
    require(batches_ == 0,
            "{}: gradients of {} batches are accumulated and wait for apply; call it first", call,
            batches_);
  }

  /// How often `apply` took what there was.
  std::uint64_t applies() const { return applies_; }

  /// A step whose gradients have come to the owners: those of one loss. It has no more use for its
  /// rows, and is `accumulated`.
  template <IdType Id>
  void add(Step<Id, Backend>& step, MatrixView<const float> gradient) {
    step.progress.accumulated(applies_);
    for (const bool check : {true, false})
      for (std::size_t a = 0; a < arenas_.size(); ++a)
        if (trains(a)) add<Id>(a, gradients_of(step, a, gradient), check);
    spare_ = {};
    step.resident.release(false);
    ++batches_;
  }

  /// A step whose gradients were refused.
  template <IdType Id>
  void skip(Step<Id, Backend>& step) {
    skipped_ = true;
    step.progress.accumulated_no_more();
  }

  /// Merges copies of replicated rows over ranks. Collective; the first of what `apply` does. False
  /// where there is nothing to apply, as all gradients were refused.
  bool finish(double rates) {
    require(batches_ != 0 || skipped_,
            "apply: no gradients are accumulated; call accumulate for one batch at least");
    skipped_ = false;
    if (batches_ == 0) return false;
    for (std::size_t a = 0; a < arenas_.size(); ++a) updater_.take(a, arenas_[a].merged);
    updater_.gather(false, rates);
    for (std::size_t a = 0; a < arenas_.size(); ++a)
      if (trains(a)) arenas_[a].merged = updater_.merged_over_ranks(a);
    return true;
  }

  /// The norm of all tables' gradients, and of `dense`, which every rank has alike. Collective: one
  /// all-reduce. After `finish`.
  double norm(std::span<const float> dense) {
    constexpr std::size_t at_once = std::size_t{1} << 29;
    std::int64_t* const sum = digits_.resize(backend_, op::SquareDigits{}.size()).data();
    op::SquareDigits all{};
    const auto add = [&](std::span<const float> values) {
      for (; !values.empty(); values = values.subspan(std::min(at_once, values.size()))) {
        op::SquareDigits some{};
        backend_.fill_zero(sum, sizeof(some));
        op::run<op::AddSquares>(
            backend_,
            {values.data(), static_cast<std::int64_t>(std::min(at_once, values.size())), sum});
        backend_.copy(some.data(), sum, sizeof(some));
        backend_.synchronize();
        for (std::size_t k = 0; k < some.size(); ++k) all[k] += some[k];
        op::carry(all);
      }
    };
    const bool first = store_.routing().rank() == 0;
    for (std::size_t a = 0; a < arenas_.size(); ++a)
      if (first || !store_.routing().arenas()[a].replicated) add(gradients(a));
    if (first) add(dense);
    if (communicator_.size() > 1) communicator_.all_reduce(std::span<std::int64_t>(all));
    return op::norm_of(all);
  }

  /// `clipped`: as op::ClipValues'. Answers the number of values.
  std::int64_t clip(float factor, float limit, std::int64_t* clipped = nullptr) {
    std::int64_t values = 0;
    for (std::size_t a = 0; a < arenas_.size(); ++a)
      values += clip(gradients(a), factor, limit, clipped);
    return values;
  }
  std::int64_t clip(std::span<float> values, float factor, float limit,
                    std::int64_t* clipped = nullptr) {
    if (!values.empty())
      op::run<op::ClipValues>(backend_,
                              {values.data(), std::ssize(values), factor, limit, clipped});
    return std::ssize(values);
  }
  /// The gradients of whole table rows. Answers the number of rows. Collective.
  std::int64_t clip_rows(float limit, std::int64_t* clipped) {
    if (!row_squares_)
      row_squares_ = std::make_unique<MeanSquareExchange<Backend, Comm>>(
          backend_, communicator_, store_.layout(), store_.routing(),
          [](const ArenaPlan& arena) { return arena.trains; });
    std::vector<op::MergedGradients> merged;
    for (const PerArena& arena : arenas_) merged.push_back(arena.merged);
    const std::span<const float* const> means = row_squares_->run_stage(merged, {});
    std::int64_t rows = 0;
    for (std::size_t a = 0; a < arenas_.size(); ++a) {
      if (merged[a].count == 0) continue;
      const ArenaPlan& plan = store_.routing().arenas()[a];
      std::vector<op::ClipRows::Segment> segments;
      for (std::size_t i = 0; i < plan.segments.size(); ++i) {
        const Shard& shard = store_.layout().shards[static_cast<std::size_t>(plan.shards[i])];
        segments.push_back({plan.segments[i].row_offset,
                            store_.layout().tables[static_cast<std::size_t>(shard.table)].width});
      }
      op::run<op::ClipRows>(backend_, {merged[a].rows, merged[a].gradients, merged[a].count,
                                       plan.width, means[a], limit, segments, clipped});
      rows += merged[a].count;
    }
    return rows;
  }

  /// One optimizer step. Collective where columns are cut; no table changes before that is done.
  /// `advance(now)` begins the step then.
  void apply(typename Updater<Store, Backend, Comm>::Now now, const auto& advance) {
    for (std::size_t a = 0; a < arenas_.size(); ++a) updater_.take(a, arenas_[a].merged);
    updater_.hold_merged();
    updater_.exchange_merged(now);
    advance(now);
    for (std::size_t a = 0; a < arenas_.size(); ++a)
      if (trains(a)) updater_.apply_merged(a, now);
    ++applies_;
    clear();
  }

  void clear() {
    for (PerArena& arena : arenas_) arena.merged = {};
    batches_ = 0;
  }

 private:
  /// Rows and their gradients.
  struct Sums {
    Buffer<std::int64_t, Backend> rows;
    Buffer<float, Backend> gradients;
  };
  struct PerArena {
    op::MergedGradients merged;
    Sums sums;
  };

  /// Room that is no larger than it must be, of what an arena had before where that fits.
  class Room final : public op::MergedRoom {
   public:
    Room(const Backend& backend, Sums& spare, int width)
        : backend_(backend), spare_(spare), width_(static_cast<std::size_t>(width)) {}
    op::MergedGradients make(std::int64_t count) const override {
      const auto rows = static_cast<std::size_t>(count);
      return {count, fit(spare_.rows, rows), fit(spare_.gradients, rows * width_)};
    }

   private:
    template <class T>
    T* fit(Buffer<T, Backend>& buffer, std::size_t count) const {
      if (buffer.capacity() < count || buffer.capacity() - count > count / 8) buffer = {};
      return buffer.resize(backend_, count).data();
    }
    const Backend& backend_;
    Sums& spare_;
    std::size_t width_;
  };

  bool trains(std::size_t a) const { return store_.routing().arenas()[a].trains; }

  std::span<float> gradients(std::size_t a) const {
    const op::MergedGradients& merged = arenas_[a].merged;
    return {merged.gradients, static_cast<std::size_t>(merged.count * store_.arenas()[a].width())};
  }

  /// `check`: throws where there are too many, and does no more.
  template <IdType Id>
  void add(std::size_t a, const std::vector<op::GradientGroup<Id>>& added, bool check) {
    PerArena& arena = arenas_[a];
    const std::int64_t arena_rows = store_.routing().arenas()[a].rows;
    const int width = store_.arenas()[a].width();
    std::vector<op::GradientGroup<Id>> groups;
    if (arena.merged.count != 0) {
      require(
          arena_rows - 1 <= std::numeric_limits<Id>::max(),
          "accumulate: {} rows of width {} on one rank, which ids of {} bits do not count; give "
          "ids of 64 bits",
          arena_rows, width, 8 * sizeof(Id));
      Id* const ids = reinterpret_cast<Id*>(
          ids_.resize(backend_, static_cast<std::size_t>(arena.merged.count)).data());
      if (!check)
        op::run<op::RowsAsIds<Id>>(backend_, {arena.merged.rows, arena.merged.count, ids});
      op::Bags<Id> bags;
      bags.ids = ids;
      bags.bags = bags.entry_bound = arena.merged.count;
      groups.push_back({bags, arena.merged.gradients, width});
    }
    groups.insert(groups.end(), added.begin(), added.end());
    if (check) return op::require_countable<Backend, Id, float>(groups);
    const bool first = arena.merged.count == 0;
    const Room room(backend_, first ? arena.sums : spare_, width);
    op::MergedGradients merged;
    Store::with_width(width, [&]<int Width>(std::integral_constant<int, Width>) {
      op::run<op::Merge<Id, Width>>(backend_, {arena_rows, width, groups, &merged, false, &room});
    });
    if (merged.count == 0) return;
    arena.merged = merged;
    if (!first) std::swap(arena.sums, spare_);
  }

  const Backend& backend_;
  Comm& communicator_;
  const Store& store_;
  Updater<Store, Backend, Comm>& updater_;
  std::vector<PerArena> arenas_;
  Sums spare_;                         // what the arena had that was merged last, during `add`
  Buffer<std::int64_t, Backend> ids_;  // of rows so far, for one arena at a time
  Buffer<std::int64_t, Backend> digits_;
  std::unique_ptr<MeanSquareExchange<Backend, Comm>> row_squares_;
  std::int64_t batches_ = 0;
  std::uint64_t applies_ = 0;
  bool skipped_ = false;
};

}  // namespace detail

}  // namespace tessera::inline v0
