// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// What a model does to vectors besides its blocks, products and losses: operations, and the host's
// kernels. Those of CUDA are in vector_ops.cuh.
#pragma once

#include <tessera/config.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/core/random.hpp>
#include <tessera/host/backend.hpp>
#include <tessera/op/kernel.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace sequence {

/// x of a row = the vector of its source + the vector of its place + its label times that of labels.
struct FillInput {
  struct Parameters {
    tessera::MatrixView<const float> vectors, places;
    const float* label_vector = nullptr;
    const std::int32_t* sources = nullptr;  ///< rows of `vectors`
    const std::int32_t* place_of = nullptr;
    const float* labels = nullptr;  ///< 0: nothing is read
    tessera::MatrixView<float> x;
  };
};

/// to[index[i]] += from[i]. No number stands twice in the index.
struct AddIndexed {
  struct Parameters {
    tessera::MatrixView<const float> from;
    const std::int32_t* index = nullptr;
    tessera::MatrixView<float> to;
  };
};

/// Gradients of FillInput's vectors of places and of labels, overwritten. The rows of each place are
/// listed, places one after another.
struct PlaceGradients {
  struct Parameters {
    tessera::MatrixView<const float> d;  ///< of x
    const std::int32_t* rows = nullptr;  ///< [rows of d]
    const std::int64_t* begins = nullptr;
    const float* labels = nullptr;
    const float* label_vector = nullptr;
    tessera::MatrixView<float> of_places;  ///< [places, width]
    float* of_label = nullptr;             ///< [width]
  };
};

/// Which elements are zeros, and by what the others are larger: of a row's key and a layer, so that
/// it is the same whatever rank has the row. Share 0 changes nothing.
struct Zeros {
  std::uint32_t below = 0;
  float scale = 1;

  Zeros() = default;
  explicit Zeros(float share)
      : below(static_cast<std::uint32_t>(std::lround(share * 65536))),
        scale(65536.0f / static_cast<float>(65536 - below)) {}
  /// The random bits of columns c to c + 3, 16 each.
  TESSERA_HOST_DEVICE static std::uint64_t word(std::uint64_t key, int layer, std::int64_t c) {
    return tessera::random_word(key, layer, c);
  }
  TESSERA_HOST_DEVICE float factor(std::uint64_t word) const {
    return (word & 0xffff) < below ? 0.0f : scale;
  }
};

/// Dropout of x.
struct Drop {
  struct Parameters {
    Zeros zeros;
    const std::uint64_t* keys = nullptr;  ///< of rows
    int layer = 0;
    tessera::MatrixView<float> x;
  };
};

/// Dropout of what y has more than x.
struct DropAdded {
  struct Parameters {
    Drop::Parameters drop;  ///< of y
    tessera::MatrixView<const float> x;
  };
};

/// d += more - less: contiguous, of one size.
struct AddDifference {
  struct Parameters {
    const float *more = nullptr, *less = nullptr;
    float* d = nullptr;
    std::int64_t count = 0;
  };
};

/// Products of all rows with all rows, in the host's memory: [a's rows, b's rows].
template <class Backend>
class Products;

}  // namespace sequence

template <>
struct tessera::op::Kernel<sequence::FillInput, tessera::Host> {
  static void run(const Host&, const sequence::FillInput::Parameters& p) {
    const auto add = [&](const float* from, float factor, float* to) {
      for (std::int64_t c = 0; c < p.x.columns; ++c) to[c] += factor * from[c];
    };
    for (std::int64_t row = 0; row < p.x.rows; ++row) {
      float* const x = p.x.row(row);
      std::copy_n(p.vectors.row(p.sources[row]), p.x.columns, x);
      add(p.places.row(p.place_of[row]), 1, x);
      if (p.labels[row] != 0) add(p.label_vector, p.labels[row], x);
    }
  }
};

template <>
struct tessera::op::Kernel<sequence::AddIndexed, tessera::Host> {
  static void run(const Host&, const sequence::AddIndexed::Parameters& p) {
    for (std::int64_t i = 0; i < p.from.rows; ++i) {
      const float* const from = p.from.row(i);
      float* const to = p.to.row(p.index[i]);
      for (std::int64_t c = 0; c < p.from.columns; ++c) to[c] += from[c];
    }
  }
};

template <>
struct tessera::op::Kernel<sequence::PlaceGradients, tessera::Host> {
  static void run(const Host&, const sequence::PlaceGradients::Parameters& p) {
    const std::int64_t width = p.d.columns;
    const auto add = [&](std::int64_t row, float factor, float* to) {
      const float* const d = p.d.row(row);
      for (std::int64_t c = 0; c < width; ++c) to[c] += factor * d[c];
    };
    for (std::int64_t place = 0; place < p.of_places.rows; ++place) {
      std::fill_n(p.of_places.row(place), width, 0.0f);
      for (std::int64_t i = p.begins[place]; i < p.begins[place + 1]; ++i)
        add(p.rows[i], 1, p.of_places.row(place));
    }
    std::fill_n(p.of_label, width, 0.0f);
    for (std::int64_t row = 0; row < p.d.rows; ++row)
      if (p.labels[row] != 0) add(row, p.labels[row], p.of_label);
  }
};

template <>
struct tessera::op::Kernel<sequence::Drop, tessera::Host> {
  static void run(const Host&, const sequence::Drop::Parameters& p) {
    if (p.zeros.below == 0) return;
    for (std::int64_t r = 0; r < p.x.rows; ++r) {
      float* const row = p.x.row(r);
      for (std::int64_t c = 0; c < p.x.columns; c += 4) {
        std::uint64_t word = p.zeros.word(p.keys[r], p.layer, c);
        for (std::int64_t k = c; k < std::min(c + 4, p.x.columns); ++k, word >>= 16)
          row[k] *= p.zeros.factor(word);
      }
    }
  }
};

template <>
struct tessera::op::Kernel<sequence::DropAdded, tessera::Host> {
  static void run(const Host& host, const sequence::DropAdded::Parameters& p) {
    const std::int64_t count = p.x.rows * p.x.columns;
    float* const y = p.drop.x.data;
    for (std::int64_t i = 0; i < count; ++i) y[i] -= p.x.data[i];
    Kernel<sequence::Drop, Host>::run(host, p.drop);
    for (std::int64_t i = 0; i < count; ++i) y[i] += p.x.data[i];
  }
};

template <>
struct tessera::op::Kernel<sequence::AddDifference, tessera::Host> {
  static void run(const Host&, const sequence::AddDifference::Parameters& p) {
    for (std::int64_t i = 0; i < p.count; ++i) p.d[i] += p.more[i] - p.less[i];
  }
};
