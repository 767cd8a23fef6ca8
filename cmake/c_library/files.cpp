// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Vocabularies and checkpoints: what is kept beside the tables, and after training.
#include "collections.hpp"

#include <tessera/checkpoint/contents.hpp>
#include <tessera/checkpoint/load.hpp>
#include <tessera/checkpoint/save.hpp>
#include <tessera/checkpoint/vocabulary.hpp>
#include <tessera/host/backend.hpp>
#include <tessera/vocabulary/vocabulary.hpp>

#include <fmt/format.h>

#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using tessera_c::call;
using tessera_c::checked;

struct tessera_vocabulary : tessera_c::Handle {
  tessera_vocabulary(std::shared_ptr<tessera_c::Collection> of, tessera::VocabularyOptions options)
      : collection(std::move(of)),
        keys(*collection->communicator, tessera::Host({.threads = collection->threads}),
             std::move(options)) {}

  std::shared_ptr<tessera_c::Collection> collection;
  tessera::Vocabulary<tessera::AnyCommunicator, tessera::Host> keys;
};

namespace {

auto& keys_of(const std::shared_ptr<tessera_c::Collection>& collection,
              tessera_vocabulary* vocabulary, std::string_view call) {
  tessera_vocabulary& of = checked(vocabulary, call, "vocabulary");
  tessera::require(of.collection == collection, "{}: the vocabulary is of another collection",
                   call);
  return of.keys;
}

}  // namespace

tessera_status tessera_save(tessera_collection* collection, tessera_vocabulary* vocabulary,
                            const char* directory, int64_t step) {
  return call([&] {
    constexpr std::string_view name = "tessera_save";
    const auto& of = checked(collection, name, "collection").state;
    tessera::CheckpointContents contents;
    const tessera_c::InUse use(*of);
    of->add_to(contents);
    std::optional<tessera::SavedVocabulary<decltype(vocabulary->keys)>> keys;
    if (vocabulary != nullptr) keys.emplace(contents, keys_of(of, vocabulary, name));
    save_checkpoint(*of->communicator, &checked(directory, name, "directory"), contents, step);
  });
}

tessera_status tessera_load(tessera_collection* collection, tessera_vocabulary* vocabulary,
                            const char* folder) {
  return call([&] {
    constexpr std::string_view name = "tessera_load";
    const auto& of = checked(collection, name, "collection").state;
    checked(folder, name, "folder");
    tessera::CheckpointContents contents;
    const tessera_c::InUse use(*of);
    of->add_to(contents);
    tessera::LoadOptions options;
    if (vocabulary != nullptr) options.extra = {"vocabulary.*"};
    std::optional<tessera::detail::StoredVocabulary<decltype(vocabulary->keys)>> stored;
    if (vocabulary != nullptr)
      tessera::detail::on_all_ranks(*of->communicator, [&] {
        stored.emplace(folder, keys_of(of, vocabulary, name), "vocabulary");
      });
    load_checkpoint(*of->communicator, folder, contents, options);
    if (stored) stored->load(vocabulary->keys);
  });
}

tessera_status tessera_vocabulary_create(tessera_collection* collection, int64_t admit_after,
                                         tessera_vocabulary** out) {
  return call([&] {
    constexpr std::string_view name = "tessera_vocabulary_create";
    const auto& of = checked(collection, name, "collection").state;
    checked(out, name, "out");
    tessera::require(admit_after >= 1 && admit_after <= std::numeric_limits<std::uint32_t>::max(),
                     "{}: admit_after is {}; give 1 .. 2^32 - 1", name, admit_after);
    const tessera::Layout& layout = of->layout();
    tessera::VocabularyOptions options{.feature_table = layout.feature_table};
    for (const tessera::TableSpec& table : layout.tables)
      options.tables.push_back(
          {.rows = table.rows, .admit_after = static_cast<std::uint32_t>(admit_after)});
    *out = new tessera_vocabulary(of, std::move(options));
  });
}

tessera_status tessera_vocabulary_learn(tessera_vocabulary* vocabulary, const tessera_batch* keys,
                                        int64_t* rows) {
  return call([&] {
    constexpr std::string_view name = "tessera_vocabulary_learn";
    tessera_vocabulary& of = checked(vocabulary, name, "vocabulary");
    tessera_c::with_batch(keys, name, [&]<class Id>(const tessera::KeyedJagged<Id>& batch) {
      if constexpr (sizeof(Id) == 8) {
        const auto out = tessera_c::array(rows, batch.ids.size(), name, "rows");
        const tessera_c::InUse use(*of.collection);
        for (const auto& [table, row] : of.keys.learn(batch, out))
          of.collection->reset_rows(static_cast<int>(table), std::span(&row, 1));
      } else {
        throw tessera::InvalidArgument(fmt::format("{}: keys have 64 bits", name));
      }
    });
  });
}

tessera_status tessera_vocabulary_find(tessera_vocabulary* vocabulary, const tessera_batch* keys,
                                       int64_t* rows) {
  return call([&] {
    constexpr std::string_view name = "tessera_vocabulary_find";
    tessera_vocabulary& of = checked(vocabulary, name, "vocabulary");
    tessera_c::with_batch(keys, name, [&]<class Id>(const tessera::KeyedJagged<Id>& batch) {
      if constexpr (sizeof(Id) == 8)
        of.keys.find(batch, tessera_c::array(rows, batch.ids.size(), name, "rows"));
      else
        throw tessera::InvalidArgument(fmt::format("{}: keys have 64 bits", name));
    });
  });
}

void tessera_vocabulary_destroy(tessera_vocabulary* vocabulary) { delete vocabulary; }
