// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

/// Content codings of HTTP, by zlib: bodies that come or go compressed.
namespace serve {

enum class Coding : std::uint8_t { identity, gzip, deflate };

/// Returns a coding's name in headers.
constexpr const char* name_of(Coding coding) {
  return coding == Coding::gzip ? "gzip" : coding == Coding::deflate ? "deflate" : "identity";
}

/// Returns the coding that a Content-Encoding names; none if it is another one, or several.
std::optional<Coding> coding_of(std::string_view content_encoding);

/// Returns the coding that an Accept-Encoding likes best, among equals gzip before deflate before
/// identity; none if it accepts none of them. `accept_encoding`: none if there is no such header.
std::optional<Coding> accepted_coding(std::optional<std::string_view> accept_encoding);

/// Unpacks a body, which must be one whole of `coding` (of gzip, members that follow each other).
/// `take` is called with the bytes of memory before they are taken, and throws if they are not to
/// be had. Throws Refusal: 400 for data that are damaged, cut off or followed by others, 413 for
/// more than `most` bytes.
std::string unpacked(std::string_view body, Coding coding, std::uint64_t most,
                     const std::function<void(std::uint64_t)>& take);

/// Packs a body, fast rather than small.
std::string packed(std::string_view body, Coding coding);

}  // namespace serve
