// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/message_communicator.hpp>
#include <tessera/comm/mpi_environment.hpp>
#include <tessera/comm/mpi_messenger.hpp>
#include <tessera/concepts/communicator.hpp>

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace tessera { inline namespace v0 {

/// One process of an MPI job, in host memory: the collectives of MessageCommunicator, which end
/// if a rank fails, is late or disagrees. Sums are in rank order, the same bits as
/// ThreadCommunicator's. After a CommunicatorError this communicator is dead, and the process
/// should end soon: MPI may still hold buffers of the failed call. One thread at a time; ranks must
/// have one byte order. `fail` here, which run_mpi_rank calls for a rank that throws, also ends
/// waits in communicators split from this one.
class MpiCommunicator : public detail::MessageCommunicator<detail::MpiMessenger> {
 public:
  /// Duplicates `user`, which stays the caller's (a collective call of its ranks). MPI must have
  /// been started.
  explicit MpiCommunicator(MPI_Comm user = MPI_COMM_WORLD, MpiOptions options = {})
      : MessageCommunicator(std::make_shared<detail::MpiMessenger>(user, options)) {}
  MpiCommunicator(MpiCommunicator&&) = default;
  MpiCommunicator& operator=(MpiCommunicator&&) = delete;
  ~MpiCommunicator() {
    if (ends_in_failure()) abandon();  // MPI keeps the buffers of messages under way
  }

  /// Returns a communicator of the ranks that give the same `color`, in the order of their ranks
  /// here. A collective call.
  MpiCommunicator split(int color) {
    const std::uint64_t calls = messenger().calls();
    // MPI has no timeout: its call begins when all ranks are known to be here
    std::vector<int> colors(static_cast<std::size_t>(size()));
    all_gather<int>({&color, 1}, colors, std::vector<std::size_t>(colors.size(), 1));
    messenger().recount(calls);
    const auto first = std::find(colors.begin(), colors.end(), color) - colors.begin();
    MPI_Comm part = MPI_COMM_NULL;
    detail::require_mpi(
        MPI_Comm_split(messenger().communicator(), static_cast<int>(first), rank(), &part),
        "MPI_Comm_split");
    return adopt(part);
  }

  /// Returns a communicator of the ranks that share this rank's node (its memory). A collective
  /// call.
  MpiCommunicator split_by_node() {
    const std::uint64_t calls = messenger().calls();
    barrier();
    messenger().recount(calls);
    MPI_Comm part = MPI_COMM_NULL;
    detail::require_mpi(MPI_Comm_split_type(messenger().communicator(), MPI_COMM_TYPE_SHARED,
                                            rank(), MPI_INFO_NULL, &part),
                        "MPI_Comm_split_type");
    return adopt(part);
  }

 private:
  MpiCommunicator adopt(MPI_Comm part) const {
    MpiCommunicator result(part, messenger().options());
    MPI_Comm_free(&part);
    messenger().add_part(result.messenger());
    return result;
  }
};

static_assert(Communicator<MpiCommunicator>);

/// Runs `function(communicator)` as this process's rank and returns the program's exit code: the
/// twin of `run_ranks`. If it throws, the text goes to stderr (unless a rank before this one
/// reports the same) and to all peers, whose collectives then throw too; the job ends when all have
/// reported, or after `options.grace`. A rank that returns waits until all return.
template <class Function>
int run_mpi_rank(Function&& function, MpiOptions options = {}) {
  const MpiEnvironment environment;
  MpiCommunicator communicator(MPI_COMM_WORLD, options);
  return detail::run_process_rank(communicator, function, options.grace,
                                  [] { MPI_Abort(MPI_COMM_WORLD, 1); });
}

}}  // namespace tessera::v0
