// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The kernels whose machine code tests/gpu/machine_code.py reads, in the shapes of the benchmarks.
#include <tessera/cuda/lookup.cuh>
#include <tessera/cuda/route.cuh>
#include <tessera/cuda/update.cuh>
#include <tessera/dense/dense_kernels.cuh>
#include <tessera/interaction/dot_tensor.cuh>
#include <tessera/optimizer/optimizers.hpp>

namespace tessera { inline namespace v0 { namespace gpu {

template <class Id, class Out = float>
using Lookups = GroupBatch<op::LookupGroup<Id, Out>>;
template __global__ void detail::copy_rows<float, std::int32_t, 128>(
    const float*, const Lookups<std::int32_t> __grid_constant__);
template __global__ void detail::copy_rows<float, std::int64_t, 16>(
    const float*, const Lookups<std::int64_t> __grid_constant__);
template __global__ void detail::copy_rows<BFloat16, std::int32_t, 128>(
    const BFloat16*, const Lookups<std::int32_t> __grid_constant__);
template __global__ void detail::copy_rows<float, std::int32_t, 128, BFloat16>(
    const float*, const Lookups<std::int32_t, BFloat16> __grid_constant__);
template __global__ void detail::pool_bags<float, std::int32_t, 128>(
    const float*, const Lookups<std::int32_t> __grid_constant__);
template __global__ void detail::pool_bags<Half, std::int64_t, 16>(
    const Half*, const Lookups<std::int64_t> __grid_constant__);
template __global__ void detail::pool_rows<float, std::int64_t, 16>(
    const float*, const Lookups<std::int64_t> __grid_constant__);

template <class T, class O>
using Update128 = ApplyOptimizer<T, 128, O>;
using Sorted = const SortedEntries<std::uint32_t>;
template __global__ void merge_windows<Update128<float, Sgd>>(Sorted, const Update128<float, Sgd>,
                                                              const PartialSums);
template __global__ void merge_windows<Update128<float, RowWiseAdagrad>>(
    Sorted, const Update128<float, RowWiseAdagrad>, const PartialSums);
template __global__ void merge_windows<Update128<float, Adam>>(Sorted, const Update128<float, Adam>,
                                                               const PartialSums);
template __global__ void merge_windows<Update128<float, Sgd>, std::uint32_t, BFloat16>(
    const SortedEntries<std::uint32_t, BFloat16>, const Update128<float, Sgd>, const PartialSums);
template __global__ void merge_windows<Update128<BFloat16, RowWiseAdagrad>>(
    Sorted, const Update128<BFloat16, RowWiseAdagrad>, const PartialSums);

template __global__ void detail::write_split<std::int32_t>(
    const detail::PackCount*, const GroupBatch<detail::SplitGroup<std::int32_t>> __grid_constant__);

using Criteo = detail::DotShape<27, 128, 16>;
template __global__ void detail::dot_forward_tensor<Criteo, BFloat16>(
    const MatrixView<const BFloat16>, const MatrixView<BFloat16>);
template __global__ void detail::dot_backward_tensor<Criteo, BFloat16>(
    const MatrixView<const BFloat16>, const MatrixView<const BFloat16>, const MatrixView<BFloat16>);
template __global__ void detail::dot_forward_tensor<Criteo, float>(const MatrixView<const float>,
                                                                   const MatrixView<float>);
template __global__ void detail::dot_backward_tensor<Criteo, float>(const MatrixView<const float>,
                                                                    const MatrixView<const float>,
                                                                    const MatrixView<float>);
template __global__ void add_rows<MaskedRows<BFloat16, BFloat16, BFloat16>, 8>(
    const MaskedRows<BFloat16, BFloat16, BFloat16>, float*, const int);

}}}  // namespace tessera::v0::gpu
