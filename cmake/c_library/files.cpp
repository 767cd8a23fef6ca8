// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Vocabularies, checkpoints, and frozen tables: what is kept beside the tables, and after training.
#include "collections.hpp"

#include <tessera/checkpoint/contents.hpp>
#include <tessera/checkpoint/load.hpp>
#include <tessera/checkpoint/save.hpp>
#include <tessera/checkpoint/vocabulary.hpp>
#include <tessera/vocabulary/vocabulary.hpp>
#include <tessera_serving/freeze.hpp>
#include <tessera_serving/frozen_lookup.hpp>

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
        keys(*collection->communicator, collection->tables.backend(), std::move(options)) {}

  std::shared_ptr<tessera_c::Collection> collection;
  tessera::Vocabulary<tessera::AnyCommunicator, tessera::Host> keys;
};

struct tessera_frozen : tessera_c::Handle {
  tessera_frozen(const char* file, std::span<const tessera::FrozenFeature> features,
                 tessera::BadIds bad_ids, int threads)
      : tables(file),
        narrow(tables, features, bad_ids, threads),
        wide(tables, features, bad_ids, threads) {}

  tessera::FrozenTables tables;
  tessera::FrozenLookup<std::int32_t> narrow;
  tessera::FrozenLookup<std::int64_t> wide;
};

tessera_status tessera_save(tessera_collection* collection, tessera_vocabulary* vocabulary,
                            const char* directory, int64_t step) {
  return call([&] {
    constexpr std::string_view name = "tessera_save";
    const auto& of = checked(collection, name, "collection").state;
    tessera::CheckpointContents contents;
    contents.add(of->tables);
    std::optional<tessera::SavedVocabulary<decltype(vocabulary->keys)>> keys;
    if (vocabulary != nullptr) keys.emplace(contents, checked(vocabulary, name, "vocabulary").keys);
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
    contents.add(of->tables);
    tessera::LoadOptions options;
    if (vocabulary != nullptr) options.extra = {"vocabulary.*"};
    load_checkpoint(*of->communicator, folder, contents, options);
    if (vocabulary != nullptr)
      tessera::detail::on_all_ranks(*of->communicator, [&] {
        tessera::load_vocabulary(folder, checked(vocabulary, name, "vocabulary").keys);
      });
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
    const tessera::Layout& layout = of->tables.layout();
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
        for (const auto& [table, row] : of.keys.learn(batch, out))
          of.collection->tables.reset_rows(static_cast<int>(table), std::span(&row, 1));
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

tessera_status tessera_freeze(const char* folder, const char* file, const char* format) {
  return call([&] {
    constexpr std::string_view name = "tessera_freeze";
    tessera::freeze_checkpoint(
        &checked(folder, name, "folder"), &checked(file, name, "file"),
        {.format = tessera::parse_row_format(&checked(format, name, "format"))});
  });
}

tessera_status tessera_frozen_open(const char* file, const tessera_feature* features,
                                   size_t feature_count, int bad_ids, int threads,
                                   tessera_frozen** out) {
  return call([&] {
    constexpr std::string_view name = "tessera_frozen_open";
    checked(file, name, "file");
    checked(out, name, "out");
    tessera::require(threads >= 1, "{}: threads is {}; give 1 or more", name, threads);
    std::deque<std::string> names;
    std::vector<tessera::FrozenFeature> of_file;
    for (const tessera::FeatureSpec& feature :
         tessera_c::features_of(features, feature_count, names, name))
      of_file.push_back({std::string(feature.name), std::string(feature.table), feature.pooling,
                         feature.weighted});
    *out = new tessera_frozen(file, of_file, tessera_c::bad_ids_of(bad_ids, name), threads);
  });
}

tessera_status tessera_frozen_columns(const tessera_frozen* frozen, int64_t* columns) {
  return call([&] {
    constexpr std::string_view name = "tessera_frozen_columns";
    checked(columns, name, "columns") = checked(frozen, name, "frozen").wide.columns();
  });
}

tessera_status tessera_frozen_lookup(tessera_frozen* frozen, const tessera_batch* batch,
                                     float* output, int64_t stride) {
  return call([&] {
    constexpr std::string_view name = "tessera_frozen_lookup";
    tessera_frozen& of = checked(frozen, name, "frozen");
    tessera_c::with_batch(batch, name, [&]<class Id>(const tessera::KeyedJagged<Id>& ids) {
      const auto to =
          tessera_c::matrix(output, ids.batch, of.wide.columns(), stride, name, "output");
      if constexpr (sizeof(Id) == 4)
        of.narrow.pool(ids, to);
      else
        of.wide.pool(ids, to);
    });
  });
}

void tessera_frozen_destroy(tessera_frozen* frozen) { delete frozen; }
