// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/entries.cuh>
#include <tessera/cuda/row_update.cuh>

#include <cstdint>

namespace tessera { inline namespace v0 { namespace gpu {

// Gradients of a row are summed in a fixed tree of fan-out 32, whatever other rows there are:
// entries 0..31 of the row, 32..63, ... are summed one after the other; these sums 0..31, 32..63,
// ... likewise; and so on. Rows of up to 32 entries are summed in plain order. Sums start from -0,
// which changes no number, or from what the sink has of the row.
//
// Sorted entries are cut into windows of 32 places, one per warp; a warp sums the pieces (at most
// 32 entries of one row) that *begin* in its window, so it reads less than 64 entries however they
// are spread:
//
//     place     0         ...        31 | 32              ...         63 | 64
//     row       a a a b c c c c c  ...  | c c c c c c c c c d e f f ...  |
//     piece     |---- |-|------------------------|-------|-|-|----
//
// A row that ends within its first piece is finished at once. Else the piece's sum is kept in a
// slot of its window: a window holds at most one piece that begins such a row and one that
// continues such a row.

inline constexpr int merge_window = 32;
inline constexpr int merge_threads = 256;
inline constexpr std::uint32_t no_place = 0xffffffffu;

struct PartialSums {
  /// two rows per window: of the piece that continues a row, of the piece that begins one
  float* sums;
  /// per window: where a row of more than 32 entries begins, or no_place
  std::uint32_t* long_row;
  /// per window: where the row begins that has a later piece here, or no_place
  std::uint32_t* continued_row;

  __device__ static std::int64_t slot(std::uint32_t place, bool begins_row) {
    return 2 * (place / merge_window) + (begins_row ? 1 : 0);
  }
};

/// Returns the first place of the run of `row` that reaches up to `end`. The whole warp calls it
/// together.
__device__ inline std::uint32_t run_begin(const std::uint32_t* rows, std::uint32_t end,
                                          std::uint32_t row, int lane) {
  std::uint32_t low = 0, high = end - 1;  // the answer is in [low, high]
  std::uint32_t step = 1, probe = high >= 32 ? high - 32 + lane : lane;
  while (low < high) {
    const unsigned hits = __ballot_sync(0xffffffffu, probe < high && rows[probe] == row);
    const std::uint32_t first = __shfl_sync(0xffffffffu, probe, 0);
    if (hits == 0) {
      const std::uint32_t probes = (high - first + step - 1) / step;
      low = first + ((probes < 32 ? probes : 32) - 1) * step + 1;
    } else {
      const auto hit = static_cast<std::uint32_t>(__ffs(static_cast<int>(hits)) - 1);
      high = first + hit * step;
      if (hit != 0) low = first + (hit - 1) * step + 1;
    }
    step = (high - low + 31) / 32;
    probe = low + static_cast<std::uint32_t>(lane) * step;
  }
  return high;
}

/// Returns what the sum of a row's first piece begins with; `place`: the row's first.
template <class Sink>
__device__ __forceinline__ RowPart<typename Sink::Lanes> sum_before(const Sink& sink,
                                                                    std::uint32_t place,
                                                                    bool begins_row, int lane) {
  if constexpr (requires { sink.sum_before(place, lane); })
    if (begins_row) return sink.sum_before(place, lane);
  return zero_row<typename Sink::Lanes>(-0.0f);
}

template <class Lanes, Element G>
__device__ __forceinline__ RowPart<Lanes> sum_entries(RowPart<Lanes> sum,
                                                      const GradientEntry<G>* entries, int count,
                                                      bool aligned, int lane) {
  // About 64 bytes per lane: with more, fewer warps find registers.
  constexpr int flight = Lanes::floats <= 4 ? 4 : Lanes::floats <= 8 ? 2 : 1;
  for (int i = 0; i < count; i += flight) {
    RowPart<Lanes> rows[flight];
    for (int r = 0; r < flight; ++r)
      if (i + r < count)
        rows[r] = load_any_row<Lanes>(in_global(entries[i + r].gradient), aligned, lane);
    for (int r = 0; r < flight; ++r)
      if (i + r < count) multiply_add_row(sum, entries[i + r].coefficient, rows[r]);
  }
  return sum;
}

/// A piece of a block's windows: which entries it sums and what becomes of the sum.
struct alignas(8) WindowPiece {
  std::uint32_t row, bits;

  __device__ static WindowPiece of(std::uint32_t row, int first, int count, bool begins_row,
                                   bool finishes_row) {
    return {row, static_cast<std::uint32_t>(first | count << 8 | (begins_row ? 1 << 16 : 0) |
                                            (finishes_row ? 1 << 17 : 0))};
  }
  /// Returns its first place among those of the block.
  __device__ std::uint32_t first() const { return bits & 0xffu; }
  __device__ int count() const { return static_cast<int>(bits >> 8 & 0xffu); }
  __device__ bool begins_row() const { return (bits >> 16 & 1u) != 0; }
  __device__ bool finishes_row() const { return (bits >> 17) != 0; }
};

/// How many pieces ahead of the one that is summed a group of lanes asks for memory: short rows are
/// soon summed.
template <class Lanes>
inline constexpr int pieces_ahead = Lanes::lanes < 8 ? 2 : 1;

/// Places whose entries a block sums: those of its windows, and of the next one, in which their last
/// piece may end.
inline constexpr int merge_places = merge_threads + merge_window;

/// Sums the pieces that begin in each window, and finishes rows of up to 32 entries. A warp finds
/// its window's pieces; all pieces of a block's windows are dealt out to its groups of lanes, so
/// that none waits for a warp with many rows.
template <class Sink, class Payload, Element G = float>
__global__ void __launch_bounds__(merge_threads)
    merge_windows(const SortedEntries<Payload, G> in, const Sink sink, const PartialSums partial) {
  using Lanes = typename Sink::Lanes;
  constexpr unsigned full = 0xffffffffu;
  constexpr int warps = merge_threads / 32;
  auto& entries = block_shared<GradientEntry<G>[merge_places]>();
  auto& pieces_of_block = block_shared<WindowPiece[merge_threads]>();
  auto& counts = block_shared<int[warps]>();
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const std::uint32_t first_place = blockIdx.x * merge_threads,
                      begin = first_place + static_cast<std::uint32_t>(warp) * merge_window,
                      window = begin / merge_window;
  unsigned pieces = 0;
  WindowPiece mine{};
  if (begin < in.count) {
    const std::uint32_t place = begin + static_cast<std::uint32_t>(lane),
                        next_place = place + merge_window;
    const std::uint32_t row = place < in.count ? in.rows[place] : no_row;
    const std::uint32_t next_row = next_place < in.count ? in.rows[next_place] : no_row;
    const bool last = warp == warps - 1;  // the block's last piece may end in the next window
    const Payload payload = place < in.count ? in.payloads[place] : Payload{},
                  next_payload =
                      last && next_place < in.count ? in.payloads[next_place] : Payload{};
    const std::uint32_t before = __shfl_up_sync(full, row, 1);
    const bool continues = begin > 0 && in.rows[begin - 1] == __shfl_sync(full, row, 0);
    const bool head = row != no_row && (lane == 0 ? !continues : row != before);
    const unsigned heads = __ballot_sync(full, head);
    // the row has an entry 32 places on
    const bool longer = row != no_row && next_row == row;
    const unsigned long_heads = heads & __ballot_sync(full, longer);

    // Entries up to the end of the last piece, which may be in the next window.
    const std::uint32_t row_31 = __shfl_sync(full, row, 31);
    const unsigned foreign = __ballot_sync(full, next_row != row_31 || row_31 == no_row);
    const int reach = foreign == 0 ? merge_window : __ffs(static_cast<int>(foreign)) - 1;
    const unsigned valid = __ballot_sync(full, row != no_row);
    GradientEntry<G>* const of_window = entries + warp * merge_window;
    if (row != no_row) of_window[lane] = in.entry(payload);
    if (last && lane < reach) of_window[merge_window + lane] = in.entry(next_payload);

    // A row from an earlier window has a piece here where its entries' number is a multiple of 32.
    const std::uint32_t row_0 = __shfl_sync(full, row, 0);
    std::uint32_t run = no_place, later_piece = no_place;
    if (continues && row_0 != no_row) {
      run = run_begin(in.rows, begin, row_0, lane);
      later_piece = begin + (merge_window - (begin - run) % merge_window) % merge_window;
    }
    const unsigned later = __ballot_sync(full, place == later_piece && row == row_0);
    pieces = heads | later;
    if (lane == 0) {
      partial.long_row[window] =
          long_heads == 0
              ? no_place
              : begin + static_cast<std::uint32_t>(__ffs(static_cast<int>(long_heads)) - 1);
      partial.continued_row[window] = later == 0 ? no_place : run;
    }
    const unsigned ends = lane == 31 ? 0u : (heads | ~valid) & ~0u << (lane + 1);
    const int stop = ends != 0 ? __ffs(static_cast<int>(ends)) - 1 : merge_window + reach;
    mine = WindowPiece::of(row, warp * merge_window + lane,
                           stop - lane < merge_window ? stop - lane : merge_window, head,
                           head && !longer);
  }
  if (lane == 0) counts[warp] = __popc(pieces);
  __syncthreads();
  int earlier = 0, total = 0;
  for (int w = 0; w < warps; ++w) {
    const int count = counts[w];
    if (w < warp) earlier += count;
    total += count;
  }
  if ((pieces >> lane & 1u) != 0)
    pieces_of_block[earlier + __popc(pieces & ((1u << lane) - 1u))] = mine;
  __syncthreads();

  constexpr int stride = merge_threads / Lanes::lanes, ahead = pieces_ahead<Lanes>;
  const int row_lane = lane % Lanes::lanes;
  for (int k = static_cast<int>(threadIdx.x) / Lanes::lanes; k < total; k += stride) {
    if (k + ahead * stride < total) {
      const WindowPiece later = pieces_of_block[k + ahead * stride];
      if (later.finishes_row()) sink.prefetch(later.row, row_lane);
      prefetch_row<Lanes::lanes>(entries[later.first()].gradient,
                                 Sink::width * static_cast<int>(sizeof(G)), row_lane);
    }
    const WindowPiece piece = pieces_of_block[k];
    const std::uint32_t first = piece.first(), start = first_place + first;
    const auto sum = [&] {
      return sum_entries<Lanes>(sum_before(sink, start, piece.begins_row(), row_lane),
                                entries + first, piece.count(), in.aligned, row_lane);
    };
    if (piece.finishes_row()) {
      // before the gradients: both are on their way at once
      auto loaded = sink.load(piece.row, row_lane);
      sink.store(piece.row, start, row_lane, loaded, sum());
    } else {
      keep_float_row<Sink::width>(
          partial.sums + PartialSums::slot(start, piece.begins_row()) * Sink::width, row_lane,
          sum());
    }
  }
}

/// Goes one step up the tree: sums up to 32 sums of `unit` entries each, and finishes the rows that
/// end there. A warp looks through 32 windows for rows that have more than `unit` entries.
template <class Sink, class Payload>
__global__ void __launch_bounds__(merge_threads, 2)
    merge_partials(const SortedEntries<Payload> in, const Sink sink, const PartialSums partial,
                   const std::uint32_t unit) {
  using Lanes = typename Sink::Lanes;
  // few warps have a row to add: each must have many loads on their way
  constexpr int flight = Lanes::most_in_flight;
  constexpr unsigned full = 0xffffffffu;
  const int lane = static_cast<int>(threadIdx.x) % 32, group = lane / Lanes::lanes,
            row_lane = lane % Lanes::lanes;
  const std::uint32_t windows = (in.count + merge_window - 1) / merge_window;
  const std::uint32_t window = blockIdx.x * merge_threads + threadIdx.x;
  const std::uint64_t whole = std::uint64_t{unit} * 32;

  const std::uint32_t long_row = window < windows ? partial.long_row[window] : no_place;
  const bool begins =
      long_row != no_place && in.is_row(std::uint64_t{long_row} + unit, in.rows[long_row]);
  const std::uint32_t run = window < windows ? partial.continued_row[window] : no_place;
  const std::uint32_t begin = window * merge_window;
  const std::uint32_t later_piece =
      begin + (merge_window - (begin - run) % merge_window) % merge_window;
  const bool continues = run != no_place && (later_piece - run) % whole == 0;

  for (int kind = 0; kind < 2; ++kind) {
    const bool begins_row = kind == 0;
    const std::uint32_t start_here = begins_row ? long_row : later_piece;
    unsigned rest = __ballot_sync(full, begins_row ? begins : continues);
    while (rest != 0) {  // all lanes go round together; each group takes another row
      std::uint32_t start = no_place, row = no_row;
      int count = 0;
      bool ends = false;
      for (int g = 0; g < Lanes::groups && rest != 0; ++g, rest &= rest - 1) {
        const std::uint32_t its_start =
            __shfl_sync(full, start_here, __ffs(static_cast<int>(rest)) - 1);
        const std::uint32_t its_row = in.rows[its_start];
        // all places at once, and then the sums: two waits
        const unsigned present = __ballot_sync(
            full,
            in.is_row(its_start + std::uint64_t{unit} * static_cast<unsigned>(lane), its_row));
        const bool goes_on = in.is_row(its_start + whole, its_row);
        if (g != group) continue;
        start = its_start, row = its_row, count = __popc(present), ends = !goes_on;
      }
      if (count == 0) continue;
      RowPart<Lanes> sum = zero_row<Lanes>(-0.0f);
      for (int i = 0; i < count; i += flight) {
        RowPart<Lanes> sums[flight];
        for (int r = 0; r < flight; ++r) {
          if (i + r >= count) continue;
          const std::uint32_t place = start + unit * static_cast<unsigned>(i + r);
          const std::int64_t slot = PartialSums::slot(place, begins_row && i + r == 0);
          sums[r] = load_float_row<Lanes>(partial.sums + slot * Sink::width, Sink::width % 4 == 0,
                                          row_lane);
        }
        for (int r = 0; r < flight; ++r)
          if (i + r < count) add_row(sum, sums[r]);
      }
      if (begins_row && ends) {
        auto loaded = sink.load(row, row_lane);
        sink.store(row, start, row_lane, loaded, sum);
      } else {
        keep_float_row<Sink::width>(
            partial.sums + PartialSums::slot(start, begins_row) * Sink::width, row_lane, sum);
      }
    }
  }
}

/// Sums the gradients of every row and hands them to `sink`.
template <class Sink, class Payload, Element G>
void merge_rows(const Cuda& backend, const SortedEntries<Payload, G>& in, const Sink& sink) {
  if (in.count == 0) return;
  const std::int64_t windows = ceil_divide(in.count, merge_window);
  auto* places = backend.scratch_for<std::uint32_t>(ScratchSlot::windows, 2 * windows);
  const PartialSums partial{
      backend.scratch_for<float>(ScratchSlot::sums, 2 * windows * Sink::width), places,
      places + windows};
  backend.launch("merge_windows", ceil_divide(windows, merge_threads / 32), merge_threads,
                 merge_windows<Sink, Payload, G>, in, sink, partial);
  for (std::uint64_t unit = merge_window; unit < in.count; unit *= merge_window)
    backend.launch("merge_partials", ceil_divide(windows, merge_threads), merge_threads,
                   merge_partials<Sink, Payload>, in.without_gradients(), sink, partial,
                   static_cast<std::uint32_t>(unit));
}

}}}  // namespace tessera::v0::gpu
