// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/pod_vector.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera { inline namespace v0 {

/// Told of rows before an update changes them: what snapshots and increments of checkpoints live
/// on. All calls come from the rank's own thread.
class RowObserver {
 public:
  virtual ~RowObserver() = default;
  /// Tells that an update is about to change rows.
  virtual void begin_update() {}
  /// Tells that it has.
  virtual void end_update() noexcept {}
  /// Names rows of an arena that this update is going to change, in any order, some of them more
  /// than once. Should not throw: rows of other arenas may have changed.
  virtual void touch(int arena, std::span<const std::int64_t> rows) = 0;
};

namespace detail {

/// The time in which rows may change, for observers.
struct ObservedUpdate {
  /// Begins all; if one throws, those that had begun are told of the end.
  explicit ObservedUpdate(const PodVector<RowObserver*>& all) : ObservedUpdate(all, 0) {
    for (; begun < all.size(); ++begun) all[begun]->begin_update();
  }
  ObservedUpdate(const ObservedUpdate&) = delete;
  ObservedUpdate& operator=(const ObservedUpdate&) = delete;
  ~ObservedUpdate() {
    while (begun > 0) observers[--begun]->end_update();
  }

 private:
  ObservedUpdate(const PodVector<RowObserver*>& all, std::size_t none)
      : observers(all), begun(none) {}

  const PodVector<RowObserver*>& observers;
  std::size_t begun;
};

}  // namespace detail

}}  // namespace tessera::v0
