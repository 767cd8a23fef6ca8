// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/element.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/op/non_finite.hpp>
#include <tessera/tables/buffer.hpp>

#include <cmath>
#include <cstdint>

namespace tessera { inline namespace v0 { namespace detail {

/// How many elements were NaN or infinite, in the backend's memory: the host waits when it asks,
/// not when they are counted.
template <class Backend>
class NonFiniteCount {
 public:
  explicit NonFiniteCount(const Backend& backend) : backend_(backend) {
    count_.resize(backend_, 1);
    backend_.fill_zero(count_.data(), sizeof(unsigned long long));
  }

  /// Counts. `host_memory`: the backend does not reach the values, and the host counts.
  template <Element T>
  void add(MatrixView<const T> values, bool host_memory = false) {
    if (!host_memory) return op::run<op::CountNonFinite<T>>(backend_, {values, count_.data()});
    for (std::int64_t i = 0; i < values.rows; ++i)
      for (std::int64_t j = 0; j < values.columns; ++j)
        counted_by_host_ += !std::isfinite(to_float(values(i, j)));
  }
  std::uint64_t read() const {
    unsigned long long count = 0;
    backend_.copy(&count, count_.data(), sizeof(count));
    backend_.synchronize();
    return count + counted_by_host_;
  }

 private:
  Backend backend_;
  Buffer<unsigned long long, Backend> count_;
  std::uint64_t counted_by_host_ = 0;
};

}}}  // namespace tessera::v0::detail
