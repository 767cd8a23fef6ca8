// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/element.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

namespace tessera { inline namespace v0 {

namespace detail {

/// Element types of safetensors files that are read and written.
enum class TensorType : std::uint8_t { f32, f16, bf16, f64, i64, i32, u8, boolean };

struct TensorTypeFacts {
  std::string_view name;
  std::uint64_t size;
};
inline constexpr std::array<TensorTypeFacts, 8> kTensorTypes = {{{"F32", 4},
                                                                 {"F16", 2},
                                                                 {"BF16", 2},
                                                                 {"F64", 8},
                                                                 {"I64", 8},
                                                                 {"I32", 4},
                                                                 {"U8", 1},
                                                                 {"BOOL", 1}}};

/// Returns the name that safetensors gives to a type: "F32", "BF16", ...
constexpr std::string_view tensor_type_name(TensorType type) {
  return kTensorTypes[static_cast<std::size_t>(type)].name;
}

/// Returns bytes per element.
constexpr std::uint64_t tensor_type_size(TensorType type) {
  return kTensorTypes[static_cast<std::size_t>(type)].size;
}

/// Returns the type of a name; nothing if there is none.
std::optional<TensorType> find_tensor_type(std::string_view name);

#ifdef TESSERA_INLINE
TESSERA_INLINE std::optional<TensorType> find_tensor_type(std::string_view name) {
  const auto known = std::find_if(kTensorTypes.begin(), kTensorTypes.end(),
                                  [&](const TensorTypeFacts& t) { return t.name == name; });
  if (known == kTensorTypes.end()) return std::nullopt;
  return static_cast<TensorType>(known - kTensorTypes.begin());
}
#endif

}  // namespace detail

static_assert(detail::tensor_type_name(detail::TensorType::boolean) == "BOOL" &&
              detail::tensor_type_size(detail::TensorType::f64) == 8);

namespace detail {

/// Returns the safetensors type of a C++ element type: float F32, Half F16, BFloat16 BF16, double
/// F64, int64 I64, int32 I32, uint8 U8, bool BOOL.
template <class T>
constexpr TensorType tensor_type_of() {
  if constexpr (std::is_same_v<T, float>) {
    return TensorType::f32;
  } else if constexpr (std::is_same_v<T, Half>) {
    return TensorType::f16;
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return TensorType::bf16;
  } else if constexpr (std::is_same_v<T, double>) {
    return TensorType::f64;
  } else if constexpr (std::is_same_v<T, std::int64_t>) {
    return TensorType::i64;
  } else if constexpr (std::is_same_v<T, std::int32_t>) {
    return TensorType::i32;
  } else if constexpr (std::is_same_v<T, std::uint8_t>) {
    return TensorType::u8;
  } else {
    static_assert(std::is_same_v<T, bool>,
                  "safetensors: the element type must be float, Half, BFloat16, double, int64, "
                  "int32, uint8 or bool");
    return TensorType::boolean;
  }
}

}  // namespace detail

}}  // namespace tessera::v0
