// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Every call of the system that a save makes, in turn, is where the process dies or where the call
// fails: afterwards there is a complete checkpoint, the previous or the new one. This program's own
// pwrite, fsync and so on stand before the C library's.
#include <checkpoint/models.hpp>

#include <tessera/checkpoint/increments.hpp>

#include <doctest/doctest.h>

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string>

namespace {

enum class Fault { none, die, no_space, io_error };

std::atomic<Fault> fault{Fault::none};
std::atomic<int> calls_left{0};
std::atomic<int> calls_made{0};

std::atomic<bool> no_rename_flags{false};  // as Lustre and others have none

/// Files written and not synced since, and folders with new names that were not synced.
bool tracing = false;
std::mutex trace_mutex;
std::set<std::string> unsynced;
std::string renamed_too_early;

std::string path_of(int file) {
  char text[4096];
  const ssize_t n =
      ::readlink(("/proc/self/fd/" + std::to_string(file)).c_str(), text, sizeof(text));
  return {text, n < 0 ? 0 : static_cast<std::size_t>(n)};
}

/// Whether this call must fail; may not return.
bool fails() {
  ++calls_made;
  if (fault == Fault::none || calls_left.fetch_sub(1) != 1) return false;
  if (fault == Fault::die) ::kill(::getpid(), SIGKILL);
  errno = fault == Fault::no_space ? ENOSPC : EIO;
  return true;
}

}  // namespace

extern "C" {
ssize_t pwrite(int file, const void* data, size_t size, off_t offset) {
  if (fails()) return -1;
  if (tracing) {
    const std::lock_guard lock(trace_mutex);
    unsynced.insert(path_of(file));
  }
  // Short writes are right too: one half at a time.
  return ::syscall(SYS_pwrite64, file, data, size > 1 ? size / 2 : size, offset);
}
int fsync(int file) {
  if (fails()) return -1;
  if (tracing) {
    const std::lock_guard lock(trace_mutex);
    unsynced.erase(path_of(file));
  }
  return static_cast<int>(::syscall(SYS_fsync, file));
}
int posix_fallocate(int file, off_t offset, off_t size) {
  if (fails()) return errno;
  return ::syscall(SYS_fallocate, file, 0, offset, size) == 0 ? 0 : errno;
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  if (fails()) return -1;
  if (tracing) {
    const std::lock_guard lock(trace_mutex);
    for (const std::string& path : unsynced) renamed_too_early += path + "\n";
  }
  if (no_rename_flags && flags != 0) {
    errno = EINVAL;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}
int mkdir(const char* path, mode_t mode) {
  return fails() ? -1 : static_cast<int>(::syscall(SYS_mkdirat, AT_FDCWD, path, mode));
}
int rename(const char* from, const char* to) {
  return fails() ? -1 : static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
int unlinkat(int folder, const char* path, int flags) {
  return fails() ? -1 : static_cast<int>(::syscall(SYS_unlinkat, folder, path, flags));
}
}

using namespace models;

namespace {

Layout layout(int ranks) {
  return make_layout({ranks}, {{"cut", 300, 12}, {"copied", 9, 4}}, {},
                     {{0, {0, 100, 0, 12}, 0},
                      {0, {100, 300, 0, 5}, ranks - 1},
                      {0, {100, 300, 5, 12}, 0},
                      {1, {0, 9, 0, 4}, every_rank}});
}

template <class Comm>
void save(Comm& c, const std::filesystem::path& folder, std::int64_t step) {
  Trained<RowWiseAdagrad, float, Comm> model(c, layout(c.size()), static_cast<std::uint64_t>(step));
  save_checkpoint(c, folder, model.contents, step, {.keep = 2, .max_file_bytes = 5000});
}

/// The step of the latest checkpoint, which must be whole; other complete ones too.
std::int64_t whole_latest(const std::filesystem::path& folder) {
  SelfCommunicator c;
  for (const std::int64_t step : detail::checkpoint_steps(folder)) {
    Trained<RowWiseAdagrad, float, SelfCommunicator> model(c, layout(1), 99);
    load_checkpoint(c, folder / detail::checkpoint_name(step), model.contents);
    CHECK(model.is<float>(static_cast<std::uint64_t>(step)));
  }
  const auto steps = detail::checkpoint_steps(folder);
  return steps.empty() ? -1 : steps.back();
}

std::int64_t partial_folders(const std::filesystem::path& folder) {
  std::int64_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    count += entry.path().filename().string()[0] == '.';
  return count;
}

/// Two complete checkpoints, the older of which the next save removes, and what a dead save left.
void prepare(const std::filesystem::path& folder) {
  SelfCommunicator c;
  std::filesystem::remove_all(folder);
  save(c, folder, 1);
  save(c, folder, 2);
  std::filesystem::create_directories(folder / ".partial-step-000000000002" / "x");
}

/// Runs `work` in a child process; its status, as waitpid gives it.
int in_child(auto&& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    int status = 1;
    try {
      status = work();
    } catch (...) {
    }
    ::_exit(status);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

}  // namespace

TEST_CASE(
    "killed at any call, the previous or the new checkpoint is whole, and the next save succeeds") {
  const TemporaryFolder temporary;
  const std::filesystem::path folder = temporary.path / "c";
  int previous = 0, next = 0;
  for (int call = 1;; ++call) {
    prepare(folder);
    const int status = in_child([&] {
      calls_left = call;
      fault = Fault::die;
      SelfCommunicator c;
      save(c, folder, 3);
      return 0;
    });
    INFO("killed at call " << call);
    const std::int64_t latest = whole_latest(folder);
    if (WIFEXITED(status)) {
      CHECK(WEXITSTATUS(status) == 0);
      CHECK(latest == 3);
      CHECK(partial_folders(folder) == 0);
      CHECK(call > 40);
      break;
    }
    REQUIRE(WTERMSIG(status) == SIGKILL);
    REQUIRE((latest == 2 || latest == 3));
    CHECK(next <= (latest == 3 ? next : 0));  // once the new one is there it stays
    ++(latest == 2 ? previous : next);
    SelfCommunicator c;
    save(c, folder, 4);
    CHECK(whole_latest(folder) == 4);
    CHECK(partial_folders(folder) == 0);
  }
  CHECK(previous > 30);
  CHECK(next > 3);
}

TEST_CASE("killed while increments and their base are removed, what is left can be loaded") {
  const TemporaryFolder temporary;
  const std::filesystem::path folder = temporary.path / "c";
  SelfCommunicator c;
  using Model = Trained<RowWiseAdagrad, float, SelfCommunicator>;
  std::set<std::size_t> left;
  for (int call = 1, status = 1; status != 0; ++call) {
    std::filesystem::remove_all(folder);
    Model model(c, layout(1), 1);
    const ChangedRows changed(model.contents);
    const CheckpointBase base = save_checkpoint(c, folder, model.contents, 1);
    save_increment(c, folder, changed, base, 2);
    save_increment(c, folder, changed, base, 3);
    status = in_child([&] {
      calls_left = call;
      fault = Fault::die;
      save_checkpoint(c, folder, model.contents, 4, {.keep = 1});
      return 0;
    });
    INFO("killed at call " << call);
    const std::vector<std::int64_t> steps = detail::checkpoint_steps(folder);
    left.insert(steps.size());
    for (const std::int64_t step : steps) {
      Model loaded(c, layout(1), 99);
      CHECK_NOTHROW(load_checkpoint(c, folder / detail::checkpoint_name(step), loaded.contents));
    }
  }
  CHECK(left == std::set<std::size_t>{1, 2, 3, 4});
}

TEST_CASE(
    "any call that fails is an error on all ranks; the previous checkpoint stays and the next save "
    "succeeds") {
  const TemporaryFolder temporary;
  const std::filesystem::path folder = temporary.path / "c";
  int refused = 0, clean = 0;
  for (const int ranks : {1, 2})
    for (int call = 1;; ++call) {
      prepare(folder);
      std::atomic<int> failed = 0, done = 0;
      std::string text;
      run_ranks(ranks, [&](ThreadCommunicator& c) {
        Trained<RowWiseAdagrad, float, ThreadCommunicator> model(c, layout(c.size()), 3);
        c.barrier();
        if (c.rank() == 0) {
          calls_left = call;
          fault = call % 2 == 0 ? Fault::io_error : Fault::no_space;
        }
        c.barrier();
        try {
          save_checkpoint(c, folder, model.contents, 3, {.keep = 2, .max_file_bytes = 5000});
          ++done;
        } catch (const DataError& error) {
          ++failed;
          if (c.rank() == 0) text = error.what();
        }
        c.barrier();
      });
      const bool reached = calls_left <= 0;
      fault = Fault::none;
      INFO("call " << call << " of " << ranks << " ranks: " << text);
      CHECK(((failed == ranks && done == 0) || (failed == 0 && done == ranks)));
      const std::int64_t latest = whole_latest(folder);
      CHECK(latest >= (failed == 0 ? 3 : 2));
      if (!reached) {
        CHECK(done == ranks);
        break;
      }
      if (failed > 0) {
        ++refused;
        CHECK((text.find("No space left") != std::string::npos ||
               text.find("Input/output error") != std::string::npos));
        clean += latest == 2 && partial_folders(folder) == 0;
      }
      SelfCommunicator c;
      save(c, folder, 4);
      CHECK(whole_latest(folder) == 4);
    }
  CHECK(refused > 80);
  CHECK(clean > 70);
}

TEST_CASE("all is on the disk before the name appears") {
  const TemporaryFolder temporary;
  tracing = true;
  unsynced.clear();
  calls_made = 0;
  run_ranks(2, [&](ThreadCommunicator& c) { save(c, temporary.path, 3); });
  tracing = false;
  CHECK(calls_made > 30);
  CHECK(renamed_too_early == "");
  CHECK(unsynced.empty());
}

TEST_CASE("a file system that exchanges no names: a checkpoint comes, and replaces another") {
  const TemporaryFolder temporary;
  no_rename_flags = true;
  run_ranks(2, [&](ThreadCommunicator& c) { save(c, temporary.path, 3); });
  CHECK(whole_latest(temporary.path) == 3);
  run_ranks(2, [&](ThreadCommunicator& c) { save(c, temporary.path, 3); });
  no_rename_flags = false;
  CHECK(whole_latest(temporary.path) == 3);
  CHECK(partial_folders(temporary.path) <= 1);  // the lock
}

TEST_CASE("a full disk and a limit of file sizes show before anything is written") {
  const TemporaryFolder temporary;
  std::signal(SIGXFSZ, SIG_DFL);  // the library blocks it
  const int limited = in_child([&] {
    const rlimit small{4000, 4000};
    ::setrlimit(RLIMIT_FSIZE, &small);
    SelfCommunicator c;
    try {
      save(c, temporary.path / "limited", 1);
    } catch (const DataError& error) {
      return std::string(error.what()).find("File too large") != std::string::npos ? 0 : 2;
    }
    return 3;
  });
  CHECK(limited == 0);
  CHECK(std::filesystem::is_empty(temporary.path / "limited"));

  const std::filesystem::path small = temporary.path / "small", sealed = temporary.path / "sealed";
  std::filesystem::create_directory(small);
  std::filesystem::create_directory(sealed);
  if (::mount("none", small.c_str(), "tmpfs", 0, "size=96k") != 0) {
    MESSAGE("no right to mount a file system: without the full disk");
    return;
  }
  SelfCommunicator c;
  save(c, small, 1);
  CHECK_THROWS_WITH_AS(save(c, small, 2), doctest::Contains("No space left on device"), DataError);
  CHECK(whole_latest(small) == 1);
  CHECK(partial_folders(small) == 0);
  ::umount(small.c_str());
  REQUIRE(::mount("none", sealed.c_str(), "tmpfs", MS_RDONLY, "") == 0);
  CHECK_THROWS_WITH_AS(save(c, sealed / "new", 1), doctest::Contains("Read-only file system"),
                       DataError);
  ::umount(sealed.c_str());
}
