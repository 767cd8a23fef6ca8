// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A collection encodes with a user's codec that lacks a member.
// expect: Codec: need static void decode(const std::byte* from, int width, float* row) (docs/concepts/codec.md)
// at most g++: 14 lines
#include <tessera/tessera.hpp>

namespace ts = tessera;

struct Signs {
  static constexpr std::string_view name = "signs";
  static constexpr std::size_t bytes(int width) {
    return (static_cast<std::size_t>(width) + 3) / 4 * 4;
  }
  static void encode(const float* row, int width, std::byte* to) {
    for (int c = 0; c < width; ++c) to[c] = std::byte{row[c] < 0};
  }
#ifdef ALLOWED_TWIN
  static void decode(const std::byte* from, int width, float* row) {
    for (int c = 0; c < width; ++c) row[c] = from[c] == std::byte{0} ? 1.0f : -1.0f;
  }
#endif
};

using Model = ts::Plan<ts::TableWise<ts::Table<"user", 1000, 16>>>;
using Embeddings =
    ts::EmbeddingCollection<Model, ts::Sgd, ts::Host, ts::SelfCommunicator, ts::EncodeWith<Signs>>;
static_assert(sizeof(Embeddings) > 0);
