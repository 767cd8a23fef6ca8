// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/host/backend.hpp>
#include <tessera/host/parallel.hpp>
#include <tessera/interaction/lanes.hpp>
#include <tessera/op/kernel.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>

namespace tessera { inline namespace v0 {
namespace detail {

/// Floats on the stack, or on the heap if they would be many.
template <std::size_t Count>
class LocalFloats {
  static constexpr bool kHeap = Count * sizeof(float) > 128 * 1024;

 public:
  float* data() {
    if constexpr (kHeap) {
      return floats_->values;
    } else {
      return floats_.values;
    }
  }

 private:
  struct alignas(64) Array {
    float values[std::max<std::size_t>(Count, 1)];
    Array() {}  // left uninitialized
  };
  static auto make() {
    if constexpr (kHeap)
      return std::make_unique<Array>();
    else
      return Array{};
  }
  decltype(make()) floats_ = make();
};

/// Calls f(begin, end) for a share of [0, count) on each of `threads` OpenMP threads; with one
/// thread, on the caller.
template <class F>
void over_samples(std::int64_t count, int threads, const F& f) {
  if (threads == 1 || count <= 1) return f(std::int64_t{0}, count);
  parallel_for(threads, threads,
               [&](std::int64_t t, int) { f(count * t / threads, count * (t + 1) / threads); });
}

/// DotInteraction on the host, samples [begin, end).
template <int Vectors, int Width, int PadTo, Element T>
class HostDot {
 public:
  static constexpr std::int64_t kPairs = std::int64_t{Vectors} * (Vectors - 1) / 2;
  static constexpr std::int64_t input_columns() { return std::int64_t{Vectors} * Width; }
  static constexpr std::int64_t columns() { return (Width + kPairs + PadTo - 1) / PadTo * PadTo; }

 private:
  /// Narrow vectors take narrower registers; otherwise rows are padded with zeros to whole
  /// registers.
  static constexpr int kLanes = std::clamp(
      static_cast<int>(std::bit_ceil(static_cast<unsigned>(Width))), 4, detail::native_lanes);
  static constexpr int kStride = (Width + kLanes - 1) / kLanes * kLanes;
  static constexpr bool kInPlace = std::is_same_v<T, float> && kStride == Width;
  using Lanes = detail::Floats<kLanes>;

  static constexpr std::int64_t triangle_row(std::int64_t i) { return i * (i - 1) / 2; }

  /// Returns the sample's vectors as floats, kStride apart.
  static const float* unpack(const T* x, float* local) {
    if constexpr (kInPlace) {
      return x;
    } else {
      for (int v = 0; v < Vectors; ++v) {
        for (int k = 0; k < Width; ++k) local[v * kStride + k] = to_float(x[v * Width + k]);
        for (int k = Width; k < kStride; ++k) local[v * kStride + k] = 0.0f;
      }
      return local;
    }
  }

  /// Returns the same vectors if no register crosses two cache lines: forward loads each many
  /// times, which took half as long again.
  static const float* aligned(const float* vectors, float* local) {
    if (reinterpret_cast<std::uintptr_t>(vectors) % sizeof(Lanes) == 0) return vectors;
    for (int k = 0; k < Vectors * kStride; k += kLanes)
      detail::store_lanes<kLanes>(local + k, detail::load_lanes<kLanes>(vectors + k));
    return local;
  }

  /// Asks for lines [part, part + 1) / parts of `count` elements: a later sample's, spread over the
  /// work on this one, because the processor's own prefetchers stop at pages and a burst would fill
  /// its queue of misses.
  template <int Parts, int Write>
  [[gnu::always_inline]] static void prefetch(const T* p, std::size_t count, int part) {
    const std::size_t bytes = count * sizeof(T),
                      begin = bytes * static_cast<std::size_t>(part) / Parts / 64 * 64;
    const std::size_t end = bytes * static_cast<std::size_t>(part + 1) / Parts;
    for (std::size_t offset = begin; offset < end; offset += 64)
      __builtin_prefetch(reinterpret_cast<const char*>(p) + offset, Write, 2);
  }

  /// Samples ahead that are asked for: about 16 KiB.
  static constexpr std::int64_t kAhead =
      1 + 16 * 1024 / static_cast<std::int64_t>(input_columns() * sizeof(T));

  /// Lines to be written are asked for only where a sample's are few: measured, many of them cost
  /// more than their misses.
  static constexpr bool kPrefetchGradient = input_columns() * sizeof(T) <= 4096;

  // Forward: the triangle is cut into blocks of kRows rows, a first smaller one where Vectors is no
  // multiple. Block rows times earlier columns are tiles whose products are summed lane by lane in
  // registers, then all lanes of a tile at once by a tree of folds.
  //
  //   row 0..2 | t            t  triangle of a block's own rows
  //   row 3..6 | 3  t         3  tile of kRows x (Vectors % kRows)
  //   row 7..10| 3  4  t      4  tiles of kRows x kColumns

  static constexpr int kRows = 4;
  static constexpr int kColumns = kLanes == 16 ? 4 : 2;
  static constexpr int kFirst = Vectors % kRows;
  static constexpr int kBlocks = std::max(1, Vectors / kRows);

  /// Computes out[i, j] = a_i . b_j for Rows x Columns vectors, written to the triangle's rows from
  /// `row`.
  template <int Rows, int Columns>
  [[gnu::always_inline]] static void tile(const float* a, const float* b, float* triangle,
                                          std::int64_t row) {
    Lanes sums[Rows * Columns] = {};
    for (int k = 0; k < kStride; k += kLanes) {
      Lanes right[Columns];
      detail::unrolled<Columns>(
          [&](auto j) { right[j()] = detail::load_lanes<kLanes>(b + j() * kStride + k); });
      detail::unrolled<Rows>([&](auto i) {
        const Lanes left = detail::load_lanes<kLanes>(a + i() * kStride + k);
        detail::unrolled<Columns>([&](auto j) {
          Lanes& sum = sums[i() * Columns + j()];
          sum = detail::multiply_add<kLanes>(left, right[j()], sum);
        });
      });
    }
    alignas(64) float dots[round_up(Rows * Columns)];
    finish<Rows * Columns>(sums, dots);
    detail::unrolled<Rows>([&](auto i) {
      std::memcpy(triangle + triangle_row(row + i()), dots + i() * Columns,
                  Columns * sizeof(float));
    });
  }

  /// Computes the strictly lower triangle of a_i . a_j for Rows vectors, the first of them vector
  /// `row`.
  template <int Rows>
  [[gnu::always_inline]] static void diagonal(const float* a, float* triangle, std::int64_t row) {
    constexpr int kCount = Rows * (Rows - 1) / 2;
    if constexpr (kCount > 0) {
      Lanes sums[kCount] = {};
      for (int k = 0; k < kStride; k += kLanes) {
        Lanes x[Rows];
        detail::unrolled<Rows>([&](auto i) {
          x[i()] = detail::load_lanes<kLanes>(a + i() * kStride + k);
          detail::unrolled<i()>([&](auto j) {
            Lanes& sum = sums[triangle_row(i()) + j()];
            sum = detail::multiply_add<kLanes>(x[i()], x[j()], sum);
          });
        });
      }
      alignas(64) float dots[round_up(kCount)];
      finish<kCount>(sums, dots);
      detail::unrolled<Rows>([&](auto i) {
        std::memcpy(triangle + triangle_row(row + i()) + row, dots + triangle_row(i()),
                    static_cast<std::size_t>(i()) * sizeof(float));
      });
    }
  }

  static constexpr int round_up(int count) { return (count + kLanes - 1) / kLanes * kLanes; }

  template <int Count>
  [[gnu::always_inline]] static void finish(Lanes* sums, float* dots) {
    detail::unrolled<round_up(Count) / kLanes>([&](auto group) {
      constexpr int kBegin = group() * kLanes;
      detail::store_lanes<kLanes>(
          dots + kBegin,
          detail::sum_of_lanes<kLanes, std::min(kLanes, Count - kBegin)>(sums + kBegin));
    });
  }

  static void triangle_of(const float* x, float* triangle, const T* later) {
    diagonal<kFirst>(x, triangle, 0);
    for (std::int64_t row = kFirst; row < Vectors; row += kRows) {
      const float* a = x + row * kStride;
      prefetch<kBlocks, 0>(later, Vectors * Width, static_cast<int>(row / kRows));
      unrolled_columns<kFirst>(a, x, triangle, row);
      for (std::int64_t column = kFirst; column < row; column += kRows)
        unrolled_columns<kRows>(a, x + column * kStride, triangle + column, row);
      diagonal<kRows>(a, triangle, row);
    }
  }

  /// Computes kRows x Columns products as tiles of at most kColumns columns.
  template <int Columns>
  [[gnu::always_inline]] static void unrolled_columns(const float* a, const float* b,
                                                      float* triangle, std::int64_t row) {
    if constexpr (Columns > 0) {
      constexpr int kNow = std::min(Columns, kColumns);
      tile<kRows, kNow>(a, b, triangle, row);
      unrolled_columns<Columns - kNow>(a, b + kNow * kStride, triangle + kNow, row);
    }
  }

 public:
  static void forward(MatrixView<const T> x, MatrixView<T> z, std::int64_t begin,
                      std::int64_t end) {
    detail::LocalFloats<std::size_t{Vectors} * kStride> local;
    detail::LocalFloats<std::is_same_v<T, float> ? 0 : static_cast<std::size_t>(kPairs)> dots;
    for (std::int64_t sample = begin; sample < end; ++sample) {
      const T* in = x.row(sample);
      T* out = z.row(sample);
      std::copy_n(in, Width, out);
      const T* later = x.row(std::min(sample + kAhead, end - 1));
      const float* vectors = aligned(unpack(in, local.data()), local.data());
      if constexpr (std::is_same_v<T, float>) {
        triangle_of(vectors, out + Width, later);
      } else {
        triangle_of(vectors, dots.data(), later);
        for (std::int64_t i = 0; i < kPairs; ++i) out[Width + i] = from_float<T>(dots.data()[i]);
      }
      std::fill(out + Width + kPairs, out + columns(), T{});
    }
  }

 private:
  // Backward: dx_i = sum over j of s_ij x_j, where s is dz's triangle made symmetric, with a zero
  // diagonal: a product of a small square matrix and the sample's vectors. A tile of rows x
  // registers of dx stays in registers over the sum.

  static constexpr int kTileRegisters = std::min(kStride / kLanes, kLanes == 16 ? 4 : 2);
  static constexpr int kTileRows = std::min(Vectors, (kLanes == 16 ? 24 : 12) / kTileRegisters);

  template <int Rows, int Registers>
  [[gnu::always_inline]] static void gradient_tile(const float* s, const float* x, float* dx) {
    Lanes sums[Rows * Registers] = {};
    for (int j = 0; j < Vectors; ++j) {
      Lanes right[Registers];
      detail::unrolled<Registers>(
          [&](auto r) { right[r()] = detail::load_lanes<kLanes>(x + j * kStride + r() * kLanes); });
      detail::unrolled<Rows>([&](auto i) {
        const float left = s[i() * Vectors + j];
        detail::unrolled<Registers>(
            [&](auto r) { sums[i() * Registers + r()] += left * right[r()]; });
      });
    }
    detail::unrolled<Rows>([&](auto i) {
      detail::unrolled<Registers>([&](auto r) {
        detail::store_lanes<kLanes>(dx + i() * kStride + r() * kLanes, sums[i() * Registers + r()]);
      });
    });
  }

  template <int Rows>
  [[gnu::always_inline]] static void gradient_rows(const float* s, const float* x, float* dx) {
    constexpr int kRegisters = kStride / kLanes, kTail = kRegisters % kTileRegisters;
    for (int r = 0; r + kTileRegisters <= kRegisters; r += kTileRegisters)
      gradient_tile<Rows, kTileRegisters>(s, x + r * kLanes, dx + r * kLanes);
    if constexpr (kTail > 0)
      gradient_tile<Rows, kTail>(s, x + (kRegisters - kTail) * kLanes,
                                 dx + (kRegisters - kTail) * kLanes);
  }

 public:
  static void backward(MatrixView<const T> x, MatrixView<const T> dz, MatrixView<T> dx,
                       std::int64_t begin, std::int64_t end) {
    detail::LocalFloats<kInPlace ? 0 : std::size_t{Vectors} * kStride> local, gradient;
    detail::LocalFloats<std::size_t{Vectors} * Vectors> symmetric;
    float* s = symmetric.data();
    for (int i = 0; i < Vectors; ++i) s[i * Vectors + i] = 0.0f;
    for (std::int64_t sample = begin; sample < end; ++sample) {
      const T* g = dz.row(sample);
      for (int i = 1; i < Vectors; ++i)
        for (int j = 0; j < i; ++j)
          s[i * Vectors + j] = s[j * Vectors + i] = to_float(g[Width + triangle_row(i) + j]);
      const float* vectors = unpack(x.row(sample), local.data());
      float* out = gradient.data();
      if constexpr (kInPlace) out = dx.row(sample);
      const std::int64_t later = std::min(sample + kAhead, end - 1);
      int row = 0;
      for (; row + kTileRows <= Vectors; row += kTileRows) {
        prefetch<Vectors / kTileRows, 0>(x.row(later), Vectors * Width, row / kTileRows);
        prefetch<Vectors / kTileRows, 0>(dz.row(later), static_cast<std::size_t>(columns()),
                                         row / kTileRows);
        if constexpr (kPrefetchGradient)
          prefetch<Vectors / kTileRows, 1>(dx.row(later), Vectors * Width, row / kTileRows);
        gradient_rows<kTileRows>(s + row * Vectors, vectors, out + row * kStride);
      }
      if constexpr (Vectors % kTileRows > 0)
        gradient_rows<Vectors % kTileRows>(s + row * Vectors, vectors, out + row * kStride);
      for (int k = 0; k < Width; ++k) out[k] += to_float(g[k]);
      if constexpr (!kInPlace) {
        T* to = dx.row(sample);
        for (int v = 0; v < Vectors; ++v)
          for (int k = 0; k < Width; ++k) to[v * Width + k] = from_float<T>(out[v * kStride + k]);
      }
    }
  }
};

}  // namespace detail

namespace op {

/// z from x: of each row the vectors' products, as DotInteraction puts them.
template <int Vectors, int Width, int PadTo, Element T, bool Tf32>
struct DotForward {
  struct Parameters {
    MatrixView<const T> x;
    MatrixView<T> z;
  };
};

/// dx (overwritten) from x and dz.
template <int Vectors, int Width, int PadTo, Element T, bool Tf32>
struct DotBackward {
  struct Parameters {
    MatrixView<const T> x, dz;
    MatrixView<T> dx;
  };
};

template <int Vectors, int Width, int PadTo, Element T, bool Tf32>
struct Kernel<DotForward<Vectors, Width, PadTo, T, Tf32>, Host> {
  static void run(const Host& backend, const auto& p) {
    detail::over_samples(p.x.rows, backend.threads(), [&](std::int64_t begin, std::int64_t end) {
      detail::HostDot<Vectors, Width, PadTo, T>::forward(p.x, p.z, begin, end);
    });
  }
};

template <int Vectors, int Width, int PadTo, Element T, bool Tf32>
struct Kernel<DotBackward<Vectors, Width, PadTo, T, Tf32>, Host> {
  static void run(const Host& backend, const auto& p) {
    detail::over_samples(p.x.rows, backend.threads(), [&](std::int64_t begin, std::int64_t end) {
      detail::HostDot<Vectors, Width, PadTo, T>::backward(p.x, p.dz, p.dx, begin, end);
    });
  }
};

}  // namespace op

/// DLRM's interaction of `Vectors` vectors of `Width` numbers per sample, side by side in a row of
/// x (vector 0 is the bottom MLP's output): z = vector 0, then the dot products of the strictly
/// lower triangle row by row, (1,0), (2,0), (2,1), ..., then zeros up to a multiple of `PadTo`
/// columns. Storage float or 16 bits; arithmetic in float. With `Tf32` a backend may round floats
/// to 10 bits of mantissa before it multiplies them (Cuda does, on the tensor cores). Stateless;
/// matrices are in the backend's memory.
///
///     using Dot = DotInteraction<27, 16>;
///     Dot::forward(host, x, z);  // z [batch, Dot::columns()]
///     Dot::backward(host, x, dz, dx);
template <int Vectors, int Width, int PadTo = 1, Element T = float, bool Tf32 = false>
class DotInteraction {
  static_assert(Vectors >= 1 && Width >= 1 && PadTo >= 1,
                "DotInteraction: Vectors, Width and PadTo must be at least 1");
  static_assert(!Tf32 || std::is_same_v<T, float>, "DotInteraction: Tf32 is for floats");

 public:
  static constexpr std::int64_t input_columns() { return std::int64_t{Vectors} * Width; }
  /// Returns the columns of z: what the top MLP takes.
  static constexpr std::int64_t columns() {
    return (Width + std::int64_t{Vectors} * (Vectors - 1) / 2 + PadTo - 1) / PadTo * PadTo;
  }

  /// Computes z [batch, columns()] from x [batch, input_columns()]; both may be columns of wider
  /// matrices.
  template <class Backend>
  static void forward(const Backend& backend, MatrixView<const T> x, MatrixView<T> z) {
    check("input", x, x.rows, input_columns());
    check("output", z, x.rows, columns());
    op::run<op::DotForward<Vectors, Width, PadTo, T, Tf32>>(backend, {x, z});
  }

  /// Computes dx (overwritten) from dz, including what passes straight through to vector 0. dx may
  /// not overlap x or dz.
  template <class Backend>
  static void backward(const Backend& backend, MatrixView<const T> x, MatrixView<const T> dz,
                       MatrixView<T> dx) {
    check("input", x, x.rows, input_columns());
    check("output gradient", dz, x.rows, columns());
    check("input gradient", dx, x.rows, input_columns());
    op::run<op::DotBackward<Vectors, Width, PadTo, T, Tf32>>(backend, {x, dz, dx});
  }

 private:
  template <class View>
  static void check(const char* what, const View& view, std::int64_t rows, std::int64_t columns) {
    require(view.rows == rows && view.columns == columns,
            "DotInteraction<{}, {}>: {} is {} x {}, must be {} x {}", Vectors, Width, what,
            view.rows, view.columns, rows, columns);
    require(view.sound(), "DotInteraction: {} has no memory, or a stride below its columns", what);
  }
};

namespace detail {

template <class PlanT, int Others, int PadTo, class T, bool Tf32>
struct DotOfPlan {
  static constexpr int width = PlanT::feature_shape.width;
  static_assert(width > 0,
                "DotFor: the features of the plan have different widths; a dot product needs one "
                "(docs/concepts/interaction.md)");
  using type =
      DotInteraction<PlanT::feature_shape.count + Others, std::max(width, 1), PadTo, T, Tf32>;
};

}  // namespace detail

/// The interaction of a plan's features, which must have one width, behind `Others` further vectors
/// of that width: `DotFor<Plan>` takes what an EmbeddingCollection gives, `DotFor<Plan, 1>` the
/// output of a bottom MLP before it.
template <class PlanT, int Others = 0, int PadTo = 1, Element T = float, bool Tf32 = false>
using DotFor = typename detail::DotOfPlan<PlanT, Others, PadTo, T, Tf32>::type;

}}  // namespace tessera::v0
