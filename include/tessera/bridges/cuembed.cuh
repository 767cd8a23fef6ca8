// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/bridges/cuembed_kernels.cuh>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/cuda/backend.cuh>
#include <tessera/cuda/groups.cuh>
#include <tessera/cuda/sort.cuh>
#include <tessera/op/lookup.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

struct __half;         // cuda_fp16.h
struct __nv_bfloat16;  // cuda_bf16.h

/// The functions of NVIDIA's cuEmbed (https://github.com/NVIDIA/cuEmbed), with its names, template
/// parameters and order of arguments, over Tessera's kernels. All pointers are to memory of the
/// GPU, but for `lwork`; work goes to `stream`, and the host does not wait. Wrong arguments throw
/// InvalidArgument; ids are not checked: those of 0 and above must be rows, negative ones add
/// nothing.
namespace tessera { inline namespace v0 { namespace cuembed {

/// How the rows of a sample become one: their sum, their mean, or one after another.
enum class CombineMode { kSum, kMean, kConcat };

/// The type of a table's elements; weights have it, too.
template <class T>
struct GetElemType {
  using Type = T;
};
/// The same, shorter: a table's element type.
template <class T>
using GetElemT = typename GetElemType<T>::Type;

namespace detail {

template <class T>
struct ElementOf {
  static_assert(Element<T>, "cuembed: float, __half, __nv_bfloat16, tessera::Half or BFloat16");
  using Type = T;
};
template <>
struct ElementOf<::__half> {
  using Type = Half;
};
template <>
struct ElementOf<::__nv_bfloat16> {
  using Type = BFloat16;
};

/// Returns the pointer as one to Tessera's type of the same bits.
template <class T>
auto* as_elements(T* p) {
  using Type = typename ElementOf<std::remove_const_t<T>>::Type;
  return reinterpret_cast<std::conditional_t<std::is_const_v<T>, const Type, Type>*>(p);
}
template <class T>
auto* as_ids(T* p) {
  static_assert(std::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8),
                "cuembed: indices and offsets are integers of 32 or 64 bits");
  using Type = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
  return reinterpret_cast<std::conditional_t<std::is_const_v<T>, const Type, Type>*>(p);
}

/// Calls f(std::integral_constant<int, width>) for widths that have kernels of their own, if the
/// table's address allows their loads; returns whether it did.
template <Element T, class F>
bool with_width(const T* params, int width, const F& f) {
  const auto try_width = [&]<int Width>(std::integral_constant<int, Width> constant) {
    if (width != Width) return false;
    if (reinterpret_cast<std::uintptr_t>(params) % gpu::RowLanes<T, Width>::vector_bytes != 0)
      return false;
    f(constant);
    return true;
  };
  return try_width(std::integral_constant<int, 16>()) ||
         try_width(std::integral_constant<int, 32>()) ||
         try_width(std::integral_constant<int, 64>()) ||
         try_width(std::integral_constant<int, 128>()) ||
         try_width(std::integral_constant<int, 256>());
}

template <Element T, IdType Id, IdType Offset, Element Out>
void pool(const T* params, int width, const Samples<T, Id, Offset>& samples, Out* out,
          cudaStream_t stream) {
  constexpr int threads = gpu::detail::lookup_threads;
  const auto launch_rows = [&](const char* name, int lanes, auto kernel, auto... arguments) {
    gpu::launch(name,
                {.blocks = gpu::ceil_divide(samples.count, threads / lanes),
                 .threads = threads,
                 .stream = stream},
                kernel, arguments...);
  };
  const bool copies = samples.hots == 1 && samples.weights == nullptr;
  const bool done = with_width(params, width, [&]<int Width>(std::integral_constant<int, Width>) {
    using Lanes = gpu::RowLanes<T, Width>;
    if (copies) {
      using Group = op::LookupGroup<Id, Out>;
      const Group group{{.ids = samples.ids, .bags = samples.count}, out, Width};
      constexpr int bags_per_block = threads / Lanes::lanes * Lanes::rows_in_flight;
      gpu::launch_by_group<Group>(
          Cuda({.stream = stream}), "copy_rows", threads, std::span(&group, 1),
          [](const Group& each) { return gpu::ceil_divide(each.bags.bags, bags_per_block); },
          gpu::detail::copy_rows<T, Id, Width, Out>, params);
    } else {
      launch_rows("pool_samples", Lanes::lanes, pool_samples<T, Id, Offset, Out, Width>, params,
                  samples, out);
    }
  });
  const auto lanes =
      static_cast<int>(std::min(32u, std::bit_ceil((static_cast<unsigned>(width) + 3) / 4)));
  if (!done)
    launch_rows("pool_samples_of_any_width", lanes, pool_samples_of_any_width<T, Id, Offset, Out>,
                params, width, lanes, samples, out);
}

template <Element G, class Payload>
void merge_into(const Cuda& backend, gpu::SortedEntries<Payload, G> entries, int width, G* rows) {
  const auto panel = [&]<int Columns>(std::integral_constant<int, Columns>, int column) {
    using Sink = GradientRows<G, Columns>;
    const bool aligned = gpu::rows_aligned_for(rows + column, width, Sink::Lanes::vector);
    entries.column = column;
    gpu::merge_rows(backend, entries, Sink{rows, width, column, aligned});
  };
  int column = 0;
  for (; column + 128 <= width; column += 128) panel(std::integral_constant<int, 128>(), column);
  for (; column + 32 <= width; column += 32) panel(std::integral_constant<int, 32>(), column);
  for (; column + 4 <= width; column += 4) panel(std::integral_constant<int, 4>(), column);
  for (; column < width; ++column) panel(std::integral_constant<int, 1>(), column);
}

inline void check_width(const char* function, int width, int count, const char* what) {
  require(width >= 1, "{}: embed_width is {}; give at least 1", function, width);
  require(count >= 0, "{}: {} is {}", function, what, count);
}

/// Says in `lwork` how much memory is needed, if there is none, else checks that it is enough.
inline bool has_work(const char* function, const char* work, std::size_t* lwork,
                     std::size_t needed) {
  require(lwork != nullptr, "{}: lwork is null; give the place of a size", function);
  if (work == nullptr) {
    *lwork = needed;
    return false;
  }
  require(*lwork >= needed, "{}: {} bytes of workspace, it takes {}; ask with work = nullptr",
          function, *lwork, needed);
  return true;
}

}  // namespace detail

/// Looks rows up: `ret` [batch_size, embed_width], or [batch_size, num_hots, embed_width] for
/// kConcat, which takes neither offsets nor weights. Ids are either `num_hots` per sample
/// (`offsets` null) or CSR (`offsets` [batch_size + 1], `num_hots` 0). `weights`: of the table's
/// type, one per id, or null; a mean divides by the number of ids. Sums are in float and are
/// rounded once, `fp16_math` or not.
template <class InputT, class OutputT, class IndexT, class OffsetT, bool fp16_math = false>
void EmbeddingForward(const InputT* params, const int embed_width, const IndexT* indices,
                      const OffsetT* offsets, const GetElemT<InputT>* weights, const int batch_size,
                      const int num_hots, const CombineMode mode, OutputT* ret,
                      const cudaStream_t stream = nullptr) {
  detail::check_width("EmbeddingForward", embed_width, batch_size, "batch_size");
  require(offsets == nullptr ? num_hots > 0 : num_hots == 0,
          "EmbeddingForward: num_hots is {} {} offsets; give num_hots >= 1, or offsets and 0",
          num_hots, offsets == nullptr ? "without" : "with");
  const bool concat = mode == CombineMode::kConcat;
  require(!concat || (offsets == nullptr && weights == nullptr),
          "EmbeddingForward: kConcat takes neither offsets nor weights");
  if (batch_size == 0) return;
  const auto* const table = detail::as_elements(params);
  const auto* const ids = detail::as_ids(indices);
  const auto* const begins = detail::as_ids(offsets);
  using T = std::remove_cvref_t<decltype(*table)>;
  using Id = std::remove_cvref_t<decltype(*ids)>;
  using Offset = std::remove_cvref_t<decltype(*begins)>;
  detail::pool(table, embed_width,
               detail::Samples<T, Id, Offset>{
                   .ids = ids,
                   .offsets = begins,
                   .weights = detail::as_elements(weights),
                   .count = concat ? std::int64_t{batch_size} * num_hots : batch_size,
                   .hots = concat ? 1 : num_hots,
                   .mean = mode == CombineMode::kMean},
               detail::as_elements(ret), stream);
}

/// Sums gradients by row of the table. Takes what Transpose gives, entries of one index side by
/// side: row `transpose_indices[i]` of `grad_embedding` [num_grad_embedding_rows, embed_width] gets
/// row `transpose_sample_ids[i]` of `grad_y`, times `transpose_weights[i]` where there are weights.
/// With `transpose_remapped_indices` (ComputeCompressedGradIndices) the gradient has a row per
/// distinct index, and `inverse_mapping` says of which. Rows that no index names become 0, or with
/// `skip_grad_init` stay; others are written, not added to. Sums are in float, in one order for
/// equal arguments, rounded once. `backend`: whose stream and scratch memory it works with; its
/// second call of a size allocates nothing and may be captured.
template <class GradT, class IndexT>
void EmbeddingBackward(const GradT* grad_y, const int embed_width,
                       const int num_grad_embedding_rows, const int nnz,
                       const IndexT* transpose_indices, const IndexT* transpose_sample_ids,
                       const IndexT* transpose_remapped_indices, const GradT* transpose_weights,
                       const bool skip_grad_init, GradT* grad_embedding, IndexT* inverse_mapping,
                       const Cuda& backend) {
  detail::check_width("EmbeddingBackward", embed_width, nnz, "nnz");
  require(num_grad_embedding_rows >= 0, "EmbeddingBackward: num_grad_embedding_rows is {}",
          num_grad_embedding_rows);
  const bool compressed = transpose_remapped_indices != nullptr;
  require(!compressed || inverse_mapping != nullptr || nnz == 0,
          "EmbeddingBackward: transpose_remapped_indices without inverse_mapping; give room for "
          "{} indices",
          num_grad_embedding_rows);
  auto* const to = detail::as_elements(grad_embedding);
  const auto* const from = detail::as_elements(grad_y);
  const auto* const weights = detail::as_elements(transpose_weights);
  const auto* const indices =
      detail::as_ids(compressed ? transpose_remapped_indices : transpose_indices);
  const auto* const samples = detail::as_ids(transpose_sample_ids);
  using G = std::remove_cvref_t<decltype(*from)>;
  using Id = std::remove_cvref_t<decltype(*indices)>;
  if (!skip_grad_init)
    gpu::zero(to, std::int64_t{num_grad_embedding_rows} * embed_width, backend.stream());
  if (nnz == 0) return;
  if (compressed)
    detail::launch_each("write_inverse", nnz, backend.stream(), detail::write_inverse<Id>,
                        detail::as_ids(transpose_indices), indices, nnz,
                        detail::as_ids(inverse_mapping));

  auto* const source = backend.scratch_for<gpu::GradientSource<G>>(gpu::ScratchSlot::sources, 1);
  const gpu::GradientSource<G> all{from, embed_width, nullptr, 0};
  gpu::upload<gpu::GradientSource<G>>(backend, std::span(&all, 1), source);
  const auto merge = [&]<class Payload>(const std::uint32_t* rows, const Payload* payloads) {
    detail::merge_into<G, Payload>(
        backend,
        {rows, payloads, static_cast<std::uint32_t>(nnz), source, 1, 0,
         gpu::rows_aligned_for(from, embed_width, gpu::RowLanes<float, 128>::vector), 0},
        embed_width, to);
  };
  const auto list = [&]<class Payload>(std::type_identity<Payload>) {
    auto* const payloads = backend.scratch_for<Payload>(gpu::ScratchSlot::entries, nnz);
    auto* const rows = backend.scratch_for<std::uint32_t>(gpu::ScratchSlot::places, nnz);
    detail::launch_each("list_coordinates", nnz, backend.stream(),
                        detail::list_coordinates<Payload, Id, G>, indices, samples, weights, nnz,
                        rows, payloads);
    merge(static_cast<const std::uint32_t*>(rows), static_cast<const Payload*>(payloads));
  };
  if (weights != nullptr)
    list(std::type_identity<gpu::WeightedPayload>());
  else if constexpr (sizeof(Id) == 4)  // they are what a merge reads
    merge(reinterpret_cast<const std::uint32_t*>(indices),
          reinterpret_cast<const gpu::BagPayload*>(samples));
  else
    list(std::type_identity<gpu::BagPayload>());
}
/// Does the same on a stream. Its memory, two rows of at most 128 floats per 32 entries, and 8 or 12
/// bytes an entry for weights or 64-bit indices, is of the driver's pool (cudaMallocAsync), which
/// keeps it; a stream that is captured takes the call with a backend.
template <class GradT, class IndexT>
void EmbeddingBackward(const GradT* grad_y, const int embed_width,
                       const int num_grad_embedding_rows, const int nnz,
                       const IndexT* transpose_indices, const IndexT* transpose_sample_ids,
                       const IndexT* transpose_remapped_indices, const GradT* transpose_weights,
                       const bool skip_grad_init, GradT* grad_embedding, IndexT* inverse_mapping,
                       const cudaStream_t stream = nullptr) {
  EmbeddingBackward(grad_y, embed_width, num_grad_embedding_rows, nnz, transpose_indices,
                    transpose_sample_ids, transpose_remapped_indices, transpose_weights,
                    skip_grad_init, grad_embedding, inverse_mapping, Cuda({.stream = stream}));
}

/// Reorders entries (sample `rows[i]`, index `cols[i]`, weight) by index, those of one index in
/// their order: `transpose_rows` gets indices, `transpose_cols` samples, `transpose_weights`
/// weights, if `weights` is not null. First call it with `work` null: `*lwork` becomes the bytes
/// that it takes.
template <class IndexT, class WeightT>
void Transpose(const IndexT* rows, const IndexT* cols, const WeightT* weights, const int nnz,
               IndexT* transpose_rows, IndexT* transpose_cols, WeightT* transpose_weights,
               char* work, std::size_t* lwork, const cudaStream_t stream = nullptr) {
  require(nnz >= 0, "Transpose: nnz is {}", nnz);
  using Key = std::make_unsigned_t<std::remove_cvref_t<decltype(*detail::as_ids(cols))>>;
  const auto sort = [&]<class Value>(void* temporary, std::size_t& bytes, const Value* values,
                                     Value* sorted) {
    gpu::sort_pairs_into(stream, temporary, bytes, reinterpret_cast<const Key*>(cols),
                         reinterpret_cast<Key*>(transpose_rows), values, sorted, nnz);
  };
  std::size_t temporary_bytes = 0;
  if (weights == nullptr) {
    sort(nullptr, temporary_bytes, rows, transpose_cols);
    if (detail::has_work("Transpose", work, lwork, temporary_bytes) && nnz > 0)
      sort(work, temporary_bytes, rows, transpose_cols);
    return;
  }
  using Joined = detail::WeightedSample<IndexT, WeightT>;
  constexpr std::size_t line = 256;
  const std::size_t half =
      (static_cast<std::size_t>(nnz) * sizeof(Joined) + line - 1) / line * line;
  sort(nullptr, temporary_bytes, static_cast<const Joined*>(nullptr),
       static_cast<Joined*>(nullptr));
  // wherever `work` begins
  if (!detail::has_work("Transpose", work, lwork, line + 2 * half + temporary_bytes) || nnz == 0)
    return;
  char* const begin = work + (line - reinterpret_cast<std::uintptr_t>(work) % line) % line;
  auto* const joined = reinterpret_cast<Joined*>(begin);
  auto* const sorted = reinterpret_cast<Joined*>(begin + half);
  detail::launch_each("join_weights", nnz, stream, detail::join_weights<IndexT, WeightT>, rows,
                      weights, nnz, joined);
  sort(begin + 2 * half, temporary_bytes, static_cast<const Joined*>(joined), sorted);
  detail::launch_each("part_weights", nnz, stream, detail::part_weights<IndexT, WeightT>,
                      static_cast<const Joined*>(sorted), nnz, transpose_cols, transpose_weights);
}

/// Writes the numbers of the distinct indices, of which equal ones are side by side: 4 4 7 8 8 8 18
/// becomes 0 0 1 2 2 2 3. First call it with `work` null: `*lwork` becomes the bytes that it takes.
template <class IndexT>
void ComputeCompressedGradIndices(const IndexT* indices, const int nnz, IndexT* remapped_indices,
                                  char* work, std::size_t* lwork,
                                  const cudaStream_t stream = nullptr) {
  require(nnz >= 0, "ComputeCompressedGradIndices: nnz is {}", nnz);
  auto* const numbers = detail::as_ids(remapped_indices);
  std::size_t bytes = 0;
  gpu::exclusive_sum_in(stream, nullptr, bytes, numbers, nnz);
  if (!detail::has_work("ComputeCompressedGradIndices", work, lwork, bytes) || nnz == 0) return;
  detail::launch_each("mark_last", nnz, stream,
                      detail::mark_last<std::remove_pointer_t<decltype(numbers)>>,
                      detail::as_ids(indices), nnz, numbers);
  gpu::exclusive_sum_in(stream, work, bytes, numbers, nnz);
}

/// Writes the sample of each of `batch_size` x `num_hots` entries.
template <class IndexT>
void ExtractRowIdsFromFixed(const int batch_size, const int num_hots, IndexT* row_ids,
                            const cudaStream_t stream = nullptr) {
  require(batch_size >= 0 && num_hots >= 1,
          "ExtractRowIdsFromFixed: {} samples of {} ids; give at least 1 id", batch_size, num_hots);
  auto* const ids = detail::as_ids(row_ids);
  const std::int64_t count = std::int64_t{batch_size} * num_hots;
  detail::launch_each("write_sample_ids", count, stream,
                      detail::write_sample_ids<std::remove_pointer_t<decltype(ids)>>, count,
                      num_hots, ids);
}
/// Writes the sample of each entry that CSR offsets [batch_size + 1] tell of.
template <class IndexT, class OffsetT>
void ExtractRowIdsFromCSR(const OffsetT* offsets, const int batch_size, IndexT* row_ids,
                          const cudaStream_t stream = nullptr) {
  require(batch_size >= 0, "ExtractRowIdsFromCSR: batch_size is {}", batch_size);
  auto* const ids = detail::as_ids(row_ids);
  const auto* const begins = detail::as_ids(offsets);
  detail::launch_each("write_sample_ids_of", std::int64_t{batch_size} * 32, stream,
                      detail::write_sample_ids_of<std::remove_pointer_t<decltype(ids)>,
                                                  std::remove_cvref_t<decltype(*begins)>>,
                      begins, batch_size, ids);
}
/// Writes 0, 1, ..., nnz - 1: for kConcat, each entry has a gradient of its own.
template <class IndexT>
void ExtractRowIdsForConcat(const int nnz, IndexT* row_ids, const cudaStream_t stream = nullptr) {
  ExtractRowIdsFromFixed(nnz, 1, row_ids, stream);
}

}}}  // namespace tessera::v0::cuembed
