// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// NcclCommunicator over the doubles of NCCL and the CUDA runtime: thread ranks, each with its own
// stream, between which bytes move.
#include <fmt/format.h>
#include <nccl_double/nccl.h>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/nccl_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>

#include <doctest/doctest.h>

#include <nccl/on_ranks.hpp>
#include <nccl/through_device.hpp>
#include <support/communicator_laws.hpp>
#include <support/temporary_folder.hpp>
#include <support/text_of.hpp>

#include <unistd.h>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace ts = tessera;
using namespace std::chrono_literals;

namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Texts laws(ts::NcclCommunicator& c, bool device, ts::laws::CommunicatorLawOptions options) {
  ThroughDevice through(c);
  ts::AnyCommunicator any = device ? ts::AnyCommunicator(through) : ts::AnyCommunicator(c);
  return laws_of(any, options);
}

}  // namespace

TEST_CASE("NCCL ranks obey the laws, in device memory and from host memory") {
  for (const int ranks : {1, 2, 4})
    for (const bool device : {false, true})
      for (const bool blocking : {false, true}) {
        CAPTURE(ranks);
        CAPTURE(device);
        CAPTURE(blocking);
        const Texts texts = on_ranks(
            ranks,
            [&](auto& c, auto) { CHECK(laws(c, device, {.seed = 3, .large = 20'000}) == Texts{}); },
            {.timeout = 30s, .check_calls = ranks == 2, .blocking = blocking});
        CHECK(texts == Texts(static_cast<std::size_t>(ranks)));
      }
}

TEST_CASE(
    "memory comes from the user's resource, where there is one; one that throws ends the "
    "communicator") {
  struct Resource {
    std::size_t most = 0, taken = 0, given = 0;
    void* allocate(std::size_t bytes, cudaStream_t stream) {
      if (bytes > most) throw ts::Error("all is taken");
      taken += bytes;
      void* p = nullptr;
      cudaMallocAsync(&p, bytes, stream);
      return p;
    }
    void deallocate(void* p, std::size_t bytes, cudaStream_t stream) noexcept {
      given += bytes;
      cudaFreeAsync(p, stream);
    }
  };
  for (const std::size_t most : {std::size_t{1} << 20, std::size_t{100}}) {
    std::vector<Resource> resources(2, Resource{most});
    const Texts texts = on_ranks(2, [&](auto& first, cudaStream_t stream) {
      ts::NcclOptions options{
          .stream = stream,
          .timeout = 30s,
          .memory = ts::NcclMemory(resources[static_cast<std::size_t>(first.rank())])};
      ncclUniqueId id{};
      if (first.rank() == 0) id = ts::detail::new_nccl_id();
      first.broadcast(std::span(&id, 1), 0);
      ts::NcclCommunicator c(id, first.rank(), 2, options);
      std::vector<float> values(100, 1.0f);
      c.all_reduce(std::span(values));
      CHECK(values == std::vector<float>(100, 2.0f));
    });
    if (most > 100) {
      CHECK(texts == Texts(2));
      for (const Resource& resource : resources)
        CHECK((resource.taken > 0 && resource.given == resource.taken));
    } else {
      for (const std::string& text : texts)
        CHECK(has(text, "bytes of device memory: all is taken"));
    }
  }
}

TEST_CASE("sums in an order of NCCL's own are right within rounding") {
  nccl_double::sums_in_reverse = true;
  on_ranks(3, [](auto& c, auto) {
    CHECK(laws(c, true, {.seed = 1, .large = 100, .rank_order = false}) == Texts{});
    CHECK(laws(c, true, {.seed = 1, .large = 100}) != Texts{});
  });
  nccl_double::sums_in_reverse = false;
}

TEST_CASE("which calls of NCCL a collective makes, and in which groups") {
  const auto calls = [](auto body) {
    std::vector<Texts> logs(3);
    const Texts texts = on_ranks(3, [&](ts::NcclCommunicator& c, cudaStream_t stream) {
      const std::vector<float> zeros(12);
      const Device<float> a(zeros, stream), b(zeros, stream);
      body(c, a.span(), b.span());
      c.wait();
      logs[static_cast<std::size_t>(c.rank())] = nccl_double::log;
    });
    CHECK(texts == Texts(3));
    return logs;
  };
  const std::vector<std::size_t> equal{2, 2, 2};
  const auto ragged = [&](ts::NcclCommunicator& c, auto a, auto b) {
    // Rank r sends r floats to rank 0 and 1 to rank 2.
    const std::vector<std::size_t> send{static_cast<std::size_t>(c.rank()), 0, 1};
    const std::vector<std::size_t> receive = c.rank() == 0   ? std::vector<std::size_t>{0, 1, 2}
                                             : c.rank() == 1 ? std::vector<std::size_t>{0, 0, 0}
                                                             : std::vector<std::size_t>{1, 1, 1};
    c.template all_to_all<float>(a.first(send[0] + 1), send,
                                 b.first(receive[0] + receive[1] + receive[2]), receive);
  };
  auto logs = calls(ragged);
  CHECK(logs[0] ==
        Texts{"ncclGroupStart", "ncclRecv 4 @1", "ncclSend 4 @2", "ncclRecv 8 @2", "ncclGroupEnd"});
  CHECK(logs[1] == Texts{"ncclGroupStart", "ncclSend 4 @0", "ncclSend 4 @2", "ncclGroupEnd"});
  CHECK(logs[2] == Texts{"ncclGroupStart", "ncclSend 8 @0", "ncclRecv 4 @0", "ncclRecv 4 @1",
                         "ncclSend 4 @2", "ncclRecv 4 @2", "ncclGroupEnd"});

  // Blocks of one size: one call where the library has it.
  const auto blocks = [](ts::NcclCommunicator& c, auto a, auto b) {
    c.template all_to_all<float>(a, b);
  };
  CHECK(calls(blocks)[1] == Texts{"ncclGroupStart", "ncclAlltoAll 16", "ncclGroupEnd"});
  nccl_double::version = 22802;
  CHECK(calls(blocks)[1] == Texts{"ncclGroupStart", "ncclSend 16 @0", "ncclRecv 16 @0",
                                  "ncclSend 16 @1", "ncclRecv 16 @1", "ncclSend 16 @2",
                                  "ncclRecv 16 @2", "ncclGroupEnd"});
  nccl_double::version = NCCL_VERSION_CODE;

  const auto gather = [&](ts::NcclCommunicator& c, auto a, auto b) {
    c.template all_gather<float>(a.first(2), b.first(6), equal);
  };
  CHECK(calls(gather)[2] == Texts{"ncclGroupStart", "ncclAllGather 8", "ncclGroupEnd"});
  const std::vector<std::size_t> uneven{3, 0, 1};
  const auto gather_uneven = [&](ts::NcclCommunicator& c, auto a, auto b) {
    c.template all_gather<float>(a.first(uneven[static_cast<std::size_t>(c.rank())]), b.first(4),
                                 uneven);
  };
  CHECK(calls(gather_uneven)[2] ==
        Texts{"ncclGroupStart", "ncclBroadcast 12 @0", "ncclBroadcast 4 @2", "ncclGroupEnd"});
  const auto scatter = [&](ts::NcclCommunicator& c, auto a, auto b) {
    c.template reduce_scatter<float>(a.first(6), b.first(2), equal);
  };
  CHECK(calls(scatter)[0] == Texts{"ncclGroupStart", "ncclReduceScatter 2", "ncclGroupEnd"});
  const auto scatter_uneven = [&](ts::NcclCommunicator& c, auto a, auto b) {
    c.template reduce_scatter<float>(a.first(4),
                                     b.first(uneven[static_cast<std::size_t>(c.rank())]), uneven);
  };
  CHECK(calls(scatter_uneven)[1] ==
        Texts{"ncclGroupStart", "ncclReduce 3 @0", "ncclReduce 1 @2", "ncclGroupEnd"});

  const auto grouped = [&](ts::NcclCommunicator& c, auto a, auto b) {
    c.group([&] {
      c.all_reduce(a);
      c.broadcast(b, 1);
    });
  };
  CHECK(calls(grouped)[0] == Texts{"ncclGroupStart", "ncclGroupStart", "ncclAllReduce 12",
                                   "ncclGroupEnd", "ncclGroupStart", "ncclBroadcast 48 @1",
                                   "ncclGroupEnd", "ncclGroupEnd"});
}

TEST_CASE(
    "blocks that do not begin at multiples of 16 bytes are counted: NCCL moves them byte by byte") {
  const auto unaligned = [](auto body) {
    const auto before = nccl_double::unaligned_blocks.load();
    const Texts texts = on_ranks(3, [&](ts::NcclCommunicator& c, cudaStream_t stream) {
      const std::vector<float> zeros(12);
      const Device<float> a(zeros, stream), b(zeros, stream);
      body(c, a.span(), b.span());
      c.wait();
    });
    CHECK(texts == Texts(3));
    return nccl_double::unaligned_blocks - before;
  };
  const auto gather = [&](std::size_t count) {
    const std::vector<std::size_t> counts(3, count);
    return unaligned([&](auto& c, auto a, auto b) {
      c.template all_gather<float>(a.first(count), b.first(3 * count), counts);
    });
  };
  CHECK(gather(4) == 0);
  CHECK(gather(2) == 3 * 1);  // of each rank the second of three blocks
  const auto exchange = [&](const std::vector<std::size_t>& counts) {
    return unaligned([&](auto& c, auto a, auto b) {
      const std::vector<std::size_t> mine(3, counts[static_cast<std::size_t>(c.rank())]);
      c.template all_to_all<float>(a.first(3 * mine[0]), mine,
                                   b.first(counts[0] + counts[1] + counts[2]), counts);
    });
  };
  CHECK(exchange({4, 4, 4}) == 0);
  // Blocks of 3 are sent from places 0, 3 and 6, and received behind 4: at 0, 4 and 7.
  CHECK(exchange({4, 3, 4}) == 2 + 3);
}

TEST_CASE("calls go to the stream and return; a graph of them can be launched again") {
  const Texts texts = on_ranks(3, [](ts::NcclCommunicator& c, cudaStream_t stream) {
    const auto ranks = static_cast<std::size_t>(c.size()),
               mine = static_cast<std::size_t>(c.rank());
    std::vector<float> values(ranks * 4), seen(ranks * 4);
    const Device<float> a(values, stream), b(values, stream);
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    c.all_to_all<float>(a.span(), b.span());
    c.all_reduce(b.span());
    CHECK_THROWS_AS(c.wait(), ts::InvalidArgument);
    float on_host = 0;
    CHECK_THROWS_WITH_AS(
        c.all_reduce(std::span(&on_host, 1)),
        fmt::format("all_reduce on rank {}: buffers in host memory cannot be part of a CUDA graph",
                    mine)
            .c_str(),
        ts::InvalidArgument);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    cudaStreamEndCapture(stream, &graph);
    cudaGraphInstantiate(&exec, graph, 0);
    for (int step = 1; step <= 3; ++step) {
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(100 * step * (c.rank() + 1)) + static_cast<float>(i);
      cudaMemcpyAsync(a.data, values.data(), values.size() * 4, cudaMemcpyDefault, stream);
      cudaGraphLaunch(exec, stream);
      c.wait();
      b.read(seen);
      // Block s of b on rank r is what s sent to r; the sum over r adds the columns of all blocks.
      for (std::size_t s = 0; s < ranks; ++s)
        for (std::size_t i = 0; i < 4; ++i)
          CHECK(seen[s * 4 + i] ==
                3.0f * (100.0f * static_cast<float>(step) * static_cast<float>(s + 1) +
                        static_cast<float>(i)) +
                    12.0f);
    }
    cudaGraphDestroy(graph);
    cudaGraphExecDestroy(exec);
  });
  CHECK(texts == Texts(3));
}

TEST_CASE("a wait leaves no error behind, which CUB would take for one of its launches") {
  const Texts texts = on_ranks(2, [](ts::NcclCommunicator& c, cudaStream_t stream) {
    const Device<float> a(std::vector<float>(6), stream);
    c.all_reduce(a.span());
    stream->add([] { std::this_thread::sleep_for(10ms); });
    c.wait();
    CHECK(cudaGetLastError() == cudaSuccess);
  });
  CHECK(texts == Texts(2));
}

TEST_CASE("a call that NCCL refuses: abort, and an error that says where") {
  bool blocking = false;
  SUBCASE("a thread of NCCL's per group") {}
  SUBCASE("a watchdog") { blocking = true; }
  std::vector<Texts> logs(2);
  const auto begin = std::chrono::steady_clock::now();
  const Texts texts = on_ranks(
      2,
      [&](ts::NcclCommunicator& c, cudaStream_t stream) {
        const Device<float> a(std::vector<float>(6), stream), b(std::vector<float>(6), stream);
        const std::vector<std::size_t> counts{3, 3};
        c.all_to_all<float>(a.span(), counts, b.span(), counts);
        c.wait();
        nccl_double::log.clear();
        if (c.rank() == 1) nccl_double::faults = {.call = "ncclRecv", .nth = 2};
        try {
          c.all_to_all<float>(a.span(), counts, b.span(), counts);
          c.wait();
        } catch (const ts::CommunicatorError& error) {
          CHECK(error.collective() == "all_to_all");
          CHECK(c.failed());
          CHECK_THROWS_WITH_AS(c.all_reduce(a.span()), error.what(), ts::CommunicatorError);
          CHECK_THROWS_WITH_AS(c.wait(), error.what(), ts::CommunicatorError);
          logs[static_cast<std::size_t>(c.rank())] = nccl_double::log;
          throw;
        }
      },
      {.timeout = 1s, .blocking = blocking});
  CHECK(texts[1] ==
        "rank 1 of 2: all_to_all (call 2), 24 bytes to send and 24 to receive: ncclRecv: NCCL "
        "says: unhandled system error (last error "
        "of the double)");
  CHECK(texts[0] ==
        "rank 0 of 2: all_to_all (call 2), 24 bytes to send and 24 to receive: late: waited 1000 "
        "ms; a peer has failed, or makes other "
        "calls, or raise NcclOptions::timeout");
  // The open group is closed before the abort; nothing follows it.
  CHECK(logs[1] == Texts{"ncclGroupStart", "ncclSend 12 @0", "ncclRecv 12 @0", "ncclSend 12 @1",
                         "ncclRecv 12 @1", "ncclGroupEnd", "ncclCommAbort"});
  CHECK(logs[0].back() == "ncclCommAbort");
  CHECK(std::chrono::steady_clock::now() - begin < 100s);
}

TEST_CASE("a failed peer ends the waits of all where NCCL hears of it") {
  nccl_double::aborts_reach_peers = true;
  const Texts texts = on_ranks(3, [](ts::NcclCommunicator& c, cudaStream_t stream) {
    const Device<float> a(std::vector<float>(8), stream);
    c.all_reduce(a.span());
    c.wait();
    if (c.rank() == 2) throw std::runtime_error("the disk is full");
    c.all_reduce(a.span());
    c.wait();
  });
  nccl_double::aborts_reach_peers = false;
  CHECK(texts[2] == "the disk is full");
  for (const std::size_t rank : {0u, 1u})
    CHECK((has(texts[rank], "32 bytes to send and 32 to receive: ") &&
           has(texts[rank], ": NCCL says: remote process exited")));
}

TEST_CASE("errors that come while waiting: NCCL's and CUDA's") {
  bool blocking = false;
  SUBCASE("a thread of NCCL's per group") {}
  SUBCASE("a watchdog") { blocking = true; }
  const Texts texts = on_ranks(2,
                               [](ts::NcclCommunicator& c, cudaStream_t stream) {
                                 const Device<float> a(std::vector<float>(8), stream);
                                 if (c.rank() == 0)
                                   nccl_double::set_async_error(c.get(), ncclInternalError);
                                 if (c.rank() == 1) stream->sticky = cudaErrorIllegalAddress;
                                 if (c.rank() == 0) c.all_reduce(a.span());
                                 c.wait();
                               },
                               {.timeout = 30s, .blocking = blocking});
  CHECK(has(texts[0], "NCCL says: internal error"));
  CHECK(has(texts[1], "CUDA says: cudaErrorIllegalAddress"));
}

TEST_CASE("joining: a rank that never comes, ids through files") {
  Stream stream;
  const ncclUniqueId lonely = ts::detail::new_nccl_id();
  for (const bool blocking : {false, true})
    CHECK_THROWS_WITH_AS(
        ts::NcclCommunicator(lonely, 1, 3,
                             {.stream = stream.get, .timeout = 200ms, .blocking = blocking}),
        "rank 1 of 3: joining: late: waited 200 ms; a peer has failed, or makes other calls, or "
        "raise NcclOptions::timeout",
        ts::CommunicatorError);
  CHECK_THROWS_AS(ts::NcclCommunicator(lonely, 3, 3), ts::InvalidArgument);

  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path / "id";
  std::vector<std::int32_t> sums(3);
  ts::run_ranks(3, [&](ts::ThreadCommunicator& threads) {
    Stream mine;
    if (threads.rank() == 0) std::this_thread::sleep_for(50ms);
    ts::NcclCommunicator c = ts::NcclCommunicator::from_file(file, threads.rank(), 3,
                                                             {.stream = mine.get, .timeout = 30s});
    std::int32_t value = c.rank() + 1;
    c.all_reduce(std::span(&value, 1));
    sums[static_cast<std::size_t>(c.rank())] = value;
  });
  CHECK(sums == std::vector<std::int32_t>{6, 6, 6});
  CHECK_FALSE(std::filesystem::exists(file));
  CHECK_THROWS_WITH_AS(
      ts::share_nccl_id(file, 1, 50ms),
      fmt::format("share_nccl_id: rank 1 waited 50 ms for rank 0 to write '{}'", file.string())
          .c_str(),
      ts::CommunicatorError);
  std::ofstream(file) << "an earlier job's";
  CHECK_THROWS_AS(ts::share_nccl_id(file, 0, 50ms), ts::InvalidArgument);
}

TEST_CASE("a communicator of the user's stays the user's") {
  ts::run_ranks(2, [](ts::ThreadCommunicator& threads) {
    Stream stream;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t user = nullptr;
    REQUIRE(ncclCommInitRankConfig(&user, 2, ts::share_nccl_id(threads), threads.rank(), &config) ==
            ncclSuccess);
    {
      ts::NcclCommunicator c(user, {.stream = stream.get, .timeout = 30s});
      CHECK(c.rank() == threads.rank());
      CHECK(c.size() == 2);
      std::int64_t value = 5;
      c.all_reduce(std::span(&value, 1));
      CHECK(value == 10);
      nccl_double::log.clear();
    }
    CHECK(nccl_double::log == Texts{});
    ncclCommDestroy(user);
  });
}

TEST_CASE("parts of a communicator: the ranks of a color, in order, beside the whole") {
  std::vector<Texts> logs(5);
  const Texts texts = on_ranks(5, [&](ts::NcclCommunicator& c, cudaStream_t stream) {
    const int color = c.rank() == 2 ? 7 : c.rank() % 2;
    {
      ts::NcclCommunicator part = c.split(color);
      CHECK(part.size() == (color == 7 ? 1 : 2));
      CHECK(part.rank() == (c.rank() >= 3 ? 1 : 0));
      CHECK(part.stream() == stream);
      CHECK(laws(part, true, {.seed = 5, .large = 100}) == Texts{});
      const Device<std::int32_t> a(std::vector<std::int32_t>{1 << c.rank()}, stream);
      part.all_reduce(a.span());
      c.all_reduce(a.span());  // the whole is there still, on the same stream
      c.wait();
      std::vector<std::int32_t> sum(1);
      a.read(sum);
      CHECK(sum[0] == 2 * (1 + 16) + 2 * (2 + 8) + 4);
      nccl_double::log.clear();
    }
    logs[static_cast<std::size_t>(c.rank())] = nccl_double::log;
    CHECK_THROWS_AS(c.split(-1), ts::InvalidArgument);
  });
  CHECK(texts == Texts(5));
  // of the part, whose owner the library is; a thread of its own finalizes it
  CHECK(logs[4] == Texts{"ncclCommDestroy"});
}

TEST_CASE("a split that fails, and a peer that is late in a part") {
  bool blocking = false;
  SUBCASE("a thread of NCCL's per group") {}
  SUBCASE("a watchdog") { blocking = true; }
  const Texts refused = on_ranks(1, [](ts::NcclCommunicator& c, auto) {
    nccl_double::faults = {.call = "ncclCommSplit"};
    c.split(0);
  });
  CHECK(refused[0] ==
        "rank 0 of 1: splitting by color 0: ncclCommSplit: NCCL says: unhandled system error (last "
        "error of the double)");
  const Texts late = on_ranks(2,
                              [](ts::NcclCommunicator& c, auto) {
                                c.rank() == 0 ? static_cast<void>(c.split(0)) : c.wait();
                              },
                              {.timeout = 1s, .blocking = blocking});
  CHECK(
      late[0] ==
      "rank 0 of 2: splitting by color 0: late: waited 1000 ms; a peer has failed, or makes other "
      "calls, or raise "
      "NcclOptions::timeout");
  const Texts in_part = on_ranks(3,
                                 [](ts::NcclCommunicator& c, auto) {
                                   ts::NcclCommunicator part = c.split(c.rank() / 2);
                                   if (c.rank() != 1) part.barrier();  // rank 2's part is another
                                 },
                                 {.timeout = 1s});
  CHECK(has(in_part[0], "rank 0 of 2: barrier (call 1)"));
  CHECK(has(in_part[0], "late: waited 1000 ms"));
  CHECK(in_part[1] == "");
  CHECK(in_part[2] == "");
}

TEST_CASE("ranks that disagree are told, where calls are checked, and can go on") {
  const auto run = [](auto body) {
    return on_ranks(3,
                    [&](ts::NcclCommunicator& c, cudaStream_t stream) {
                      const Device<float> a(std::vector<float>(16), stream),
                          b(std::vector<float>(16), stream);
                      std::string text;
                      try {
                        body(c, a.span(), b.span());
                      } catch (const ts::CommunicatorError& error) {
                        text = error.what();
                      }
                      CHECK_FALSE(c.failed());
                      c.all_reduce(a.span());
                      c.wait();
                      if (!text.empty()) throw std::runtime_error(text);
                    },
                    {.timeout = 30s, .check_calls = true});
  };
  CHECK(run([](auto& c, auto a, auto) {
          if (c.rank() == 2)
            c.barrier();
          else
            c.all_reduce(a);
        })[0] ==
        "all_reduce (call 1): rank 0 calls all_reduce, but rank 2 calls barrier; all ranks must "
        "make the same calls in the same order");
  const Texts counts = run([](auto& c, auto a, auto b) {
    std::vector<std::size_t> send{1, 2, 3}, receive(3, static_cast<std::size_t>(c.rank()) + 1);
    if (c.rank() == 2) receive[1] = 7;
    c.template all_to_all<float>(a.first(6), send, b.first(receive[0] + receive[1] + receive[2]),
                                 receive);
  });
  for (const std::string& text : counts)
    CHECK(text == "all_to_all (call 1): rank 1 sends 3 elements to rank 2, which expects 7");
}

TEST_CASE("groups: an exception inside one aborts, and host memory has no place there") {
  const Texts texts = on_ranks(
      2,
      [](ts::NcclCommunicator& c, cudaStream_t stream) {
        const Device<float> a(std::vector<float>(4), stream);
        nccl_double::log.clear();
        try {
          c.group([&] {
            c.all_reduce(a.span());
            float on_host = 0;
            c.broadcast(std::span(&on_host, 1), 0);
          });
        } catch (const ts::InvalidArgument&) {
          CHECK(nccl_double::log == Texts{"ncclGroupStart", "ncclGroupStart", "ncclAllReduce 4",
                                          "ncclGroupEnd", "ncclGroupEnd", "ncclCommAbort"});
          throw;
        }
      },
      {.timeout = 30s});
  for (int rank = 0; rank < 2; ++rank)
    CHECK(texts[static_cast<std::size_t>(rank)] ==
          fmt::format("broadcast on rank {}: buffers in host memory cannot be part of a group",
                      rank));
}

TEST_CASE("a communicator that ends before its graphs says so in seconds, and is given up") {
  bool blocking = false;
  SUBCASE("a thread of NCCL's per group") {}
  SUBCASE("a watchdog") { blocking = true; }
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path / "told";
  std::fflush(stderr);
  const int kept = dup(2);
  nccl_double::graph_lives = true;
  REQUIRE(std::freopen(file.c_str(), "w", stderr) != nullptr);
  const auto begin = std::chrono::steady_clock::now();
  const Texts texts = on_ranks(2, [](auto&, auto) {},
                               {.timeout = 300s, .end_timeout = 100ms, .blocking = blocking});
  std::fflush(stderr);
  dup2(kept, 2);
  close(kept);
  nccl_double::graph_lives = false;
  CHECK(std::chrono::steady_clock::now() - begin < 200s);
  CHECK(texts == Texts(2));
  CHECK(has(text_of(file),
            "rank 1 of 2: ending: late: waited 100 ms; a CUDA graph that captured the"));
}

TEST_CASE("buffers of the host pass through plain device memory where a GPU has no memory pools") {
  cuda_double::memory_pools = false;
  const Texts texts = on_ranks(2, [](auto& c, auto) {
    std::vector<float> values(100, 1.0f);
    c.all_reduce(std::span(values));
    CHECK(values == std::vector<float>(100, 2.0f));
    CHECK(cuda_double::plain_allocations > 0);
  });
  cuda_double::memory_pools = true;
  CHECK(texts == Texts(2));
  CHECK(cuda_double::plain_allocations == 0);
}

TEST_CASE("another thread ends a wait for peers that may not come") {
  const Texts texts = on_ranks(2, [](ts::NcclCommunicator& c, auto) {
    if (c.rank() == 1) return;
    std::thread other([&] {
      std::this_thread::sleep_for(20ms);
      c.interrupt("the batch was given up");
    });
    std::vector<float> values(100);
    try {
      c.all_reduce(std::span(values));
    } catch (...) {
      other.join();
      throw;
    }
    other.join();
  });
  CHECK(has(texts[0], "it was interrupted: the batch was given up"));
}

namespace {
/// While it lives, a rank's first group waits inside NCCL for the others'.
struct FirstGroupConnects {
  FirstGroupConnects() { nccl_double::first_group_connects = true; }
  FirstGroupConnects(const FirstGroupConnects&) = delete;
  FirstGroupConnects& operator=(const FirstGroupConnects&) = delete;
  ~FirstGroupConnects() { nccl_double::first_group_connects = false; }
};
}  // namespace

TEST_CASE("a call that waits inside NCCL for a peer that never comes: the watchdog ends it") {
  const FirstGroupConnects scope;
  std::vector<Texts> logs(2);
  const auto run = [&](auto body, std::chrono::nanoseconds timeout) {
    const auto begin = std::chrono::steady_clock::now();
    const Texts texts = on_ranks(2,
                                 [&](ts::NcclCommunicator& c, cudaStream_t stream) {
                                   if (c.rank() == 1) return;
                                   const Device<float> a(std::vector<float>(6), stream);
                                   try {
                                     body(c, a.span());
                                   } catch (...) {
                                     logs[0] = nccl_double::log;
                                     throw;
                                   }
                                 },
                                 {.timeout = timeout});
    CHECK(texts[1].empty());
    CHECK(std::chrono::steady_clock::now() - begin < 200s);
    return texts[0];
  };
  CHECK(run([](auto& c, auto a) { c.all_reduce(a); }, 1s) ==
        "rank 0 of 2: all_reduce (call 1), 24 bytes to send and 24 to receive: late: waited 1000 "
        "ms; a peer has failed, or makes other calls, or raise NcclOptions::timeout");
  // It was revoked while the call used it, and freed by the call's own thread.
  CHECK(logs[0] == Texts{"ncclGroupStart", "ncclAllReduce 6", "ncclGroupEnd", "ncclCommAbort"});

  const auto interrupted = [](ts::NcclCommunicator& c, auto a) {
    std::thread other([&] {
      std::this_thread::sleep_for(20ms);
      c.interrupt("the batch was given up");
    });
    try {
      c.all_reduce(a);
    } catch (...) {
      other.join();
      throw;
    }
    other.join();
  };
  CHECK(has(run(interrupted, 300s), "24 to receive: it was interrupted: the batch was given up"));

  // An open group that an exception leaves goes to NCCL, too, but not for long.
  const auto left = [](ts::NcclCommunicator& c, auto a) {
    c.group([&] {
      c.all_reduce(a);
      throw ts::Error("the disk is full");
    });
  };
  CHECK(run(left, 300s) == "the disk is full");
}

TEST_CASE("an error that NCCL finds while nobody waits for it ends the stream's work") {
  const Texts texts = on_ranks(2,
                               [](ts::NcclCommunicator& c, cudaStream_t stream) {
                                 if (c.rank() == 1) return;
                                 const Device<float> a(std::vector<float>(6), stream);
                                 c.all_reduce(a.span());  // rank 1 makes no such call
                                 nccl_double::set_async_error(c.get(), ncclRemoteError);
                                 cudaStreamSynchronize(stream);  // as a program would, by itself
                                 c.all_reduce(a.span());
                               },
                               {.timeout = 300s});
  CHECK(has(texts[0], "NCCL says: remote process exited"));
}
