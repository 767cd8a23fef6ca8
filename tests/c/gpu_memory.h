/* SPDX-FileCopyrightText: 2026 The Tessera authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Memory and streams of GPUs for a test that has no CUDA itself. */
#pragma once

#include <stddef.h>

#define TESSERA_OF_TEST __attribute__((visibility("default")))
#ifdef __cplusplus
extern "C" {
#endif
TESSERA_OF_TEST void* gpu_allocate(size_t bytes);
TESSERA_OF_TEST void gpu_free(void* memory);
/* Copies between any two memories when the work of this thread's stream is done. Returns 0, or CUDA's error. */
TESSERA_OF_TEST int gpu_copy(void* to, const void* from, size_t bytes);
/* Makes a stream of a GPU, this thread's from now on. */
TESSERA_OF_TEST void* gpu_stream(int device);
TESSERA_OF_TEST void gpu_end_stream(void* stream);
/* Returns the GPU that this thread works with. */
TESSERA_OF_TEST int gpu_current(void);
/* Returns how many GPUs ranks may have one each of. */
TESSERA_OF_TEST int gpu_joined(void);
#ifdef __cplusplus
}
#endif
