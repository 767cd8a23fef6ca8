// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Measures what tables in files get of a disk: rows at random places, by the transfers of their
// caches (past the page cache where the file system can do that), at several queue depths.
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/io/direct_file.hpp>
#include <tessera/io/transfer_queue.hpp>
#include <tessera/sharding/cluster.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

namespace tessera::bench {

/// As Cluster has it: bytes/s of blocks of rows, and how many transfers under way gave that.
struct FileSpeed {
  double bandwidth = Cluster{}.file_bandwidth;
  int queue_depth = Cluster{}.file_queue_depth;
};

/// The fewest transfers under way that are as fast as any, but for a twentieth: more of them delay
/// each other.
inline FileSpeed shallowest(const std::vector<FileSpeed>& speeds) {
  double best = 0;
  for (const FileSpeed& speed : speeds) best = std::max(best, speed.bandwidth);
  return *std::find_if(speeds.begin(), speeds.end(),
                       [&](const FileSpeed& speed) { return speed.bandwidth >= 0.95 * best; });
}

/// A file that was written once: else a file system would make zeros up.
class Disk {
 public:
  Disk(const std::string& folder, std::size_t bytes)
      : file_(std::filesystem::path(folder) / fmt::format("tessera_bench_{}.rows", getpid()),
              bytes) {
    unlink(file_.name().c_str());  // so that none is left, whatever ends the process
    constexpr std::size_t at_once = std::size_t{1} << 20;
    std::byte* const memory = memory_.resize(at_once);
    std::fill_n(memory, at_once, std::byte{1});
    detail::TransferQueue queue;
    for (std::size_t at = 0; at < file_.bytes(); at += at_once) {
      const detail::FileTransfer transfer{&file_, at, memory,
                                          std::min(at_once, file_.bytes() - at)};
      queue.write({&transfer, 1});
    }
  }

  bool direct() const { return file_.direct(); }

  /// Seconds until blocks of so many rows at random places are read, or written. `moved` grows by
  /// their bytes.
  double seconds(detail::TransferQueue& queue, std::int64_t rows, std::size_t row_bytes, bool write,
                 double& moved) {
    constexpr std::size_t block = detail::DirectFile::block, at_once = 2048;
    const std::size_t most = (row_bytes + block - 1) / block * block + block;
    std::byte* const memory = memory_.resize(at_once * most);
    double sum = 0;
    for (std::int64_t done = 0; done < rows; done += at_once) {
      transfers_.clear();
      for (std::size_t i = 0; i < std::min<std::size_t>(at_once, rows - done); ++i) {
        const std::size_t at = random_() % (file_.bytes() - row_bytes), first = at / block * block,
                          end = (at + row_bytes + block - 1) / block * block;
        transfers_.push_back({&file_, first, memory + i * most, end - first});
        moved += static_cast<double>(end - first);
      }
      // as caches ask for them
      std::sort(transfers_.begin(), transfers_.end(),
                [](const detail::FileTransfer& a, const detail::FileTransfer& b) {
                  return a.offset < b.offset;
                });
      const auto start = std::chrono::steady_clock::now();
      write ? queue.write(transfers_) : queue.read(transfers_);
      sum += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    return sum;
  }

 private:
  detail::DirectFile file_;
  detail::BlockBuffer memory_;
  std::mt19937_64 random_{1};
  std::vector<detail::FileTransfer> transfers_;
};

/// Measures a file of so many bytes in a folder, which it removes again: rows are read, and as many
/// replaced (their blocks read, then written). Throws DataError where there is no room.
inline FileSpeed measure_files(const std::string& folder,
                               std::size_t bytes = std::size_t{256} << 20, std::int64_t rows = 2048,
                               int rounds = 5) {
  require<DataError>(std::filesystem::is_directory(folder), "--files: there is no folder '{}'",
                     folder);
  Disk disk(folder, bytes);
  std::vector<FileSpeed> speeds;
  for (const int depth : {1, 4, 16, 64, 256}) {
    detail::TransferQueue queue(static_cast<unsigned>(depth));
    std::vector<double> rates;
    for (int round = 0; round < rounds; ++round) {
      double seconds = 0, moved = 0;
      for (const std::size_t row_bytes : {68, 260, 1536}) {  // 16, 64, 128 floats and their states
        seconds += disk.seconds(queue, 2 * rows, row_bytes, false, moved);
        seconds += disk.seconds(queue, rows, row_bytes, true, moved);
      }
      rates.push_back(moved / seconds);
    }
    std::nth_element(rates.begin(), rates.begin() + std::ssize(rates) / 2, rates.end());
    speeds.push_back({rates[rates.size() / 2], depth});
    fmt::print("files in {}: {:.3f} GB/s with {} transfers under way\n", folder,
               1e-9 * speeds.back().bandwidth, depth);
  }
  if (!disk.direct())
    fmt::print("(by way of the page cache: this file system has no direct transfers)\n");
  return shallowest(speeds);
}

}  // namespace tessera::bench
