// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "event_file.hpp"

#include "files.hpp"

#include <tessera/core/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <system_error>

namespace support {
namespace {

template <class T>
std::string bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

/// CRC-32C (Castagnoli), turned and shifted as TensorFlow stores it.
std::uint32_t masked_crc(std::string_view bytes) {
  std::uint32_t crc = ~0u;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0u);
  }
  crc = ~crc;
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

// Protocol buffers: a field is its number and wire type, then a value.
enum Wire : std::uint64_t { varint = 0, eight_bytes = 1, counted = 2, four_bytes = 5 };

std::string number(std::uint64_t value) {
  std::string text;
  for (; value >= 128; value >>= 7) text += static_cast<char>(value | 128);
  return text + static_cast<char>(value);
}
std::string field(std::uint64_t id, Wire wire, std::string_view value) {
  std::string text = number(id << 3 | wire);
  if (wire == counted) text += number(value.size());
  return text.append(value);
}

}  // namespace

EventFile::EventFile(const std::filesystem::path& folder, const char* option) : option_(option) {
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  tessera::require<tessera::DataError>(!error, "{}: cannot write to the folder '{}': {}", option,
                                       folder.string(), error.message());
  // Files of a folder are shown in the order of their names.
  for (int attempt = 0; file_ < 0; ++attempt) {
    path_ =
        folder / fmt::format("events.out.tfevents.{:.0f}.tessera.{}.{}", now, ::getpid(), attempt);
    file_ = open_output(path_, {option, path_}, O_CREAT | O_EXCL | O_APPEND);
  }
  write(field(1, eight_bytes, bytes_of(now)) + field(3, counted, "brain.Event:2"));
}

EventFile::~EventFile() {
  if (file_ >= 0) ::close(file_);
}

void EventFile::add(double seconds, std::int64_t step, std::span<const NamedNumber> numbers) {
  std::string values;  // of Event.summary
  for (const auto& [name, value] : numbers)
    values +=
        field(1, counted,
              field(1, counted, name) + field(2, four_bytes, bytes_of(static_cast<float>(value))));
  write(field(1, eight_bytes, bytes_of(seconds)) +
        field(2, varint, number(static_cast<std::uint64_t>(step))) + field(5, counted, values));
}

void EventFile::write(std::string_view event) {
  const std::string length = bytes_of(static_cast<std::uint64_t>(event.size()));
  write_all(
      file_,
      length + bytes_of(masked_crc(length)) + std::string(event) + bytes_of(masked_crc(event)),
      {option_, path_});
}

}  // namespace support
