// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace tessera { inline namespace v0 { namespace laws { namespace detail {

/// Floats of a backend's memory that the host writes and reads by copies.
template <class Backend>
class BackendFloats {
 public:
  BackendFloats(const Backend& backend, std::vector<float> values)
      : backend_(backend),
        count_(values.size()),
        data_(static_cast<float*>(backend.allocate(bytes() + 4))) {
    write(values);
  }
  BackendFloats(const BackendFloats&) = delete;
  BackendFloats& operator=(const BackendFloats&) = delete;
  ~BackendFloats() { backend_.deallocate(data_, bytes() + 4); }

  float* data() const { return data_; }
  std::span<float> span() const { return {data_, count_}; }
  void write(const std::vector<float>& values) {
    if (count_ != 0) backend_.copy(data_, values.data(), bytes());
    backend_.synchronize();
  }
  std::vector<float> read() const {
    std::vector<float> values(count_);
    if (count_ != 0) backend_.copy(values.data(), data_, bytes());
    backend_.synchronize();
    return values;
  }

 private:
  std::size_t bytes() const { return count_ * sizeof(float); }

  Backend backend_;
  std::size_t count_;
  float* data_;
};

}}}}  // namespace tessera::v0::laws::detail
