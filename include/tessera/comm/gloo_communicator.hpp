// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/gloo_device.hpp>
#include <tessera/comm/gloo_messenger.hpp>
#include <tessera/comm/message_communicator.hpp>
#include <tessera/concepts/communicator.hpp>
#include <tessera/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// One process of a job without MPI, in host memory, over Gloo's TCP connections: the collectives
/// of MessageCommunicator, which end if a rank fails, dies, is late or disagrees. Sums are in
/// rank order, the same bits as ThreadCommunicator's. After a CommunicatorError this communicator
/// is dead. One thread at a time; ranks must have one byte order. `fail` here, which run_gloo_rank
/// calls for a rank that throws, also ends waits in communicators split from this one.
class GlooCommunicator : public detail::MessageCommunicator<detail::GlooMessenger> {
 public:
  /// Connects rank `rank` of `size` with all others, which `meet` brings together (meet_in_folder):
  /// a collective call. Throws CommunicatorError if one is missing or cannot be reached.
  GlooCommunicator(const GlooOptions& options, int rank, int size, const GlooMeeting& meet)
      : MessageCommunicator(make(nullptr, options, rank, size, meet, nullptr)) {}
  GlooCommunicator(GlooCommunicator&&) = default;
  GlooCommunicator& operator=(GlooCommunicator&&) = delete;
  ~GlooCommunicator() {
    // After a failure a part stays, for what the whole has to tell its ranks.
    if (alive() && !ends_in_failure()) messenger().close();
  }

  /// Returns a communicator of the ranks that give the same `color`, in the order of their ranks
  /// here. A collective call.
  GlooCommunicator split(int color) {
    const std::uint64_t calls = messenger().calls();
    const auto ranks = static_cast<std::size_t>(size());
    std::vector<int> colors(ranks), members;
    all_gather<int>({&color, 1}, colors, std::vector<std::size_t>(ranks, 1));
    for (int other = 0; other < size(); ++other)
      if (colors[static_cast<std::size_t>(other)] == color) members.push_back(other);
    const auto place = std::find(members.begin(), members.end(), rank()) - members.begin();
    bool met = false;
    const GlooMeeting meet = [&](const std::string& mine) {
      met = true;
      const std::vector<std::string> all = exchange(mine);
      std::vector<std::string> of_members;
      for (const int member : members) of_members.push_back(all[static_cast<std::size_t>(member)]);
      return of_members;
    };
    std::shared_ptr<detail::GlooMessenger> made;
    try {
      made = make(messenger().device(), messenger().options(), static_cast<int>(place),
                  static_cast<int>(members.size()), meet, [&] { return messenger().any_closed(); });
    } catch (const CommunicatorError&) {
      messenger().check_peers();
      throw;
    }
    GlooCommunicator part(std::move(made));
    if (!met) exchange("");  // a part of one rank meets no other, but others do
    messenger().recount(calls);
    messenger().add_part(part.shared_messenger());
    return part;
  }

 private:
  explicit GlooCommunicator(std::shared_ptr<detail::GlooMessenger> messenger)
      : MessageCommunicator(std::move(messenger)) {}

  static std::shared_ptr<detail::GlooMessenger> make(std::shared_ptr<detail::GlooDevice> device,
                                                     const GlooOptions& options, int rank, int size,
                                                     const GlooMeeting& meet,
                                                     const std::function<bool()>& lost) {
    require(size >= 1 && rank >= 0 && rank < size, "GlooCommunicator: rank {} of {} ranks is none",
            rank, size);
    require(options.max_message_bytes >= 1, "GlooOptions: max_message_bytes must be at least 1");
    if (!device) device = std::make_shared<detail::GlooDevice>(options);
    return std::make_shared<detail::GlooMessenger>(std::move(device), options, rank, size, meet,
                                                   lost);
  }

  /// Gives `mine` to all ranks and returns those of all.
  std::vector<std::string> exchange(const std::string& mine) {
    const auto ranks = static_cast<std::size_t>(size());
    const std::size_t bytes = mine.size();
    std::vector<std::size_t> sizes(ranks);
    all_gather<std::size_t>({&bytes, 1}, sizes, std::vector<std::size_t>(ranks, 1));
    std::string all(std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}), ' ');
    all_gather<char>(mine, all, sizes);
    std::vector<std::string> result;
    for (std::size_t at = 0; const std::size_t size : sizes)
      result.push_back(all.substr(std::exchange(at, at + size), size));
    return result;
  }
};

static_assert(Communicator<GlooCommunicator>);

/// Runs `function(communicator)` as this process's rank and returns the program's exit code: the
/// twin of `run_ranks`. If it throws, the text goes to stderr (unless a rank before this one
/// reports the same) and to all peers, whose collectives then throw too; it returns when all have
/// reported, or after `options.grace`. A rank that returns waits until all return.
template <class Function>
int run_gloo_rank(Function&& function, const GlooOptions& options, int rank, int size,
                  const GlooMeeting& meet) {
  try {
    GlooCommunicator communicator(options, rank, size, meet);
    return detail::run_process_rank(communicator, function, options.grace, [] {});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    return 1;
  }
}

}}  // namespace tessera::v0
