// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/checkpoint/save.hpp>
#include <tessera/checkpoint/snapshot.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <optional>
#include <thread>
#include <vector>

namespace tessera { inline namespace v0 {

/// How AsyncSave saves, and how much memory it may take meanwhile.
struct AsyncSaveOptions {
  SaveOptions save{};
  /// a rank's rows copied aside, at most; then updates wait for the writer
  std::size_t memory_bytes = std::size_t{256} << 20;
};

/// A checkpoint of the model's present state, written by a thread in the background while training
/// goes on. All calls are collective, but the end: a save that was not finished then is given up.
/// For one save at a time.
///
///     AsyncSave saving(communicator, "run7", contents, 1200);
///     while (!saving.poll(communicator)) train_one_step();
class AsyncSave {
 public:
  /// Makes the files and copies small tensors; tables are copied as they change (see Snapshot).
  template <Communicator<detail::kCheckpointCollectives> Comm>
  AsyncSave(Comm& communicator, const std::filesystem::path& directory,
            const CheckpointContents& contents, std::int64_t step,
            const AsyncSaveOptions& options = {})
      : save_(communicator, directory, contents, step, options.save),
        snapshot_(save_.contents(), options.memory_bytes) {
    thread_ = std::thread([this] {
      try {
        save_.write([this](const auto&... arguments) -> const std::vector<detail::RowBlock>& {
          if (given_up_) throw DataError("the save was given up");
          return snapshot_(arguments...);
        });
      } catch (...) {
        error_ = std::current_exception();
      }
      snapshot_.release();
      written_ = true;
    });
  }
  AsyncSave(const AsyncSave&) = delete;
  AsyncSave& operator=(const AsyncSave&) = delete;
  ~AsyncSave() {
    given_up_ = true;
    if (thread_.joinable()) thread_.join();
  }

  /// Makes the checkpoint visible if all ranks have written it, and says so. Costs a small
  /// collective; call it every few steps. Throws DataError on all ranks if any could not write.
  template <class Comm>
  std::optional<CheckpointBase> poll(Comm& communicator) {
    const std::vector<std::uint8_t> done =
        detail::gather_one(communicator, static_cast<std::uint8_t>(written_ ? 1 : 0));
    if (std::find(done.begin(), done.end(), 0) != done.end()) return std::nullopt;
    return finish(communicator);
  }

  /// Does the same, and waits for it.
  template <class Comm>
  CheckpointBase finish(Comm& communicator) {
    thread_.join();
    snapshot_.stop();
    return save_.publish(communicator, [&] {
      if (error_) std::rethrow_exception(error_);
    });
  }

  const detail::Snapshot& snapshot() const { return snapshot_; }

 private:
  detail::Save save_;
  detail::Snapshot snapshot_;
  std::atomic<bool> written_ = false, given_up_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}}  // namespace tessera::v0
