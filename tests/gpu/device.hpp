// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/backend.cuh>
#include <tessera/op/bags.hpp>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

// What the tests of kernels share. Their bodies (*_cases.hpp) run in the emulator
// (tests/simt/test_*.cpp) and on a GPU (test_*.cu); each of those says what in_every_order does.

/// An array in device memory, filled from and read back to the host.
template <class T>
class OnGpu {
 public:
  OnGpu(const tessera::Cuda& backend, const std::vector<T>& values)
      : stream_(backend.stream()),
        buffer_(static_cast<std::int64_t>(values.size()), backend.stream()) {
    tessera::gpu::copy(buffer_.data(), values.data(), buffer_.size(), stream_);
    wait();
  }

  T* data() const { return buffer_.data(); }
  std::vector<T> read() const {
    std::vector<T> values(static_cast<std::size_t>(buffer_.size()));
    tessera::gpu::copy(values.data(), static_cast<const T*>(buffer_.data()), buffer_.size(),
                       stream_);
    wait();
    return values;
  }

 private:
  void wait() const {
    tessera::gpu::check(cudaStreamSynchronize(stream_), "waiting for the device");
  }

  cudaStream_t stream_;
  tessera::gpu::DeviceBuffer<T> buffer_;
};

using Random = std::mt19937;

inline std::int64_t random_below(Random& random, std::int64_t bound) {
  return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(bound));
}
inline float random_float(Random& random) {
  return static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 512.0f;
}

template <class T>
std::vector<T> random_elements(Random& random, std::int64_t count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (T& value : values) value = tessera::from_float<T>(random_float(random));
  return values;
}

/// One feature's bags on the host. An empty `offsets`: one-hot.
template <class Id>
struct HostBags {
  std::vector<Id> ids;
  std::vector<std::int64_t> offsets;
  std::vector<float> weights, bag_scale;
  std::int64_t bags = 0, row_bias = 0;

  std::int64_t begin(std::int64_t bag) const {
    return offsets.empty() ? bag : offsets[static_cast<std::size_t>(bag)];
  }
  std::int64_t end(std::int64_t bag) const {
    return offsets.empty() ? bag + 1 : offsets[static_cast<std::size_t>(bag) + 1];
  }
  float coefficient(std::int64_t bag, std::int64_t i) const {
    return !weights.empty()     ? weights[static_cast<std::size_t>(i)]
           : !bag_scale.empty() ? bag_scale[static_cast<std::size_t>(bag)]
                                : 1.0f;
  }
  tessera::op::Bags<Id> view() const {
    const auto data = [](const auto& v) { return v.empty() ? nullptr : v.data(); };
    return {data(ids), data(offsets), data(weights), data(bag_scale), bags, row_bias};
  }
};

enum class Coefficients { none, weights, bag_scale };

/// `skew`: ids are drawn from the first rows much more often than from the last.
template <class Id>
HostBags<Id> random_bags(Random& random, std::int64_t bags, int longest, std::int64_t rows,
                         std::int64_t row_bias, Coefficients coefficients, bool skew = false) {
  HostBags<Id> b;
  b.bags = bags;
  b.row_bias = row_bias;
  if (longest != 1) b.offsets.push_back(3);  // offsets need not begin at 0
  for (int unused = 0; longest != 1 && unused < 3; ++unused) b.ids.push_back(-1);
  for (std::int64_t bag = 0; bag < bags; ++bag) {
    const std::int64_t length = longest == 1   ? 1
                                : bag % 7 == 3 ? longest
                                               : random_below(random, longest + 1);
    for (std::int64_t i = 0; i < length; ++i) {
      std::int64_t row = random_below(random, rows);
      if (skew) row = row * random_below(random, rows) / rows * random_below(random, rows) / rows;
      b.ids.push_back(static_cast<Id>(row));
    }
    if (longest != 1) b.offsets.push_back(static_cast<std::int64_t>(b.ids.size()));
    if (coefficients == Coefficients::bag_scale)
      b.bag_scale.push_back(length == 0 ? 0.0f : 1.0f / static_cast<float>(length));
  }
  if (coefficients == Coefficients::weights)
    for (std::size_t i = 0; i < b.ids.size(); ++i) b.weights.push_back(random_float(random));
  return b;
}

/// The same in device memory.
template <class Id>
class DeviceBags {
 public:
  DeviceBags(const tessera::Cuda& backend, const HostBags<Id>& host)
      : host_(host),
        ids_(backend, host.ids),
        offsets_(backend, host.offsets),
        weights_(backend, host.weights),
        scale_(backend, host.bag_scale) {}

  tessera::op::Bags<Id> view() const {
    const std::int64_t entries =
        host_.offsets.empty() ? 0 : host_.offsets.back() - host_.offsets.front();
    return {ids_.data(), offsets_.data(), weights_.data(), scale_.data(),
            host_.bags,  host_.row_bias,  entries + 5};
  }

 private:
  const HostBags<Id>& host_;
  OnGpu<Id> ids_;
  OnGpu<std::int64_t> offsets_;
  OnGpu<float> weights_, scale_;
};
