// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A vocabulary's policy that says nothing: its function has another name.
// expect: Vocabulary: a policy needs bool admits(const SeenKey&) const or std::uint32_t score(const SeenKey&) const
#include <tessera/comm/self_communicator.hpp>
#include <tessera/vocabulary.hpp>

using namespace tessera;

struct Newest {
#ifdef ALLOWED_TWIN
  std::uint32_t score(const SeenKey& seen) const { return seen.step; }
#else
  std::uint32_t scores(const SeenKey& seen) const { return seen.step; }
#endif
};

void make(SelfCommunicator& self) {
  Vocabulary vocabulary(self, {.tables = {{.rows = 9}}}, std::vector{Newest{}});
}
