// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The trainer's CUDA part as a C++ compiler builds it for the emulator (tests/simt), with one optimizer of the embeddings: each of the
// others takes the compiler as long again and differs in a formula that other tests compare.
#include <train_dlrm/optional_cuda.cu>
#include <train_dlrm/optional_cuda_rowwise_adagrad.cu>

#include <tessera/core/error.hpp>

namespace dlrm {
namespace {

std::unique_ptr<Embeddings> refuse() { throw tessera::Error("this emulated trainer has --optimizer rowwise-adagrad alone"); }

}  // namespace

std::unique_ptr<Embeddings> make_cuda_sgd_embeddings(tessera::AnyCommunicator&, const tessera::Layout&, const EmbeddingOptions&,
                                                     const tessera::Cuda&, const tessera::Cuda&) {
  return refuse();
}
std::unique_ptr<Embeddings> make_cuda_adagrad_embeddings(tessera::AnyCommunicator&, const tessera::Layout&, const EmbeddingOptions&,
                                                         const tessera::Cuda&, const tessera::Cuda&) {
  return refuse();
}
std::unique_ptr<Embeddings> make_cuda_adam_embeddings(tessera::AnyCommunicator&, const tessera::Layout&, const EmbeddingOptions&,
                                                      const tessera::Cuda&, const tessera::Cuda&) {
  return refuse();
}

}  // namespace dlrm
