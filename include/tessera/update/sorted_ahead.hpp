// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/pod_vector.hpp>
#include <tessera/op/update.hpp>
#include <tessera/tables/buffer.hpp>
#include <tessera/update/arena_streams.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// The entries of a step's updates, sorted by row from the moment that their ids are at the owners:
/// on a stream of its own, beside lookups, exchanges and dense layers. Every `start` is followed by
/// a `join` before the ids' memory is used for something else.
template <IdType Id, class Backend>
class SortedAhead {
 public:
  SortedAhead() = default;
  SortedAhead(SortedAhead&& other) noexcept { swap(other); }
  SortedAhead& operator=(SortedAhead&& other) noexcept {
    swap(other);
    return *this;
  }
  /// Frees memory in the order of the stream of its own: behind the updates that read it.
  ~SortedAhead() {
    try {
      if (pending_)
        side_->synchronize();  // which reads ids whose memory is freed next
      else if (reader_)
        side_->wait_for(*reader_);
    } catch (...) {  // the work has ended, well or not
    }
  }

  /// Notes that this step gets no update: the next `start` does nothing.
  void forgo() { forgone_ = true; }

  /// Begins sorting behind what `backend` was given so far. False: not, as `forgo` said.
  bool start(const Backend& backend, std::size_t arenas) {
    if (forgone_) return false;
    if (!side_) side_.emplace(backend.beside());
    memory_.resize(arenas);
    sorted_.assign(arenas, {});
    side_->wait_for(backend);
    return pending_ = true;
  }

  /// Sorts. `groups`: those of the arena's update, but for their gradients.
  void sort(std::size_t arena, std::int64_t arena_rows,
            const PodVector<op::GradientGroup<Id>>& groups) {
    const Room room(*side_, memory_[arena]);
    op::run<op::SortEntries<Id>>(*side_, {arena_rows, groups, &room, &sorted_[arena]});
  }

  /// Lets later work of `backend` come behind the sorting.
  void join(const Backend& backend) {
    if (!std::exchange(pending_, false)) return;
    backend.wait_for(*side_);
    reader_ = backend;
  }

  /// Returns what `sort` gave; after `join`. Nothing where it was not called.
  op::SortedBatch of(std::size_t arena) const {
    return arena < sorted_.size() ? sorted_[arena] : op::SortedBatch{};
  }
  /// Clears for the next batch.
  void clear() {
    sorted_.clear();
    forgone_ = false;
  }

 private:
  using Memory = Buffer<std::byte, Backend>;
  class Room final : public op::SortEntries<Id>::Room {
   public:
    Room(const Backend& side, Memory& memory) : side_(side), memory_(memory) {}
    void* make(std::size_t bytes) const override { return memory_.resize(side_, bytes).data(); }

   private:
    const Backend& side_;
    Memory& memory_;
  };

  void swap(SortedAhead& other) noexcept {
    std::swap(side_, other.side_);
    std::swap(reader_, other.reader_);
    std::swap(memory_, other.memory_);
    std::swap(sorted_, other.sorted_);
    std::swap(pending_, other.pending_);
    std::swap(forgone_, other.forgone_);
  }

  std::optional<Backend> side_, reader_;
  std::vector<Memory> memory_;  // by arena
  PodVector<op::SortedBatch> sorted_;
  bool pending_ = false, forgone_ = false;
};

/// On a backend that does not sort there is nothing to do.
template <IdType Id, class Backend>
  requires(!HasStreams<Backend>)
class SortedAhead<Id, Backend> {
 public:
  void join(const Backend&) {}
  op::SortedBatch of(std::size_t) const { return {}; }
  void forgo() {}
  void clear() {}
};

}}}  // namespace tessera::v0::detail
