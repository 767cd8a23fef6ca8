// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/element.hpp>
#include <tessera/core/random.hpp>
#include <tessera/op/kernel.hpp>

#include <concepts>
#include <cstdint>

namespace tessera { inline namespace v0 {

/// Which element is asked for, and of what. Values depend on nothing else, so every plan starts
/// from the same tables.
struct ElementKey {
  std::uint64_t seed = 0;
  std::uint64_t table = 0;  ///< name_key of the table's name
  std::int64_t table_rows = 0;
  std::int64_t row = 0;  ///< of the whole table, not of a shard
  std::int32_t column = 0;

  /// Returns 64 random bits of this element.
  TESSERA_HOST_DEVICE constexpr std::uint64_t word() const {
    return random_word(seed, table, row, column);
  }
};

/// First values of a table: a functor from ElementKey to float, trivially copyable.
template <class F>
concept Initializer = requires(const F& f, const ElementKey& key) {
  { f(key) } -> std::convertible_to<float>;
} && std::is_trivially_copyable_v<F>;

namespace op {

/// Fills `rows x width` elements of an arena; `first` is the key of the first element.
template <Element T, Initializer F>
struct Initialize {
  struct Parameters {
    T* values = nullptr;
    std::int64_t rows = 0;
    int width = 0;
    ElementKey first;
    F initializer;
  };
};

}  // namespace op

}}  // namespace tessera::v0
