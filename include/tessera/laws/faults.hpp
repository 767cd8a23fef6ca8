// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/config.hpp>

#include <tessera/core/format.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace laws { namespace detail {

/// Collects what laws find wrong. Of each kind of fault, which is its text without the values, the
/// first three are kept and the rest is counted: a wrong formula breaks its law for every random
/// row.
class Faults {
 public:
  template <class... Args>
  void expect(bool holds, tessera::detail::FormatText<Args...> text, const Args&... args) {
    if (holds) return;
    Kind& found = kind_of(tessera::detail::view(text));
    if (++found.count <= kept_of_a_kind)
      found.texts.push_back(tessera::detail::formatted<Args...>(text, args...));
  }

  std::vector<std::string> take() {
    std::vector<std::string> all;
    for (Kind& kind : kinds_) {
      for (std::string& text : kind.texts) all.push_back(std::move(text));
      if (kind.count > kept_of_a_kind)
        all.push_back(tessera::detail::formatted("... and {} more like the last",
                                                 kind.count - kept_of_a_kind));
    }
    kinds_.clear();
    return all;
  }

 private:
  static constexpr std::size_t kept_of_a_kind = 3;

  struct Kind {
    std::string_view text;
    std::size_t count = 0;
    std::vector<std::string> texts{};
  };

  Kind& kind_of(std::string_view text) {
    for (Kind& kind : kinds_)
      if (kind.text == text) return kind;
    return kinds_.emplace_back(Kind{text});
  }

  std::vector<Kind> kinds_;
};

}}}}  // namespace tessera::v0::laws::detail
