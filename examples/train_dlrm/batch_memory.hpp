// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model_shape.hpp"

#include <tessera/core/jagged.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/host/backend.hpp>
#include <tessera_data/click_batch.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

namespace dlrm {

/// Where a backend reads the numbers, labels and ids of a batch. Ids stay in use while those of the
/// next batch come.
template <class Backend>
class BatchMemory;

/// On the host they stay in their place; ids of a wide part are there once more.
template <>
class BatchMemory<tessera::Host> {
 public:
  using Batch = tessera::ClickBatch<std::int32_t>;

  BatchMemory(const tessera::Host&, const ModelShape& shape, std::int64_t, bool = false)
      : wide_(shape.wide) {}

  tessera::MatrixView<const float> numbers(const Batch& batch) { return batch.dense_view(); }
  std::span<const float> labels(const Batch& batch) { return batch.labels; }
  /// `agree`: makes each of some numbers, or none, the largest of all ranks'; for batches of
  /// training that a graph may hold, called once.
  tessera::KeyedJagged<std::int32_t> ids(
      const Batch& batch,
      [[maybe_unused]] const std::function<void(std::span<std::int64_t>)>& agree = nullptr) {
    tessera::KeyedJagged<std::int32_t> ids = batch.keyed();
    if (!wide_) return ids;
    std::swap(twice_[0], twice_[1]);
    Twice& twice = twice_[0];
    const auto repeat = [](auto& to, const auto& from, auto begin, auto add) {
      to.assign(from.begin(), from.end());
      std::transform(begin, from.end(), std::back_inserter(to), [add](auto x) { return x + add; });
    };
    repeat(twice.ids, batch.ids, batch.ids.begin(), 0);
    ids.features *= 2;
    ids.ids = twice.ids;
    if (!batch.offsets.empty()) {  // none: one id per bag, or no sample of this rank
      repeat(twice.offsets, batch.offsets, batch.offsets.begin() + 1, batch.offsets.back());
      ids.offsets = twice.offsets;
    }
    return ids;
  }

 private:
  bool wide_;
  struct Twice {
    std::vector<std::int32_t> ids;
    std::vector<std::int64_t> offsets;
  } twice_[2];
};

}  // namespace dlrm
