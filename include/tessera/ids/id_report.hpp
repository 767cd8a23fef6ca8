// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/op/inputs.hpp>
#include <tessera/sharding/layout.hpp>
#include <tessera/tables/buffer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// Elements in memory of the host that a backend can write, too; zeros at first.
template <class T, class Backend>
class HostBuffer {
 public:
  HostBuffer(const Backend& backend, std::size_t count) {
    for (T& value : memory_.resize(backend, count)) value = T{};
  }

  std::span<T> span() const { return memory_.span(); }
  T* data() const { return memory_.data(); }

 private:
  Buffer<T, Backend> memory_{Tier::host};
};

/// How many bad ids a collection has seen, per table; and, if the host cannot see ids, the first
/// fault of a batch. A fault is thrown when the host learns of it: at once if `route` waits for
/// counts anyway, else by a later `route`, or by `bad_ids()`.
template <class Backend, bool HostReadable = Backend::host_readable>
class IdReport {
 public:
  /// Makes a report. `rank`: as BadId's.
  IdReport(const Backend&, std::size_t tables, int rank) : rank_(rank), counts_(tables, 0) {}

  int rank() const { return rank_; }
  std::span<std::uint64_t> counts() { return counts_; }
  std::span<const std::uint64_t> read(const Layout&) const { return counts_; }
  void raise(const Backend&, const Layout&) const {}

 private:
  int rank_;
  std::vector<std::uint64_t> counts_;
};

template <class Backend>
class IdReport<Backend, false> {
 public:
  IdReport(const Backend& backend, std::size_t tables, int rank)
      : backend_(backend),
        rank_(rank),
        seen_(backend, 1),
        seen_counts_(backend, tables),
        read_(tables, 0) {
    counts_.resize(backend, tables);
    fault_.resize(backend, 1);
    backend.fill_zero(counts_.data(), tables * sizeof(unsigned long long));
    clear(backend);
  }

  unsigned long long* counts() const { return counts_.data(); }
  op::InputFault* fault() const { return fault_.data(); }

  /// Sends news after work of `backend` that may have found a fault: its news is on the way.
  /// `features`: those of the batch. Waits for the news of a batch of other features.
  void send(const Backend& backend, const Layout& layout, std::span<const int> features) {
    if (!std::equal(features_.begin(), features_.end(), features.begin(), features.end())) {
      if (!features_.empty()) backend.synchronize();
      raise(backend, layout);
      features_.assign(features.begin(), features.end());
    }
    backend.copy(seen_.data(), fault_.data(), sizeof(op::InputFault));
  }
  /// Throws what is known by now. `backend`: the one that does the work on ids.
  void raise(const Backend& backend, const Layout& layout) {
    if (static_cast<const volatile op::InputFault*>(seen_.data())->kind == op::InputFault::none)
      return;
    backend.synchronize();
    const op::InputFault fault = *seen_.data();
    *seen_.data() = {};
    clear(backend);
    const FeatureSpec& feature = layout.features[features_[fault.feature]];
    const std::int64_t rows = layout.tables[layout.feature_table[features_[fault.feature]]].rows;
    if (fault.kind == op::InputFault::bad_id)
      throw BadId(feature.name, fault.sample, fault.value, rows, rank_);
    require(fault.kind != op::InputFault::offsets_backwards,
            "KeyedJagged: offsets go backwards at feature {} ('{}'), sample {}: {} after {}",
            fault.feature, feature.name, fault.sample, fault.value, fault.before);
    require(fault.kind != op::InputFault::first_offset,
            "KeyedJagged: the first offset must be 0, is {}", fault.value);
    require(fault.kind != op::InputFault::over_bound,
            "KeyedJagged: feature {} ('{}') has {} ids, more than its bound", fault.feature,
            feature.name, fault.value);
    throw InvalidArgument(formatted("KeyedJagged: the last offset is {} but there are {} ids",
                                    fault.value, fault.before));
  }
  /// Waits for the backend's work.
  std::span<const std::uint64_t> read(const Layout& layout) {
    backend_.copy(seen_counts_.data(), counts_.data(), read_.size() * sizeof(unsigned long long));
    backend_.synchronize();
    raise(backend_, layout);
    read_.assign(seen_counts_.span().begin(), seen_counts_.span().end());
    return read_;
  }

 private:
  void clear(const Backend& backend) { backend.fill_zero(fault_.data(), sizeof(op::InputFault)); }

  Backend backend_;
  int rank_;
  Buffer<unsigned long long, Backend> counts_;
  Buffer<op::InputFault, Backend> fault_;
  HostBuffer<op::InputFault, Backend> seen_;
  HostBuffer<unsigned long long, Backend> seen_counts_;
  std::vector<std::uint64_t> read_;
  std::vector<int> features_;
};

}}}  // namespace tessera::v0::detail
