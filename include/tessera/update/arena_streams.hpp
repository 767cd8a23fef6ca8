// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>

namespace tessera { inline namespace v0 { namespace detail {

/// Whether a backend has streams, so that it can work beside itself.
template <class Backend>
concept HasStreams = requires(const Backend& backend) { backend.beside(); };

/// Where the work of one arena after another goes: the backend's stream and one beside it take
/// turns, so that the short kernels at the end of one arena's work run beside the next one's. On a
/// backend without streams all of it comes in order.
template <class Backend>
class ArenaStreams {
 public:
  /// Calls f(arena, backend) for each of `arenas`. Later work of `backend` comes behind all of it.
  /// `apart(arena)`: its work may run on the second stream, as all that it reads is ready and the
  /// host does not wait in it; other arenas' work stays on `backend`.
  template <class Apart, class F>
  void for_each(const Backend& backend, std::size_t arenas, const Apart& apart, F&& f) {
    if constexpr (HasStreams<Backend>) {
      std::size_t many = 0;
      for (std::size_t a = 0; a < arenas; ++a) many += apart(a) ? 1 : 0;
      if (many > 1) return for_each_apart(backend, arenas, apart, f);
    }
    for (std::size_t a = 0; a < arenas; ++a) f(a, backend);
  }

 private:
  template <class Apart, class F>
  void for_each_apart(const Backend& backend, std::size_t arenas, const Apart& apart, F&& f) {
    if (!side_) side_.emplace(backend.beside());
    side_->wait_for(backend);
    try {
      bool beside = true;
      for (std::size_t a = 0; a < arenas; ++a) {
        if (apart(a)) beside = !beside;
        f(a, beside && apart(a) ? *side_ : backend);
      }
    } catch (...) {
      join_quietly(backend);
      throw;
    }
    backend.wait_for(*side_);
  }

  /// Joins behind a fault, which the caller is told of.
  void join_quietly(const Backend& backend) noexcept {
    try {
      backend.wait_for(*side_);
    } catch (...) {
    }
  }

  std::optional<Backend> side_;
};

}}}  // namespace tessera::v0::detail
