// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/version.hpp>

#ifndef __cpp_exceptions
#error "Tessera tells faults by exceptions: compile without -fno-exceptions"
#endif
#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__
#error "Tessera looks for NaN and infinity: compile without -ffast-math and -ffinite-math-only"
#endif

/// Whether a fused multiply-add is one instruction: on every GPU, and on the host where it is
/// compiled for processors that have it.
#if defined(__CUDA_ARCH__) || defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define TESSERA_HAS_FMA 1
#else
#define TESSERA_HAS_FMA 0
#endif

/// Marks functions that run on both sides. It changes attributes only, never a body: a function
/// whose body depended on the compiler would link to whichever body came first.
#ifdef __CUDACC__
#define TESSERA_HOST_DEVICE __host__ __device__
// Silences nvcc's check for a host-device template whose argument's type may be the host's alone.
#define TESSERA_SIDE_OF_ARGUMENTS _Pragma("nv_exec_check_disable")
// fmt 9 switches constexpr off under nvcc but then calls the functions in constant expressions;
// nvcc 13 handles them.
#ifndef FMT_USE_CONSTEXPR
#define FMT_USE_CONSTEXPR 1
#endif
#else
#define TESSERA_HOST_DEVICE
#define TESSERA_SIDE_OF_ARGUMENTS
#endif

/// Begins a function that is no template, whose body follows its class behind `#ifdef`. By headers
/// alone it is inline. With `tessera::bodies` a program sees the declaration; the library, which
/// defines TESSERA_BODIES_HERE, has the body.
#if defined(TESSERA_BODIES_HERE)
#define TESSERA_INLINE
#elif !defined(TESSERA_BODIES_COMPILED)
#define TESSERA_INLINE inline
#endif
