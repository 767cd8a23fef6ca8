// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/element.hpp>
#include <tessera/core/lanes.hpp>
#include <tessera/core/math.hpp>
#include <tessera/op/mean_square.hpp>

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace tessera { inline namespace v0 {

namespace detail {

/// Widens the numbers at `x`. By lists, of which g++ 12 makes one instruction; of
/// __builtin_convertvector it makes four to six. No template, whose lists nvcc 13 cannot take.
[[gnu::always_inline]] inline void widen(const std::uint16_t* x, Vector<std::uint32_t, 4>& to) {
  to = Vector<std::uint32_t, 4>{x[0], x[1], x[2], x[3]};
}
[[gnu::always_inline]] inline void widen(const std::uint16_t* x, Vector<std::uint32_t, 8>& to) {
  to = Vector<std::uint32_t, 8>{x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]};
}
[[gnu::always_inline]] inline void widen(const std::uint16_t* x, Vector<std::uint32_t, 16>& to) {
  to = Vector<std::uint32_t, 16>{x[0], x[1], x[2],  x[3],  x[4],  x[5],  x[6],  x[7],
                                 x[8], x[9], x[10], x[11], x[12], x[13], x[14], x[15]};
}

/// Loads N elements as floats; 16-bit ones with the arithmetic of to_float, for all N at once.
template <int N, Element T>
[[gnu::always_inline]] inline void load(const T* from, Vector<float, N>& to) {
  if constexpr (std::is_same_v<T, float>) {
    std::memcpy(&to, from, sizeof(to));
  } else if constexpr (N == 1) {
    to = to_float(*from);
  } else {
    using Words = Vector<std::uint32_t, N>;
    Words words;
    widen(&from->bits, words);
    if constexpr (std::is_same_v<T, BFloat16>) {
      to = (Vector<float, N>)(words << 16);
    } else {
      const Vector<float, N> scaled = (Vector<float, N>)((words & 0x7fffu) << 13) * 0x1p112f;
      const Words special = (Words)((words & 0x7c00u) == 0x7c00u) & 0x7f800000u;
      to = (Vector<float, N>)((Words)scaled | special | ((words & 0x8000u) << 16));
    }
  }
}

/// Stores N floats as elements, rounded to nearest even.
template <int N, Element T>
[[gnu::always_inline]] inline void store(const Vector<float, N>& from, T* to) {
  if constexpr (std::is_same_v<T, float>) {
    std::memcpy(to, &from, sizeof(from));
  } else if constexpr (N == 1) {
    *to = from_float<T>(from);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    using Words = Vector<std::uint32_t, N>;
    const Words bits = (Words)from, nan = (Words)((bits & 0x7fffffffu) > 0x7f800000u);
    const Words rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const auto narrow = __builtin_convertvector((rounded & ~nan) | (((bits >> 16) | 0x40u) & nan),
                                                Vector<std::uint16_t, N>);
    std::memcpy(static_cast<void*>(to), &narrow, sizeof(narrow));
  } else {
    for (int i = 0; i < N; ++i) to[i] = from_float<T>(from[i]);
  }
}

/// Accumulators of `Columns` neighbouring columns of a row. The columns are split into whole vector
/// registers, then smaller ones, each a member of its own: so they live in registers while a bag is
/// read. Every column is computed alike, whatever vector it falls in.
template <int Columns>
struct RowSum {
  static constexpr int lanes = Columns >= native_lanes ? native_lanes
                               : Columns >= 8          ? 8
                               : Columns >= 4          ? 4
                                                       : 1;

  [[gnu::always_inline]] void clear() {
    head = Vector<float, lanes>{};
    tail.clear();
  }
  /// Begins with negative zeros: what is added first stays the same, even such a zero. (nvcc 13
  /// stops at a vector's unary minus.)
  [[gnu::always_inline]] void start() {
    head = broadcast<lanes>(-0.0f);
    tail.start();
  }
  /// Loads the sums at `from`, or a start if not `there`, without a branch.
  [[gnu::always_inline]] void load_if(bool there, const float* from) {
    std::memcpy(&head, from, sizeof(head));
    if constexpr (lanes == 1) {
      head = there ? head : -0.0f;
    } else {
      using Words = Vector<std::int32_t, lanes>;
      const Words kept = Words{} - static_cast<std::int32_t>(there),
                  start = (Words)broadcast<lanes>(-0.0f);
      head = (Vector<float, lanes>)(((Words)head & kept) | (start & ~kept));
    }
    tail.load_if(there, from + lanes);
  }
  /// Adds a row. `row`: a pointer to elements, or what else `load` reads and + moves on.
  template <class Row>
  [[gnu::always_inline]] void add(Row row) {
    Vector<float, lanes> x;
    load<lanes>(row, x);
    head = head + x;
    tail.add(row + lanes);
  }
  template <class Row>
  [[gnu::always_inline]] void add(Row row, float coefficient) {
    Vector<float, lanes> x;
    load<lanes>(row, x);
    head = multiply_add<lanes>(broadcast<lanes>(coefficient), x, head);
    tail.add(row + lanes, coefficient);
  }
  [[gnu::always_inline]] void scale(float factor) {
    head = head * factor;
    tail.scale(factor);
  }
  template <Element T>
  [[gnu::always_inline]] void store(T* to) const {
    detail::store<lanes>(head, to);
    tail.store(to + lanes);
  }

  Vector<float, lanes> head;
  RowSum<Columns - lanes> tail;
};

template <>
struct RowSum<0> {
  template <class Row>
  void add(Row) {}
  template <class Row>
  void add(Row, float) {}
  void clear() {}
  void start() {}
  void load_if(bool, const float*) {}
  void scale(float) {}
  template <Element T>
  void store(T*) const {}
};

/// Most columns whose accumulators are held at once: 16 registers.
inline constexpr int largest_chunk = 16 * native_lanes;

/// Calls f.template operator()<C>(column) for consecutive chunks of C columns that make up a row. A
/// compile-time width up to largest_chunk is one chunk; a width known at run time is put together
/// from the chunks that there are, of at most `Most` columns.
template <int Width, int Most = 128, class F>
[[gnu::always_inline]] inline void for_column_chunks(int width, const F& f) {
  if constexpr (Width != 0) {
    constexpr int whole = Width / largest_chunk * largest_chunk;
    for (int column = 0; column < whole; column += largest_chunk)
      f.template operator()<largest_chunk>(column);
    if constexpr (Width > whole) f.template operator()<Width - whole>(whole);
  } else {
    int column = 0;
    const auto chunks = [&]<int C>(std::integral_constant<int, C>) {
      for (; column + C <= width; column += C) f.template operator()<C>(column);
    };
    if constexpr (Most >= 128) chunks(std::integral_constant<int, 128>{});
    chunks(std::integral_constant<int, 64>{});
    chunks(std::integral_constant<int, 32>{});
    chunks(std::integral_constant<int, 16>{});
    chunks(std::integral_constant<int, 4>{});
    chunks(std::integral_constant<int, 1>{});
  }
}

}  // namespace detail

/// The neighbouring columns of one vector register as one value, for optimizers whose `element` is
/// a template: + - * / and comparisons with floats and one another, and the functions of
/// core/math.hpp. Every lane is computed alike.
struct Lanes {
  static constexpr int count = detail::native_lanes;
  using Values = detail::Vector<float, count>;
  Values values;

  using Words = detail::Vector<std::int32_t, count>;
  /// What comparisons of lanes give: all bits of a lane where they hold.
  struct Mask {
    Words words;
  };

  [[gnu::always_inline]] friend inline Lanes operator+(const Lanes& a, const Lanes& b) {
    return {a.values + b.values};
  }
  [[gnu::always_inline]] friend inline Lanes operator-(const Lanes& a, const Lanes& b) {
    return {a.values - b.values};
  }
  [[gnu::always_inline]] friend inline Lanes operator*(const Lanes& a, const Lanes& b) {
    return {a.values * b.values};
  }
  [[gnu::always_inline]] friend inline Lanes operator/(const Lanes& a, const Lanes& b) {
    return {a.values / b.values};
  }
  [[gnu::always_inline]] friend inline Lanes operator+(const Lanes& a, float b) {
    return {a.values + b};
  }
  [[gnu::always_inline]] friend inline Lanes operator-(const Lanes& a, float b) {
    return {a.values - b};
  }
  [[gnu::always_inline]] friend inline Lanes operator*(const Lanes& a, float b) {
    return {a.values * b};
  }
  [[gnu::always_inline]] friend inline Lanes operator/(const Lanes& a, float b) {
    return {a.values / b};
  }
  [[gnu::always_inline]] friend inline Lanes operator+(float a, const Lanes& b) {
    return {a + b.values};
  }
  [[gnu::always_inline]] friend inline Lanes operator-(float a, const Lanes& b) {
    return {a - b.values};
  }
  [[gnu::always_inline]] friend inline Lanes operator*(float a, const Lanes& b) {
    return {a * b.values};
  }
  [[gnu::always_inline]] friend inline Lanes operator/(float a, const Lanes& b) {
    return {a / b.values};
  }

  [[gnu::always_inline]] friend inline Mask operator<(const Lanes& a, const Lanes& b) {
    return {a.values < b.values};
  }
  [[gnu::always_inline]] friend inline Mask operator<(const Lanes& a, float b) {
    return a < all(b);
  }
  [[gnu::always_inline]] friend inline Mask operator<(float a, const Lanes& b) {
    return all(a) < b;
  }
  [[gnu::always_inline]] friend inline Mask operator>(const Lanes& a, const Lanes& b) {
    return {a.values > b.values};
  }
  [[gnu::always_inline]] friend inline Mask operator>(const Lanes& a, float b) {
    return a > all(b);
  }
  [[gnu::always_inline]] friend inline Mask operator>(float a, const Lanes& b) {
    return all(a) > b;
  }
  [[gnu::always_inline]] friend inline Mask operator<=(const Lanes& a, const Lanes& b) {
    return {a.values <= b.values};
  }
  [[gnu::always_inline]] friend inline Mask operator<=(const Lanes& a, float b) {
    return a <= all(b);
  }
  [[gnu::always_inline]] friend inline Mask operator<=(float a, const Lanes& b) {
    return all(a) <= b;
  }
  [[gnu::always_inline]] friend inline Mask operator>=(const Lanes& a, const Lanes& b) {
    return {a.values >= b.values};
  }
  [[gnu::always_inline]] friend inline Mask operator>=(const Lanes& a, float b) {
    return a >= all(b);
  }
  [[gnu::always_inline]] friend inline Mask operator>=(float a, const Lanes& b) {
    return all(a) >= b;
  }

  /// Returns N copies of x.
  [[gnu::always_inline]] static Lanes all(float x) { return {detail::broadcast<count>(x)}; }
  [[gnu::always_inline]] static const Lanes& all(const Lanes& x) { return x; }

  [[gnu::always_inline]] friend inline Lanes select(const Mask& condition, const Lanes& a,
                                                    const Lanes& b) {
    return {(Values)(((Words)a.values & condition.words) | ((Words)b.values & ~condition.words))};
  }
  [[gnu::always_inline]] friend inline Lanes select(const Mask& condition, const Lanes& a,
                                                    float b) {
    return select(condition, a, all(b));
  }
  [[gnu::always_inline]] friend inline Lanes select(const Mask& condition, float a,
                                                    const Lanes& b) {
    return select(condition, all(a), b);
  }
  [[gnu::always_inline]] friend inline Lanes select(const Mask& condition, float a, float b) {
    return select(condition, all(a), all(b));
  }
  [[gnu::always_inline]] friend inline Lanes maximum(const Lanes& a, const Lanes& b) {
    return select(a > b, a, b);
  }
  [[gnu::always_inline]] friend inline Lanes maximum(const Lanes& a, float b) {
    return maximum(a, all(b));
  }
  [[gnu::always_inline]] friend inline Lanes maximum(float a, const Lanes& b) {
    return maximum(all(a), b);
  }
  [[gnu::always_inline]] friend inline Lanes minimum(const Lanes& a, const Lanes& b) {
    return select(a < b, a, b);
  }
  [[gnu::always_inline]] friend inline Lanes minimum(const Lanes& a, float b) {
    return minimum(a, all(b));
  }
  [[gnu::always_inline]] friend inline Lanes minimum(float a, const Lanes& b) {
    return minimum(all(a), b);
  }
  [[gnu::always_inline]] friend inline Lanes absolute(const Lanes& x) {
    return {(Values)((Words)x.values & 0x7fffffff)};
  }
  [[gnu::always_inline]] friend inline Lanes sign(const Lanes& x) {
    return select(x > 0.0f, all(1.0f), select(x < 0.0f, all(-1.0f), x));
  }

  /// Computes it in one rounding; each argument is Lanes or a float.
  template <class A, class B, class C>
    requires(std::is_same_v<A, Lanes> || std::is_same_v<B, Lanes> || std::is_same_v<C, Lanes>)
  [[gnu::always_inline]] friend inline Lanes multiply_add(const A& a, const B& b, const C& c) {
    Lanes result;  // nvcc makes no Lanes of braces in a template
    result.values = detail::multiply_add<count>(all(a).values, all(b).values, all(c).values);
    return result;
  }

  /// Returns the root, correctly rounded. Compilers make a vector instruction of a loop over
  /// std::sqrt only if told to forget errno, which is the user's choice, so the instruction is
  /// named if the processor has it.
  [[gnu::always_inline]] friend inline Lanes square_root(const Lanes& x) {
    Lanes result;
#if defined(__AVX512F__)
    asm("vsqrtps %1, %0" : "=v"(result.values) : "v"(x.values));
#elif defined(__AVX__)
    asm("vsqrtps %1, %0" : "=x"(result.values) : "x"(x.values));
#else
    for (int i = 0; i < count; ++i) result.values[i] = math::square_root(x.values[i]);
#endif
    return result;
  }
};

namespace detail {

/// Computes the tree of block_square_sum down to its last four sums.
[[gnu::always_inline]] inline void block_square_sums(const float* gradient,
                                                     Vector<double, 4>& sums) {
  Vector<double, 4> square[4];
  unrolled<4>([&](auto i) __attribute__((always_inline)) {
    const float* const x = gradient + 4 * i();
    // one instruction; g++ 12 takes four for __builtin_convertvector
    const Vector<double, 4> wide{x[0], x[1], x[2], x[3]};
    // exact: a fused multiply-add rounds the same
    square[i()] = wide * wide;
  });
  sums = (square[0] + square[2]) + (square[1] + square[3]);
}

/// Returns the mean_square of op/mean_square.hpp, with the same bits. Four blocks share the ends of
/// their trees.
[[gnu::always_inline]] inline float fast_mean_square(const float* gradient, int width) {
  constexpr int block = op::mean_square_block;
  float sum = 0;
  int column = 0;
  for (; column + 4 * block <= width; column += 4 * block) {
    Vector<double, 4> a, b, c, d;
    block_square_sums(gradient + column, a);
    block_square_sums(gradient + column + block, b);
    block_square_sums(gradient + column + 2 * block, c);
    block_square_sums(gradient + column + 3 * block, d);
    const Vector<double, 4> ab =
        __builtin_shufflevector(a, b, 0, 1, 4, 5) + __builtin_shufflevector(a, b, 2, 3, 6, 7);
    const Vector<double, 4> cd =
        __builtin_shufflevector(c, d, 0, 1, 4, 5) + __builtin_shufflevector(c, d, 2, 3, 6, 7);
    const Vector<double, 4> acbd =
        __builtin_shufflevector(ab, cd, 0, 4, 2, 6) + __builtin_shufflevector(ab, cd, 1, 5, 3, 7);
    for (const int i : {0, 2, 1, 3}) sum += static_cast<float>(acbd[i]);
  }
  for (; column + block <= width; column += block) {
    Vector<double, 4> four;
    block_square_sums(gradient + column, four);
    sum += static_cast<float>((four[0] + four[2]) + (four[1] + four[3]));
  }
  if (column < width) sum += op::block_square_sum(gradient + column, width - column);
  return sum / static_cast<float>(width);
}

}  // namespace detail

}}  // namespace tessera::v0
