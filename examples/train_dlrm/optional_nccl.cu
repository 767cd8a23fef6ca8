// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// --communicator nccl: ranks are threads with a GPU each, whose memory NCCL moves.
#include "backends.hpp"

#include <tessera/comm/job.hpp>
#include <tessera/comm/nccl_communicator.hpp>
#include <tessera/comm/rank_order_sums.cuh>
#include <tessera/core/error.hpp>
#include <tessera/tessera.cuh>

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>

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

/// A rank's: one communicator for each stream.
class NcclRanks final : public DeviceRanks {
 public:
  NcclRanks(ThreadCommunicator& threads, AllOfNccl& all, const Options& options)
      : threads_(threads),
        all_(all),
        timeout_(timeout_of(options)),
        in_rank_order_(options.dense_sums == "ordered") {
    gpu::check(cudaSetDevice(threads.rank()), "choosing GPU {}", threads.rank());
  }
  ~NcclRanks() override {
    for (Lane& lane : lanes_) all_.remove(lane.nccl);
  }
  AnyCommunicator on(void* stream) override {
    const auto order = static_cast<cudaStream_t>(stream);
    Lane& lane = lanes_.emplace_back(share_nccl_id(threads_), threads_.rank(), threads_.size(),
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

  ThreadCommunicator& threads_;
  AllOfNccl& all_;
  std::chrono::nanoseconds timeout_;
  bool in_rank_order_;
  std::deque<Lane> lanes_;
};

int launch_nccl(const Options& given, const std::function<void(Ranks&)>& job) {
  const RankOfJob place = rank_from_environment();
  require(place.size == 1,
          "--communicator nccl: its ranks are threads of one process, one for each GPU, but {} has "
          "started {} processes; start one",
          place.launcher, place.size);
  int gpus = 0;
  const cudaError_t error = cudaGetDeviceCount(&gpus);
  require<Error>(error == cudaSuccess && gpus > 0,
                 "--communicator nccl: there is no GPU that CUDA can use here ({})",
                 error == cudaSuccess ? "no device" : cudaGetErrorString(error));
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
        return std::make_shared<NcclRanks>(threads, all, options);
      },
      job);
}

[[maybe_unused]] const bool nccl_added = launchers().emplace("nccl", &launch_nccl).second;

}  // namespace
}  // namespace dlrm
