// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

namespace tessera { inline namespace v0 { namespace detail {

/// Returns what a new thread must call before it works with a backend of the thread that asks: each
/// thread begins with the process' first GPU, whichever its parent has chosen, and CUDA refuses
/// kernels on streams of another.
template <class Backend>
std::function<void()> thread_setup(const Backend&) {
  if constexpr (requires { Backend::thread_setup(); })
    return Backend::thread_setup();
  else
    return [] {};
}

}}}  // namespace tessera::v0::detail
