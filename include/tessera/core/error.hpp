// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/config.hpp>

#include <tessera/core/format.hpp>

#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tessera { inline namespace v0 {

/// Base of everything that Tessera throws. The text says what is wrong, where, and what to do about
/// it.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An argument, option or plan that cannot work.
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

/// An id outside its table, found under BadIds::throw_error.
class BadId : public Error {
 public:
  /// Describes a bad id. `rank`: whose batch it is; -1 if there is one rank.
  BadId(std::string_view feature, std::int64_t sample, std::int64_t id, std::int64_t rows,
        int rank = -1);

  const std::string& feature() const noexcept { return feature_; }
  std::int64_t sample() const noexcept { return sample_; }
  std::int64_t id() const noexcept { return id_; }
  std::int64_t rows() const noexcept { return rows_; }
  int rank() const noexcept { return rank_; }

 private:
  std::string feature_;
  std::int64_t sample_;
  std::int64_t id_;
  std::int64_t rows_;
  int rank_;
};

/// A collective that could not finish: a peer failed, was late, or disagrees about what to do.
class CommunicatorError : public Error {
 public:
  /// Describes a failed call. `rank` is the rank that is at fault (-1 if unknown), `collective`
  /// what the reporting rank was doing.
  CommunicatorError(int rank, std::string_view collective, const std::string& text)
      : Error(text), rank_(rank), collective_(collective) {}

  int rank() const noexcept { return rank_; }
  const std::string& collective() const noexcept { return collective_; }

 private:
  int rank_;
  std::string collective_;
};

/// Input data that cannot be read: names the source and the line or offset.
class DataError : public Error {
 public:
  using Error::Error;
};

namespace detail {

/// Throws `E` with a formatted text. Out of line, so that a check costs its caller a test and a
/// call.
template <class E>
[[noreturn, gnu::cold, gnu::noinline]] void fail(std::string_view text,
                                                 std::initializer_list<TextArgument> args) {
  throw E(make_text(text, args));
}

}  // namespace detail

/// Throws `E` with a formatted text unless `condition` holds. Arguments (bool, char, numbers,
/// strings, what converts to std::string) are formatted only on failure.
template <class E = InvalidArgument, class... Args>
constexpr void require(bool condition, detail::FormatText<Args...> text, const Args&... args) {
  if (!condition) detail::fail<E>(detail::view(text), {detail::TextArgument(args)...});
}

#ifdef TESSERA_INLINE
TESSERA_INLINE BadId::BadId(std::string_view feature, std::int64_t sample, std::int64_t id,
                            std::int64_t rows, int rank)
    : Error(detail::formatted(
          "{}feature '{}', sample {}: id {} is outside its table of {} rows (valid "
          "ids are 0..{}); fix the data, or "
          "choose BadIds::zero_vector, clamp or wrap",
          rank < 0 ? std::string() : detail::formatted("rank {}'s batch, ", rank), feature, sample,
          id, rows, rows - 1)),
      feature_(feature),
      sample_(sample),
      id_(id),
      rows_(rows),
      rank_(rank) {}
#endif

}}  // namespace tessera::v0
