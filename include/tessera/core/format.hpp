// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/config.hpp>

#include <initializer_list>
#include <string>
#include <string_view>

// The library's door to fmt, versions 9 to 12. Texts are made out of line: one costs its caller an
// array and a call. Who defines TESSERA_CHECK_FORMATS, as the library's own builds by clang, gets
// them checked while they are compiled.
#ifdef TESSERA_INLINE
#if __has_include(<fmt/base.h>)  // from version 11 on core.h has less
#include <fmt/format.h>
#else
#include <fmt/core.h>
#endif
#include <memory>
#endif
#ifdef TESSERA_CHECK_FORMATS
#include <fmt/format.h>
#include <type_traits>
#endif

namespace tessera { inline namespace v0 { namespace detail {

/// One argument of a text: a bool, a character, a number, a string that outlives it, or what
/// converts to a string, which it does only if the text is made.
class TextArgument {
 public:
  constexpr TextArgument(bool value) : kind_(Kind::boolean), signed_(value) {}
  constexpr TextArgument(char value) : kind_(Kind::character), signed_(value) {}
  constexpr TextArgument(int value) : kind_(Kind::integer), signed_(value) {}
  constexpr TextArgument(long value) : kind_(Kind::integer), signed_(value) {}
  constexpr TextArgument(long long value) : kind_(Kind::integer), signed_(value) {}
  constexpr TextArgument(unsigned value) : kind_(Kind::natural), unsigned_(value) {}
  constexpr TextArgument(unsigned long value) : kind_(Kind::natural), unsigned_(value) {}
  constexpr TextArgument(unsigned long long value) : kind_(Kind::natural), unsigned_(value) {}
  constexpr TextArgument(float value) : kind_(Kind::single), single_(value) {}
  constexpr TextArgument(double value) : kind_(Kind::real), real_(value) {}
  constexpr TextArgument(std::string_view value) : kind_(Kind::string), string_(value) {}
  TextArgument(const std::string& value) : TextArgument(std::string_view(value)) {}
  constexpr TextArgument(const char* value) : TextArgument(std::string_view(value)) {}
  TextArgument(const void*) = delete;  // would be a bool

  /// Calls `f` with the value, in one of seven types.
  template <class F>
  void visit(const F& f) const {
    switch (kind_) {
      case Kind::boolean:
        return f(signed_ != 0);
      case Kind::character:
        return f(static_cast<char>(signed_));
      case Kind::integer:
        return f(signed_);
      case Kind::natural:
        return f(unsigned_);
      case Kind::single:
        return f(single_);
      case Kind::real:
        return f(real_);
      case Kind::string:
        return f(string_);
    }
  }

 private:
  enum class Kind : unsigned char { boolean, character, integer, natural, single, real, string };
  Kind kind_;
  union {
    long long signed_;
    unsigned long long unsigned_;
    float single_;
    double real_;
    std::string_view string_;
  };
};

/// A text with the places of `Args` in it, as fmt's documentation says.
#ifdef TESSERA_CHECK_FORMATS
template <class T>
using Shown = std::conditional_t<std::is_arithmetic_v<T>, T, std::string_view>;
template <class... Args>
using FormatText = fmt::format_string<Shown<Args>...>;
inline std::string_view view(fmt::string_view text) { return {text.data(), text.size()}; }
#else
template <class...>
using FormatText = std::string_view;
constexpr std::string_view view(std::string_view text) { return text; }
#endif

/// Returns the text with the arguments in their places.
[[gnu::cold]] std::string make_text(std::string_view text,
                                    std::initializer_list<TextArgument> args);

template <class... Args>
[[gnu::cold]] std::string formatted(FormatText<Args...> text, const Args&... args) {
  return make_text(view(text), {TextArgument(args)...});
}

#ifdef TESSERA_INLINE
TESSERA_INLINE std::string make_text(std::string_view text,
                                     std::initializer_list<TextArgument> args) {
  using Argument = fmt::basic_format_arg<fmt::format_context>;
  const std::unique_ptr<Argument[]> list(new Argument[args.size()]);
  Argument* next = list.get();
  for (const TextArgument& arg : args)
    arg.visit([&](const auto& value) {
      *next++ = fmt::format_args(fmt::make_format_args(value)).get(0);
    });
  return fmt::vformat(fmt::string_view(text.data(), text.size()),
                      fmt::format_args(list.get(), static_cast<int>(args.size())));
}
#endif

}}}  // namespace tessera::v0::detail
