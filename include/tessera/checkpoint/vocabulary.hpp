// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/checkpoint/contents.hpp>
#include <tessera/checkpoint/reader.hpp>
#include <tessera/core/error.hpp>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// A vocabulary's part of one save: takes a copy of what this rank knows, adds it to the contents
/// as tensors NAME.TABLE.keys, .rows, .counts, .steps and .used, and keeps it until it has been
/// saved. The vocabulary may go on meanwhile.
template <class Vocabulary>
class SavedVocabulary {
 public:
  SavedVocabulary(CheckpointContents& contents, const Vocabulary& vocabulary,
                  std::string_view name = "vocabulary") {
    for (int t = 0; t < vocabulary.tables(); ++t) records_.push_back(vocabulary.export_records(t));
    for (std::size_t t = 0; t < records_.size(); ++t) {
      const auto& r = records_[t];
      for (const auto& [part, values] :
           {std::pair("keys", &r.keys), std::pair("rows", &r.rows), std::pair("counts", &r.counts),
            std::pair("steps", &r.steps), std::pair("used", &r.used)})
        contents.add_rows<std::int64_t>(detail::formatted("{}.{}.{}", name, t, part), 0, *values,
                                        std::string(name));
    }
    const std::uint64_t step = static_cast<std::uint64_t>(vocabulary.step());
    contents.add_number(
        detail::formatted("{}.step", name), [step] { return step; }, [](std::uint64_t) {});
  }
  SavedVocabulary(const SavedVocabulary&) = delete;
  SavedVocabulary& operator=(const SavedVocabulary&) = delete;

 private:
  std::vector<decltype(std::declval<const Vocabulary&>().export_records(0))> records_;
};

namespace detail {

/// Returns what a checkpoint holds of a vocabulary's table: the records of all ranks.
template <class Records>
Records read_vocabulary_records(CheckpointReader& reader, int table, std::string_view name) {
  const auto read = [&](std::string_view part) {
    const StoredTensor& tensor = reader.tensor(formatted("{}.{}.{}", name, table, part));
    require<DataError>(tensor.type == TensorType::i64 && tensor.columns() == 1,
                       "checkpoint '{}': tensor '{}' must be I64 [n]", reader.folder().string(),
                       tensor.name);
    std::vector<std::int64_t> values(static_cast<std::size_t>(tensor.rows()));
    reader.read_rows(tensor, 0, tensor.rows(), reinterpret_cast<std::byte*>(values.data()));
    return values;
  };
  return {read("keys"), read("rows"), read("counts"), read("steps"), read("used")};
}

/// Returns how many batches a saved vocabulary has learned.
inline std::int64_t read_vocabulary_step(const CheckpointReader& reader, std::string_view name) {
  const auto step = reader.manifest().numbers.find(formatted("{}.step", name));
  require<DataError>(step != reader.manifest().numbers.end(),
                     "checkpoint '{}' has no number '{}.step'", reader.folder().string(), name);
  require<DataError>(step->second <= std::numeric_limits<std::uint32_t>::max(),
                     "checkpoint '{}': '{}.step' is {}; 2^32-1 batches are the most",
                     reader.folder().string(), name, step->second);
  return static_cast<std::int64_t>(step->second);
}

/// What a vocabulary takes from a checkpoint: this rank's records, found fit for it.
template <class Vocabulary>
struct StoredVocabulary {
  using Records = decltype(std::declval<const Vocabulary&>().export_records(0));
  std::int64_t step;
  std::vector<Records> tables{};

  StoredVocabulary(const std::filesystem::path& folder, const Vocabulary& vocabulary,
                   std::string_view name) {
    CheckpointReader reader(folder);
    step = read_vocabulary_step(reader, name);
    for (int t = 0; t < vocabulary.tables(); ++t) {
      const auto records = read_vocabulary_records<Records>(reader, t, name);
      tables.push_back(vocabulary.own_records(t, std::span(&records, 1)));
    }
  }

  void load(Vocabulary& vocabulary) const {
    for (std::size_t t = 0; t < tables.size(); ++t)
      vocabulary.import_records(static_cast<int>(t), std::span(&tables[t], 1));
    vocabulary.set_step(step);
  }
};

}  // namespace detail

/// Restores a vocabulary from a checkpoint's folder, on any number of ranks. Each rank reads all
/// records and keeps its own. Call it after load_checkpoint, which verifies the files. Throws
/// DataError for what is missing, InvalidArgument for records of other tables; the vocabulary is as
/// before then.
template <class Vocabulary>
void load_vocabulary(const std::filesystem::path& folder, Vocabulary& vocabulary,
                     std::string_view name = "vocabulary") {
  detail::StoredVocabulary<Vocabulary>(folder, vocabulary, name).load(vocabulary);
}

/// Gives a vocabulary of other tables the keys of a checkpoint's: table t those of table sources[t],
/// -1: none. Returns for each table and row the checkpoint's row that its key had, -1: none, empty
/// for a table without a source: what LoadOptions::rows takes. A key for which its block of rows
/// has no room is counted without a row. Throws DataError for what is missing, InvalidArgument for
/// what no vocabulary holds.
template <class Vocabulary>
std::vector<std::vector<std::int64_t>> adopt_vocabulary(const std::filesystem::path& folder,
                                                        Vocabulary& vocabulary,
                                                        std::span<const int> sources,
                                                        std::string_view name = "vocabulary") {
  require(std::ssize(sources) == vocabulary.tables(), "adopt_vocabulary: {} sources for {} tables",
          sources.size(), vocabulary.tables());
  using Records = decltype(vocabulary.export_records(0));
  CheckpointReader reader(folder);
  const std::int64_t step = detail::read_vocabulary_step(reader, name);
  std::vector<std::vector<std::int64_t>> rows(sources.size());
  for (std::size_t t = 0; t < sources.size(); ++t)
    if (sources[t] >= 0)
      rows[t] = vocabulary.adopt_records(
          static_cast<int>(t), detail::read_vocabulary_records<Records>(reader, sources[t], name));
  vocabulary.set_step(step);
  return rows;
}

}}  // namespace tessera::v0
