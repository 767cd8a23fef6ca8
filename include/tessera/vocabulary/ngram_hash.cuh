// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/backend.cuh>
#include <tessera/vocabulary/ngram_hash.hpp>

#include <cstdint>

namespace tessera { inline namespace v0 {
namespace gpu::detail {

inline constexpr int ngram_threads = 256;

/// Writes the rows of a position, a thread each: it reads its tokens once, for all tables, and neighbours write
/// neighbouring ids of a table.
template <class Hash, class Token, class Id>
__global__ void __launch_bounds__(ngram_threads)
    hash_ngrams(const typename op::HashNgrams<Hash, Token, Id>::Parameters p) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * ngram_threads + threadIdx.x;
  if (at >= p.count) return;
  const auto window = p.hash.window(p.tokens, p.document_begin(at), at);
  for (int t = 0; t < Hash::tables(); ++t)
    p.ids[t * p.count + at] = static_cast<Id>(p.hash.row(t, window));
}

}  // namespace gpu::detail

template <class Hash, class Token, class Id>
struct op::Kernel<op::HashNgrams<Hash, Token, Id>, Cuda> {
  static void run(const Cuda& backend,
                  const typename op::HashNgrams<Hash, Token, Id>::Parameters& p) {
    static_assert(sizeof(p) <= 4096);  // of all GPUs
    backend.launch("hash_ngrams", gpu::ceil_divide(p.count, gpu::detail::ngram_threads),
                   gpu::detail::ngram_threads, gpu::detail::hash_ngrams<Hash, Token, Id>, p);
  }
};

}}  // namespace tessera::v0
