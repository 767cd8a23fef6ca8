// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/config.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

namespace tessera { inline namespace v0 { namespace detail {

/// Moves what is in memory of operator new to where there is room for `count` things of `size`
/// bytes, or for twice as many as before. Throws std::bad_alloc.
void* grow_memory(void* memory, std::size_t& capacity, std::size_t count, std::size_t size);

/// What std::vector does, for things that are copied as bytes. Lists of jobs and groups have dozens
/// of types, and a compiler takes a quarter of std::vector's time for each.
template <class T>
class PodVector {
 public:
  using value_type = T;
  using iterator = T*;
  using const_iterator = const T*;

  PodVector() = default;
  explicit PodVector(std::size_t count) { resize(count); }
  PodVector(std::initializer_list<T> all) { append(all.begin(), all.size()); }
  PodVector(const PodVector& other) { append(other.data_, other.size_); }
  PodVector(PodVector&& other) noexcept { swap(other); }
  PodVector& operator=(const PodVector& other) {
    if (this == &other) return *this;
    clear();
    append(other.data_, other.size_);
    return *this;
  }
  PodVector& operator=(PodVector&& other) noexcept {
    PodVector(std::move(other)).swap(*this);
    return *this;
  }
  ~PodVector() {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= alignof(std::max_align_t));
    ::operator delete(data_);
  }

  void push_back(const T& value) {
    const T copy = value;  // which may be one of these
    append(&copy, 1);
  }
  // nvcc 13 puts a list in braces into parentheses, too, if one function could take it.
  void push_back(T&& value) { push_back(static_cast<const T&>(value)); }
  T& emplace_back() {
    push_back(T());
    return back();
  }
  void resize(std::size_t count, T value = T()) {
    reserve(count);
    for (; size_ < count; ++size_) ::new (data_ + size_) T(value);
    size_ = count;
  }
  void assign(std::size_t count, T value) {
    clear();
    resize(count, value);
  }
  void reserve(std::size_t count) {
    if (count > capacity_) data_ = static_cast<T*>(grow_memory(data_, capacity_, count, sizeof(T)));
  }
  void clear() { size_ = 0; }
  /// Takes away all that are equal to `value`.
  void remove(T value) {
    resize(static_cast<std::size_t>(std::remove(begin(), end(), value) - begin()));
  }
  void swap(PodVector& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }

  T& operator[](std::size_t i) { return data_[checked(i)]; }
  const T& operator[](std::size_t i) const { return data_[checked(i)]; }
  T& back() { return (*this)[size_ - 1]; }
  const T& back() const { return (*this)[size_ - 1]; }
  const T& front() const { return (*this)[0]; }

  T* data() { return data_; }
  const T* data() const { return data_; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

 private:
  void append(const T* from, std::size_t count) {
    reserve(size_ + count);
    if (count > 0) std::memcpy(static_cast<void*>(data_ + size_), from, count * sizeof(T));
    size_ += count;
  }
  std::size_t checked(std::size_t i) const {
#ifdef _GLIBCXX_ASSERTIONS
    if (i >= size_) std::abort();
#endif
    return i;
  }

  T* data_ = nullptr;
  std::size_t size_ = 0, capacity_ = 0;
};

#ifdef TESSERA_INLINE
TESSERA_INLINE void* grow_memory(void* memory, std::size_t& capacity, std::size_t count,
                                 std::size_t size) {
  const std::size_t room = std::max(count, 2 * capacity);
  if (room > static_cast<std::size_t>(-1) / (2 * size)) throw std::bad_alloc();
  void* const larger = ::operator new(room * size);
  if (capacity > 0) std::memcpy(larger, memory, capacity * size);
  ::operator delete(memory);
  capacity = room;
  return larger;
}
#endif

}}}  // namespace tessera::v0::detail
