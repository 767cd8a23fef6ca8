// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/io/text.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace tessera { inline namespace v0 { namespace detail {

/// Returns the low `bytes` bytes of a number, little-endian.
inline std::string little_endian(std::uint64_t value, std::size_t bytes) {
  static_assert(std::endian::native == std::endian::little);
  return {reinterpret_cast<const char*>(&value), bytes};
}

/// Writes a pickle of Python, protocol 2, instruction by instruction: each call leaves its value on
/// the unpickler's stack. Names and texts that come again are references.
class PickleWriter {
 public:
  /// Appends instructions: "(" (a mark), "t" (a tuple since it), "N" (None), ...
  PickleWriter& code(std::string_view instructions) {
    bytes_ += instructions;
    return *this;
  }
  PickleWriter& integer(std::int64_t value) {
    const auto bits = static_cast<std::uint64_t>(value);
    bytes_ += value == static_cast<std::int32_t>(value) ? 'J' + little_endian(bits, 4)
                                                        : "\x8a\x08" + little_endian(bits, 8);
    return *this;
  }
  PickleWriter& text(std::string_view value) {
    return once('X' + little_endian(value.size(), 4) + std::string(value));
  }
  /// Writes a class or function.
  PickleWriter& name(std::string_view module, std::string_view own) {
    return once(formatted("c{}\n{}\n", module, own));
  }
  PickleWriter& tuple(std::span<const std::int64_t> values) {
    bytes_ += '(';
    for (const std::int64_t value : values) integer(value);
    return code("t");
  }
  /// Begins an object; its attributes follow, each a text and a value, then `code(kEnd)`.
  PickleWriter& object(std::string_view module, std::string_view own) {
    return name(module, own).code(")\x81}(");
  }
  static constexpr std::string_view kEnd = "ub";

  /// Returns the pickle; ends the writing.
  std::string take() { return std::move(bytes_) + '.'; }

 private:
  /// Writes a value and has the unpickler remember it, or recalls it.
  PickleWriter& once(std::string instruction) {
    const auto [known, added] = known_.try_emplace(std::move(instruction), known_.size());
    if (added) bytes_ += known->first;
    bytes_ += (added ? 'r' : 'j') + little_endian(known->second, 4);
    return *this;
  }

  std::string bytes_ = "\x80\x02";
  std::map<std::string, std::size_t> known_;
};

}}}  // namespace tessera::v0::detail
