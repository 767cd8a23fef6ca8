// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/codec/codecs.hpp>
#include <tessera/concepts/codec.hpp>
#include <tessera/core/error.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>

namespace tessera { inline namespace v0 { namespace detail {

/// One of some codecs, chosen by name at run time. Of a single one nothing is left to choose: what
/// is done with it is compiled as if there were no choice.
template <Codec... Cs>
class CodecChoice {
  static_assert(sizeof...(Cs) > 0, "CodecChoice: needs at least one codec");
  static constexpr std::array<std::string_view, sizeof...(Cs)> names{Cs::name...};

 public:
  /// Takes the codec of this name; "": the first. Throws InvalidArgument that lists the names.
  explicit CodecChoice(std::string_view name = {}) {
    if (name.empty()) return;
    chosen_ = static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin());
    if (chosen_ < names.size()) return;
    std::string all;
    for (const std::string_view each : names)
      all += formatted("{}'{}'", all.empty() ? "" : ", ", each);
    throw InvalidArgument(formatted(
        "there is no codec '{}' to choose here, only {}; name more in EncodeWithOneOf<...>", name,
        all));
  }

  std::string_view name() const { return names[chosen_]; }
  template <Codec C>
  bool is() const {
    return name() == C::name;
  }

  /// Calls f(std::type_identity<C>()) for the chosen codec C.
  template <class F>
  void visit(F&& f) const {
    std::size_t i = 0;
    (
        [&] {
          if (i++ == chosen_) f(std::type_identity<Cs>());
        }(),
        ...);
  }

 private:
  std::size_t chosen_ = 0;
};

/// `C`, explained if it is no codec; then Fp32 takes its place, so that the compiler has nothing to
/// add.
template <class C>
using ExplainedCodec = std::conditional_t<explain_codec<C>(), C, Fp32>;

}  // namespace detail

}}  // namespace tessera::v0
