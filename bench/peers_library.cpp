// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// peer_cases.hpp for peers.py: an interface of C functions for Python's ctypes; a handle is a case.
#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <string_view>

#include "peer_cases.hpp"

using namespace tessera;
using namespace tessera::bench;

namespace {

template <int Width, IdType Id>
std::unique_ptr<Case> table_case(const PeerTable& table) {
  const std::string_view optimizer = table.optimizer;
  if (optimizer.empty()) return std::make_unique<LookupCase<Width, Id>>(table);
  if (optimizer == "sgd") return std::make_unique<StepCase<Width, Id, Sgd>>(table);
  if (optimizer == "adagrad") return std::make_unique<StepCase<Width, Id, Adagrad>>(table);
  if (optimizer == "rowwise_adagrad")
    return std::make_unique<StepCase<Width, Id, RowWiseAdagrad>>(table);
  if constexpr (Width == 64)
    if (optimizer == "sequence") return std::make_unique<SequenceCase<Width, Id>>(table);
  if (optimizer == "int8")
    return std::make_unique<FrozenCase<Width, Id, detail::CodeRow<Int8Row>>>(table);
  if (optimizer == "int4")
    return std::make_unique<FrozenCase<Width, Id, detail::CodeRow<Int4Row>>>(table);
  throw InvalidArgument(fmt::format("no optimizer '{}' of width {} here", optimizer, Width));
}

/// f.operator()<Width>() of the width that is given.
template <class F>
std::unique_ptr<Case> with_width(std::int64_t width, const F& f) {
  if (width == 16) return f.template operator()<16>();
  if (width == 64) return f.template operator()<64>();
  if (width == 128) return f.template operator()<128>();
  throw InvalidArgument(fmt::format("no width {} here; 16, 64 and 128 are compiled", width));
}

/// The case that `make` makes, or null after a word on standard error.
template <class Make>
Case* made(const Make& make) {
  try {
    return make().release();
  } catch (const std::exception& error) {
    fmt::print(stderr, "tessera_peers: {}\n", error.what());
    return nullptr;
  }
}

}  // namespace

extern "C" {

Case* tessera_table(const PeerTable* table) {
  return made([&] {
    return with_width(table->width, [&]<int Width>() {
      return table->id_bytes == 4 ? table_case<Width, std::int32_t>(*table)
                                  : table_case<Width, std::int64_t>(*table);
    });
  });
}

Case* tessera_dlrm(std::int64_t width, std::int64_t batch, std::int64_t threads,
                   std::int64_t large_top) {
  return made([&] {
    return with_width(width, [&]<int Width>() -> std::unique_ptr<Case> {
      return std::make_unique<DlrmCase<Width>>(batch, static_cast<int>(threads), large_top != 0);
    });
  });
}

/// Batch `batch` of those there are, in turn.
void tessera_run(Case* of, std::int64_t batch) { of->run(batch); }
void tessera_limit(Case* of, std::int64_t batch) { of->limit(batch); }
void tessera_free(Case* of) { delete of; }

}  // extern "C"
