// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Random batches, and naive references in double precision.
#pragma once

#include <tessera/core/element.hpp>
#include <tessera/host/backend.hpp>
#include <tessera/op/lookup.hpp>
#include <tessera/op/update.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

namespace tessera::test {

/// Memory of a backend that frees itself.
template <class T>
class Array {
 public:
  explicit Array(std::size_t count)
      : data_(static_cast<T*>(Host::allocate(count * sizeof(T)))), count_(count) {
    std::fill_n(data_, count, T{});
  }
  Array(const Array& other) : Array(other.count_) { std::copy_n(other.data_, count_, data_); }
  Array& operator=(const Array&) = delete;
  ~Array() { Host::deallocate(data_, count_ * sizeof(T)); }
  T* data() { return data_; }
  const T* data() const { return data_; }
  std::size_t size() const { return count_; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  friend bool operator==(const Array& a, const Array& b) {
    return std::equal(a.data_, a.data_ + a.count_, b.data_, b.data_ + b.count_);
  }

 private:
  T* data_;
  std::size_t count_;
};

template <Element T>
Array<T> random_elements(std::size_t count, std::uint32_t seed) {
  Array<T> values(count);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (std::size_t i = 0; i < count; ++i) values[i] = from_float<T>(normal(random));
  return values;
}

/// One feature's bags over rows [row_bias, row_bias + rows) of an arena.
template <IdType Id>
struct Feature {
  std::vector<Id> ids;
  std::vector<std::int64_t> offsets;
  std::vector<float> weights;
  std::vector<float> scale;
  std::int64_t bags = 0;
  std::int64_t row_bias = 0;

  op::Bags<Id> view() const {
    return {ids.data(),
            offsets.empty() ? nullptr : offsets.data(),
            weights.empty() ? nullptr : weights.data(),
            scale.empty() ? nullptr : scale.data(),
            bags,
            row_bias};
  }
};

enum class Kind { one_hot, sum, weighted, mean };

/// `skewed`: half of the ids are row 1 or 2, so that rows repeat within bags and across them.
template <IdType Id>
Feature<Id> random_feature(Kind kind, std::int64_t bags, std::int64_t rows, std::int64_t row_bias,
                           bool skewed, std::uint32_t seed) {
  std::mt19937 random(seed);
  Feature<Id> feature;
  feature.bags = bags;
  feature.row_bias = row_bias;
  if (kind != Kind::one_hot) {
    feature.offsets.push_back(5);  // offsets index ids and weights: they need not begin at 0
    feature.ids.assign(5, -1);
    if (kind == Kind::weighted) feature.weights.assign(5, 1e30f);
  }
  for (std::int64_t b = 0; b < bags; ++b) {
    const int length =
        kind == Kind::one_hot ? 1 : static_cast<int>(random() % 5 == 0 ? 0 : random() % 7);
    for (int i = 0; i < length; ++i) {
      const std::int64_t id = skewed && random() % 2 == 0
                                  ? 1 + static_cast<std::int64_t>(random() % 2)
                                  : static_cast<std::int64_t>(random());
      feature.ids.push_back(static_cast<Id>(id % rows));
      if (kind == Kind::weighted)
        feature.weights.push_back(static_cast<float>(random() % 1000) / 300.0f - 1.0f);
    }
    if (kind != Kind::one_hot)
      feature.offsets.push_back(static_cast<std::int64_t>(feature.ids.size()));
    if (kind == Kind::mean)
      feature.scale.push_back(length == 0 ? 0.0f : 1.0f / static_cast<float>(length));
  }
  return feature;
}

/// A batch of every kind of feature over one arena: two features share a table, one has no bags,
/// one is skewed.
template <IdType Id>
struct Batch {
  std::vector<Feature<Id>> features;
  std::int64_t rows = 0;
  std::int64_t bags = 0;

  explicit Batch(std::int64_t samples, std::int64_t table_rows = 500, std::uint32_t seed = 1) {
    const auto add = [&](Kind kind, std::int64_t n, std::int64_t table, bool skewed) {
      features.push_back(
          random_feature<Id>(kind, n, table_rows, table * table_rows, skewed, ++seed));
      bags += n;
    };
    add(Kind::one_hot, samples, 0, false);
    add(Kind::sum, samples, 1, true);
    add(Kind::one_hot, 0, 1, false);
    add(Kind::weighted, samples, 2, false);
    add(Kind::sum, 0, 2, false);
    add(Kind::mean, samples + 3, 0, true);
    add(Kind::weighted, samples, 2, true);
    rows = 3 * table_rows;
  }

  /// Groups over `gradient`: bags x stride floats, of which each bag uses those from `column` on.
  std::vector<op::GradientGroup<Id>> gradient_groups(const float* gradient, std::int64_t stride,
                                                     std::int64_t column = 0) const {
    std::vector<op::GradientGroup<Id>> groups;
    for (const Feature<Id>& feature : features) {
      groups.push_back({feature.view(), gradient + column, stride});
      gradient += feature.bags * stride;
    }
    return groups;
  }
  std::vector<op::LookupGroup<Id>> lookup_groups(float* output, std::int64_t stride) const {
    std::vector<op::LookupGroup<Id>> groups;
    for (const Feature<Id>& feature : features) {
      groups.push_back({feature.view(), output, stride});
      output += feature.bags * stride;
    }
    return groups;
  }
};

/// The merged gradients of a batch, in double.
template <IdType Id>
std::map<std::int64_t, std::vector<double>> reference_gradients(
    const std::vector<op::GradientGroup<Id>>& groups, int width) {
  std::map<std::int64_t, std::vector<double>> merged;
  for (const op::GradientGroup<Id>& group : groups)
    for (std::int64_t bag = 0; bag < group.bags.bags; ++bag)
      for (std::int64_t i = group.bags.begin(bag); i < group.bags.end(bag); ++i) {
        std::vector<double>& sum = merged
                                       .try_emplace(group.bags.ids[i] + group.bags.row_bias,
                                                    static_cast<std::size_t>(width))
                                       .first->second;
        for (int c = 0; c < width; ++c)
          sum[static_cast<std::size_t>(c)] += static_cast<double>(group.bags.coefficient(bag, i)) *
                                              group.gradient[bag * group.gradient_stride + c];
      }
  return merged;
}

}  // namespace tessera::test
