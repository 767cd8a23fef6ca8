// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "files.hpp"

#include <tessera/core/error.hpp>
#include <tessera/io/regular_file.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <system_error>
#include <utility>

namespace support {
namespace {

using namespace tessera;

constexpr std::size_t kBuffer = std::size_t{1} << 20;

[[noreturn]] void fail(const NamedPath& named, int error) {
  throw DataError(
      fmt::format("{}: cannot write '{}': {}", named.option, named.path.string(),
                  error == ENXIO ? "no process reads this pipe" : std::strerror(error)));
}

/// Where a path leads, as far as its folders exist.
std::filesystem::path place_of(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::weakly_canonical(std::filesystem::absolute(path, ignored), ignored);
}

/// Whether a path is a folder or is in it.
bool lies_in(const std::filesystem::path& path, const std::filesystem::path& folder) {
  const std::filesystem::path inner = place_of(path), outer = place_of(folder);
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

}  // namespace

std::string fault_of_paths(std::initializer_list<NamedPath> inputs,
                           std::initializer_list<NamedPath> outputs) {
  std::error_code ignored;
  for (const NamedPath* out = outputs.begin(); out != outputs.end(); ++out) {
    if (out->path.empty() || std::filesystem::is_character_file(out->path, ignored)) continue;
    const std::string named = fmt::format("{}: '{}'", out->option, out->path.string());
    for (const NamedPath& in : inputs) {
      if (in.path.empty()) continue;
      if (std::filesystem::equivalent(out->path, in.path, ignored))
        return fmt::format("{} is what {} reads; give another file", named, in.option);
      if (std::filesystem::is_directory(in.path, ignored) && lies_in(out->path, in.path))
        return fmt::format("{} is in the folder that {} reads; give a file elsewhere", named,
                           in.option);
    }
    for (const NamedPath* other = outputs.begin(); other != out; ++other)
      if (!other->path.empty() && place_of(out->path) == place_of(other->path))
        return fmt::format("{} is the file of {}, too; give another one", named, other->option);
  }
  return {};
}

std::string read_file(const std::filesystem::path& path, const char* option, std::size_t most) try {
  const detail::RegularFile file(path);
  require<DataError>(file.size() <= most, "'{}' has {} bytes; such a file has at most {}",
                     path.string(), file.size(), most);
  // up to its end, not to its size, which files of /proc do not know
  std::string text;
  for (std::size_t count = 1; count > 0;) {
    const std::size_t begin = text.size();
    text.resize(begin + std::max<std::size_t>(file.size() - std::min(begin, file.size()), 4096));
    count = file.read(text.data() + begin, text.size() - begin, static_cast<std::int64_t>(begin));
    text.resize(begin + count);
    require<DataError>(text.size() <= most, "'{}' grows while it is read", path.string());
  }
  return text;
} catch (const DataError& error) {
  if (*option == '\0') throw;
  throw DataError(fmt::format("{}: {}", option, error.what()));
}

int open_output(const std::filesystem::path& path, const NamedPath& named, int flags) {
  std::error_code ignored;
  require<DataError>(
      !std::filesystem::exists(place_of(path).parent_path() / "manifest.json", ignored),
      "{}: '{}' is in a checkpoint, whose files never change; give a file elsewhere", named.option,
      named.path.string());
  // without O_NONBLOCK it waits until somebody reads a pipe
  const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK | flags, 0666);
  if (file < 0 && (flags & O_EXCL) != 0 && errno == EEXIST) return file;
  if (file < 0) fail(named, errno);
  ::fcntl(file, F_SETFL, ::fcntl(file, F_GETFL) & ~O_NONBLOCK);
  return file;
}

void write_all(int file, std::string_view text, const NamedPath& named) {
  while (!text.empty()) {
    const ssize_t count = ::write(file, text.data(), text.size());
    if (count < 0 && errno != EINTR) fail(named, errno);
    if (count > 0) text.remove_prefix(static_cast<std::size_t>(count));
  }
}

ResultFile::ResultFile(const std::filesystem::path& path, const char* option)
    : named_{option, path} {
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    file_ = open_output(path, named_, 0);
    return;
  }
  // what a link points to is replaced, not the link
  if (std::filesystem::exists(status)) named_.path = std::filesystem::canonical(path);
  open_partial();
  // a program that is killed before it has a result leaves none
  ::close(std::exchange(file_, -1));
  ::unlink(std::exchange(partial_, {}).c_str());
}

void ResultFile::open_partial() {
  for (int i = 0; file_ < 0 && i < 100; ++i) {
    std::filesystem::path partial = named_.path;
    partial += fmt::format(".partial-{}-{}", ::getpid(), i);
    file_ = open_output(partial, named_, O_CREAT | O_EXCL);
    if (file_ >= 0) partial_ = partial;
  }
  if (file_ < 0) fail(named_, EEXIST);
}

ResultFile::~ResultFile() {
  if (file_ >= 0) ::close(file_);
  if (!partial_.empty()) ::unlink(partial_.c_str());
}

void ResultFile::add(std::string_view text) {
  waiting_ += text;
  if (waiting_.size() >= kBuffer) flush();
}

void ResultFile::flush() {
  if (file_ < 0) open_partial();
  write_all(file_, waiting_, named_);
  waiting_.clear();
}

void ResultFile::finish() {
  flush();
  if (::close(std::exchange(file_, -1)) != 0) fail(named_, errno);
  if (partial_.empty()) return;
  if (::rename(partial_.c_str(), named_.path.c_str()) != 0) fail(named_, errno);
  partial_.clear();
}

void write_each(std::initializer_list<std::function<void()>> writes) {
  std::string faults;
  for (const auto& write : writes) try {
      write();
    } catch (const tessera::DataError& error) {
      faults += (faults.empty() ? "" : "; ") + std::string(error.what());
    }
  if (!faults.empty()) throw tessera::DataError(faults);
}

}  // namespace support
