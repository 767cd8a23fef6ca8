// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/checkpoint/folder.hpp>
#include <tessera/checkpoint/manifest.hpp>
#include <tessera/core/error.hpp>

#include <sys/stat.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

namespace tessera { inline namespace v0 {

/// Follows the saves of a training: a thread that looks into its folder every so often and gives
/// each checkpoint that has become the latest, increments too, to `take`. Where `take` throws, the
/// error is kept and it is given the latest again at the next look. Several may watch one folder,
/// each at its own pace: passing over increments loses nothing, as each holds all since its base.
class CheckpointWatch {
 public:
  struct Status {
    std::int64_t step = -1;    ///< of the checkpoint that was taken last
    std::int64_t taken = 0;    ///< checkpoints
    std::int64_t refused = 0;  ///< looks that ended with an error
    std::string error{};       ///< of the last look; empty: there was none
  };

  CheckpointWatch(std::filesystem::path folder,
                  std::function<void(const std::filesystem::path& checkpoint)> take,
                  std::chrono::milliseconds every = std::chrono::milliseconds(500))
      : folder_(std::move(folder)), take_(std::move(take)), every_(every) {
    require(every_.count() > 0, "CheckpointWatch: a look every {} ms; give 1 at least",
            every_.count());
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
  CheckpointWatch(const CheckpointWatch&) = delete;
  CheckpointWatch& operator=(const CheckpointWatch&) = delete;
  /// Waits for a `take` that has begun.
  ~CheckpointWatch() = default;

  Status status() const {
    const std::lock_guard lock(mutex_);
    return status_;
  }
  /// Waits until `ready(status())`, for so long at most, and says whether it is.
  template <class Ready>
  bool wait(std::chrono::milliseconds longest, Ready ready) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, longest, [&] { return ready(std::as_const(status_)); });
  }

 private:
  /// Tells a checkpoint from another that is saved under its name later.
  using Seen = std::tuple<std::filesystem::path, std::uint64_t, std::int64_t, std::int64_t>;

  void run(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (!stop.stop_requested()) {
      lock.unlock();
      std::optional<std::int64_t> taken;
      std::string error;
      try {
        taken = look();
      } catch (const std::exception& fault) {
        error = fault.what();
      } catch (...) {
        error = "it threw what is no std::exception";
      }
      lock.lock();
      status_.error = std::move(error);
      status_.refused += !status_.error.empty();
      if (taken) {
        status_.step = *taken;
        ++status_.taken;
      }
      changed_.notify_all();
      changed_.wait_for(lock, stop, every_, [] { return false; });
    }
  }

  std::optional<std::int64_t> look() {
    const std::optional<std::filesystem::path> latest = latest_checkpoint(folder_);
    if (!latest) return std::nullopt;
    struct stat manifest{};
    const std::filesystem::path file = *latest / detail::Manifest::kFile;
    // it may have been removed since
    if (::stat(file.c_str(), &manifest) != 0) return std::nullopt;
    Seen seen{*latest, manifest.st_ino, manifest.st_mtim.tv_sec, manifest.st_mtim.tv_nsec};
    if (seen == seen_) return std::nullopt;
    take_(*latest);
    seen_ = std::move(seen);
    return detail::checkpoint_step(latest->filename().string());
  }

  std::filesystem::path folder_;
  std::function<void(const std::filesystem::path&)> take_;
  std::chrono::milliseconds every_;
  Seen seen_{};  ///< the thread's
  mutable std::mutex mutex_;
  mutable std::condition_variable_any changed_;
  Status status_;
  std::jthread thread_;  // last: it uses the others
};

}}  // namespace tessera::v0
