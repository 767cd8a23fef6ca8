// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/checkpoint/chunk_sums.hpp>
#include <tessera/core/error.hpp>
#include <tessera/io/crc32.hpp>
#include <tessera/io/json_reader.hpp>
#include <tessera/io/safetensors_header.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// The rows of a tensor that one file holds, under the tensor's name.
struct TensorPiece {
  std::int64_t file = 0;  ///< index into Manifest::files
  std::int64_t row_begin = 0;
  std::int64_t row_end = 0;
};

/// A tensor as a checkpoint holds it: row-major, its first extent cut into pieces. A shape [] is
/// one row.
struct StoredTensor {
  std::string name;
  TensorType type = TensorType::f32;
  std::vector<std::int64_t> shape;
  std::vector<TensorPiece> pieces{};  ///< ascending rows, without gaps
  /// increments: the tensor that says which rows of the base's these are; empty: all of it
  std::string row_numbers{};

  std::int64_t rows() const { return shape.empty() ? 1 : shape.front(); }
  /// Returns the elements of a row.
  std::int64_t columns() const {
    std::int64_t count = 1;
    for (std::size_t i = 1; i < shape.size(); ++i) count *= shape[i];
    return count;
  }
  std::int64_t row_bytes() const {
    return columns() * static_cast<std::int64_t>(tensor_type_size(type));
  }
};

struct StoredFile {
  std::string name;
  std::uint64_t bytes = 0;
  std::vector<std::uint32_t> crcs{};  ///< one for each kChunkBytes of the file
};

/// What `manifest.json` says: everything about a checkpoint but the values themselves.
struct Manifest {
  static constexpr std::string_view kFile = "manifest.json";
  /// Manifests of increments name their tensors of row numbers since version 2; all others have
  /// version 1.
  static constexpr std::uint64_t kWhole = 1, kIncrements = 2;
  /// the checksums of more than 20 TiB
  static constexpr std::uint64_t kMaxBytes = std::uint64_t{256} << 20;

  std::uint64_t version = kWhole;
  std::int64_t step = 0;
  /// increments: name of the folder beside this one that holds the other rows
  std::string base{};
  std::uint32_t base_crc = 0;  ///< of the base's manifest text
  std::map<std::string, std::uint64_t> numbers{};
  std::map<std::string, std::string> texts{};
  std::vector<StoredTensor> tensors{};
  std::vector<StoredFile> files{};

  const StoredTensor* find(std::string_view name) const {
    const auto found = std::find_if(tensors.begin(), tensors.end(),
                                    [&](const StoredTensor& t) { return t.name == name; });
    return found == tensors.end() ? nullptr : &*found;
  }
};

inline constexpr std::string_view kManifestTail = ",\n\"crc32\":";

class ManifestParser {
 public:
  ManifestParser(std::string_view text, std::string_view file) : text_(text), json_(text, file) {}

  Manifest parse() {
    std::uint64_t crc = 0, chunk = 0;
    std::string format;
    json_.object([&](const std::string& key, std::size_t at) {
      json_.check(seen_.emplace(key, 0).second, at, "the key appears twice");
      if (key == "format") {
        format = json_.string();
      } else if (key == "version") {
        manifest_.version = json_.number();
        json_.check(
            manifest_.version == Manifest::kWhole || manifest_.version == Manifest::kIncrements, at,
            "this version of the format is not known; a newer release may have written it");
      } else if (key == "step") {
        manifest_.step = json_.count("the step is too large");
      } else if (key == "base") {
        manifest_.base = json_.string();
        check_plain(manifest_.base, at);
      } else if (key == "base_crc32") {
        manifest_.base_crc = crc_value();
      } else if (key == "chunk_bytes") {
        chunk = json_.number();
        json_.check(chunk == kChunkBytes, at, "chunks of another size than 1 MiB");
      } else if (key == "numbers") {
        json_.object([&](std::string name, std::size_t name_at) {
          json_.check(manifest_.numbers.emplace(std::move(name), json_.number()).second, name_at,
                      "the key appears twice");
        });
      } else if (key == "texts") {
        json_.object([&](std::string name, std::size_t name_at) {
          json_.check(manifest_.texts.emplace(std::move(name), json_.string()).second, name_at,
                      "the key appears twice");
        });
      } else if (key == "tensors") {
        json_.array([&](std::size_t place) { tensor(place); });
      } else if (key == "files") {
        json_.array([&](std::size_t place) { file(place); });
      } else {
        json_.check(key == "crc32", at, "an unknown key");
        crc = crc_value();
        const std::size_t tail = text_.rfind(kManifestTail);
        json_.check(tail != std::string_view::npos && crc32(text_.substr(0, tail)) == crc, at,
                    "the checksum does not fit the text: the file was changed or damaged");
      }
    });
    json_.end();
    json_.check(format == "tessera checkpoint", 0, "this is not the manifest of a checkpoint");
    for (const char* key : {"version", "step", "chunk_bytes", "tensors", "files", "crc32"})
      json_.check(seen_.contains(key), 0, formatted("the key '{}' is missing", key));
    check_pieces();
    check_row_numbers();
    return std::move(manifest_);
  }

 private:
  std::uint32_t crc_value() {
    const std::size_t at = json_.next_position();
    const std::uint64_t value = json_.number();
    json_.check(value <= 0xffffffffu, at, "a checksum has 32 bits");
    return static_cast<std::uint32_t>(value);
  }

  /// Checks that a name is no path: a checkpoint that somebody sent must not reach files elsewhere.
  void check_plain(const std::string& name, std::size_t at) const {
    json_.check(!name.empty() && name[0] != '.' && name.find('/') == std::string::npos &&
                    name.find('\0') == std::string::npos,
                at, "a file's name must be a plain name");
  }

  void tensor(std::size_t begin) {
    StoredTensor t;
    std::map<std::string, int> seen;
    json_.object([&](const std::string& key, std::size_t at) {
      json_.check(seen.emplace(key, 0).second, at, "the key appears twice");
      if (key == "name") {
        t.name = json_.string();
        json_.check(!t.name.empty(), at, "a tensor without a name");
        json_.check(names_.emplace(t.name, manifest_.tensors.size()).second, at,
                    "two tensors of one name");
      } else if (key == "row_numbers") {
        t.row_numbers = json_.string();
        json_.check(!t.row_numbers.empty(), at, "a tensor without a name");
      } else if (key == "dtype") {
        const auto type = find_tensor_type(json_.string());
        json_.check(type.has_value(), at, "an unknown dtype");
        t.type = *type;
      } else if (key == "shape") {
        std::int64_t bytes = 8;
        json_.array([&](std::size_t extent_at) {
          t.shape.push_back(json_.count("an extent is too large"));
          json_.check(
              !__builtin_mul_overflow(bytes, std::max<std::int64_t>(t.shape.back(), 1), &bytes),
              extent_at, "the tensor is too large");
        });
      } else {
        json_.check(key == "pieces", at,
                    "a tensor has the keys name, dtype, shape, row_numbers and pieces only");
        json_.array([&](std::size_t piece_at) {
          std::vector<std::int64_t> numbers;
          json_.array([&](std::size_t number_at) {
            json_.check(numbers.size() < 3, number_at,
                        "a piece is three numbers: file, first row, end");
            numbers.push_back(json_.count("the number is too large"));
          });
          json_.check(numbers.size() == 3, piece_at,
                      "a piece is three numbers: file, first row, end");
          t.pieces.push_back({numbers[0], numbers[1], numbers[2]});
        });
      }
    });
    json_.check(seen.size() - seen.count("row_numbers") == 4, begin,
                "a tensor needs name, dtype, shape and pieces");
    manifest_.tensors.push_back(std::move(t));
  }

  void file(std::size_t begin) {
    StoredFile f;
    std::map<std::string, int> seen;
    json_.object([&](const std::string& key, std::size_t at) {
      json_.check(seen.emplace(key, 0).second, at, "the key appears twice");
      if (key == "name") {
        f.name = json_.string();
        check_plain(f.name, at);
      } else if (key == "bytes") {
        f.bytes = static_cast<std::uint64_t>(json_.count("the file is too large"));
      } else {
        json_.check(key == "crc32", at, "a file has the keys name, bytes and crc32 only");
        json_.array([&](std::size_t) { f.crcs.push_back(crc_value()); });
      }
    });
    json_.check(seen.size() == 3, begin, "a file needs name, bytes and crc32");
    json_.check(f.crcs.size() == chunks_of(f.bytes), begin,
                "a file needs one checksum for each MiB");
    manifest_.files.push_back(std::move(f));
  }

  void check_pieces() const {
    for (const StoredTensor& t : manifest_.tensors) {
      std::int64_t row = 0;
      for (const TensorPiece& piece : t.pieces) {
        json_.check(
            piece.row_begin == row && piece.row_end >= row &&
                piece.file < static_cast<std::int64_t>(manifest_.files.size()),
            0,
            formatted("tensor '{}': its pieces must follow each other, in files of the list",
                      t.name));
        row = piece.row_end;
      }
      json_.check(row == t.rows(), 0,
                  formatted("tensor '{}': its pieces hold {} of {} rows", t.name, row, t.rows()));
    }
  }

  void check_row_numbers() const {
    for (const StoredTensor& t : manifest_.tensors) {
      if (t.row_numbers.empty()) continue;
      const auto found = names_.find(t.row_numbers);
      const StoredTensor* numbers =
          found == names_.end() ? nullptr : &manifest_.tensors[found->second];
      json_.check(
          manifest_.version == Manifest::kIncrements && !manifest_.base.empty() &&
              numbers != nullptr && numbers->row_numbers.empty() &&
              numbers->type == TensorType::i64 &&
              numbers->shape == std::vector<std::int64_t>{t.rows()},
          0,
          formatted(
              "tensor '{}': its row numbers '{}' must be another tensor, I64 [{}], of an increment",
              t.name, t.row_numbers, t.rows()));
    }
  }

  std::string_view text_;
  JsonReader json_;
  Manifest manifest_;
  std::map<std::string, int> seen_;
  std::map<std::string, std::size_t> names_;  ///< indices of the tensors
};

/// Throws DataError, naming `file` and the offset, for everything that a manifest must not be.
inline Manifest parse_manifest(std::string_view text, std::string_view file) {
  return ManifestParser(text, file).parse();
}

/// Returns the text that `parse_manifest` reads. Its last key is the CRC-32 of all text before it.
inline std::string format_manifest(const Manifest& m) {
  std::string out;
  const auto append = [&]<class... Args>(detail::FormatText<Args...> text, const Args&... args) {
    out += formatted<Args...>(text, args...);
  };
  const auto list = [&](std::string_view key, char open, char close, const auto& items, auto item) {
    append(",\n\"{}\":{}", key, open);
    bool first = true;
    for (const auto& i : items) {
      out += std::exchange(first, false) ? "\n" : ",\n";
      item(i);
    }
    out.push_back(close);
  };
  append("{{\"format\":\"tessera checkpoint\",\n\"version\":{},\n\"step\":{},\n\"chunk_bytes\":{}",
         m.version, m.step, kChunkBytes);
  if (!m.base.empty()) {
    append(",\n\"base\":");
    append_json_string(out, m.base);
    append(",\n\"base_crc32\":{}", m.base_crc);
  }
  list("numbers", '{', '}', m.numbers, [&](const auto& number) {
    append_json_string(out, number.first);
    append(":{}", number.second);
  });
  list("texts", '{', '}', m.texts, [&](const auto& text) {
    append_json_string(out, text.first);
    out.push_back(':');
    append_json_string(out, text.second);
  });
  list("tensors", '[', ']', m.tensors, [&](const StoredTensor& t) {
    out += "{\"name\":";
    append_json_string(out, t.name);
    append(",\"dtype\":\"{}\",\"shape\":{}", tensor_type_name(t.type), shape_text(t.shape));
    if (!t.row_numbers.empty()) {
      append(",\"row_numbers\":");
      append_json_string(out, t.row_numbers);
    }
    append(",\"pieces\":[");
    for (std::size_t i = 0; i < t.pieces.size(); ++i)
      append("{}[{},{},{}]", i == 0 ? "" : ",", t.pieces[i].file, t.pieces[i].row_begin,
             t.pieces[i].row_end);
    out += "]}";
  });
  list("files", '[', ']', m.files, [&](const StoredFile& f) {
    out += "{\"name\":";
    append_json_string(out, f.name);
    append(",\"bytes\":{},\"crc32\":[", f.bytes);
    for (std::size_t i = 0; i < f.crcs.size(); ++i) append("{}{}", i == 0 ? "" : ",", f.crcs[i]);
    out += "]}";
  });
  const std::uint32_t crc = crc32(out);
  append("{}{}}}\n", kManifestTail, crc);
  return out;
}

}}}  // namespace tessera::v0::detail
