// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/config.hpp>

#include <concepts>
#include <cstddef>
#include <cstring>
#include <string_view>

namespace tessera { inline namespace v0 {

namespace detail {

// A codec is a stateless struct that writes a row of floats in fewer bytes for its way between
// ranks:
//
//   static constexpr std::string_view name = "...";                            // the same on every rank, another for every codec
//   static constexpr std::size_t bytes(int width);                             // of an encoded row: a multiple of 4
//   HD static void encode(const float* row, int width, std::byte* to);         // `to` is aligned to 4
//   HD static void decode(const std::byte* from, int width, float* row);
//
// HD: TESSERA_HOST_DEVICE, for codecs that CUDA kernels are to use.

template <class C>
concept HasCodecName = requires {
  { C::name } -> std::convertible_to<std::string_view>;
};
template <class C>
consteval bool has_whole_words() {
  for (int width = 1; width <= 1024; ++width)
    if (C::bytes(width) == 0 || C::bytes(width) % 4 != 0) return false;
  return true;
}
template <class C>
concept HasEncodedBytes = requires {
  { C::bytes(16) } -> std::same_as<std::size_t>;
  requires has_whole_words<C>();
};
template <class C>
concept HasEncode = requires(const float* row, std::byte* to) { C::encode(row, 16, to); };
template <class C>
concept HasDecode = requires(const std::byte* from, float* row) { C::decode(from, 16, row); };

}  // namespace detail

/// Writes rows of floats in fewer bytes. Meaning, laws and the smallest model:
/// docs/concepts/codec.md.
template <class C>
concept Codec = detail::HasCodecName<C> && detail::HasEncodedBytes<C> && detail::HasEncode<C> &&
                detail::HasDecode<C>;

/// Floats, unchanged: the codec that operations and exchanges know, which read and write such rows
/// in place.
struct Fp32 {
  static constexpr std::string_view name = "fp32";
  TESSERA_HOST_DEVICE static constexpr std::size_t bytes(int width) {
    return 4 * static_cast<std::size_t>(width);
  }
  TESSERA_HOST_DEVICE static void encode(const float* row, int width, std::byte* to) {
    std::memcpy(to, row, bytes(width));
  }
  TESSERA_HOST_DEVICE static void decode(const std::byte* from, int width, float* row) {
    std::memcpy(row, from, bytes(width));
  }
};

// A codec may also let lanes of a GPU share a row, which is what makes it fast there: a header made
// from the range of the whole row, then four columns at a time. bytes(4 k + n) == bytes(0) + k
// (bytes(4) - bytes(0)) + (bytes(n) - bytes(0)), and the bytes are those of encode:
//
//   struct Range {...};   // of no columns; trivially copyable words of 32 bits, or nothing
//   HD static Range range(const float* row, int width);
//   HD static Range join(const Range&, const Range&);                                           // in any order
//   struct Header {...};  // the first bytes(0) bytes of an encoded row, or nothing
//   HD static Header header(const Range&);
//   HD static void encode_four(const Header&, const float* four, int count, std::byte* to);     // zeros for columns from `count` on
//   HD static void decode_four(const Header&, const std::byte* from, float* four);

/// A codec whose rows lanes of a GPU can share.
template <class C>
concept LaneCodec =
    Codec<C> && requires(const float* row, float* four, std::byte* to, const std::byte* from) {
      { C::range(row, 4) } -> std::same_as<typename C::Range>;
      { C::join(C::range(row, 4), typename C::Range{}) } -> std::same_as<typename C::Range>;
      { C::header(typename C::Range{}) } -> std::same_as<typename C::Header>;
      C::encode_four(typename C::Header{}, row, 4, to);
      C::decode_four(typename C::Header{}, from, four);
    };

/// Lists every requirement that `C` misses, one error each. (Of a concept itself g++ would add
/// seven lines to each.)
template <class C>
consteval bool explain_codec() {
  constexpr bool name = detail::HasCodecName<C>, bytes = detail::HasEncodedBytes<C>,
                 encode = detail::HasEncode<C>, decode = detail::HasDecode<C>;
  constexpr bool any = name || bytes || encode || decode;
  static_assert(any, "Codec: this type has no member of a codec (docs/concepts/codec.md)");
  static_assert(!any || name,
                "Codec: need static constexpr std::string_view name (docs/concepts/codec.md)");
  static_assert(!any || bytes,
                "Codec: need static constexpr std::size_t bytes(int width), a multiple of 4 above "
                "0 for every width (docs/concepts/codec.md)");
  static_assert(!any || encode,
                "Codec: need static void encode(const float* row, int width, std::byte* to) "
                "(docs/concepts/codec.md)");
  static_assert(!any || decode,
                "Codec: need static void decode(const std::byte* from, int width, float* row) "
                "(docs/concepts/codec.md)");
  return Codec<C>;
}

}}  // namespace tessera::v0
