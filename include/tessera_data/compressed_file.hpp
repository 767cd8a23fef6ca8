// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/io/regular_file.hpp>
#include <tessera_data/criteo.hpp>

#include <sys/stat.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

namespace detail {

/// A file's bytes from `offset` on. At their end the file must be as long as it was at the
/// beginning.
class WatchedFile {
 public:
  explicit WatchedFile(const std::filesystem::path& path, std::int64_t offset = 0)
      : file_(path), at_(offset) {}

  std::size_t read(std::span<char> chunk) {
    const std::size_t bytes = file_.read(chunk.data(), chunk.size(), at_);
    at_ += static_cast<std::int64_t>(bytes);
    const auto size = static_cast<std::int64_t>(file_.size());
    require<DataError>(at_ <= size && (bytes > 0 || chunk.empty() || at_ == size),
                       "file '{}' changed while it was read: {} bytes became {}; read a copy that "
                       "no program writes to",
                       file_.name(), size, at_);
    return bytes;
  }
  const std::string& name() const { return file_.name(); }

 private:
  RegularFile file_;
  std::int64_t at_;
};

/// What zlib and zstd have in common here: compressed bytes come in chunks, from the file.
class CompressedInput {
 public:
  explicit CompressedInput(const std::filesystem::path& path) : file_(path) {}

  /// Returns the bytes not yet used; empty at the end of the file.
  std::span<char> bytes() {
    if (begin_ == end_) {
      begin_ = 0;
      end_ = file_.read(chunk_);
    }
    return std::span(chunk_).subspan(begin_, end_ - begin_);
  }
  void use(std::size_t bytes) { begin_ += bytes; }
  [[noreturn]] void fail(std::string_view what) const {
    throw DataError(formatted("file '{}': {}", file_.name(), what));
  }
  static constexpr const char* kCutOff =
      "the compressed file is cut off; copy or compress it again";

 private:
  WatchedFile file_;
  std::vector<char> chunk_ = std::vector<char>(std::size_t{1} << 17);
  std::size_t begin_ = 0, end_ = 0;
};

class GzipFile {
 public:
  explicit GzipFile(const std::filesystem::path& path) : input_(path) {
    // 16: gzip's header
    if (inflateInit2(&stream_, 15 + 16) != Z_OK) input_.fail("zlib cannot start");
  }
  GzipFile(const GzipFile&) = delete;
  GzipFile& operator=(const GzipFile&) = delete;
  ~GzipFile() { inflateEnd(&stream_); }

  /// Reads a chunk. At the end, and only there, zeros are passed over, as gzip does: tapes and tar
  /// fill blocks up.
  std::size_t read(std::span<char> chunk) {
    stream_.next_out = reinterpret_cast<Bytef*>(chunk.data());
    stream_.avail_out = static_cast<uInt>(chunk.size());
    while (stream_.avail_out == chunk.size()) {
      const std::span<char> in = input_.bytes();
      if (in.empty()) {
        if (inside_) input_.fail(CompressedInput::kCutOff);
        break;
      }
      stream_.next_in = reinterpret_cast<Bytef*>(in.data());
      stream_.avail_in = static_cast<uInt>(in.size());
      inside_ = true;
      const int result = inflate(&stream_, Z_NO_FLUSH);
      input_.use(in.size() - stream_.avail_in);
      if (result == Z_STREAM_END) {  // several members may follow each other
        inside_ = false;
        inflateReset(&stream_);
        pass_zeros();
      } else if (result != Z_OK && result != Z_BUF_ERROR) {
        input_.fail(formatted("the gzip data are damaged: {}",
                              stream_.msg == nullptr ? "no details" : stream_.msg));
      }
    }
    return chunk.size() - stream_.avail_out;
  }

 private:
  void pass_zeros() {
    for (std::span<char> in = input_.bytes(); !in.empty() && in[0] == 0; in = input_.bytes()) {
      if (std::any_of(in.begin(), in.end(), [](char c) { return c != 0; }))
        input_.fail("other bytes follow the zeros at the end of the gzip data");
      input_.use(in.size());
    }
  }

  CompressedInput input_;
  z_stream stream_{};
  bool inside_ = false;
};

class ZstdFile {
 public:
  explicit ZstdFile(const std::filesystem::path& path)
      : input_(path), stream_(ZSTD_createDStream(), ZSTD_freeDStream) {
    if (stream_ == nullptr) input_.fail("zstd cannot start");
  }

  std::size_t read(std::span<char> chunk) {
    ZSTD_outBuffer out{chunk.data(), chunk.size(), 0};
    while (out.pos == 0) {
      const std::span<char> bytes = input_.bytes();
      if (bytes.empty() && !inside_) break;
      ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
      const std::size_t result = ZSTD_decompressStream(stream_.get(), &out, &in);
      if (ZSTD_isError(result))
        input_.fail(formatted("the zstd data are damaged: {}", ZSTD_getErrorName(result)));
      input_.use(in.pos);
      inside_ = result != 0;
      if (bytes.empty() && inside_ && out.pos == 0) input_.fail(CompressedInput::kCutOff);
    }
    return out.pos;
  }

 private:
  CompressedInput input_;
  std::unique_ptr<ZSTD_DStream, std::size_t (*)(ZSTD_DStream*)> stream_;
  bool inside_ = false;
};

/// Returns the tool that a file is compressed by, gzip or zstd; empty: it is text. Throws DataError
/// for one that can't be read, and for other kinds of compression and of data.
inline std::string_view compression_of(const std::filesystem::path& path) {
  std::array<char, 16> begin{};
  const RegularFile file(path);
  const std::size_t bytes = file.read(begin.data(), begin.size(), 0);
  const FileKind kind = file_kind({begin.data(), bytes});
  const bool is_read = kind.tool == "gzip" || kind.tool == "zstd";
  require<DataError>(
      is_read || kind.tool.empty(),
      "file '{}' looks compressed by {}; gzip and zstd are read: decompress it first", file.name(),
      kind.tool);
  require<DataError>(kind.format.empty(), "file '{}': {}", file.name(), not_text(kind));
  return kind.tool;
}

}  // namespace detail

/// Returns the bytes of a file, decompressed if it is a gzip or zstd file, whatever its name.
/// Throws DataError, here or when read from, for a file that can't be read, is damaged or cut off,
/// or that changes its length meanwhile.
inline ByteSource open_bytes(const std::filesystem::path& path) {
  const auto source = [](auto file) -> ByteSource {
    return [file](std::span<char> chunk) { return file->read(chunk); };
  };
  const std::string_view tool = detail::compression_of(path);
  if (tool == "gzip") return source(std::make_shared<detail::GzipFile>(path));
  if (tool == "zstd") return source(std::make_shared<detail::ZstdFile>(path));
  return source(std::make_shared<detail::WatchedFile>(path));
}

}}  // namespace tessera::v0
