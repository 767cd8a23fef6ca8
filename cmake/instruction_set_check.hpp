// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Precedes every source of a level (TesseraInstructionSets.cmake). A flag that comes from elsewhere, such as -march=native of a linked
// library, would put instructions into a level that its processors do not have. No level has AES, which almost every processor has.
#pragma once

#if defined(__AES__)
#error "tessera_add_portable_executable: compiled for more than the level; is there another -march or -m option? (flags, LINK_LIBRARIES)"
#elif defined(TESSERA_LEVEL_x86_64_v4)
#if !defined(__AVX512VL__) || defined(__AVX512VNNI__)
#error "tessera_add_portable_executable: not compiled for x86-64-v4; is there another -march or -m option? (flags, LINK_LIBRARIES)"
#endif
#elif defined(TESSERA_LEVEL_x86_64_v3)
#if !defined(__AVX2__) || defined(__AVX512F__)
#error "tessera_add_portable_executable: not compiled for x86-64-v3; is there another -march or -m option? (flags, LINK_LIBRARIES)"
#endif
#elif defined(TESSERA_LEVEL_x86_64_v2)
#if !defined(__SSE4_2__) || defined(__AVX__)
#error "tessera_add_portable_executable: not compiled for x86-64-v2; is there another -march or -m option? (flags, LINK_LIBRARIES)"
#endif
#elif defined(__SSE3__)
#error "tessera_add_portable_executable: not compiled for x86-64; is there another -march or -m option? (flags, LINK_LIBRARIES)"
#endif
