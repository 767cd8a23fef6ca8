// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/rectangle.hpp>

#include <cstddef>
#include <limits>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

namespace tessera { inline namespace v0 {

/// Owns memory of a backend for trivially copyable elements. Move-only. Growing discards the
/// contents, so that a buffer that is reused every step allocates only until it has seen its
/// largest step. Tier::host: memory of the host that the backend's operations reach, too.
template <class T, class Backend>
class Buffer {
  static_assert(std::is_trivially_copyable_v<T>, "Buffer: elements must be trivially copyable");

 public:
  Buffer() = default;
  explicit Buffer(Tier tier) : tier_(tier) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { release(); }

  /// Makes room for `count` elements (contents undefined) and returns them.
  std::span<T> resize(const Backend& backend, std::size_t count) {
    if (count > capacity_) {
      if (count > std::numeric_limits<std::ptrdiff_t>::max() / (2 * sizeof(T)))
        throw std::bad_alloc();
      const std::size_t grown = capacity_ == 0 ? count : count + count / 4;
      // throws while nothing is lost
      if constexpr (requires { backend.before_growth(grown); })
        backend.before_growth(grown * sizeof(T));
      release();
      backend_ = backend;
      data_ = static_cast<T*>(tier_ == Tier::device ? backend_.allocate(grown * sizeof(T))
                                                    : backend_.allocate_host(grown * sizeof(T)));
      capacity_ = grown;
    }
    size_ = count;
    return span();
  }

  T* data() const { return data_; }
  std::size_t size() const { return size_; }
  /// Returns the elements that it has memory for.
  std::size_t capacity() const { return capacity_; }
  std::span<T> span() const { return {data_, size_}; }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(backend_, other.backend_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    std::swap(tier_, other.tier_);
  }
  void release() noexcept {
    if (data_ == nullptr) return;
    if (tier_ == Tier::device) {
      backend_.deallocate(data_, capacity_ * sizeof(T));
    } else {
      synchronize();
      backend_.deallocate_host(data_, capacity_ * sizeof(T));
    }
    data_ = nullptr;
    capacity_ = size_ = 0;
  }

  /// Does nothing: memory of the host is given back at once, whatever still works with it.
  void synchronize() noexcept {
    try {
      backend_.synchronize();
    } catch (...) {  // the work has ended, well or not
    }
  }

  Backend backend_{};
  T* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
  Tier tier_ = Tier::device;
};

}}  // namespace tessera::v0
