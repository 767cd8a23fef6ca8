// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <simt/device_heap.hpp>
#include <simt/engine.hpp>

/// Whether everything takes a hundred times as long: the thread sanitizer watches each CUDA thread.
inline constexpr bool slow_run = simt::has_tsan;

/// Runs a test's body in the emulator, under every order of threads and blocks.
template <class Function>
void in_every_order(const Function& function) {
  simt::under_every_order(function);
}

/// Runs a body that works with several streams: at once, and where streams do their work late, in
/// several orders.
template <class Function>
void under_every_deferral(const Function& function) {
  if (!slow_run) return simt::under_every_deferral(function);
  const simt::DeferredStreams scope({.first = simt::Deferral::First::others});
  function();
}
