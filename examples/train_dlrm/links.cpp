// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "links.hpp"

#include "../support/report.hpp"
#include "../tessera_plan/cluster_file.hpp"
#include "plans.hpp"

#include <tessera/planner/shared_cores.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dlrm {
namespace {

using namespace tessera;

/// A message of the step, as bytes [from * ranks + to].
struct Message {
  std::string_view name;
  std::vector<double> bytes;
};

/// The slowest rank's seconds, of calls that all make together: the median of some, behind two that
/// make connections and buffers.
double seconds_of(AnyCommunicator& host, const std::function<void()>& call) {
  constexpr int kWarm = 2, kTimed = 7;
  std::vector<double> seconds;
  for (int i = 0; i < kWarm + kTimed; ++i) {
    host.barrier();
    const auto begin = std::chrono::steady_clock::now();
    call();
    double own = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    host.all_reduce(std::span(&own, 1), Reduction::max);
    if (i >= kWarm) seconds.push_back(own);
  }
  std::ranges::nth_element(seconds, seconds.begin() + kTimed / 2);
  return seconds[kTimed / 2];
}

/// How many machines the ranks are on.
int machines_of(AnyCommunicator& host) {
  char name[256] = {};
  ::gethostname(name, sizeof(name) - 1);
  const auto ranks = static_cast<std::size_t>(host.size());
  const std::uint64_t own = std::hash<std::string_view>()(name);
  std::vector<std::uint64_t> all(ranks);
  host.all_gather(std::span(&own, 1), std::span(all), std::vector<std::size_t>(ranks, 1));
  return static_cast<int>(std::set(all.begin(), all.end()).size());
}

}  // namespace

void check_links(const Options& options, Communicators& communicators, RankModel& model) {
  AnyCommunicator& host = communicators.data;
  if (host.size() == 1) return fmt::print("--check-links: one rank sends nothing\n");
  const auto ranks = static_cast<std::size_t>(host.size()),
             rank = static_cast<std::size_t>(host.rank());
  const StepTraffic step = step_traffic(options, model.embeddings().layout());
  std::vector<Message> messages{{"ids", step.ids}, {"vectors", step.vectors}, {"gradients", {}}};
  for (std::size_t i = 0; i < ranks * ranks; ++i)
    messages[2].bytes.push_back(step.vectors[i % ranks * ranks + i / ranks]);
  // what ranks that share few cores are slower by, as the planner counts it
  const auto bytes_in_turn = [&](const std::vector<double>& bytes) {
    std::vector<double> sent(ranks);
    for (std::size_t from = 0; from < ranks; ++from)
      for (std::size_t to = 0; to < ranks; ++to)
        if (from != to) sent[from] += bytes[from * ranks + to];
    const double most = *std::ranges::max_element(sent);
    return std::pair(most, detail::shared_seconds(sent, step.cluster.concurrent_ranks));
  };
  const int machines = machines_of(host);
  if (host.rank() == 0)
    fmt::print(
        "links: --communicator {}, {} ranks on {}; the messages of this plan's step\n"
        "{:<12}{:>16}{:>12}{:>10}{:>14}\n",
        options.communicator, ranks,
        machines == 1 ? "one machine" : fmt::format("{} machines", machines), "message",
        "bytes of a rank", "ms", "GB/s", "GB/s assumed");
  const auto show = [&](std::string_view name, double bytes, double in_turn, double seconds) {
    if (host.rank() == 0)
      fmt::print("{:<12}{:>16}{:>12.3f}{:>10.3f}{:>14.3f}\n", name,
                 support::grouped(std::llround(bytes)), 1e3 * seconds, 1e-9 * in_turn / seconds,
                 1e-9 * step.cluster.node_bandwidth);
  };
  const auto time = [&](const std::vector<double>& bytes) {
    std::vector<std::size_t> to(ranks), from(ranks);
    for (std::size_t r = 0; r < ranks; ++r)
      if (r != rank) {
        to[r] = static_cast<std::size_t>(std::llround(bytes[rank * ranks + r]));
        from[r] = static_cast<std::size_t>(std::llround(bytes[r * ranks + rank]));
      }
    return seconds_of(host, [&] { model.exchange(to, from); });
  };
  const double least = time(std::vector<double>(ranks * ranks, 1.0));
  double most_sent = 0, sent_in_turn = 0, seconds_of_most = 0;
  for (const Message& message : messages) {
    const auto [bytes, in_turn] = bytes_in_turn(message.bytes);
    if (bytes == 0) continue;
    const double seconds = time(message.bytes);
    show(message.name, bytes, in_turn, seconds);
    if (bytes > most_sent) most_sent = bytes, sent_in_turn = in_turn, seconds_of_most = seconds;
  }
  const double share = static_cast<double>(ranks - 1) / static_cast<double>(ranks),
               ring = 8 * share * static_cast<double>(model.dense_parameters());
  std::vector<double> work(ranks, ring);
  show("dense sums", ring, detail::shared_seconds(work, step.cluster.concurrent_ranks),
       seconds_of(host, [&] { model.sum_dense(); }));
  if (host.rank() != 0) return;
  fmt::print("least exchange: {:.3f} ms; the planner's constants: {}\n", 1e3 * least, step.source);
  if (seconds_of_most < 2 * least)
    return fmt::print("nothing is kept: these messages take as long as the least\n");
  const plan::Links links{.communicator = options.communicator,
                          .one_machine = machines == 1,
                          .ranks = static_cast<int>(ranks),
                          .bandwidth = sent_in_turn / (seconds_of_most - least),
                          .measured = plan::this_machine()};
  fmt::print("kept for later plans, in {}: {:.3f} GB/s\n", plan::write_links(links),
             1e-9 * links.bandwidth);
}

}  // namespace dlrm
