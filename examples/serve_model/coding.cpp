// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "coding.hpp"

#include "protocol.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <new>

namespace serve {
namespace {

/// zlib's `windowBits`: 16 more is gzip's header and checksum in the place of zlib's own.
int window_bits(Coding coding) { return coding == Coding::gzip ? 15 + 16 : 15; }

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t";
  const std::size_t begin = std::min(text.find_first_not_of(kBlanks), text.size());
  text.remove_prefix(begin);
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

/// Takes what stands before a separator, or all.
std::string_view next(std::string_view& text, char separator) {
  const std::size_t end = std::min(text.find(separator), text.size());
  const std::string_view part = trimmed(text.substr(0, end));
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

/// Compares with a word of small letters, as names in HTTP are.
bool is_word(std::string_view text, std::string_view word) {
  return std::equal(text.begin(), text.end(), word.begin(), word.end(), [](char a, char b) {
    return (a >= 'A' && a <= 'Z' ? static_cast<char>(a - 'A' + 'a') : a) == b;
  });
}

/// x-gzip is gzip's old name.
std::optional<Coding> coding_named(std::string_view name) {
  if (is_word(name, "gzip") || is_word(name, "x-gzip")) return Coding::gzip;
  if (is_word(name, "deflate")) return Coding::deflate;
  if (is_word(name, "identity")) return Coding::identity;
  return std::nullopt;
}

/// Returns thousandths of a weight from 0 to 1 with three digits at most; what is none weighs 0.
int weight_of(std::string_view text) {
  if (text.empty() || text.size() > 5 || (text.size() > 1 && text[1] != '.')) return 0;
  int weight = 0, unit = 1000;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i == 1) continue;
    if (text[i] < '0' || text[i] > '9') return 0;
    weight += (text[i] - '0') * unit;
    unit /= 10;
  }
  return weight > 1000 ? 0 : weight;
}

}  // namespace

std::optional<Coding> coding_of(std::string_view content_encoding) {
  Coding coding = Coding::identity;
  while (!content_encoding.empty()) {
    const std::string_view name = next(content_encoding, ',');
    const auto named = name.empty() ? Coding::identity : coding_named(name);
    if (!named || (*named != Coding::identity && coding != Coding::identity)) return std::nullopt;
    if (*named != Coding::identity) coding = *named;
  }
  return coding;
}

std::optional<Coding> accepted_coding(std::optional<std::string_view> accept_encoding) {
  if (!accept_encoding) return Coding::identity;
  std::array<std::optional<int>, 3> weights;  // by Coding
  std::optional<int> others;                  // of "*"
  while (!accept_encoding->empty()) {
    std::string_view entry = next(*accept_encoding, ',');
    const std::string_view name = next(entry, ';');
    int weight = 1000;
    while (!entry.empty()) {
      std::string_view parameter = next(entry, ';');
      if (const std::string_view key = next(parameter, '='); is_word(key, "q"))
        weight = weight_of(trimmed(parameter));
    }
    if (name == "*") others = weight;
    if (const auto coding = coding_named(name)) weights[static_cast<std::size_t>(*coding)] = weight;
  }
  const auto weight_of_coding = [&](Coding coding) {
    return weights[static_cast<std::size_t>(coding)].value_or(others.value_or(0));
  };
  Coding best = Coding::gzip;
  if (weight_of_coding(Coding::deflate) > weight_of_coding(best)) best = Coding::deflate;
  const auto plain = weights[static_cast<std::size_t>(Coding::identity)];
  if (plain && *plain > weight_of_coding(best)) return Coding::identity;
  if (weight_of_coding(best) > 0) return best;
  // the plain body is welcome unless that is denied
  if (plain ? *plain > 0 : others != 0) return Coding::identity;
  return std::nullopt;
}

std::string unpacked(std::string_view body, Coding coding, std::uint64_t most,
                     const std::function<void(std::uint64_t)>& take) {
  // what zlib counts in 32 bits comes and goes in pieces
  constexpr std::size_t kPiece = std::size_t{1} << 30;
  z_stream stream{};
  if (inflateInit2(&stream, window_bits(coding)) != Z_OK) throw std::bad_alloc();
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, inflateEnd);
  const auto damaged = [&](std::string_view what) {
    return Refusal(400, fmt::format("the body's {} data are {}; send what Python's {} makes, or a "
                                    "plain body without Content-Encoding",
                                    name_of(coding), what,
                                    coding == Coding::gzip ? "gzip.compress" : "zlib.compress"));
  };
  std::string out;
  std::size_t read = 0, written = 0;
  for (;;) {
    if (written == out.size()) {
      // one byte more than the most tells that there are more
      const std::uint64_t room = std::min<std::uint64_t>(
          most + 1, std::max<std::uint64_t>({4096, 4 * body.size(), 2 * out.size()}));
      take(room);
      out.resize(room);
    }
    const std::size_t in = std::min(kPiece, body.size() - read);
    const std::size_t free = std::min(kPiece, out.size() - written);
    // zlib changes nothing there
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(body.data() + read));
    stream.avail_in = static_cast<uInt>(in);
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + written);
    stream.avail_out = static_cast<uInt>(free);
    const int result = inflate(&stream, Z_NO_FLUSH);
    read += in - stream.avail_in;
    written += free - stream.avail_out;
    if (written > most)
      throw Refusal(413, fmt::format("the body is too large: it unpacks to more than {} bytes; "
                                     "send fewer samples at once",
                                     most));
    if (result == Z_STREAM_END) {
      if (read == body.size()) break;
      if (coding != Coding::gzip || !body.substr(read).starts_with("\x1f\x8b"))
        throw damaged(fmt::format("followed by {} other bytes", body.size() - read));
      inflateReset(&stream);
    } else if (result == Z_MEM_ERROR) {
      throw std::bad_alloc();
    } else if (result == Z_NEED_DICT) {
      throw damaged("packed with a dictionary, which is not here");
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      throw damaged(fmt::format("damaged ({})", stream.msg == nullptr ? "no details" : stream.msg));
    } else if (read == body.size() && stream.avail_out > 0) {
      throw damaged("cut off");
    }
  }
  out.resize(written);
  return out;
}

std::string packed(std::string_view body, Coding coding) {
  constexpr std::size_t kPiece = std::size_t{1} << 30;
  constexpr int kMemory = 8;  // zlib's own
  z_stream stream{};
  if (deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, window_bits(coding), kMemory,
                   Z_DEFAULT_STRATEGY) != Z_OK)
    throw std::bad_alloc();
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, deflateEnd);
  std::string out(deflateBound(&stream, body.size()), '\0');
  std::size_t read = 0, written = 0;
  for (int result = Z_OK; result != Z_STREAM_END;) {
    const std::size_t in = std::min(kPiece, body.size() - read);
    const std::size_t free = std::min(kPiece, out.size() - written);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(body.data() + read));
    stream.avail_in = static_cast<uInt>(in);
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + written);
    stream.avail_out = static_cast<uInt>(free);
    result = deflate(&stream, read + in == body.size() ? Z_FINISH : Z_NO_FLUSH);
    read += in - stream.avail_in;
    written += free - stream.avail_out;
  }
  out.resize(written);
  return out;
}

}  // namespace serve
