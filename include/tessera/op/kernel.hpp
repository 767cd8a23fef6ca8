// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tessera { inline namespace v0 { namespace op {

/// The implementation of operation `Op` on `Backend`, specialized in host/ and cuda/. An operation
/// is a struct in op/ that states the parameters and their meaning; a specialization has `static
/// void run(const Backend&, const typename Op::Parameters&)`.
template <class Op, class Backend>
struct Kernel {
  static constexpr bool included = sizeof(Op) == 0;  // never, but known only if it is asked for
  static_assert(included,
                "Kernel: no kernel of this operation for this backend is included; "
                "tessera/tessera.hpp has those of Host, "
                "tessera/tessera.cuh those of Cuda, tessera/host/ and tessera/cuda/ single ones "
                "(docs/concepts/backend.md)");
  static void run(const auto&, const auto&) {}
};

/// Runs an operation: `run<Lookup<float, std::int32_t, 16>>(backend, parameters)`.
template <class Op, class Backend>
void run(const Backend& backend, const typename Op::Parameters& parameters) {
  Kernel<Op, Backend>::run(backend, parameters);
}

/// Width template argument of operations whose width is only known at run time.
inline constexpr int dynamic_width = 0;

}}}  // namespace tessera::v0::op
