// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Frozen tables: what serves after training.
#include "handles.hpp"

#include <tessera/host/exchange.hpp>
#include <tessera_serving/freeze.hpp>
#include <tessera_serving/frozen_lookup.hpp>

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

using tessera_c::call;
using tessera_c::checked;

struct tessera_frozen : tessera_c::Handle {
  tessera_frozen(const char* file, std::span<const tessera::FrozenFeature> features,
                 tessera::BadIds bad_ids, int threads)
      : tables(file), lookup(tables, features, bad_ids, threads) {}

  tessera::FrozenTables tables;
  tessera::FrozenLookup<std::int64_t> lookup;
  std::vector<std::int64_t> widened;  // ids of 32 bits
};

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
    checked(columns, name, "columns") = checked(frozen, name, "frozen").lookup.columns();
  });
}

tessera_status tessera_frozen_lookup(tessera_frozen* frozen, const tessera_batch* batch,
                                     float* output, int64_t stride) {
  return call([&] {
    constexpr std::string_view name = "tessera_frozen_lookup";
    tessera_frozen& of = checked(frozen, name, "frozen");
    tessera_c::with_batch(batch, name, [&]<class Id>(const tessera::KeyedJagged<Id>& ids) {
      const auto to =
          tessera_c::matrix(output, ids.batch, of.lookup.columns(), stride, name, "output");
      if constexpr (sizeof(Id) == 4) {
        of.widened.assign(ids.ids.begin(), ids.ids.end());
        of.lookup.pool({ids.features, ids.batch, of.widened, ids.offsets, ids.weights}, to);
      } else {
        of.lookup.pool(ids, to);
      }
    });
  });
}

void tessera_frozen_destroy(tessera_frozen* frozen) { delete frozen; }
