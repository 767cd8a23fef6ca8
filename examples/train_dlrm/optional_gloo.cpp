// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "process_rank.hpp"

#include <tessera/comm/gloo_communicator.hpp>
#include <tessera/comm/job.hpp>
#include <tessera/comm/meeting.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <utility>

namespace dlrm { namespace {

using namespace tessera;

int launch_process(const Options& options, const DeviceOfProcess& device,
                   const std::function<void(Ranks&)>& job) {
  const RankOfJob place = rank_from_environment();
  GlooOptions gloo{.timeout = timeout_of(options)};
  // PyTorch's variable, which it passes over, too, if that is empty.
  if (const char* const name = std::getenv("GLOO_SOCKET_IFNAME"); name != nullptr && *name != 0)
    gloo.interface = name;
  else if (!place.one_machine() && !place.address.empty())
    gloo.address = address_towards(place.address);
  MeetingOptions meeting;
  if (gloo.timeout.count() != 0) {
    meeting.timeout = std::min(meeting.timeout, gloo.timeout);
    gloo.connect_timeout = std::min(gloo.connect_timeout, gloo.timeout);
  }
  const auto run = [&](GlooCommunicator& all) {
    run_process(all, options, place.launcher.empty() ? "this command" : place.launcher, device,
                job);
  };
  return run_gloo_rank(run, gloo, place.rank, place.size, [&](std::string mine) {
    return meet_at_rank_0(place, std::move(mine), meeting);
  });
}

int launch_gloo(const Options& options, const std::function<void(Ranks&)>& job) {
  return launch_process(options, nullptr, job);
}

[[maybe_unused]] const bool added_gloo =
    launchers().emplace("gloo", &launch_gloo).second && (process_launcher() = &launch_process);

}  // namespace
}  // namespace dlrm
