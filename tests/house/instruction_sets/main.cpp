// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// One line for instruction_sets.sh, and "destroyed" from static objects at the end.
#include <cstdio>
#include <thread>

#include "shared.hpp"

namespace {

Event second("2");
[[gnu::init_priority(200)]] Event first("1");
struct Last {
  ~Last() { std::puts("last"); }
} last;
[[gnu::destructor]] void finished() { std::puts("finished"); }

}  // namespace

int main(int argc, char** argv) {
  int lanes = 0;
  std::thread([&] {
    try {
      refuse();
    } catch (const Refused& refused) {
      lanes = refused.lanes;
    }
  }).join();
  const Outcome outcome = train();
  std::printf("lanes=%d error=%g checksum=%.4f events=%s count=%d thread=%s arguments=%d:%s\n",
              lanes, outcome.error, outcome.checksum, events, count<Event>(), of_thread.c_str(),
              argc, argv[argc - 1]);
}
