// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/bridges/dlpack_structs.hpp>
#include <tessera/core/any_matrix.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/format.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/tables/matrix.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

namespace tessera { inline namespace v0 {

namespace dlpack {

/// Types of elements that cross: storage types of tables, double, integers, bool.
template <class T>
concept Value = Element<T> || std::same_as<T, double> || std::integral<T>;

/// Returns how DLPack names a type.
template <Value T>
constexpr DataType type_of() {
  constexpr auto bits = static_cast<std::uint8_t>(8 * sizeof(T));
  if constexpr (std::is_same_v<T, BFloat16>) return {TypeCode::bfloat, bits};
  if constexpr (std::is_same_v<T, bool>) return {TypeCode::bool_, bits};
  if constexpr (std::is_integral_v<T>)
    return {std::is_signed_v<T> ? TypeCode::int_ : TypeCode::uint, bits};
  return {TypeCode::float_, bits};
}

}  // namespace dlpack

namespace detail {

inline std::string dlpack_text(dlpack::DataType type) {
  const auto code = static_cast<unsigned>(type.code), bits = static_cast<unsigned>(type.bits);
  constexpr std::array<const char*, 7> names{"int", "uint", "float", "", "bfloat", "", "bool"};
  std::string text = code < names.size() && *names[code] != 0
                         ? formatted("{}{}", names[code], bits)
                         : formatted("type code {} of {} bits", code, bits);
  if (type.lanes != 1) text += formatted(" in vectors of {}", type.lanes);
  return text;
}

inline std::string dlpack_text(dlpack::Device device) {
  switch (device.device_type) {
    case dlpack::DeviceType::cpu:
      return "the host";
    case dlpack::DeviceType::cuda:
      return formatted("GPU {}", device.device_id);
    case dlpack::DeviceType::cuda_host:
      return "page-locked memory of the host";
    case dlpack::DeviceType::cuda_managed:
      return "CUDA's managed memory";
  }
  return formatted("device type {}, number {}", static_cast<int>(device.device_type),
                   device.device_id);
}

/// What a managed tensor of either form, or of another header's structs, says of itself.
struct DlpackContents {
  dlpack::Tensor tensor;
  bool read_only = false;
};

/// Reads `managed`, whose type has the members of DLManagedTensor or DLManagedTensorVersioned.
template <class Managed>
DlpackContents read_dlpack(const Managed* managed) {
  require(managed != nullptr,
          "from_dlpack: the tensor is null; a capsule that was consumed once has none");
  DlpackContents contents;
  if constexpr (requires { managed->version.major; }) {
    const auto major = managed->version.major, minor = managed->version.minor;
    require(major == 1,
            "from_dlpack: the tensor has DLPack's version {}.{}, whose memory cannot be read; ask "
            "its producer for max_version (1, 1), and call the deleter of this one",
            major, minor);
    contents.read_only = (managed->flags & dlpack::flag_read_only) != 0;
  }
  const auto& from = managed->dl_tensor;
  contents.tensor = dlpack::Tensor{
      .data = from.data,
      .device = {static_cast<dlpack::DeviceType>(from.device.device_type), from.device.device_id},
      .ndim = from.ndim,
      .dtype = {static_cast<dlpack::TypeCode>(from.dtype.code), from.dtype.bits, from.dtype.lanes},
      .shape = from.shape,
      .strides = from.strides,
      .byte_offset = from.byte_offset};
  return contents;
}

/// Throws unless what runs at `user` can read memory of `memory`.
inline void check_dlpack_device(dlpack::Device memory, dlpack::Device user) {
  using enum dlpack::DeviceType;
  const bool shared = memory.device_type == cuda_host || memory.device_type == cuda_managed;
  const bool same = memory.device_type == user.device_type &&
                    (user.device_type == cpu || memory.device_id == user.device_id);
  require(same || (shared && (user.device_type == cpu || user.device_type == cuda)),
          "from_dlpack: the tensor is in {}, but is to be used by {}; move it there first",
          dlpack_text(memory), dlpack_text(user));
}

/// The rows of a tensor of one or two dimensions; one of one dimension is a row.
struct DlpackRows {
  std::int64_t rows = 0, columns = 0, stride = 0;
};

/// Throws if the elements are not rows of neighbours that fit into memory.
inline DlpackRows rows_of_dlpack(const dlpack::Tensor& tensor, std::size_t element_bytes) {
  require(tensor.ndim == 1 || tensor.ndim == 2,
          "from_dlpack: the tensor has {} dimensions; a matrix has 2, a list of values has 1",
          tensor.ndim);
  require(tensor.shape != nullptr, "from_dlpack: the tensor has {} dimensions and no shape",
          tensor.ndim);
  const int inner = tensor.ndim - 1;
  DlpackRows out{.rows = inner == 0 ? 1 : tensor.shape[0], .columns = tensor.shape[inner]};
  require(out.rows >= 0 && out.columns >= 0, "from_dlpack: the tensor's shape is [{}, {}]",
          out.rows, out.columns);
  out.stride = out.columns;
  if (tensor.strides != nullptr) {  // those of a dimension of one element mean nothing
    require(out.rows == 0 || out.columns <= 1 || tensor.strides[inner] == 1,
            "from_dlpack: elements of a row are {} apart; pass x.contiguous(), or its transpose",
            tensor.strides[inner]);
    if (out.rows > 1 && out.columns > 0) out.stride = tensor.strides[0];
    require(out.stride >= out.columns,
            "from_dlpack: rows of {} columns begin {} elements apart and share memory; pass "
            "x.contiguous()",
            out.columns, out.stride);
  }
  const auto most =
      std::numeric_limits<std::int64_t>::max() / static_cast<std::int64_t>(2 * element_bytes);
  require(out.rows == 0 || out.stride <= most / out.rows,
          "from_dlpack: {} rows, {} elements apart, are more than any memory holds", out.rows,
          out.stride);
  return out;
}

}  // namespace detail

/// A tensor of another library in use here: a view of its memory. The producer's deleter is called
/// once, when this object goes. Move-only.
template <class T>
class DlpackTensor {
 public:
  template <class Managed>
  DlpackTensor(Managed* managed, const detail::DlpackContents& contents, detail::DlpackRows rows,
               T* data)
      : managed_(managed, [](void* p) { dlpack::Release()(static_cast<Managed*>(p)); }),
        data_(data),
        rows_(rows),
        device_(contents.tensor.device),
        dimensions_(contents.tensor.ndim) {}

  /// Returns 1 for values, 2 for a matrix.
  int dimensions() const { return dimensions_; }
  /// Returns where the memory is.
  dlpack::Device device() const { return device_; }

  /// Returns the view of a tensor of two dimensions. Throws InvalidArgument for values.
  MatrixView<T> matrix() const {
    require(dimensions_ == 2,
            "DlpackTensor: {} values of one dimension are no matrix; reshape them to two",
            rows_.columns);
    return {data_, rows_.rows, rows_.columns, rows_.stride};
  }
  /// Returns all elements in their order. Throws InvalidArgument for a matrix with gaps between
  /// its rows.
  std::span<T> values() const {
    require(rows_.stride == rows_.columns,
            "DlpackTensor: rows of {} columns, {} apart, are no list of values; pass "
            "x.contiguous(), or read matrix()",
            rows_.columns, rows_.stride);
    return {data_, static_cast<std::size_t>(rows_.rows * rows_.columns)};
  }

 private:
  std::unique_ptr<void, void (*)(void*)> managed_;
  T* data_;
  detail::DlpackRows rows_;
  dlpack::Device device_;
  int dimensions_;
};

/// Takes a tensor of another library over, without a copy: float, double, Half, BFloat16, integers
/// or bool of one or two dimensions, whose rows may be apart. `tensor`: a pointer to DLPack's
/// struct of either form, from this header or another. `user`: who is to read it: the host, or a
/// GPU. For a read-only tensor ask for `const T`. Throws InvalidArgument if it does not fit; the
/// tensor is the caller's then, its deleter not called.
///
///     DlpackTensor<const float> weights = from_dlpack<const float>(tensor);
///     MatrixView<const float> rows = weights.matrix();
template <class T, class Managed>
DlpackTensor<T> from_dlpack(Managed* tensor, dlpack::Device user = {}) {
  using Plain = std::remove_const_t<T>;
  static_assert(dlpack::Value<Plain>, "from_dlpack: float, double, Half, BFloat16, integers, bool");
  const detail::DlpackContents contents = detail::read_dlpack(tensor);
  detail::check_dlpack_device(contents.tensor.device, user);
  constexpr dlpack::DataType wanted = dlpack::type_of<Plain>();
  require(contents.tensor.dtype == wanted,
          "from_dlpack: the tensor holds {}, not {}; convert it first, or read it as what it is",
          detail::dlpack_text(contents.tensor.dtype), detail::dlpack_text(wanted));
  require(std::is_const_v<T> || !contents.read_only,
          "from_dlpack: the tensor is read-only; read it as const, or pass a copy");
  const detail::DlpackRows rows = detail::rows_of_dlpack(contents.tensor, sizeof(T));
  if (rows.rows == 0 || rows.columns == 0) return {tensor, contents, rows, nullptr};
  require(contents.tensor.data != nullptr, "from_dlpack: the tensor is [{}, {}], its data null",
          rows.rows, rows.columns);
  std::byte* const data =
      static_cast<std::byte*>(contents.tensor.data) + contents.tensor.byte_offset;
  const auto beyond = reinterpret_cast<std::uintptr_t>(data) % alignof(T);
  require(beyond == 0,
          "from_dlpack: the tensor's memory begins {} bytes after a multiple of {}; pass x.clone()",
          beyond, alignof(T));
  return {tensor, contents, rows, reinterpret_cast<T*>(data)};
}
/// Takes over what to_dlpack made.
template <class T, class Managed>
DlpackTensor<T> from_dlpack(dlpack::Owned<Managed>&& tensor, dlpack::Device user = {}) {
  DlpackTensor<T> taken = from_dlpack<T>(tensor.get(), user);
  static_cast<void>(tensor.release());
  return taken;
}

namespace detail {

/// A managed tensor with what its pointers name.
template <class Managed>
struct KeptDlpack {
  Managed managed{};
  std::array<std::int64_t, 2> shape{}, strides{};
  std::shared_ptr<const void> owner;
};

template <class Managed, class T>
dlpack::Owned<Managed> make_dlpack(MatrixView<T> view, int dimensions,
                                   std::shared_ptr<const void> owner, dlpack::Device device) {
  using Plain = std::remove_const_t<T>;
  static_assert(dlpack::Value<Plain>, "to_dlpack: float, double, Half, BFloat16, integers, bool");
  constexpr bool versioned = std::is_same_v<Managed, dlpack::ManagedTensorVersioned>;
  static_assert(versioned || !std::is_const_v<T>,
                "to_dlpack: ManagedTensor cannot say that it is read-only; offer const elements as "
                "ManagedTensorVersioned");
  require(view.rows >= 0 && view.columns >= 0, "to_dlpack: {} x {} is no size of a matrix",
          view.rows, view.columns);
  check_view("to_dlpack: the matrix", view);
  auto kept = std::make_unique<KeptDlpack<Managed>>();
  const bool row = dimensions == 1, empty = view.rows == 0 || view.columns == 0;
  kept->shape = {row ? view.columns : view.rows, view.columns};
  kept->strides = {row ? 1 : view.stride, 1};
  kept->owner = std::move(owner);
  Managed& managed = kept->managed;
  managed.dl_tensor = dlpack::Tensor{.data = empty ? nullptr : const_cast<Plain*>(view.data),
                                     .device = device,
                                     .ndim = dimensions,
                                     .dtype = dlpack::type_of<Plain>(),
                                     .shape = kept->shape.data(),
                                     .strides = kept->strides.data()};
  if constexpr (versioned) managed.flags = std::is_const_v<T> ? dlpack::flag_read_only : 0;
  managed.deleter = [](Managed* self) {
    delete static_cast<KeptDlpack<Managed>*>(self->manager_ctx);
  };
  managed.manager_ctx = kept.get();
  return dlpack::Owned<Managed>(&kept.release()->managed);
}

}  // namespace detail

/// Offers a matrix to another library, without a copy. The tensor holds `owner` until its consumer
/// has no more use for it; a null owner is a promise that the memory stays until then. const
/// elements become a read-only tensor. `device`: whose memory it is. For consumers of before
/// DLPack 1: `to_dlpack<dlpack::ManagedTensor>(...)`. Throws InvalidArgument for no view of
/// rows.
///
///     auto matrix = std::make_shared<Matrix<float>>(128, 16);
///     dlpack::ManagedTensorVersioned* for_consumer = to_dlpack(matrix->view(), matrix).release();
template <class Managed = dlpack::ManagedTensorVersioned, class T>
dlpack::Owned<Managed> to_dlpack(MatrixView<T> matrix, std::shared_ptr<const void> owner,
                                 dlpack::Device device = {}) {
  return detail::make_dlpack<Managed>(matrix, 2, std::move(owner), device);
}
/// Offers values of one dimension: ids, offsets, labels.
template <class Managed = dlpack::ManagedTensorVersioned, class T, std::size_t Extent>
dlpack::Owned<Managed> to_dlpack(std::span<T, Extent> values, std::shared_ptr<const void> owner,
                                 dlpack::Device device = {}) {
  const MatrixView<T> row(values.data(), 1, std::ssize(values));
  return detail::make_dlpack<Managed>(row, 1, std::move(owner), device);
}
/// Offers a matrix whose element type is known at run time: `local_shards()` have them where
/// training groups differ in their element types.
template <class Managed = dlpack::ManagedTensorVersioned>
dlpack::Owned<Managed> to_dlpack(const detail::AnyMatrix& matrix, std::shared_ptr<const void> owner,
                                 dlpack::Device device = {}) {
  return with_matrix(
      matrix, [&](const auto& view) { return to_dlpack<Managed>(view, std::move(owner), device); });
}

}}  // namespace tessera::v0
