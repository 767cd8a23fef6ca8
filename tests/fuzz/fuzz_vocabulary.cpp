// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Any keys in any batches: a key has one row of its table, no two keys share one but the shared
// row, and rows do not depend on the number of ranks, nor on whether the vocabulary was exported
// and imported on the way, with or without a word on its step.
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/sharding/policies.hpp>
#include <tessera/vocabulary/vocabulary.hpp>

#include "../support/fuzz_bytes.hpp"

#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

using namespace tessera;
using fuzz::Bytes;
using fuzz::expect;

namespace {

using Numbers = std::vector<std::int64_t>;
using ThreadVocabulary = Vocabulary<ThreadCommunicator>;

/// What a step answered: the rows of each bag of the global batch, and the rows that changed hands.
struct Answer {
  std::vector<Numbers> rows;
  std::vector<detail::ReusedRow> reused;
  bool operator==(const Answer&) const = default;
};

VocabularyOptions options_from(Bytes& bytes) {
  VocabularyOptions options;
  options.seed = static_cast<std::uint64_t>(bytes.word());
  const int tables = bytes.number(1, 3);
  for (int t = 0; t < tables; ++t)
    options.tables.push_back({bytes.number(2, t == 0 ? 9000 : 40),
                              static_cast<std::uint32_t>(bytes.number(1, 3)),
                              static_cast<Eviction>(bytes.number(0, 2))});
  const int features = tables + bytes.number(0, 1);
  for (int f = 0; f < features; ++f) options.feature_table.push_back(f % tables);
  return options;
}

std::vector<Numbers> bags_from(Bytes& bytes, std::size_t count) {
  std::vector<Numbers> bags(count);
  const int kind = bytes.number(0, 3);
  for (Numbers& bag : bags)
    for (int n = bytes.number(0, 3); n > 0; --n) switch (kind) {
        case 0:
          bag.push_back(bytes.word());
          break;
        case 1:
          bag.push_back(bytes.number(-3, 60));
          break;
        case 2:
          bag.push_back(static_cast<std::int64_t>(std::uint64_t{bytes.byte()} << 56));
          break;
        default:
          bag.push_back(bytes.number(0, 1) == 0 ? std::numeric_limits<std::int64_t>::min()
                                                : std::numeric_limits<std::int64_t>::max());
      }
  return bags;
}

Numbers broadcast(ThreadCommunicator& communicator, Numbers values, int root) {
  std::int64_t size = std::ssize(values);
  communicator.broadcast(std::span(&size, 1), root);
  values.resize(static_cast<std::size_t>(size));
  communicator.broadcast(std::span(values), root);
  return values;
}

/// Another vocabulary that knows what this one does. Its steps come from the records alone, or are
/// set.
std::unique_ptr<ThreadVocabulary> moved(ThreadCommunicator& communicator,
                                        const ThreadVocabulary& from,
                                        const VocabularyOptions& options, bool set_step) {
  auto to = std::make_unique<ThreadVocabulary>(communicator, options);
  for (int t = 0; t < from.tables(); ++t) {
    const detail::VocabularyRecords own = from.export_records(t);
    std::vector<detail::VocabularyRecords> parts;
    for (int rank = 0; rank < communicator.size(); ++rank)
      parts.push_back(
          {broadcast(communicator, own.keys, rank), broadcast(communicator, own.rows, rank),
           broadcast(communicator, own.counts, rank), broadcast(communicator, own.steps, rank),
           broadcast(communicator, own.used, rank)});
    to->import_records(t, parts);
    const detail::VocabularyRecords again = to->export_records(t);
    expect(again.keys == own.keys && again.rows == own.rows && again.counts == own.counts &&
               again.steps == own.steps && again.used == own.used,
           "records survive export and import");
  }
  expect(to->step() <= from.step(), "records know no step that has not been");
  if (set_step) to->set_step(from.step());
  return to;
}

/// A rank's part of the bags, [first, last) of every feature's samples.
void check_rows(const VocabularyOptions& options,
                const std::vector<std::pair<int, std::int64_t>>& keys, const Numbers& rows) {
  std::map<std::pair<int, std::int64_t>, std::int64_t> row_of, key_of;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto& [table, key] = keys[i];
    expect(rows[i] >= 0 && rows[i] < options.tables[static_cast<std::size_t>(table)].rows,
           "rows are of the table");
    expect(row_of.emplace(keys[i], rows[i]).first->second == rows[i], "a key has one row");
    if (rows[i] != 0)
      expect(key_of.emplace(std::pair(table, rows[i]), key).first->second == key,
             "a row has one key");
  }
}

std::vector<Answer> answers(const std::uint8_t* data, std::size_t size, int ranks, bool moves) {
  std::vector<Answer> all;
  std::mutex mutex;
  const auto on_rank = [&](ThreadCommunicator& communicator) {
    Bytes bytes(data, size);
    const VocabularyOptions options = options_from(bytes);
    const std::size_t features = options.feature_table.size();
    auto vocabulary = std::make_unique<ThreadVocabulary>(communicator, options);
    for (std::size_t step = 0; !bytes.empty() && step < 40; ++step) {
      const std::int64_t batch = bytes.number(0, 9);
      const std::vector<Numbers> bags =
          bags_from(bytes, features * static_cast<std::size_t>(batch));
      const std::int64_t first = even_cut(batch, ranks, communicator.rank()),
                         last = even_cut(batch, ranks, communicator.rank() + 1);
      Numbers ids, offsets{0};
      std::vector<std::pair<int, std::int64_t>> keys;
      std::vector<std::size_t> own;
      for (std::size_t f = 0; f < features; ++f)
        for (std::int64_t s = first; s < last; ++s) {
          own.push_back(f * static_cast<std::size_t>(batch) + static_cast<std::size_t>(s));
          for (const std::int64_t id : bags[own.back()]) {
            ids.push_back(id);
            keys.emplace_back(options.feature_table[f], id);
          }
          offsets.push_back(std::ssize(ids));
        }
      Numbers rows(ids.size()), found(ids.size());
      const KeyedJagged<std::int64_t> given{
          static_cast<std::int64_t>(features), last - first, ids, offsets, {}};
      const std::span<const detail::ReusedRow> reused =
          vocabulary->learn(given, std::span<std::int64_t>(rows));
      check_rows(options, keys, rows);
      {
        const std::lock_guard lock(mutex);
        if (all.size() <= step) all.resize(step + 1);
        all[step].rows.resize(bags.size());
        for (std::size_t b = 0; b < own.size(); ++b)
          all[step].rows[own[b]].assign(rows.begin() + offsets[b], rows.begin() + offsets[b + 1]);
        if (communicator.rank() == 0) all[step].reused.assign(reused.begin(), reused.end());
      }
      if (moves && step % 3 == 2)
        vocabulary = moved(communicator, *vocabulary, options, step % 2 == 0);
      vocabulary->find(given, std::span<std::int64_t>(found));
      expect(found == rows, "find answers what learn did");
    }
  };
  run_ranks(ranks, on_rank, {.timeout = std::chrono::seconds(60)});
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::vector<Answer> expected = answers(data, size, 1, false);
  expect(answers(data, size, 2 + static_cast<int>(size % 2), true) == expected,
         "rows do not depend on ranks, nor on a move");
  return 0;
}
