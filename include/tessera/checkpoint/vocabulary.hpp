// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/checkpoint/contents.hpp>
#include <tessera/checkpoint/reader.hpp>
#include <tessera/core/error.hpp>

#include <cstdint>
#include <filesystem>
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
        contents.add_rows<std::int64_t>(fmt::format("{}.{}.{}", name, t, part), 0, *values,
                                        std::string(name));
    }
    const std::uint64_t step = static_cast<std::uint64_t>(vocabulary.step());
    contents.add_number(
        fmt::format("{}.step", name), [step] { return step; }, [](std::uint64_t) {});
  }
  SavedVocabulary(const SavedVocabulary&) = delete;
  SavedVocabulary& operator=(const SavedVocabulary&) = delete;

 private:
  std::vector<decltype(std::declval<const Vocabulary&>().export_records(0))> records_;
};

/// Restores a vocabulary from a checkpoint's folder, on any number of ranks. Each rank reads all
/// records and keeps its own. Call it after load_checkpoint, which verifies the files. Throws
/// DataError for what is missing, InvalidArgument for records of other tables.
template <class Vocabulary>
void load_vocabulary(const std::filesystem::path& folder, Vocabulary& vocabulary,
                     std::string_view name = "vocabulary") {
  CheckpointReader reader(folder);
  const auto read = [&](int table, std::string_view part) {
    const detail::StoredTensor& tensor = reader.tensor(fmt::format("{}.{}.{}", name, table, part));
    require<DataError>(tensor.type == detail::TensorType::i64 && tensor.columns() == 1,
                       "checkpoint '{}': tensor '{}' must be I64 [n]", folder.string(),
                       tensor.name);
    std::vector<std::int64_t> values(static_cast<std::size_t>(tensor.rows()));
    reader.read_rows(tensor, 0, tensor.rows(), reinterpret_cast<std::byte*>(values.data()));
    return values;
  };
  const auto step = reader.manifest().numbers.find(fmt::format("{}.step", name));
  require<DataError>(step != reader.manifest().numbers.end(),
                     "checkpoint '{}' has no number '{}.step'", folder.string(), name);
  for (int t = 0; t < vocabulary.tables(); ++t) {
    std::vector<decltype(vocabulary.export_records(0))> records(1);
    records[0].keys = read(t, "keys");
    records[0].rows = read(t, "rows");
    records[0].counts = read(t, "counts");
    records[0].steps = read(t, "steps");
    records[0].used = read(t, "used");
    vocabulary.import_records(t, records);
  }
  vocabulary.set_step(static_cast<std::int64_t>(step->second));
}

}}  // namespace tessera::v0
