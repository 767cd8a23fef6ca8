// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/core/pod_vector.hpp>
#include <tessera/op/copy_rows.hpp>
#include <tessera/op/gradients.hpp>
#include <tessera/op/update.hpp>
#include <tessera/tables/buffer.hpp>
#include <tessera/update/mean_square_exchange.hpp>
#include <tessera/update/merged_lists.hpp>
#include <tessera/update/updater.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// Gradients of several batches, merged by row, until one optimizer step takes them. A row's sum
/// goes on from batch to batch, entry by entry: on the host it has the bits of one batch that holds
/// all of them one after another. Every batch makes a list of the rows that it is the first to
/// have, and adds to the others where they are. Memory: the distinct rows so far.
template <Shared Tables, class Backend, class Comm>
class Accumulator {
  using Kernels = MergedRowKernels<Backend>;

 public:
  Accumulator(const Backend& backend, Comm& communicator, const RankTables<Backend>& tables,
              Updater<Tables, Backend, Comm>& updater)
      : backend_(backend),
        communicator_(communicator),
        tables_(tables),
        updater_(updater),
        arenas_(tables.arenas().size()),
        joins_lists_(communicator.size() > 1 && meets_copies(tables.layout())) {
    updater.accumulates_in(*this);
  }
  Accumulator(const Accumulator&) = delete;
  Accumulator& operator=(const Accumulator&) = delete;

  void require_none(std::string_view call) const {
    require(batches_ == 0,
            "{}: gradients of {} batches are accumulated and wait for apply; call it first", call,
            batches_);
  }

  /// Returns how often `apply` took what there was, or dropped it.
  std::uint64_t applies() const { return applies_; }

  /// Adds a step whose gradients have come to the owners: those of one loss. It has no more use for
  /// its rows, and is `accumulated`.
  template <class State, IdType Id>
  void add(State& step, MatrixView<const float> gradient, MergeRows<Id, float, Backend> kernel) {
    step.progress.accumulated(applies_);
    for (const bool check : {true, false})
      for (std::size_t a = 0; a < arenas_.size(); ++a)
        if (trains(a)) add<Id>(a, step.groups.gradients(step, a, gradient), check, kernel);
    step.resident.release(false);
    ++batches_;
  }

  /// Skips a step whose gradients were refused.
  template <class State>
  void skip(State& step) {
    skipped_ = true;
    step.progress.accumulated_no_more();
  }

  /// Drops the sums of rows of arena `a`, as if they had got no gradients: those are of a key that
  /// has lost its row. Lists stay ascending, and alike on all ranks that drop the same rows.
  void drop(std::size_t a, std::span<const std::int64_t> rows) {
    PerArena& arena = arenas_[a];
    std::vector<std::int64_t> dropped(rows.begin(), rows.end());
    std::sort(dropped.begin(), dropped.end());
    for (std::size_t i = 0; i < arena.merged.size(); ++i)
      drop(arena.merged[i], arena.sums[i], dropped, tables_.arenas()[a].width());
  }

  /// Lets ranks tell each other their rates and clipping, which must be the same, and their
  /// gradients of copied tables. Collective; the first of what `apply` does. False if there is
  /// nothing to apply, as all gradients were refused. Where it throws, gradients are as before.
  bool gather(double rates, const auto& clip) {
    require(batches_ != 0 || skipped_,
            "apply: no gradients are accumulated; call accumulate for one batch at least");
    if (batches_ == 0) return skipped_ = false;
    require_same_apply(communicator_, rates, clip);
    for (std::size_t a = 0; a < arenas_.size(); ++a) updater_.take(a, arenas_[a].merged);
    updater_.gather(rates);
    skipped_ = false;
    return true;
  }
  /// Merges them: from here on gradients are of all ranks, and more of this rank cannot be added.
  /// What throws before the end of `apply` must be followed by `clear`.
  void merge_copies(const Kernels& kernels) {
    for (std::size_t a = 0; a < arenas_.size(); ++a) {
      if (!trains(a)) continue;
      arenas_[a].merged = updater_.merged_over_ranks(a);
      if (joins_lists_) join_lists(a, kernels);
    }
  }

  /// Returns the norm of all tables' gradients, and of `dense`, which every rank has alike.
  /// Collective: one all-reduce. After `merge_copies`.
  double norm(std::span<const float> dense) {
    constexpr std::size_t at_once = std::size_t{1} << 29;
    std::int64_t* const sum = digits_.resize(backend_, op::SquareDigits{}.size()).data();
    op::SquareDigits all{};
    std::size_t summed = 0;  // values, since the digits were carried
    const auto carry = [&] {
      if (std::exchange(summed, 0) == 0) return;
      op::SquareDigits some{};
      backend_.copy(some.data(), sum, sizeof(some));
      backend_.synchronize();
      for (std::size_t k = 0; k < some.size(); ++k) all[k] += some[k];
      op::carry(all);
    };
    const auto add = [&](std::span<const float> values) {
      while (!values.empty()) {
        const std::size_t count = std::min(at_once, values.size());
        if (summed + count > at_once) carry();
        if (summed == 0) backend_.fill_zero(sum, sizeof(op::SquareDigits));
        op::run<op::AddSquares>(backend_, {values.data(), static_cast<std::int64_t>(count), sum});
        summed += count;
        values = values.subspan(count);
      }
    };
    const bool first = tables_.routing().rank() == 0;
    for (std::size_t a = 0; a < arenas_.size(); ++a)
      if (first || !tables_.routing().arenas()[a].replicated)
        for (const op::MergedGradients& list : arenas_[a].merged) add(gradients(a, list));
    if (first) add(dense);
    carry();
    if (communicator_.size() > 1) communicator_.all_reduce(std::span<std::int64_t>(all));
    return op::norm_of(all);
  }

  /// Clips values. `clipped`: as op::ClipValues'. Returns the number of values.
  std::int64_t clip(float factor, float limit, std::int64_t* clipped = nullptr) {
    std::int64_t values = 0;
    for (std::size_t a = 0; a < arenas_.size(); ++a)
      for (const op::MergedGradients& list : arenas_[a].merged)
        values += clip(gradients(a, list), factor, limit, clipped);
    return values;
  }
  std::int64_t clip(std::span<float> values, float factor, float limit,
                    std::int64_t* clipped = nullptr) {
    if (!values.empty())
      op::run<op::ClipValues>(backend_,
                              {values.data(), std::ssize(values), factor, limit, clipped});
    return std::ssize(values);
  }
  /// Clips the gradients of whole table rows. Returns the number of rows. Collective.
  std::int64_t clip_rows(float limit, std::int64_t* clipped) {
    if (!row_squares_)
      row_squares_ = std::make_shared<MeanSquareExchange<Backend, Comm>>(
          backend_, communicator_, tables_, [](const ArenaPlan& arena) { return arena.trains; });
    std::vector<MergedLists> merged;
    for (const PerArena& arena : arenas_) merged.push_back(arena.merged);
    const std::span<const float* const> means = row_squares_->run_stage(merged, {});
    std::int64_t rows = 0;
    for (std::size_t a = 0; a < arenas_.size(); ++a) {
      if (merged[a].empty()) continue;
      const ArenaPlan& plan = tables_.routing().arenas()[a];
      PodVector<op::ClipRows::Segment> segments;
      for (std::size_t i = 0; i < plan.segments.size(); ++i) {
        const Shard& shard = tables_.layout().shards[static_cast<std::size_t>(plan.shards[i])];
        segments.push_back({plan.segments[i].row_offset,
                            tables_.layout().tables[static_cast<std::size_t>(shard.table)].width});
      }
      const float* of_rows = means[a];
      for (const op::MergedGradients& list : merged[a]) {
        if (list.count == 0) continue;
        op::run<op::ClipRows>(backend_, {list.rows, list.gradients, list.count, plan.width, of_rows,
                                         limit, segments, clipped});
        of_rows += list.count;
        rows += list.count;
      }
    }
    return rows;
  }

  /// Makes one optimizer step. Collective if columns are cut; no table changes before that is
  /// done. `advance()` begins the step then.
  void apply(const AnyUpdateStep& now, const Kernels& kernels, const auto& advance) {
    for (std::size_t a = 0; a < arenas_.size(); ++a) updater_.take(a, arenas_[a].merged);
    updater_.hold_merged();
    updater_.exchange_merged(now);
    advance();
    updater_.update([&](std::size_t a, const Backend& backend) {
      updater_.apply_merged(a, now, backend, kernels);
    });
    clear();
  }

  /// Clears the sums: there are none from here on; forwards whose gradients there were take no more
  /// of them.
  void clear() {
    ++applies_;
    for (PerArena& arena : arenas_) arena.merged.clear();
    batches_ = 0;
  }

 private:
  /// Memory of a list.
  struct Sums {
    Buffer<std::int64_t, Backend> rows;
    Buffer<float, Backend> gradients;
  };
  struct PerArena {
    MergedLists merged;      // by batch: as other ranks have those of the same tables
    std::vector<Sums> sums;  // likewise; what is more is of earlier steps
  };

  /// Room for a list, of what an earlier step had there if that is hardly larger.
  class Room final : public op::MergedRoom {
   public:
    Room(const Backend& backend, Sums& sums, int width)
        : backend_(backend), sums_(sums), width_(static_cast<std::size_t>(width)) {}
    op::MergedGradients make(std::int64_t count) const override {
      const auto rows = static_cast<std::size_t>(count);
      return {count, fit(sums_.rows, rows), fit(sums_.gradients, rows * width_)};
    }

   private:
    template <class T>
    T* fit(Buffer<T, Backend>& buffer, std::size_t count) const {
      if (buffer.capacity() < count || buffer.capacity() - count > count / 32) {
        Buffer<T, Backend> none;
        std::swap(buffer, none);
      }
      return buffer.resize(backend_, count).data();
    }
    const Backend& backend_;
    Sums& sums_;
    std::size_t width_;
  };

  bool trains(std::size_t a) const { return tables_.routing().arenas()[a].trains; }

  std::span<float> gradients(std::size_t a, const op::MergedGradients& list) const {
    return {list.gradients, static_cast<std::size_t>(list.count * tables_.arenas()[a].width())};
  }

  /// Drops the sums of rows, which ascend.
  void drop(op::MergedGradients& list, Sums& sums, const std::vector<std::int64_t>& dropped,
            int width) {
    std::vector<std::int64_t> rows(static_cast<std::size_t>(list.count)), places;
    backend_.copy(rows.data(), list.rows, rows.size() * sizeof(std::int64_t));
    backend_.synchronize();
    for (std::int64_t i = 0; i < list.count; ++i)
      if (!std::binary_search(dropped.begin(), dropped.end(), rows[static_cast<std::size_t>(i)]))
        places.push_back(i);
    if (places.size() == rows.size()) return;
    Sums kept;
    const op::MergedGradients now =
        Room(backend_, kept, width).make(static_cast<std::int64_t>(places.size()));
    if (now.count != 0) {
      Buffer<std::int64_t, Backend> from;
      from.resize(backend_, places.size());
      backend_.copy(from.data(), places.data(), places.size() * sizeof(std::int64_t));
      const auto copy = [&](const auto* source, auto* target, std::int64_t bytes) {
        op::run<op::CopyRows>(backend_,
                              {{reinterpret_cast<const std::byte*>(source), bytes, from.data()},
                               {reinterpret_cast<std::byte*>(target), bytes},
                               now.count,
                               bytes});
      };
      copy(list.rows, now.rows, sizeof(std::int64_t));
      copy(list.gradients, now.gradients, width * std::int64_t{sizeof(float)});
      backend_.synchronize();  // `places` ends here
    }
    sums = std::move(kept);
    list = now;
  }

  /// Adds groups. `check`: throws if there are too many, and does no more.
  template <IdType Id>
  void add(std::size_t a, const PodVector<op::GradientGroup<Id>>& added, bool check,
           MergeRows<Id, float, Backend> kernel) {
    if (check) return op::require_countable<Backend, Id, float>(added);
    PerArena& arena = arenas_[a];
    if (arena.sums.size() == arena.merged.size()) arena.sums.emplace_back();
    arena.merged.reserve(arena.merged.size() + 1);  // nothing throws once sums have changed
    arena.merged.push_back(merge(a, added, arena.sums[arena.merged.size()], arena.merged, kernel));
  }

  template <IdType Id>
  op::MergedGradients merge(std::size_t a, const PodVector<op::GradientGroup<Id>>& groups,
                            Sums& into, std::span<const op::MergedGradients> so_far,
                            MergeRows<Id, float, Backend> kernel) {
    const int width = tables_.arenas()[a].width();
    const Room room(backend_, into, width);
    op::MergedGradients merged;
    kernel(backend_, {.arena_rows = tables_.routing().arenas()[a].rows,
                      .width = width,
                      .groups = groups,
                      .merged = &merged,
                      .room = &room,
                      .sums = so_far});
    return merged;
  }

  /// Returns whether some columns of a table are on one rank and others are copied to all. The
  /// copies' gradients are one list, merged over ranks; so those of the others must be, and of all
  /// shards that meet these in an arena, and of their tables' other shards on other ranks, and so
  /// on.
  static bool meets_copies(const Layout& layout) {
    std::vector<bool> copied(layout.tables.size()), owned(layout.tables.size());
    for (const Shard& shard : layout.shards)
      (shard.rank == every_rank ? copied : owned)[static_cast<std::size_t>(shard.table)] = true;
    for (std::size_t t = 0; t < copied.size(); ++t)
      if (copied[t] && owned[t]) return true;
    return false;
  }

  /// Joins all lists of an arena as one, which the shards that it exchanges mean squares with have,
  /// too.
  void join_lists(std::size_t a, const Kernels& kernels) {
    PerArena& arena = arenas_[a];
    if (arena.merged.size() < 2) return;
    Sums joined;
    const op::MergedGradients one = merge<std::int64_t>(
        a, groups_of(arena.merged, tables_.arenas()[a].width()), joined, {}, kernels.merge);
    arena.sums.clear();
    arena.sums.push_back(std::move(joined));
    arena.merged.assign(1, one);
  }

  const Backend& backend_;
  Comm& communicator_;
  const RankTables<Backend>& tables_;
  Updater<Tables, Backend, Comm>& updater_;
  std::vector<PerArena> arenas_;
  bool joins_lists_;
  Buffer<std::int64_t, Backend> digits_;
  // for clip_rows; shared_ptr, so that who never calls it compiles no code of the exchange
  std::shared_ptr<MeanSquareExchange<Backend, Comm>> row_squares_;
  std::int64_t batches_ = 0;
  std::uint64_t applies_ = 0;
  bool skipped_ = false;
};

}  // namespace detail

}}  // namespace tessera::v0
