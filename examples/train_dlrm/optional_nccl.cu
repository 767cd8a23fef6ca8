// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// --communicator nccl: ranks have a GPU each, whose memory NCCL moves. They are threads of this process
// or, under a launcher, processes, which Gloo connects beside it.
#include "backends.hpp"

#include <tessera/checkpoint/agreement.hpp>
#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/job.hpp>
#include <tessera/comm/nccl_communicator.hpp>
#include <tessera/comm/near_device.hpp>
#include <tessera/comm/rank_order_sums.cuh>
#include <tessera/core/error.hpp>
#include <tessera/tessera.cuh>

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace dlrm { namespace {

using namespace tessera;

/// The communicators of this process's ranks: a rank that fails ends the others' waits in them.
class AllOfNccl {
 public:
  void add(NcclCommunicator& one) {
    const std::lock_guard lock(mutex_);
    if (!failed_.empty()) one.interrupt(failed_);
    all_.insert(&one);
  }
  void remove(NcclCommunicator& one) {
    const std::lock_guard lock(mutex_);
    all_.erase(&one);
  }
  void fail(const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (!failed_.empty()) return;
    failed_ = text;
    for (NcclCommunicator* one : all_) one->interrupt(text);
  }

 private:
  std::mutex mutex_;
  std::set<NcclCommunicator*> all_;
  std::string failed_;
};

/// A GPU's place, as "0000:3B:00.0".
std::string bus_of(int gpu) {
  char bus[32] = {};
  gpu::check(cudaDeviceGetPCIBusId(bus, sizeof(bus), gpu), "asking for GPU {}", gpu);
  return bus;
}

/// A rank's: one communicator for each stream. Ids go by `Control`.
template <class Control>
class NcclRanks final : public DeviceRanks {
 public:
  NcclRanks(Control& control, int gpu, AllOfNccl& all, const Options& options)
      : control_(control),
        all_(all),
        timeout_(timeout_of(options)),
        in_rank_order_(options.dense_sums == "ordered") {
    gpu::check(cudaSetDevice(gpu), "choosing GPU {}", gpu);
    if (options.bind == "near") detail::stay_near(detail::near_device(bus_of(gpu)));
  }
  ~NcclRanks() override {
    for (Lane& lane : lanes_) all_.remove(lane.nccl);
  }
  AnyCommunicator on(void* stream) override {
    const auto order = static_cast<cudaStream_t>(stream);
    Lane& lane = lanes_.emplace_back(share_nccl_id(control_), control_.rank(), control_.size(),
                                     NcclOptions{.stream = order, .timeout = timeout_});
    all_.add(lane.nccl);
    return in_rank_order_ ? AnyCommunicator(lane.ordered) : AnyCommunicator(lane.nccl);
  }
  void fail(const std::string& text) override { all_.fail(text); }

 private:
  struct Lane {
    Lane(const ncclUniqueId& id, int rank, int size, const NcclOptions& options)
        : nccl(id, rank, size, options), ordered(nccl, Cuda({.stream = options.stream})) {}
    NcclCommunicator nccl;
    RankOrderSums<NcclCommunicator> ordered;
  };

  Control& control_;
  AllOfNccl& all_;
  std::chrono::nanoseconds timeout_;
  bool in_rank_order_;
  std::deque<Lane> lanes_;
};

int visible_gpus() {
  int gpus = 0;
  const cudaError_t error = cudaGetDeviceCount(&gpus);
  require<Error>(error == cudaSuccess && gpus > 0,
                 "--communicator nccl: there is no GPU that CUDA can use here ({})",
                 error == cudaSuccess ? "no device" : cudaGetErrorString(error));
  return gpus;
}

/// The GPU of a process: the one that it sees, or that of its number on its machine.
int gpu_of(const RankOfJob& place) {
  const int gpus = visible_gpus();
  if (gpus == 1) return 0;
  require<Error>(
      place.local_rank >= 0,
      "--communicator nccl: {} does not say which of its machine's processes this is; let "
      "each see one GPU (CUDA_VISIBLE_DEVICES)",
      place.launcher);
  require<Error>(
      place.local_rank < gpus,
      "--communicator nccl: rank {} is number {} of its machine's processes, and CUDA sees "
      "{} GPUs there; start fewer, or set CUDA_VISIBLE_DEVICES to more",
      place.rank, place.local_rank, gpus);
  return place.local_rank;
}

/// Throws on all ranks if two have one GPU or their GPUs differ. Collective.
void compare_gpus(AnyCommunicator& control, int gpu) {
  cudaDeviceProp about{};
  char host[256] = {};
  gpu::check(cudaGetDeviceProperties(&about, gpu), "asking for GPU {}", gpu);
  ::gethostname(host, sizeof(host) - 1);
  require_same(control, {{"the GPU", about.name},
                         {"its memory", fmt::format("{} GiB", about.totalGlobalMem >> 30)}});
  const auto ranks = static_cast<std::size_t>(control.size());
  std::vector<std::uint64_t> places(ranks);
  const std::uint64_t own = detail::name_key(fmt::format("{} {}", host, bus_of(gpu)));
  control.all_gather(std::span(&own, 1), std::span(places), std::vector<std::size_t>(ranks, 1));
  for (std::size_t rank = 1; rank < ranks; ++rank)
    for (std::size_t other = 0; other < rank; ++other)
      require(places[rank] != places[other],
              "--communicator nccl: ranks {} and {} have the same GPU; start one process for each "
              "GPU of a machine",
              other, rank);
}

int launch_processes(const Options& options, const RankOfJob& place,
                     const std::function<void(Ranks&)>& job) {
  require(process_launcher() != nullptr,
          "--communicator nccl: {} has started {} processes, which need Gloo beside NCCL, and this "
          "program was built without it; install libgloo-dev, configure and build again, or start "
          "one process for each machine's GPUs",
          place.launcher, place.size);
  AllOfNccl all;
  return process_launcher()(
      options,
      [&](AnyCommunicator& control) -> std::shared_ptr<DeviceRanks> {
        int gpu = 0;
        detail::on_all_ranks(control, [&] { gpu = gpu_of(place); });
        compare_gpus(control, gpu);
        return std::make_shared<NcclRanks<AnyCommunicator>>(control, gpu, all, options);
      },
      job);
}

int launch_nccl(const Options& given, const std::function<void(Ranks&)>& job) {
  const RankOfJob place = rank_from_environment();
  if (place.size > 1) return launch_processes(given, place, job);
  const int gpus = visible_gpus();
  Options options = given;
  if (options.ranks == 0) options.ranks = gpus;
  require<Error>(
      options.ranks <= gpus,
      "--ranks {}: with --communicator nccl each has a GPU of its own, and CUDA sees {} here; "
      "ask for fewer, or set CUDA_VISIBLE_DEVICES to more",
      options.ranks, gpus);
  AllOfNccl all;
  return run_threads(
      options,
      [&](ThreadCommunicator& threads) -> std::shared_ptr<DeviceRanks> {
        return std::make_shared<NcclRanks<ThreadCommunicator>>(threads, threads.rank(), all,
                                                               options);
      },
      job);
}

[[maybe_unused]] const bool nccl_added = launchers().emplace("nccl", &launch_nccl).second;

}  // namespace
}  // namespace dlrm
