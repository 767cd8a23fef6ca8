// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The trainer's CUDA part as a C++ compiler builds it for the emulator (tests/simt).
#include <train_dlrm/optional_cuda.cu>
#include <train_dlrm/optional_cuda_embeddings.cu>
