// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/checkpoint/agreement.hpp>
#include <tessera/checkpoint/contents.hpp>
#include <tessera/checkpoint/file.hpp>
#include <tessera/checkpoint/file_plan.hpp>
#include <tessera/checkpoint/folder.hpp>
#include <tessera/checkpoint/manifest.hpp>
#include <tessera/checkpoint/row_writer.hpp>
#include <tessera/concepts/communicator.hpp>
#include <tessera/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// How many checkpoints a save keeps, how it writes, and what it refuses.
struct SaveOptions {
  /// checkpoints up to this step that stay, this one included; 0: all
  int keep = 0;
  /// larger tables are cut by rows into several files
  std::uint64_t max_file_bytes = std::uint64_t{4} << 30;
  /// a value that is NaN or infinite is an error, and nothing is saved
  bool finite = false;
  /// rank 0 holds a FolderLock of the directory; else the save takes one for its own time
  bool locked = false;
};

/// The other checkpoint that an increment needs.
struct CheckpointBase {
  std::string name;  ///< of its folder, beside this one
  std::uint32_t crc = 0;
  /// on rank 0: why older checkpoints, which SaveOptions::keep has no room for, were not removed;
  /// empty: they were
  std::string warning{};
};

namespace detail {

/// One save, in the three parts that an asynchronous one runs at different times. `begin` and
/// `publish` are collective, `write` is not. A save that is not published leaves nothing behind but
/// a folder that the next save removes.
class Save {
 public:
  /// Makes the files, at their full size, in a folder that no reader looks at.
  template <Communicator<kCheckpointCollectives> Comm>
  Save(Comm& communicator, std::filesystem::path directory, const CheckpointContents& contents,
       std::int64_t step, SaveOptions options, std::optional<CheckpointBase> base = std::nullopt)
      : directory_(std::move(directory)),
        partial_(directory_ / partial_checkpoint_name(step)),
        contents_(
            contents.for_saving(communicator.rank(),
                                [&](std::int64_t rows) { return gather_one(communicator, rows); })),
        options_(checked(options)),
        plan_(contents_.tensors(), options.max_file_bytes),
        writer_(partial_, contents_.tensors(), plan_, options.finite) {
    if (contents_.has_caches()) on_all_ranks(communicator, [&] { contents_.flush(); });
    manifest_.step = step;
    if (base) {
      manifest_.version = Manifest::kIncrements;
      manifest_.base = base->name;
      manifest_.base_crc = base->crc;
    }
    for (const auto& [name, number] : contents_.numbers()) manifest_.numbers[name] = number.get();
    manifest_.texts = contents_.texts();
    on_all_ranks(communicator, [&] { check_same(communicator); });
    try {
      on_all_ranks(communicator, [&] {
        if (communicator.rank() == 0) make_files();
      });
    } catch (const DataError&) {
      give_up(communicator);
      throw;
    }
  }
  Save(const Save&) = delete;
  Save& operator=(const Save&) = delete;

  const CheckpointContents& contents() const { return contents_; }

  /// Writes this rank's rows and waits until they are on the disk. May run on any one thread.
  template <class Source>
  void write(Source&& source) {
    for (const CheckpointRows& rows : contents_.rows()) writer_.write(rows, source);
    writer_.sync();
  }

  /// Makes the checkpoint visible, once `written()`, called on every rank, has not thrown on any;
  /// else removes what was written and throws on all ranks. Returns the name of its folder and the
  /// checksum of its manifest.
  template <class Comm, class Written>
  CheckpointBase publish(Comm& communicator, Written&& written) {
    CheckpointBase published;
    try {
      on_all_ranks(communicator, written);
      const std::vector<RowWriter::Sum> own = writer_.take_sums();
      const std::vector<RowWriter::Sum> sums =
          gather_on_first(communicator, std::span<const RowWriter::Sum>(own));
      on_all_ranks(communicator, [&] {
        if (communicator.rank() == 0) published = write_manifest(sums);
      });
      lock_.reset();
    } catch (const DataError&) {
      give_up(communicator);
      throw;
    }
    published.crc = gather_one(communicator, published.crc).front();
    published.name = checkpoint_name(manifest_.step);
    return published;
  }

 private:
  static SaveOptions checked(const SaveOptions& options) {
    require(options.keep >= 0, "checkpoint: keep is {}; give how many stay, or 0 for all",
            options.keep);
    require(options.max_file_bytes > 0, "checkpoint: max_file_bytes is 0; files need room");
    return options;
  }

  /// Throws on ranks that differ: ranks that describe different models would write nonsense.
  template <class Comm>
  void check_same(Comm& communicator) {
    std::string tensors;
    for (const TensorSpec& t : contents_.tensors())
      tensors += formatted("\n{} {} {} {}", t.name, t.group, tensor_type_name(t.type),
                           shape_text(t.shape));
    struct Given {
      std::int64_t step;
      std::uint64_t max_file_bytes, tensors, names;
    };
    const std::vector<Given> all = gather_one(
        communicator,
        Given{manifest_.step, options_.max_file_bytes, contents_.tensors().size(), crc32(tensors)});
    for (std::size_t r = 1; r < all.size(); ++r) {
      const auto same = [&](const auto& first, const auto& other, std::string_view what) {
        require(first == other, "checkpoint: ranks 0 and {} do not give the same {}: {} and {}", r,
                what, first, other);
      };
      same(all[0].step, all[r].step, "step");
      same(all[0].max_file_bytes, all[r].max_file_bytes, "max_file_bytes");
      same(all[0].tensors, all[r].tensors, "number of tensors");
      require(
          all[0].names == all[r].names,
          "checkpoint: ranks 0 and {} do not give the same tensors: names, types or shapes differ",
          r);
    }
  }

  void make_files() {
    std::filesystem::create_directories(directory_);
    if (!options_.locked) lock_.emplace(directory_);
    const std::string name = checkpoint_name(manifest_.step);
    require(manifest_.base != name, "checkpoint: the increment of '{}' has the same step", name);
    if (!manifest_.base.empty()) {
      const auto [base, crc] = read_manifest(directory_ / manifest_.base);
      require<DataError>(crc == manifest_.base_crc && base.base.empty(),
                         "checkpoint: '{}' is not the base that the increment was given; save a "
                         "whole checkpoint",
                         (directory_ / manifest_.base).string());
    }
    if (std::filesystem::exists(directory_ / name)) {
      const std::string needs = increment_of(directory_, name);
      require(needs.empty(),
              "checkpoint: '{}' cannot be replaced, as '{}' beside it is an increment of it: save "
              "to another folder",
              (directory_ / name).string(), needs);
    }
    remove_partial_checkpoints(directory_);
    made_ = std::filesystem::create_directory(partial_);
    for (std::size_t f = 0; f < plan_.files.size(); ++f) {
      File(partial_ / plan_.files[f].name, File::Mode::create).reserve(plan_.files[f].bytes);
      writer_.write_header(f);
    }
  }

  CheckpointBase write_manifest(const std::vector<RowWriter::Sum>& sums) {
    for (const TensorSpec& t : contents_.tensors())
      manifest_.tensors.push_back({t.name, t.type, t.shape, {}, t.row_numbers});
    for (std::size_t t = 0; t < plan_.pieces.size(); ++t)
      for (const FilePlan::Piece& piece : plan_.pieces[t])
        manifest_.tensors[t].pieces.push_back(
            {static_cast<std::int64_t>(piece.file), piece.row_begin, piece.row_end});
    std::vector<ChunkSums> chunks;
    for (const FilePlan::File& file : plan_.files) chunks.emplace_back(file.bytes);
    for (const RowWriter::Sum& sum : sums) chunks[sum.file].combine(sum.chunk, sum.sum);
    for (std::size_t f = 0; f < plan_.files.size(); ++f) {
      StoredFile file{plan_.files[f].name, plan_.files[f].bytes, {}};
      for (std::uint64_t c = 0; c < chunks_of(file.bytes); ++c)
        file.crcs.push_back(chunks[f].crc(c));
      manifest_.files.push_back(std::move(file));
    }
    if (manifest_.base.empty())
      for (const auto& [name, bytes] : contents_.files())
        manifest_.files.push_back(write_file(name, *bytes));
    const std::string text = format_manifest(manifest_);
    require(text.size() <= Manifest::kMaxBytes,
            "checkpoint: the manifest would have {} bytes, and may have {}: save parts of the "
            "model apart",
            text.size(), Manifest::kMaxBytes);
    write_file(std::string(Manifest::kFile), text);
    sync_folder(partial_);
    replace_folder(partial_, directory_ / checkpoint_name(manifest_.step));
    sync_folder(directory_);
    CheckpointBase saved{"", crc32(text)};
    if (options_.keep > 0) {
      try {
        remove_old_checkpoints(directory_, options_.keep, manifest_.step);
      } catch (const std::exception& error) {
        saved.warning = formatted("older checkpoints were not removed: {}", error.what());
      }
    }
    return saved;
  }

  StoredFile write_file(const std::string& name, std::string_view bytes) const {
    File file(partial_ / name, File::Mode::create);
    file.reserve(bytes.size());
    file.write_at(0, std::as_bytes(std::span(bytes)));
    file.sync();
    StoredFile stored{name, bytes.size(), {}};
    for (std::uint64_t c = 0; c < chunks_of(bytes.size()); ++c)
      stored.crcs.push_back(crc32(bytes.substr(c * kChunkBytes, kChunkBytes)));
    return stored;
  }

  template <class Comm>
  void give_up(Comm& communicator) {
    writer_.take_sums();
    if (communicator.rank() != 0) return;
    std::error_code ignored;
    if (made_) std::filesystem::remove_all(partial_, ignored);  // else it is another save's
    lock_.reset();
  }

  std::filesystem::path directory_, partial_;
  CheckpointContents contents_;
  SaveOptions options_;
  Manifest manifest_;
  FilePlan plan_;
  RowWriter writer_;
  std::optional<FolderLock> lock_;
  bool made_ = false;  ///< the folder partial_
};

}  // namespace detail

/// Saves to DIRECTORY/step-N, from which `load_checkpoint` reads under any layout and number of
/// ranks. Collective: every rank gives the same step, options and tensors, and a folder that all
/// ranks see. The checkpoint appears when all of it is on the disk; before, and where anything
/// fails on any rank (all ranks then throw DataError), earlier ones are as they were.
template <Communicator<detail::kCheckpointCollectives> Comm>
CheckpointBase save_checkpoint(Comm& communicator, const std::filesystem::path& directory,
                               const CheckpointContents& contents, std::int64_t step,
                               const SaveOptions& options = {}) {
  detail::Save save(communicator, directory, contents, step, options);
  return save.publish(communicator, [&] { save.write(detail::LiveRows{}); });
}

}}  // namespace tessera::v0
