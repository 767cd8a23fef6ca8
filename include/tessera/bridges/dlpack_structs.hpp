// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

/// The binary interface of DLPack 1 (https://dmlc.github.io/dlpack/latest/c_api.html): the same
/// bytes and members as in <dlpack/dlpack.h>, which a program may include, too. A pointer to one of
/// these is a pointer to its namesake there: reinterpret_cast<DLManagedTensorVersioned*>(...).
namespace tessera { inline namespace v0 { namespace dlpack {

/// Major: of the layout of ManagedTensorVersioned. Minor: of the lists of devices and types.
struct Version {
  std::uint32_t major = 1;
  std::uint32_t minor = 1;
};

/// Kinds of memory. Values that are not listed belong to other vendors.
enum class DeviceType : std::int32_t { cpu = 1, cuda = 2, cuda_host = 3, cuda_managed = 13 };

/// A kind of memory, and which GPU's it is; 0 for memory of the host.
struct Device {
  DeviceType device_type = DeviceType::cpu;
  std::int32_t device_id = 0;
};

/// Kinds of numbers.
enum class TypeCode : std::uint8_t {
  int_ = 0,
  uint = 1,
  float_ = 2,
  bfloat = 4,
  bool_ = 6,
};

/// An element's type: its kind, its bits, and 1 for all but vectors of values.
struct DataType {
  TypeCode code = TypeCode::float_;
  std::uint8_t bits = 32;
  std::uint16_t lanes = 1;

  friend constexpr bool operator==(const DataType&, const DataType&) = default;
};

/// A tensor in somebody's memory. Strides count elements; without any, rows are compact.
struct Tensor {
  void* data = nullptr;
  Device device{};
  std::int32_t ndim = 0;
  DataType dtype{};
  std::int64_t* shape = nullptr;
  std::int64_t* strides = nullptr;
  std::uint64_t byte_offset = 0;
};

/// The form of before DLPack 1, without flags: capsules named "dltensor".
struct ManagedTensor {
  Tensor dl_tensor{};
  void* manager_ctx = nullptr;
  void (*deleter)(ManagedTensor*) = nullptr;
};

/// The flag of a tensor that its consumer must not write to.
inline constexpr std::uint64_t flag_read_only = 1;

/// The form of DLPack 1: capsules named "dltensor_versioned".
struct ManagedTensorVersioned {
  Version version{};
  void* manager_ctx = nullptr;
  void (*deleter)(ManagedTensorVersioned*) = nullptr;
  std::uint64_t flags = 0;
  Tensor dl_tensor{};
};

/// Calls the deleter that a tensor brings, if it brings one.
struct Release {
  template <class Managed>
  void operator()(Managed* tensor) const noexcept {
    if (tensor->deleter != nullptr) tensor->deleter(tensor);
  }
};

/// A tensor that no consumer has taken yet. `release()` gives the pointer to a consumer, which
/// calls the deleter.
template <class Managed>
using Owned = std::unique_ptr<Managed, Release>;

}}}  // namespace tessera::v0::dlpack
