// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// NcclCommunicator on a GPU, one rank and several: processes on one card, which NCCL takes for
// different machines because their NCCL_HOSTID differ, so that traffic goes through sockets. This
// program starts itself again for each rank.
#include <gpu/need_gpu.hpp>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/rank_order_sums.cuh>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <gpu/rank_ahead_cases.hpp>
#include <gpu/rank_graph_cases.hpp>

#include <nccl/through_device.hpp>
#include <tessera/laws/communicator_laws.hpp>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

namespace ts = tessera;
using namespace std::chrono_literals;

namespace {

int number(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? 0 : std::atoi(text);
}

ts::NcclCommunicator join(cudaStream_t stream, std::chrono::nanoseconds timeout = 60s) {
  const int size = number("TESSERA_TEST_RANKS");
  const auto file = std::filesystem::temp_directory_path() /
                    ("tessera_nccl_" + std::string(std::getenv("TESSERA_TEST_JOB")));
  return ts::NcclCommunicator::from_file(file, number("TESSERA_TEST_RANK"), size,
                                         {.stream = stream, .timeout = timeout});
}

/// Runs a skipped case below on `ranks` processes; returns what each returned.
std::vector<int> run_job(const std::string& test_case, int ranks) {
  static int jobs = 0;
  const std::string job = std::to_string(getpid()) + "_" + std::to_string(jobs++);
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string(),
                    filter = "-tc=" + test_case;
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      setenv("NCCL_HOSTID", ("rank" + std::to_string(rank)).c_str(), 1);
      setenv("NCCL_SOCKET_IFNAME", "lo", 0);
      setenv("NCCL_IB_DISABLE", "1", 0);
      setenv("TESSERA_TEST_JOB", job.c_str(), 1);
      setenv("TESSERA_TEST_RANK", std::to_string(rank).c_str(), 1);
      setenv("TESSERA_TEST_RANKS", std::to_string(ranks).c_str(), 1);
      alarm(60);  // survives exec: whatever hangs, the next case has its turn
      execl(self.c_str(), self.c_str(), "--no-skip", "-nc", filter.c_str(), nullptr);
      std::_Exit(98);
    }
    children.push_back(child);
  }
  std::vector<int> codes;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : 99);
  }
  return codes;
}

}  // namespace

TEST_CASE("rank: laws and a graph" * doctest::skip()) {
  Stream stream;
  ts::NcclCommunicator c = join(stream.get);
  ThroughDevice through(c);
  // Floats are added in NCCL's order; two terms have but one.
  const ts::laws::CommunicatorLawOptions options{.large = 20'000, .rank_order = c.size() <= 2};
  ts::AnyCommunicator from_host(c), on_device(through);
  for (ts::AnyCommunicator* any : {&from_host, &on_device})
    CHECK(ts::laws::communicator_laws(*any, options) == std::vector<std::string>{});

  ts::RankOrderSums ordered(c, ts::Cuda({.stream = stream.get}));
  ThroughDevice ordered_through(ordered, c);
  ts::AnyCommunicator ordered_on_device(ordered_through);
  CHECK(ts::laws::communicator_laws(ordered_on_device, {.large = 20'000}) ==
        std::vector<std::string>{});

  {
    ts::NcclCommunicator part = c.split(c.rank() == 1 ? 1 : 0);
    CHECK(part.size() == (c.rank() == 1 ? 1 : c.size() - c.size() / 2));
    ts::AnyCommunicator any(part);
    CHECK(ts::laws::communicator_laws(any, {.large = 100, .rank_order = part.size() <= 2}) ==
          std::vector<std::string>{});
  }

  const auto ranks = static_cast<std::size_t>(c.size());
  std::vector<float> values(ranks * 1000), seen(values.size());
  const Device<float> a(std::span<const float>(values), stream.get),
      b(std::span<const float>(values), stream.get);
  c.all_to_all<float>(a.span(), b.span());  // connections are made outside the graph
  c.all_reduce(b.span());
  c.wait();
  REQUIRE(cudaStreamBeginCapture(stream.get, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  c.all_to_all<float>(a.span(), b.span());
  c.all_reduce(b.span());
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  REQUIRE(cudaStreamEndCapture(stream.get, &graph) == cudaSuccess);
  REQUIRE(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
  for (int step = 1; step <= 3; ++step) {
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(step * (c.rank() + 1)) + static_cast<float>(i / 1000);
    cudaMemcpyAsync(a.data, values.data(), values.size() * sizeof(float), cudaMemcpyDefault,
                    stream.get);
    REQUIRE(cudaGraphLaunch(exec, stream.get) == cudaSuccess);
    c.wait();
    b.read(seen);
    // Block s of b on rank r is what s sent to r; the sum over r adds 0 + 1 + ... to as many times
    // the sender's value.
    for (std::size_t i = 0; i < values.size(); ++i)
      CHECK(seen[i] == static_cast<float>(ranks) * static_cast<float>(step) *
                               static_cast<float>(i / 1000 + 1) +
                           static_cast<float>(ranks * (ranks - 1) / 2));
  }
  cudaGraphDestroy(graph);
  cudaGraphExecDestroy(exec);
}

TEST_CASE("rank: steps of a collection as graphs" * doctest::skip()) {
  const ts::gpu::Stream stream;
  ts::NcclCommunicator c = join(stream.get());
  CHECK(graphs_train_like_calls(c, stream));
}

TEST_CASE("rank: two communicators at work together" * doctest::skip()) {
  const ts::gpu::Stream stream, other;
  ts::NcclCommunicator c = join(stream.get(), 20s);
  ts::NcclCommunicator second = c.split(0);
  second.set_stream(other.get());
  CHECK(ahead_trains_like_in_turn(c, second, stream, other));
  CHECK(buckets_sum_like_one_call(c, second, stream, other));
}

TEST_CASE("rank: one leaves" * doctest::skip()) {
  Stream stream;
  ts::NcclCommunicator c = join(stream.get, 5s);
  const std::vector<float> zeros(1'000'000);
  const Device<float> a(std::span<const float>(zeros), stream.get);
  c.all_reduce(a.span());
  c.wait();
  if (c.rank() == 1) {
    std::this_thread::sleep_for(1s);  // others may still be reading what it sent
    std::_Exit(0);
  }
  const auto begin = std::chrono::steady_clock::now();
  const auto go_on = [&] {
    c.all_reduce(a.span());
    c.wait();
  };
  CHECK_THROWS_AS(go_on(), ts::CommunicatorError);
  CHECK(c.failed());
  CHECK(std::chrono::steady_clock::now() - begin < 30s);
}

TEST_CASE("one rank, and several on one card") {
  for (const int ranks : {1, 2, 3}) {
    CAPTURE(ranks);
    CHECK(run_job("rank: laws and a graph", ranks) ==
          std::vector<int>(static_cast<std::size_t>(ranks)));
    CHECK(run_job("rank: steps of a collection as graphs", ranks) ==
          std::vector<int>(static_cast<std::size_t>(ranks)));
  }
}

TEST_CASE("batches routed ahead, and gradients in buckets: the bits of steps in turn") {
  for (const int ranks : {1, 2, 3}) {
    CAPTURE(ranks);
    CHECK(run_job("rank: two communicators at work together", ranks) ==
          std::vector<int>(static_cast<std::size_t>(ranks)));
  }
}

TEST_CASE("a process that ends: the others get an error in time") {
  CHECK(run_job("rank: one leaves", 3) == std::vector<int>(3));
}
