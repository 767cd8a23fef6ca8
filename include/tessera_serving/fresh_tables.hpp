// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/checkpoint/folder.hpp>
#include <tessera/checkpoint/reader.hpp>
#include <tessera/core/error.hpp>
#include <tessera_serving/freeze.hpp>
#include <tessera_serving/frozen_tables.hpp>
#include <tessera_serving/increment.hpp>
#include <tessera_serving/published.hpp>
#include <tessera_serving/watch.hpp>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace tessera { inline namespace v0 {

/// How FreshTables freezes whole checkpoints, and the folder for the files.
struct FollowOptions {
  FreezeOptions freeze{};  ///< of whole checkpoints
  /// The folder for the frozen files of whole checkpoints. Programs of one machine that give the
  /// same, with the same `freeze`, share them: one freezes, all map.
  std::filesystem::path files{};
};

namespace detail {

/// Returns whether tables are what `freeze_checkpoint` would make of a checkpoint.
inline bool frozen_from(const FrozenTables& tables, const CheckpointReader& reader,
                        const FreezeOptions& options) {
  if (tables.base() != CheckpointMark{reader.manifest().step, reader.crc()}) return false;
  const std::vector<TableToFreeze> wanted = tables_to_freeze(reader, options);
  if (tables.tables().size() != wanted.size()) return false;
  for (std::size_t t = 0; t < wanted.size(); ++t) {
    const FrozenTables::Table& table = tables.tables()[t];
    const bool keys = std::find(options.vocabulary.begin(), options.vocabulary.end(), table.name) !=
                      options.vocabulary.end();
    if (table.name != wanted[t].name || table.format != wanted[t].format ||
        (table.keys != nullptr) != keys)
      return false;
  }
  return true;
}

}  // namespace detail

/// Returns the tables of a checkpoint, whole or an increment, in the folder of a training. Freezes
/// the whole one into `options.files`, unless its file is there, and removes the files of others.
/// Throws as freeze_checkpoint and with_increment do, and while another program freezes there.
inline FrozenTables frozen_tables_of(const std::filesystem::path& checkpoint,
                                     const FollowOptions& options) {
  require(!options.files.empty(),
          "FollowOptions: `files` is empty; give a folder for frozen files");
  const std::string base = detail::read_manifest(checkpoint).first.base;
  const CheckpointReader whole(base.empty() ? checkpoint : checkpoint.parent_path() / base);
  std::filesystem::create_directories(options.files);
  const std::filesystem::path file =
      options.files / (detail::checkpoint_name(whole.manifest().step) + ".frozen");
  const auto there = [&] {
    try {
      return detail::frozen_from(FrozenTables(file, {.verify = false}), whole, options.freeze);
    } catch (const DataError&) {  // none, or a damaged one
      return false;
    }
  };
  if (!there()) {
    const FolderLock lock(options.files);
    if (!there()) freeze_checkpoint(whole.folder(), file, options.freeze);
    for (const auto& entry : std::filesystem::directory_iterator(options.files))
      if (entry.path() != file && entry.path().extension() == ".frozen" &&
          detail::checkpoint_step(entry.path().stem().string()))
        std::filesystem::remove(entry.path());
  }
  const FrozenTables tables(file);
  return base.empty() ? tables : detail::with_increment(tables, checkpoint);
}

/// Frozen tables that are replaced, as a whole, by newer versions while any number of threads look
/// up: a FrozenLookup of these reads one version in each batch, takes no lock and never waits.
/// If a new version is rejected, readers keep the current one.
class FreshTables {
 public:
  explicit FreshTables(FrozenTables first)
      : versions_(std::make_shared<const FrozenTables>(std::move(first))) {}

  /// Puts rows and keys of an increment in place of those there (see with_increment).
  void apply(const std::filesystem::path& checkpoint) {
    const std::lock_guard lock(one_at_a_time_);
    publish(detail::with_increment(*current(), checkpoint));
  }
  /// Takes other tables of the same names, rows and widths; their formats may differ. Throws
  /// InvalidArgument for others.
  void replace(FrozenTables next) {
    const std::lock_guard lock(one_at_a_time_);
    publish(std::move(next));
  }
  /// Goes over to a checkpoint in the folder of a training: `apply` where it is an increment of the
  /// base that is there, else `replace` by what is frozen of it.
  void follow(const std::filesystem::path& checkpoint, const FollowOptions& options) {
    const std::lock_guard lock(one_at_a_time_);
    const auto now = current();
    const detail::Manifest manifest = detail::read_manifest(checkpoint).first;
    publish(!manifest.base.empty() && manifest.base_crc == now->base().crc
                ? detail::with_increment(*now, checkpoint)
                : frozen_tables_of(checkpoint, options));
  }
  /// Calls `follow` for each checkpoint that a training saves, in a thread of its own, until the
  /// result ends, which must be before this.
  std::unique_ptr<CheckpointWatch> watch(
      const std::filesystem::path& folder, FollowOptions options,
      std::chrono::milliseconds every = std::chrono::milliseconds(500)) {
    return std::make_unique<CheckpointWatch>(
        folder,
        [this, options = std::move(options)](const std::filesystem::path& checkpoint) {
          follow(checkpoint, options);
        },
        every);
  }

  /// Returns the newest version, for as long as the caller likes: for what needs one version in
  /// several lookups.
  std::shared_ptr<const FrozenTables> current() const { return versions_.current(); }
  const Published<FrozenTables>& versions() const { return versions_; }

 private:
  void publish(FrozenTables next) {
    const auto now = current();
    const auto fault = [&] {
      return detail::formatted("file '{}' has other tables than '{}', which it is to replace",
                               next.file(), now->file());
    };
    require(next.tables().size() == now->tables().size(), "{}", fault());
    for (std::size_t t = 0; t < next.tables().size(); ++t) {
      const FrozenTables::Table &a = next.tables()[t], &b = now->table(a.name);
      require(a.rows == b.rows && a.width == b.width && (a.keys == nullptr) == (b.keys == nullptr),
              "{}: table '{}'", fault(), a.name);
    }
    versions_.publish(std::make_shared<const FrozenTables>(std::move(next)));
  }

  std::mutex one_at_a_time_;  ///< of those who replace
  Published<FrozenTables> versions_;
};

}}  // namespace tessera::v0
