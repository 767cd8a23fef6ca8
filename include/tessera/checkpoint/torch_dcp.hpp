// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/checkpoint/file.hpp>
#include <tessera/checkpoint/torch_archive.hpp>
#include <tessera/checkpoint/torch_state.hpp>
#include <tessera/core/error.hpp>
#include <tessera/io/pickle_reader.hpp>
#include <tessera/io/regular_file.hpp>
#include <tessera/io/text.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// Reads the metadata of a folder that torch.distributed.checkpoint wrote.
class DcpMetadata {
 public:
  explicit DcpMetadata(const std::filesystem::path& folder)
      : text_(RegularFile(folder / kFile).text(std::size_t{64} << 20)),
        pickle_(text_, (folder / kFile).string(), known) {
    state_.folder = folder;
  }

  /// Returns the tensors; pieces of matrices are archives, to be opened by `place_torch_pieces`.
  TorchState read() {
    const PickleValue& root = pickle_[pickle_.root()];
    check(is(root, ".Metadata"), "it describes no checkpoint");
    const std::size_t tensors = pickle_.attribute(root, "state_dict_metadata"),
                      places = pickle_.attribute(root, "storage_data");
    read_places(pickle_.get(places, Kind::dict, "storage_data"));
    const PickleValue& dict = pickle_.get(tensors, Kind::dict, "state_dict_metadata");
    for (std::size_t i = 0; i + 1 < dict.items.size(); i += 2)
      if (const PickleValue& tensor = pickle_[dict.items[i + 1]];
          is(tensor, ".TensorStorageMetadata"))
        add(pickle_.get(dict.items[i], Kind::text, "a tensor's name").text, tensor);
    return std::move(state_);
  }

  static constexpr std::string_view kFile = ".metadata";

 private:
  using Kind = Pickle::Kind;
  using Key = std::pair<std::string, std::vector<std::int64_t>>;
  struct Place {
    std::string file;
    std::uint64_t offset = 0, bytes = 0;
  };

  /// Returns whether PyTorch (1.13 to 2.15) writes a name into metadata. Of module torch: element
  /// types and Size.
  static bool known(std::string_view module, std::string_view name) {
    using Names = std::string_view;
    constexpr std::array<std::pair<Names, Names>, 14> kKnown = {
        {{"metadata", "Metadata"},
         {"metadata", "TensorStorageMetadata"},
         {"metadata", "BytesStorageMetadata"},
         {"metadata", "ChunkStorageMetadata"},
         {"metadata", "MetadataIndex"},
         {"metadata", "StorageMeta"},
         {"metadata", "TensorProperties"},
         {"metadata", "_MEM_FORMAT_ENCODING"},
         {"metadata", "MEM_FORMAT_ENCODING"},
         {"filesystem", "_StorageInfo"},
         {"serialization", "_get_layout"},
         {"pathlib", "PosixPath"},
         {"_local", "PosixPath"},
         {"builtins", "getattr"}}};
    constexpr std::array<std::string_view, 9> kModules = {
        "builtins",
        "torch.distributed.checkpoint.metadata",
        "torch.distributed.checkpoint.filesystem",
        "torch.distributed._shard.checkpoint.metadata",
        "torch.distributed._shard.checkpoint.filesystem",
        "torch.distributed._shard.sharded_tensor.metadata",
        "torch.serialization",
        "pathlib",
        "pathlib._local"};
    constexpr std::array<std::string_view, 10> kTypes = {
        "bfloat16", "bool", "complex", "float", "int", "qint", "quint", "uint", "bits", "half"};
    if (module == "torch")
      return name == "Size" ||
             std::any_of(kTypes.begin(), kTypes.end(), [&](std::string_view type) {
               return name.starts_with(type) &&
                      name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") ==
                          std::string_view::npos;
             });
    if (module == "collections") return name == "OrderedDict";
    if (std::find(kModules.begin(), kModules.end(), module) == kModules.end()) return false;
    const std::string_view last = module.substr(module.rfind('.') + 1);
    return std::any_of(kKnown.begin(), kKnown.end(),
                       [&](const auto& pair) { return pair.first == last && pair.second == name; });
  }

  void check(bool good, std::string_view fault) const {
    require<DataError>(good, "file '{}': {}", pickle_.file(), fault);
  }
  static bool is(const PickleValue& value, std::string_view name) {
    return value.kind == Kind::object && value.text.ends_with(name);
  }
  /// Returns the numbers of a torch.Size.
  std::vector<std::int64_t> size(std::size_t value, std::string_view what) const {
    const PickleValue& object = pickle_.get(value, Kind::object, what);
    const std::vector<std::size_t>& arguments =
        pickle_.get(object.items[0], Kind::tuple, what).items;
    check(object.text == "torch.Size" && arguments.size() == 1, "a size has no numbers");
    return pickled_counts(pickle_, arguments[0], what);
  }
  std::uint64_t count(const PickleValue& object, std::string_view name) const {
    const std::int64_t value =
        pickle_.get(pickle_.attribute(object, name), Kind::integer, name).integer;
    check(value >= 0, formatted("{} is negative", name));
    return static_cast<std::uint64_t>(value);
  }

  void read_places(const PickleValue& dict) {
    for (std::size_t i = 0; i + 1 < dict.items.size(); i += 2) {
      const PickleValue &index = pickle_[dict.items[i]], &info = pickle_[dict.items[i + 1]];
      check(is(index, ".MetadataIndex") && is(info, "._StorageInfo"),
            "storage_data is not of files: another storage than FileSystemWriter wrote it");
      const std::size_t offset = pickle_.attribute(index, "offset"),
                        transformed = pickle_.attribute(info, "transform_descriptors");
      if (pickle_[offset].kind == Kind::none) continue;  // no tensor
      Place place{pickle_.get(pickle_.attribute(info, "relative_path"), Kind::text, "a file").text,
                  count(info, "offset"), count(info, "length")};
      check(place.file.find('/') == std::string::npos && !place.file.empty() && place.file != "." &&
                place.file != "..",
            formatted("{} is no file beside it", detail::quoted(place.file)));
      check(place.bytes > 0, "a tensor has no bytes in its file");
      check(pickle_[transformed].kind == Kind::none, "tensors are compressed or encrypted");
      places_.emplace(
          Key{pickle_.get(pickle_.attribute(index, "fqn"), Kind::text, "a tensor's name").text,
              size(offset, "an offset")},
          std::move(place));
    }
  }

  void add(const std::string& name, const PickleValue& tensor) {
    const PickleValue& properties =
        pickle_.get(pickle_.attribute(tensor, "properties"), Kind::object, "properties");
    // The arguments of a call, which save_torchrec_dcp writes, or a state.
    const std::vector<std::size_t>& parts =
        pickle_
            .get(properties.state == 0 ? properties.items[0] : properties.state, Kind::tuple,
                 "properties")
            .items;
    check(!parts.empty(), "properties are empty");
    TorchTensor own;
    own.type_name = pickle_.get(parts[0], Kind::name, "a type").text;
    own.type_name.erase(0, own.type_name.rfind('.') + 1);
    own.shape = size(pickle_.attribute(tensor, "size"), "a shape");
    const TorchType* const type = torch_type(own.type_name);
    own.known = type != nullptr;
    if (type != nullptr) own.type = type->type;
    if ((own.shape.size() == 1 || own.shape.size() == 2) && own.known) {
      add_pieces(name, own,
                 pickle_.get(pickle_.attribute(tensor, "chunks"), Kind::list, "chunks").items);
      check_cover(name, own);
    }
    check(state_.tensors.emplace(name, std::move(own)).second,
          formatted("tensor {} appears twice", detail::quoted(name)));
  }

  void add_pieces(const std::string& name, TorchTensor& tensor,
                  const std::vector<std::size_t>& chunks) {
    std::map<std::vector<std::int64_t>, std::vector<std::int64_t>> seen;
    for (const std::size_t chunk : chunks) {
      const PickleValue& value = pickle_.get(chunk, Kind::object, "a chunk");
      std::vector<std::int64_t> at = size(pickle_.attribute(value, "offsets"), "an offset"),
                                extent = size(pickle_.attribute(value, "sizes"), "a size");
      const Key key{name, at};
      if (tensor.shape.size() == 1 && at.size() == 1 && extent.size() == 1) {  // a column
        at.push_back(0);
        extent.push_back(1);
      }
      const std::int64_t columns = tensor.shape.size() == 1 ? 1 : tensor.shape[1];
      check(at.size() == 2 && extent.size() == 2 && at[0] <= tensor.shape[0] &&
                extent[0] <= tensor.shape[0] - at[0] && at[1] <= columns &&
                extent[1] <= columns - at[1],
            formatted("a chunk of {} is outside of it", detail::quoted(name)));
      if (extent[0] == 0 || extent[1] == 0) continue;
      // Ranks that hold the same rectangle list it each.
      if (const auto again = seen.emplace(at, extent);
          !again.second && again.first->second == extent)
        continue;
      const auto place = places_.find(key);
      check(place != places_.end(), formatted("a chunk of {} is in no file", detail::quoted(name)));
      tensor.pieces.push_back({at[0], at[0] + extent[0], at[1], at[1] + extent[1],
                               place->second.file, place->second.offset, place->second.bytes});
    }
  }

  /// Throws DataError unless the pieces cover a tensor, each element once.
  void check_cover(const std::string& name, TorchTensor& tensor) const {
    std::sort(tensor.pieces.begin(), tensor.pieces.end(), [](const auto& a, const auto& b) {
      return std::pair(a.row_begin, a.column_begin) < std::pair(b.row_begin, b.column_begin);
    });
    // Unsigned: what overlaps may overflow, and is refused all the same.
    std::uint64_t area = 0, whole = 0;
    bool apart = !__builtin_mul_overflow(
        static_cast<std::uint64_t>(tensor.shape[0]),
        static_cast<std::uint64_t>(tensor.shape.size() == 1 ? 1 : tensor.shape[1]), &whole);
    // The last piece of each column so far, by its last column: each is looked at twice at most.
    std::map<std::int64_t, const TorchPiece*> above;
    for (const TorchPiece& own : tensor.pieces) {
      area += static_cast<std::uint64_t>(own.row_end - own.row_begin) *
              static_cast<std::uint64_t>(own.column_end - own.column_begin);
      auto at = above.upper_bound(own.column_begin);
      while (at != above.end() && at->second->column_begin < own.column_end) {
        apart = apart && at->second->row_end <= own.row_begin;
        at = above.erase(at);
      }
      above[own.column_end] = &own;
    }
    check(apart && area == whole,
          formatted("the chunks of {} do not cover it: a rank's are missing, or overlap",
                    detail::quoted(name)));
  }

  std::string text_;
  Pickle pickle_;
  TorchState state_;
  std::map<Key, Place> places_;
};

/// Finds the data of a tensor's pieces in the archives that hold them.
inline void place_torch_pieces(const std::filesystem::path& folder, TorchTensor& tensor) {
  for (TorchPiece& piece : tensor.pieces) {
    if (piece.archive_bytes == 0) continue;
    const File file(folder / piece.file, File::Mode::read);
    const TorchArchive archive(file, piece.offset, piece.archive_bytes);
    std::vector<std::int64_t> shape{piece.row_end - piece.row_begin,
                                    piece.column_end - piece.column_begin};
    shape.resize(tensor.shape.size());
    piece.offset = archive.place(tensor.type_name, tensor.type, shape);
    piece.archive_bytes = 0;
  }
}

/// Reads what a state dict that a PyTorch program wrote holds, and where.
inline TorchState read_torch_state(const std::filesystem::path& path) {
  require<DataError>(std::filesystem::exists(path), "there is no '{}'", path.string());
  if (std::filesystem::exists(path / DcpMetadata::kFile)) return DcpMetadata(path).read();
  return read_safetensors_state(path);
}

}}}  // namespace tessera::v0::detail
