// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The door through which programs open files. Nothing here waits for a pipe that no process writes
// or reads, and no output takes the place of an input.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>

namespace support {

/// What an option names; an empty path: it was not given.
struct NamedPath {
  const char* option;
  std::filesystem::path path;
};

/// Says what is wrong with an output that is an input, that is in a folder that is read, or that is
/// another output, too; "" if none is. Devices may be given several times.
std::string fault_of_paths(std::initializer_list<NamedPath> inputs,
                           std::initializer_list<NamedPath> outputs);

/// The content of a regular file of at most `most` bytes. Throws tessera::DataError; `option`, if
/// any, begins its text.
std::string read_file(const std::filesystem::path& path, const char* option = "",
                      std::size_t most = std::size_t{1} << 28);

/// Opens a file to write, with flags of open(2) besides, and returns its descriptor; -1 if O_EXCL is
/// among them and the file exists. Throws tessera::DataError, which tells of `named`, for what cannot
/// be written, for a pipe that no process reads, and for what is in a checkpoint.
int open_output(const std::filesystem::path& path, const NamedPath& named, int flags);

/// Writes all of the text. Throws tessera::DataError.
void write_all(int file, std::string_view text, const NamedPath& named);

/// A file that appears, or is replaced, when it is complete; before that its content stands beside
/// it under another name. Pipes and devices are written to as they are. Throws tessera::DataError.
class ResultFile {
 public:
  /// Shows whether it can be written. `option` names the file in errors.
  explicit ResultFile(const std::filesystem::path& path, const char* option = "--json");
  ResultFile(const ResultFile&) = delete;
  ResultFile& operator=(const ResultFile&) = delete;
  ~ResultFile();
  /// Appends to the content.
  void add(std::string_view text);
  /// Puts the content in the file's place.
  void finish();
  void write(std::string_view text) {
    add(text);
    finish();
  }

 private:
  void open_partial();
  void flush();

  NamedPath named_;
  std::filesystem::path partial_;  ///< empty if there is none to remove
  std::string waiting_;
  int file_ = -1;
};

/// Calls all of `writes`: a result that cannot be written takes no other with it. Then throws a
/// tessera::DataError with what went wrong, if anything did.
void write_each(std::initializer_list<std::function<void()>> writes);

}  // namespace support
