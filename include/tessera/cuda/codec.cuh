// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/groups.cuh>
#include <tessera/cuda/row_lanes.cuh>
#include <tessera/cuda/row_place.cuh>
#include <tessera/op/codec.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <type_traits>
#include <vector>

namespace tessera { inline namespace v0 {
namespace gpu::detail {

/// Returns jobs in as few rounds as keep the order of those that write the same columns of a
/// matrix: columns are compared by address, modulo the stride. Where columns of two jobs overlap
/// and are not the same, every job gets a round of its own. Where no job adds, no element is
/// written twice.
inline std::vector<std::vector<op::DecodeJob>> rounds_of(std::span<const op::DecodeJob> jobs) {
  struct Columns {
    std::int64_t width = 0;
    std::size_t next_round = 0;
  };
  std::map<std::int64_t, std::map<std::int64_t, Columns>> matrices;  // by stride, by first column
  std::vector<std::vector<op::DecodeJob>> rounds, single;
  if (std::none_of(jobs.begin(), jobs.end(), [](const op::DecodeJob& job) { return job.add; }))
    return {{jobs.begin(), jobs.end()}};
  for (const op::DecodeJob& job : jobs) {
    if (job.rows == 0 || job.width == 0) continue;
    const std::int64_t first = reinterpret_cast<std::intptr_t>(job.target) /
                               static_cast<std::int64_t>(sizeof(float)) % job.target_stride;
    Columns& columns = matrices[job.target_stride][first];
    columns.width = std::max<std::int64_t>(columns.width, job.width);
    if (rounds.size() == columns.next_round) rounds.emplace_back();
    rounds[columns.next_round++].push_back(job);
    single.push_back({job});
  }
  for (const auto& [stride, columns] : matrices) {
    // what wraps around
    std::int64_t end = columns.rbegin()->first + columns.rbegin()->second.width - stride;
    for (const auto& [first, c] : columns) {
      if (first < end) return single;
      end = first + c.width;
    }
  }
  return rounds;
}

/// Rows of floats, unchanged: four floats per thread where both sides allow it, else one;
/// neighbouring threads take neighbouring columns.
inline constexpr int move_threads = 256;

inline bool moves_vectors(const op::EncodeJob& job) {
  return rows_aligned(job.source, job.source_stride) && job.width % 4 == 0 &&
         rows_aligned(reinterpret_cast<const float*>(job.target), job.width);
}
inline bool moves_vectors(const op::DecodeJob& job) {
  return rows_aligned(job.target, job.target_stride) && job.width % 4 == 0 &&
         rows_aligned(reinterpret_cast<const float*>(job.source), job.width);
}

struct MovedRow {
  const float* source;
  float* target;
};
inline __device__ MovedRow moved_row(const op::EncodeJob& job, std::int64_t i) {
  return {job.row(i), reinterpret_cast<float*>(job.encoded<Fp32>(i))};
}
inline __device__ MovedRow moved_row(const op::DecodeJob& job, std::int64_t i) {
  return {reinterpret_cast<const float*>(job.encoded<Fp32>(i)), job.row(i)};
}

/// A job and its pieces.
template <class Job>
struct MoveGroup {
  Job job;
  int vector = 1;  ///< floats of a piece
  RowPieces pieces;
  std::int64_t count = 0;  ///< pieces of all rows

  MoveGroup() = default;
  MoveGroup(const Job& given)  // NOLINT(google-explicit-constructor)
      : job(given),
        vector(moves_vectors(job) ? 4 : 1),
        pieces(job.width / vector),
        count(job.rows * (job.width / vector)) {}
};

inline __device__ float sum_of(float a, float b) { return a + b; }
inline __device__ float4 sum_of(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

/// Moves the i-th piece, which is a Piece.
template <class Piece, class Job>
__device__ void move_piece(const MoveGroup<Job>& group, std::int64_t i) {
  const RowPlace place = group.pieces.place(i);
  const MovedRow moved = moved_row(group.job, place.row);
  const Piece piece = reinterpret_cast<const Piece*>(moved.source)[place.piece];
  Piece& target = reinterpret_cast<Piece*>(moved.target)[place.piece];
  if constexpr (std::is_same_v<Job, op::DecodeJob>)
    target = group.job.add ? sum_of(target, piece) : piece;
  else
    target = piece;
}

/// Moves rows: a thread moves four floats, one piece or four.
template <class Job>
__global__ void __launch_bounds__(move_threads)
    move_rows(const GroupBatch<MoveGroup<Job>> __grid_constant__ batch) {
  const int g = batch.find(blockIdx.x);
  const MoveGroup<Job>& group = batch.groups[g];
  std::int64_t i = (blockIdx.x - batch.first_block[g]) * move_threads + threadIdx.x;
  if (group.vector == 4) {
    if (i < group.count) move_piece<float4>(group, i);
    return;
  }
  const std::int64_t step = (batch.first_block[g + 1] - batch.first_block[g]) * move_threads;
  for (int turn = 0; turn < 4 && i < group.count; ++turn, i += step) move_piece<float>(group, i);
}
template <class Job>
void launch_moves(const Cuda& backend, std::span<const Job> jobs) {
  launch_by_group<MoveGroup<Job>>(
      backend, "move_rows", move_threads, jobs,
      [](const MoveGroup<Job>& group) {
        return ceil_divide(group.job.rows * group.job.width, 4 * move_threads);
      },
      move_rows<Job>);
}

inline constexpr int codec_threads = 256;
/// rows that a group of lanes has loaded before it stores the first
inline constexpr int codec_flight = 2;

/// Returns how many lanes share a row: enough to take four columns each at once, a power of two, at
/// most a warp.
TESSERA_HOST_DEVICE constexpr int codec_lanes(int width) {
  int lanes = 1;
  while (4 * lanes < width && lanes < 32) lanes *= 2;
  return lanes;
}
constexpr int codec_rows_per_block(int width) {
  return codec_threads / codec_lanes(width) * codec_flight;
}

/// An encoded row: a header, then pieces of four columns.
template <LaneCodec C>
struct EncodedRow {
  static constexpr int header_bytes = static_cast<int>(C::bytes(0)),
                       piece_bytes = static_cast<int>(C::bytes(4) - C::bytes(0));
  static_assert(header_bytes == 0 || header_bytes == sizeof(typename C::Header),
                "LaneCodec: Header must be the row's first bytes(0) bytes");
  static_assert(piece_bytes > 0 && piece_bytes <= 16 && piece_bytes % 4 == 0,
                "LaneCodec: four columns must make one to four words");
  static constexpr int words = piece_bytes / 4;

  /// Returns the words of a piece of `count` columns.
  static __device__ int words_of(int count) {
    return static_cast<int>(C::bytes(count) - C::bytes(0)) / 4;
  }
  /// Returns whether every piece of rows of a width can be moved at once.
  static __device__ bool aligned(const std::byte* rows, int width) {
    constexpr int bytes = piece_bytes % 16 == 0 ? 16 : piece_bytes % 8 == 0 ? 8 : 4;
    return reinterpret_cast<std::uintptr_t>(rows) % bytes == 0 && C::bytes(width) % bytes == 0 &&
           header_bytes % bytes == 0;
  }
};

/// Loads words between memory that is aligned to 4 and a lane; all at once where they are `whole`.
template <int Count>
__device__ __forceinline__ void load_words(const std::byte* from, bool whole, int count,
                                           std::uint32_t (&words)[Count]) {
  if constexpr (Count != 3) {
    if (whole) {
      const auto packed = *reinterpret_cast<const Packed<std::uint32_t, Count>*>(from);
      for (int i = 0; i < Count; ++i) words[i] = packed.x[i];
      return;
    }
  }
  for (int i = 0; i < Count; ++i)
    words[i] = i < count ? reinterpret_cast<const std::uint32_t*>(from)[i] : 0;
}
template <int Count>
__device__ __forceinline__ void store_words(std::byte* to, bool whole, int count,
                                            const std::uint32_t (&words)[Count]) {
  if constexpr (Count != 3) {
    if (whole) {
      Packed<std::uint32_t, Count> packed;
      for (int i = 0; i < Count; ++i) packed.x[i] = words[i];
      *reinterpret_cast<Packed<std::uint32_t, Count>*>(to) = packed;
      return;
    }
  }
  for (int i = 0; i < Count; ++i)
    if (i < count) reinterpret_cast<std::uint32_t*>(to)[i] = words[i];
}

/// Returns a codec's range from another lane.
template <class T>
__device__ __forceinline__ T exchange_lanes(const T& mine, int distance) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 4 == 0,
                "LaneCodec: Range must be of words of 32 bits");
  std::uint32_t words[sizeof(T) / 4];
  __builtin_memcpy(words, &mine, sizeof(T));
  for (std::uint32_t& word : words) word = __shfl_xor_sync(0xffffffffu, word, distance);
  T other;
  __builtin_memcpy(&other, words, sizeof(T));
  return other;
}

/// Encodes rows: a group of lanes encodes a row, four columns per lane and turn, after it has found
/// the row's range together where the codec has one. Neighbouring groups take neighbouring rows:
///
///     width 16, 4 lanes    warp: rows 0 1 2 3 4 5 6 7, then, of the next flight, 64 .. 71
template <LaneCodec C>
__global__ void __launch_bounds__(codec_threads)
    encode_rows(const GroupBatch<op::EncodeJob> __grid_constant__ batch) {
  using Row = EncodedRow<C>;
  using Range = typename C::Range;
  const int g = batch.find(blockIdx.x);
  const op::EncodeJob& job = batch.groups[g];
  const int lanes = codec_lanes(job.width), lane = static_cast<int>(threadIdx.x) % lanes,
            rows_at_once = codec_threads / lanes;
  const std::int64_t first =
      (static_cast<std::int64_t>(blockIdx.x) - batch.first_block[g]) * rows_at_once * codec_flight +
      static_cast<int>(threadIdx.x) / lanes;
  const bool aligned = rows_aligned(job.source, job.source_stride),
             whole = Row::aligned(job.target, job.width);
  const float* sources[codec_flight];
  bool has[codec_flight];
  for (int r = 0; r < codec_flight; ++r) {
    const std::int64_t row = first + r * rows_at_once;
    has[r] = row < job.rows;
    sources[r] = has[r] ? job.row(row) : nullptr;
  }

  typename C::Header headers[codec_flight];
  if constexpr (!std::is_empty_v<Range>) {
    Range ranges[codec_flight];
    for (int column = 4 * lane; column < job.width; column += 4 * lanes) {
      const int count = job.width - column < 4 ? job.width - column : 4;
      float x[codec_flight][4];
      for (int r = 0; r < codec_flight; ++r)
        if (has[r] && count == 4) load_four(sources[r] + column, aligned, 4, x[r]);
      for (int r = 0; r < codec_flight; ++r)
        if (has[r])
          ranges[r] = C::join(
              ranges[r], count == 4 ? C::range(x[r], 4) : C::range(sources[r] + column, count));
    }
    for (int r = 0; r < codec_flight; ++r) {
      for (int distance = lanes / 2; distance > 0; distance /= 2)
        ranges[r] = C::join(ranges[r], exchange_lanes(ranges[r], distance));
      headers[r] = C::header(ranges[r]);
    }
  }
  if constexpr (Row::header_bytes != 0) {
    for (int r = 0; r < codec_flight; ++r) {
      if (lane != 0 || !has[r]) continue;
      std::uint32_t words[Row::header_bytes / 4];
      __builtin_memcpy(words, &headers[r], sizeof(words));
      store_words(
          job.target + static_cast<std::size_t>(first + r * rows_at_once) * C::bytes(job.width),
          false, Row::header_bytes / 4, words);
    }
  }

  for (int column = 4 * lane; column < job.width; column += 4 * lanes) {
    const int count = job.width - column < 4 ? job.width - column : 4;
    float x[codec_flight][4];
    for (int r = 0; r < codec_flight; ++r)
      if (has[r]) load_four(sources[r] + column, aligned, count, x[r]);
    for (int r = 0; r < codec_flight; ++r) {
      if (!has[r]) continue;
      alignas(4) std::byte piece[Row::piece_bytes];
      C::encode_four(headers[r], x[r], count, piece);
      std::uint32_t words[Row::words];
      __builtin_memcpy(words, piece, sizeof(words));
      std::byte* const row =
          job.target + static_cast<std::size_t>(first + r * rows_at_once) * C::bytes(job.width);
      store_words(row + Row::header_bytes + column / 4 * Row::piece_bytes, whole && count == 4,
                  Row::words_of(count), words);
    }
  }
}

/// Decodes rows, with the same division of the work.
template <LaneCodec C>
__global__ void __launch_bounds__(codec_threads)
    decode_rows(const GroupBatch<op::DecodeJob> __grid_constant__ batch) {
  using Row = EncodedRow<C>;
  const int g = batch.find(blockIdx.x);
  const op::DecodeJob& job = batch.groups[g];
  const int lanes = codec_lanes(job.width), lane = static_cast<int>(threadIdx.x) % lanes,
            rows_at_once = codec_threads / lanes;
  const std::int64_t first =
      (static_cast<std::int64_t>(blockIdx.x) - batch.first_block[g]) * rows_at_once * codec_flight +
      static_cast<int>(threadIdx.x) / lanes;
  const bool aligned = rows_aligned(job.target, job.target_stride),
             whole = Row::aligned(job.source, job.width);
  typename C::Header headers[codec_flight];
  const std::byte* sources[codec_flight];
  float* targets[codec_flight];
  bool has[codec_flight];
  for (int r = 0; r < codec_flight; ++r) {
    const std::int64_t row = first + r * rows_at_once;
    has[r] = row < job.rows;
    if (!has[r]) continue;
    sources[r] = job.template encoded<C>(row);
    targets[r] = job.row(row);
    if constexpr (Row::header_bytes != 0) {
      std::uint32_t words[Row::header_bytes / 4];
      load_words(sources[r], false, Row::header_bytes / 4, words);
      __builtin_memcpy(&headers[r], words, sizeof(words));
    }
  }

  for (int column = 4 * lane; column < job.width; column += 4 * lanes) {
    const int count = job.width - column < 4 ? job.width - column : 4;
    std::uint32_t words[codec_flight][Row::words];
    float before[codec_flight][4];
    for (int r = 0; r < codec_flight; ++r) {
      if (!has[r]) continue;
      load_words(sources[r] + Row::header_bytes + column / 4 * Row::piece_bytes,
                 whole && count == 4, Row::words_of(count), words[r]);
      if (job.add) load_four(targets[r] + column, aligned, count, before[r]);
    }
    for (int r = 0; r < codec_flight; ++r) {
      if (!has[r]) continue;
      alignas(4) std::byte piece[Row::piece_bytes];
      __builtin_memcpy(piece, words[r], sizeof(piece));
      float x[4];
      C::decode_four(headers[r], piece, x);
      for (int i = 0; i < 4 && job.add; ++i) x[i] = before[r][i] + x[i];
      store_four(targets[r] + column, aligned, count, x);
    }
  }
}

/// Encodes for codecs that give whole rows only: a thread takes a row.
template <Codec C>
__global__ void __launch_bounds__(codec_threads)
    encode_whole_rows(const GroupBatch<op::EncodeJob> __grid_constant__ batch) {
  const int g = batch.find(blockIdx.x);
  const op::EncodeJob& job = batch.groups[g];
  const std::int64_t row =
      (static_cast<std::int64_t>(blockIdx.x) - batch.first_block[g]) * codec_threads + threadIdx.x;
  if (row >= job.rows) return;
  C::encode(job.row(row), job.width, job.template encoded<C>(row));
}
template <Codec C>
__global__ void __launch_bounds__(codec_threads)
    decode_whole_rows(const GroupBatch<op::DecodeJob> __grid_constant__ batch) {
  const int g = batch.find(blockIdx.x);
  const op::DecodeJob& job = batch.groups[g];
  const std::int64_t row =
      (static_cast<std::int64_t>(blockIdx.x) - batch.first_block[g]) * codec_threads + threadIdx.x;
  if (row >= job.rows) return;
  C::decode(job.template encoded<C>(row), job.width, job.target + row * job.target_stride);
}

}  // namespace gpu::detail

/// One launch for all jobs.
template <Codec C>
struct op::Kernel<op::EncodeRows<C>, Cuda> {
  using Job = op::EncodeJob;

  static void run(const Cuda& backend, const typename op::EncodeRows<C>::Parameters& p) {
    const auto serve = [&](auto kernel, const auto& rows_per_block) {
      gpu::launch_by_group<Job>(
          backend, "encode_rows", gpu::detail::codec_threads, p.jobs,
          [&](const Job& job) { return gpu::ceil_divide(job.rows, rows_per_block(job.width)); },
          kernel);
    };
    if constexpr (std::is_same_v<C, Fp32>)
      gpu::detail::launch_moves<Job>(backend, p.jobs);
    else if constexpr (LaneCodec<C>)
      serve(gpu::detail::encode_rows<C>, gpu::detail::codec_rows_per_block);
    else
      serve(gpu::detail::encode_whole_rows<C>, [](int) { return gpu::detail::codec_threads; });
  }
};

/// A launch per round of jobs that add to the same columns. Codecs that give whole rows only: all
/// are decoded into scratch memory and moved from there.
template <Codec C>
struct op::Kernel<op::DecodeRows<C>, Cuda> {
  using Job = op::DecodeJob;

  static void run(const Cuda& backend, const typename op::DecodeRows<C>::Parameters& p) {
    if constexpr (std::is_same_v<C, Fp32>) {
      for (const std::vector<Job>& round : gpu::detail::rounds_of(p.jobs))
        gpu::detail::launch_moves<Job>(backend, round);
    } else if constexpr (LaneCodec<C>) {
      for (const std::vector<Job>& round : gpu::detail::rounds_of(p.jobs))
        gpu::launch_by_group<Job>(
            backend, "decode_rows", gpu::detail::codec_threads, round,
            [](const Job& job) {
              return gpu::ceil_divide(job.rows, gpu::detail::codec_rows_per_block(job.width));
            },
            gpu::detail::decode_rows<C>);
    } else {
      std::vector<Job> decode(p.jobs.begin(), p.jobs.end());
      std::int64_t floats = 0;
      for (const Job& job : decode) floats += padded(job);
      float* at = backend.scratch_for<float>(gpu::ScratchSlot::entries, floats);
      std::vector<op::DecodeJob> moves;
      for (Job& job : decode) {
        moves.push_back({reinterpret_cast<const std::byte*>(at), job.target, job.target_stride,
                         job.rows, job.width, job.samples, job.add});
        job.target = at;
        job.target_stride = job.width;
        at += padded(job);
      }
      gpu::launch_by_group<Job>(
          backend, "decode_whole_rows", gpu::detail::codec_threads, decode,
          [](const Job& job) { return gpu::ceil_divide(job.rows, gpu::detail::codec_threads); },
          gpu::detail::decode_whole_rows<C>);
      tessera::op::run<op::DecodeRows<Fp32>>(backend, {moves});
    }
  }

 private:
  /// Returns the floats of a job's rows, so that the next job's are aligned to 16 bytes.
  static std::int64_t padded(const Job& job) {
    return gpu::ceil_divide(job.rows * job.width, 4) * 4;
  }
};

}}  // namespace tessera::v0
