// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// DLPack's layouts against numbers worked out from its specification; tensors that a C library would
// make, written by hand, against the views that come of them; every wrong tensor against its text.
#include <tessera/collection.hpp>
#include <tessera/comm.hpp>
#include <tessera/dlpack.hpp>
#include <tessera/optimizers.hpp>
#include <tessera/plan.hpp>

#include <doctest/doctest.h>
#include <support/message_of.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

using namespace tessera;

/// What a program gets that includes <dlpack/dlpack.h> of version 1, in C's words.
struct ForeignTensor {
  void* data;
  struct {
    int device_type;
    std::int32_t device_id;
  } device;
  std::int32_t ndim;
  struct {
    std::uint8_t code, bits;
    std::uint16_t lanes;
  } dtype;
  std::int64_t *shape, *strides;
  std::uint64_t byte_offset;
};
struct ForeignManaged {
  ForeignTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(ForeignManaged*);
};
struct ForeignVersioned {
  struct {
    std::uint32_t major, minor;
  } version;
  void* manager_ctx;
  void (*deleter)(ForeignVersioned*);
  std::uint64_t flags;
  ForeignTensor dl_tensor;
};

namespace {

// Of LP64 and LLP64: pointers of 8 bytes, natural alignment.
static_assert(sizeof(void*) != 8 ||
              (sizeof(dlpack::Version) == 8 && sizeof(dlpack::Device) == 8 &&
               sizeof(dlpack::DataType) == 4 && sizeof(dlpack::Tensor) == 48 &&
               sizeof(dlpack::ManagedTensor) == 64 &&
               sizeof(dlpack::ManagedTensorVersioned) == 80));
static_assert(offsetof(dlpack::Tensor, data) == 0 && offsetof(dlpack::Tensor, device) == 8 &&
              offsetof(dlpack::Tensor, ndim) == 16 && offsetof(dlpack::Tensor, dtype) == 20 &&
              offsetof(dlpack::Tensor, shape) == 24 && offsetof(dlpack::Tensor, strides) == 32 &&
              offsetof(dlpack::Tensor, byte_offset) == 40);
static_assert(offsetof(dlpack::Device, device_id) == 4 && offsetof(dlpack::DataType, bits) == 1 &&
              offsetof(dlpack::DataType, lanes) == 2 && offsetof(dlpack::Version, minor) == 4);
static_assert(offsetof(dlpack::ManagedTensor, manager_ctx) == 48 &&
              offsetof(dlpack::ManagedTensor, deleter) == 56);
static_assert(offsetof(dlpack::ManagedTensorVersioned, manager_ctx) == 8 &&
              offsetof(dlpack::ManagedTensorVersioned, deleter) == 16 &&
              offsetof(dlpack::ManagedTensorVersioned, flags) == 24 &&
              offsetof(dlpack::ManagedTensorVersioned, dl_tensor) == 32);
static_assert(std::is_standard_layout_v<dlpack::ManagedTensorVersioned> &&
              std::is_trivially_copyable_v<dlpack::ManagedTensorVersioned>);
static_assert(!std::is_copy_constructible_v<DlpackTensor<float>> &&
              std::is_nothrow_move_constructible_v<DlpackTensor<float>> &&
              std::is_nothrow_move_assignable_v<DlpackTensor<float>>);

constexpr int kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3, kDLROCM = 10, kDLCUDAManaged = 13;
constexpr std::uint8_t kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLComplex = 5,
                       kDLBool = 6;

/// A producer's tensor [rows, columns] of floats 0, 1, 2, ... that counts calls of its deleter.
struct Producer {
  std::vector<float> values = std::vector<float>(256);
  std::array<std::int64_t, 3> shape{4, 8, 1}, strides{8, 1, 1};
  int deleted = 0;
  ForeignVersioned versioned{};
  ForeignManaged managed{};

  Producer() {
    std::iota(values.begin(), values.end(), 0.0f);
    versioned = {.version = {1, 1},
                 .manager_ctx = this,
                 .deleter = [](ForeignVersioned* self) { of(self).deleted++; },
                 .flags = 0,
                 .dl_tensor = {.data = values.data(),
                               .device = {kDLCPU, 0},
                               .ndim = 2,
                               .dtype = {kDLFloat, 32, 1},
                               .shape = shape.data(),
                               .strides = strides.data(),
                               .byte_offset = 0}};
    managed = {.dl_tensor = versioned.dl_tensor,
               .manager_ctx = this,
               .deleter = [](ForeignManaged* self) { of(self).deleted++; }};
  }
  Producer(const Producer&) = delete;
  Producer& operator=(const Producer&) = delete;

  template <class Managed>
  static Producer& of(Managed* self) {
    return *static_cast<Producer*>(self->manager_ctx);
  }
  ForeignTensor& tensor() { return versioned.dl_tensor; }
};

/// Whether a tensor is refused for `text`, and stays its producer's.
template <class T = const float>
void refuses(Producer& producer, std::string_view text, dlpack::Device user = {}) {
  const std::string said =
      message_of<InvalidArgument>([&] { from_dlpack<T>(&producer.versioned, user); });
  CAPTURE(said);
  CHECK(said.find(text) != std::string::npos);
  CHECK(producer.deleted == 0);
}

template <class T>
void crosses(std::uint8_t code, std::uint8_t bits) {
  const auto owner = std::make_shared<Matrix<T>>(3, 5);
  const MatrixView<T> view = owner->columns(1, 3);
  auto tensor = to_dlpack(view, owner);
  const dlpack::Tensor& as = tensor->dl_tensor;
  CHECK(static_cast<std::uint8_t>(as.dtype.code) == code);
  CHECK(as.dtype.bits == bits);
  CHECK(as.dtype.lanes == 1);
  CHECK(as.data == view.data);
  CHECK(as.byte_offset == 0);
  CHECK(as.ndim == 2);
  CHECK(std::vector(as.shape, as.shape + 2) == std::vector<std::int64_t>{3, 3});
  CHECK(std::vector(as.strides, as.strides + 2) == std::vector<std::int64_t>{5, 1});
  CHECK(as.device.device_type == dlpack::DeviceType::cpu);
  CHECK(tensor->version.major == 1);
  CHECK(tensor->flags == 0);
  const DlpackTensor<T> back = from_dlpack<T>(std::move(tensor));
  CHECK(tensor == nullptr);
  CHECK(back.matrix().data == view.data);
  CHECK(back.matrix().stride == 5);
  CHECK(back.matrix().rows == 3);
  CHECK(back.matrix().columns == 3);
}

}  // namespace

TEST_CASE("each element type has its code and bits, and crosses without a copy") {
  crosses<float>(kDLFloat, 32);
  crosses<double>(kDLFloat, 64);
  crosses<Half>(kDLFloat, 16);
  crosses<BFloat16>(kDLBfloat, 16);
  crosses<std::int8_t>(kDLInt, 8);
  crosses<std::int32_t>(kDLInt, 32);
  crosses<std::int64_t>(kDLInt, 64);
  crosses<std::uint8_t>(kDLUInt, 8);
  crosses<std::uint64_t>(kDLUInt, 64);
  crosses<bool>(kDLBool, 8);
}

TEST_CASE("the owner lives as long as the tensor, in both forms") {
  const auto offer = [](auto made_of) {
    auto owner = std::make_shared<Matrix<float>>(2, 4);
    const std::weak_ptr<Matrix<float>> seen = owner;
    const MatrixView<float> view = owner->view();
    auto tensor = to_dlpack<typename decltype(made_of)::type>(view, std::move(owner));
    CHECK(!seen.expired());
    {
      DlpackTensor<float> taken = from_dlpack<float>(std::move(tensor));
      DlpackTensor<float> moved = std::move(taken);
      CHECK(!seen.expired());
      taken = std::move(moved);
      CHECK(!seen.expired());
      CHECK(taken.matrix().data == view.data);
    }
    CHECK(seen.expired());
  };
  offer(std::type_identity<dlpack::ManagedTensor>());
  offer(std::type_identity<dlpack::ManagedTensorVersioned>());
}

TEST_CASE("a tensor that no consumer takes gives its owner back") {
  auto owner = std::make_shared<Matrix<float>>(2, 4);
  const std::weak_ptr<Matrix<float>> seen = owner;
  const MatrixView<float> view = owner->view();
  static_cast<void>(to_dlpack(view, std::move(owner)));
  CHECK(seen.expired());
}

TEST_CASE("a deleter of the caller is called once, and an owner may be missing") {
  int calls = 0;
  std::array<std::int64_t, 3> ids{7, 8, 9};
  {
    auto tensor =
        to_dlpack(std::span(ids),
                  std::shared_ptr<void>(&calls, [](void* count) { ++*static_cast<int*>(count); }));
    const DlpackTensor<std::int64_t> taken = from_dlpack<std::int64_t>(std::move(tensor));
    CHECK(calls == 0);
  }
  CHECK(calls == 1);
  CHECK(to_dlpack(std::span(ids), nullptr)->dl_tensor.data == ids.data());
}

TEST_CASE("ids, offsets and labels are tensors of one dimension") {
  std::array<std::int32_t, 4> ids{3, 1, 4, 1};
  auto tensor = to_dlpack(std::span<const std::int32_t>(ids), nullptr);
  CHECK(tensor->dl_tensor.ndim == 1);
  CHECK(tensor->dl_tensor.shape[0] == 4);
  CHECK(tensor->dl_tensor.strides[0] == 1);
  const DlpackTensor<const std::int32_t> taken = from_dlpack<const std::int32_t>(std::move(tensor));
  CHECK(taken.dimensions() == 1);
  CHECK(taken.values().data() == ids.data());
  CHECK(taken.values().size() == 4);
  CHECK(message_of<InvalidArgument>([&] { static_cast<void>(taken.matrix()); }) ==
        "DlpackTensor: 4 values of one dimension are no matrix; reshape them to two");
}

TEST_CASE("const elements are read-only, and only const elements read them") {
  const std::array<float, 4> values{1, 2, 3, 4};
  auto tensor = to_dlpack(MatrixView<const float>(values.data(), 2, 2), nullptr);
  CHECK(tensor->flags == 1);
  CHECK(tensor->dl_tensor.data == values.data());
  CHECK(message_of<InvalidArgument>([&] { from_dlpack<float>(std::move(tensor)); }) ==
        "from_dlpack: the tensor is read-only; read it as const, or pass a copy");
  REQUIRE(tensor != nullptr);  // what was refused is still the caller's
  CHECK(from_dlpack<const float>(std::move(tensor)).matrix()(1, 1) == 4);
}

TEST_CASE("a matrix without elements has no data") {
  std::array<float, 1> some{};
  auto tensor = to_dlpack(MatrixView<float>(some.data(), 0, 8), nullptr);
  CHECK(tensor->dl_tensor.data == nullptr);
  CHECK(tensor->dl_tensor.shape[1] == 8);
  const DlpackTensor<float> taken = from_dlpack<float>(std::move(tensor));
  CHECK(taken.matrix().rows == 0);
  CHECK(taken.matrix().columns == 8);
  CHECK(taken.values().empty());
}

TEST_CASE("to_dlpack refuses what is no view of rows") {
  std::array<float, 8> values{};
  const auto offer = [&](float* data, std::int64_t rows, std::int64_t columns,
                         std::int64_t stride) {
    return message_of<InvalidArgument>([&] {
      static_cast<void>(to_dlpack(MatrixView<float>(data, rows, columns, stride), nullptr));
    });
  };
  CHECK(offer(values.data(), 2, 4, 3).find("stride of 3, less than its 4 columns") !=
        std::string::npos);
  CHECK(offer(nullptr, 2, 4, 4).find("data is null") != std::string::npos);
  CHECK(offer(values.data(), -1, 4, 4) == "to_dlpack: -1 x 4 is no size of a matrix");
}

TEST_CASE("a foreign tensor is seen where it is, and deleted once") {
  Producer producer;
  SUBCASE("versioned") {
    {
      DlpackTensor<float> taken = from_dlpack<float>(&producer.versioned);
      DlpackTensor<float> moved(std::move(taken));
      CHECK(moved.matrix().data == producer.values.data());
      moved.matrix()(3, 7) = -1;
      CHECK(moved.values().size() == 32);
      CHECK(producer.deleted == 0);
    }
    CHECK(producer.values[31] == -1);
    CHECK(producer.deleted == 1);
  }
  SUBCASE("unversioned") {
    CHECK(from_dlpack<float>(&producer.managed).matrix().data == producer.values.data());
    CHECK(producer.deleted == 1);
  }
  SUBCASE("assigned over") {
    Producer other;
    DlpackTensor<float> taken = from_dlpack<float>(&producer.versioned);
    taken = from_dlpack<float>(&other.versioned);
    CHECK(producer.deleted == 1);
    CHECK(other.deleted == 0);
  }
  SUBCASE("without a deleter") {
    producer.versioned.deleter = nullptr;
    CHECK(from_dlpack<float>(&producer.versioned).matrix().rows == 4);
  }
}

TEST_CASE("strides: compact without any, rows apart, dimensions of one element free") {
  Producer producer;
  const auto matrix = [&] { return from_dlpack<float>(&producer.versioned).matrix(); };
  SUBCASE("none") {
    producer.tensor().strides = nullptr;
    CHECK(matrix().stride == 8);
  }
  SUBCASE("rows apart") {
    producer.strides[0] = 20;
    CHECK(matrix().stride == 20);
    CHECK(matrix()(2, 3) == 43);
    CHECK(message_of<InvalidArgument>([&] {
            static_cast<void>(from_dlpack<float>(&producer.versioned).values());
          }).find("rows of 8 columns, 20 apart, are no list of values") != std::string::npos);
  }
  SUBCASE("one row") {
    producer.shape[0] = 1;
    producer.strides[0] = 0;
    CHECK(matrix().stride == 8);
  }
  SUBCASE("one column") {
    producer.shape[1] = 1;
    producer.strides = {3, 77, 1};
    CHECK(matrix().stride == 3);
    CHECK(matrix()(3, 0) == 9);
  }
  SUBCASE("offset") {
    producer.tensor().byte_offset = 12;
    CHECK(matrix().data == producer.values.data() + 3);
  }
  SUBCASE("one value, any stride") {
    producer.tensor().ndim = 1;
    producer.shape[0] = 1;
    CHECK(from_dlpack<float>(&producer.versioned).values().size() == 1);
  }
  SUBCASE("no elements, no data") {
    producer.shape = {4, 0, 1};
    producer.tensor().data = nullptr;
    CHECK(matrix().rows == 4);
    CHECK(matrix().data == nullptr);
  }
}

TEST_CASE("what does not fit is refused with its reason, and stays its producer's") {
  Producer producer;
  ForeignTensor& tensor = producer.tensor();
  SUBCASE("type") {
    tensor.dtype = {kDLFloat, 16, 1};
    refuses(producer, "holds float16, not float32; convert it first");
    refuses<const BFloat16>(producer, "holds float16, not bfloat16");
    tensor.dtype = {kDLInt, 64, 1};
    refuses<const std::uint64_t>(producer, "holds int64, not uint64");
    refuses<const std::int32_t>(producer, "holds int64, not int32");
    tensor.dtype = {kDLBool, 8, 1};
    refuses<const std::uint8_t>(producer, "holds bool8, not uint8");
    tensor.dtype = {kDLComplex, 64, 1};
    refuses(producer, "holds type code 5 of 64 bits, not float32");
    tensor.dtype = {200, 8, 1};
    refuses(producer, "holds type code 200 of 8 bits, not float32");
    tensor.dtype = {kDLFloat, 32, 4};
    refuses(producer, "holds float32 in vectors of 4, not float32");
  }
  SUBCASE("device") {
    tensor.device = {kDLCUDA, 1};
    refuses(producer, "is in GPU 1, but is to be used by the host; move it there first");
    refuses(producer, "is in GPU 1, but is to be used by GPU 0", {dlpack::DeviceType::cuda, 0});
    tensor.device = {kDLROCM, 2};
    refuses(producer, "is in device type 10, number 2, but is to be used by the host");
    tensor.device = {kDLCPU, 0};
    refuses(producer, "is in the host, but is to be used by GPU 0", {dlpack::DeviceType::cuda, 0});
  }
  SUBCASE("dimensions") {
    tensor.ndim = 3;
    refuses(producer, "has 3 dimensions; a matrix has 2");
    tensor.ndim = 0;
    refuses(producer, "has 0 dimensions");
    tensor.ndim = 2;
    tensor.shape = nullptr;
    refuses(producer, "has 2 dimensions and no shape");
  }
  SUBCASE("shape") {
    producer.shape[0] = -1;
    refuses(producer, "shape is [-1, 8]");
    producer.shape = {std::int64_t(1) << 60, 8, 1};
    refuses(producer, "more than any memory holds");
    producer.shape = {3, std::int64_t(1) << 62, 1};
    producer.strides[0] = std::int64_t(1) << 62;
    refuses(producer, "more than any memory holds");
  }
  SUBCASE("strides") {
    producer.strides = {1, 4, 1};
    refuses(producer, "elements of a row are 4 apart; pass x.contiguous(), or its transpose");
    producer.strides = {0, 1, 1};
    refuses(producer, "rows of 8 columns begin 0 elements apart and share memory");
    producer.strides = {-8, 1, 1};
    refuses(producer, "begin -8 elements apart");
    tensor.ndim = 1;
    producer.strides = {2, 1, 1};
    refuses(producer, "elements of a row are 2 apart");
  }
  SUBCASE("memory") {
    tensor.byte_offset = 2;
    refuses(producer, "begins 2 bytes after a multiple of 4; pass x.clone()");
    tensor.data = nullptr;
    refuses(producer, "is [4, 8], its data null");
  }
  SUBCASE("read-only") {
    producer.versioned.flags = 1;
    refuses<float>(producer, "is read-only");
  }
  SUBCASE("version") {
    producer.versioned.version = {2, 0};
    producer.versioned.dl_tensor = {};  // whatever it is then
    refuses(producer, "has DLPack's version 2.0");
  }
  SUBCASE("null") {
    CHECK(message_of<InvalidArgument>([] {
            from_dlpack<float>(static_cast<ForeignManaged*>(nullptr));
          }).find("the tensor is null") != std::string::npos);
  }
}

TEST_CASE("page-locked and managed memory serve the host and any GPU") {
  Producer producer;
  for (const int device : {kDLCUDAHost, kDLCUDAManaged}) {
    producer.tensor().device = {device, 0};
    const DlpackTensor<float> on_host = from_dlpack<float>(&producer.versioned);
    const DlpackTensor<float> on_gpu =
        from_dlpack<float>(&producer.versioned, {dlpack::DeviceType::cuda, 1});
    CHECK(static_cast<int>(on_gpu.device().device_type) == device);
    CHECK(on_host.matrix().data == producer.values.data());
  }
  producer.tensor().device = {kDLCUDA, 1};
  CHECK(from_dlpack<float>(&producer.versioned, {dlpack::DeviceType::cuda, 1}).device().device_id ==
        1);
}

// What docs/bridges.md shows.
namespace ts = tessera;
// [offer]
/// Gives a table's rows on this rank to another library.
template <class Tables>
ts::dlpack::ManagedTensorVersioned* rows_of(std::shared_ptr<Tables> embeddings, int shard) {
  const auto shards = embeddings->tables().local_shards();  // rectangles with their memory
  return ts::to_dlpack(shards.at(shard).weights, embeddings).release();
}

/// Reads another library's tensor of ids.
std::int64_t sum_of_ids(ts::dlpack::ManagedTensorVersioned* tensor) {
  const auto ids = ts::from_dlpack<const std::int64_t>(tensor);  // throws if it does not fit
  return std::accumulate(ids.values().begin(), ids.values().end(), std::int64_t{0});
}  // and here its producer's deleter is called
// [offer end]

TEST_CASE("the page's listing") {
  std::array<std::int64_t, 4> ids{3, 1, 4, 1};
  CHECK(sum_of_ids(to_dlpack(std::span(ids), nullptr).release()) == 9);
}

TEST_CASE("the rows of tables are offered where they are") {
  using TwoTables = Plan<TableWise<Table<"clicks", 40, 8>, Table<"views", 30, 16>>>;
  using Collection = EmbeddingCollection<TwoTables, Adagrad, Host, SelfCommunicator>;
  SelfCommunicator rank;
  const auto collection = std::make_shared<Collection>(rank, Host(), Collection::Options{});
  const auto shards = collection->tables().local_shards();
  REQUIRE(shards.size() == 2);
  for (int i = 0; i < 2; ++i) {
    const DlpackTensor<float> rows = from_dlpack<float>(rows_of(collection, i));
    CHECK(rows.matrix().data == shards.at(i).weights.data);
    CHECK(rows.matrix().rows == shards.at(i).rectangle.rows());
    CHECK(collection.use_count() == 2);
    rows.matrix()(5, 2) = 0.25f;
  }
  CHECK(collection.use_count() == 1);
  const DlpackTensor<float> state =
      from_dlpack<float>(to_dlpack(shards.at(1).states.at(0), collection));
  CHECK(state.matrix().data == shards.at(1).states.at(0).data);
  CHECK(state.matrix().columns == 16);
  Matrix<float> clicks(40, 8);
  collection->tables().get("clicks", clicks);
  CHECK(clicks.view()(5, 2) == 0.25f);
}

TEST_CASE("a matrix of any element type is offered as what it is") {
  std::array<Half, 4> values{};
  const auto tensor = to_dlpack(detail::AnyMatrix(MatrixView<Half>(values.data(), 2, 2)), nullptr);
  CHECK(tensor->dl_tensor.data == values.data());
  CHECK(tensor->dl_tensor.dtype == dlpack::type_of<Half>());
}
