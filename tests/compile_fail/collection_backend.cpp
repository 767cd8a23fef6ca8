// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A user's backend cannot give memory back.
// expect: Backend: need deallocate(void* memory, std::size_t bytes) const (docs/concepts/backend.md)
// at most g++: 14 lines
// at most nvcc: 14 lines
#include <tessera/tessera.hpp>

namespace ts = tessera;

struct Backend {
  static constexpr bool host_readable = true;
  void* allocate(std::size_t bytes) const;
#ifdef ALLOWED_TWIN
  void deallocate(void* memory, std::size_t bytes) const;
#endif
  void* allocate_host(std::size_t bytes) const;
  void deallocate_host(void* memory, std::size_t bytes) const;
  void copy(void* to, const void* from, std::size_t bytes) const;
  void fill_zero(void* memory, std::size_t bytes) const;
  void synchronize() const;
  void wait_for(const Backend& other) const;
};

using Model = ts::Plan<ts::TableWise<ts::Table<"user", 1000, 16>>>;
using Embeddings = ts::EmbeddingCollection<Model, ts::Sgd, Backend, ts::SelfCommunicator>;
static_assert(sizeof(Embeddings) > 0);
