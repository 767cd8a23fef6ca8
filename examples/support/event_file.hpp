// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace support {

/// A number of a run, by its name: "loss", "stages/update".
using NamedNumber = std::pair<std::string, double>;

/// A file of numbers over steps that TensorBoard shows: TensorFlow's records (length, its checksum,
/// data, its checksum) of `Event` messages with scalars (tensorflow/core/util/event.proto).
class EventFile {
 public:
  /// Makes a file of its own in a folder, which TensorBoard shows as a run. `option` names it in
  /// errors. Throws tessera::DataError for what cannot be written.
  EventFile(const std::filesystem::path& folder, const char* option);
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;
  ~EventFile();

  /// Adds the numbers of a step, at `seconds` since 1970. They are in the file at once.
  void add(double seconds, std::int64_t step, std::span<const NamedNumber> numbers);

 private:
  void write(std::string_view event);

  const char* option_;
  std::filesystem::path path_;
  int file_ = -1;
};

}  // namespace support
