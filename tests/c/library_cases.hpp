// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The tables, batches and threads of the tests of libtessera_c, whose program this is in.
#pragma once

#include <tessera/tessera.h>

#include <doctest/doctest.h>
#include <support/temporary_folder.hpp>

#include <cstdint>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kWidth = 16, kSamples = 12, kSteps = 4;

const std::vector<tessera_table> kTables{{"a", 40, kWidth, "row-wise"},
                                         {"b", 30, kWidth, "column-wise:2"},
                                         {"c", 9, kWidth, "replicated"},
                                         {"d", 50, kWidth, nullptr}};
const std::vector<tessera_feature> kFeatures{{"a", "a", TESSERA_SUM, 1},
                                             {"b", "b", TESSERA_MEAN, 0},
                                             {"c", "c", TESSERA_SUM, 0},
                                             {"d", "d", TESSERA_SEQUENCE, 0},
                                             {"a2", "a", TESSERA_SUM, 0}};
constexpr std::int64_t kColumns = 4 * kWidth;

std::string last_error() { return tessera_last_error(); }

void ok(tessera_status status) {
  if (status != TESSERA_OK) throw std::runtime_error(last_error());
}

/// Makes the communicator of a process by itself.
tessera_communicator* alone() {
  tessera_communicator* communicator = nullptr;
  ok(tessera_communicator_self(&communicator));
  return communicator;
}
int rank_of(tessera_communicator* communicator) {
  int rank = 0;
  ok(tessera_communicator_rank(communicator, &rank, nullptr));
  return rank;
}
int ranks_of(tessera_communicator* communicator) {
  int ranks = 0;
  ok(tessera_communicator_rank(communicator, nullptr, &ranks));
  return ranks;
}

/// Runs f(communicator) on threads, each with a communicator of its own.
void on_threads(int ranks, const std::function<void(tessera_communicator*)>& f) {
  std::vector<tessera_communicator*> all(static_cast<std::size_t>(ranks));
  ok(tessera_communicator_threads(ranks, 0, all.data()));
  std::vector<std::string> errors(all.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < all.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        f(all[r]);
      } catch (const std::exception& error) {
        errors[r] = error.what();
        tessera_communicator_fail(all[r], error.what());
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (tessera_communicator* one : all) tessera_communicator_destroy(one);
  for (const std::string& error : errors) CHECK(error == "");
}

tessera_layout* layout_for(int ranks) {
  tessera_layout* layout = nullptr;
  ok(tessera_layout_create(kTables.data(), kTables.size(), kFeatures.data(), kFeatures.size(),
                           ranks, 0, "table-wise", &layout));
  return layout;
}

/// A rank's collection, by default in host memory.
struct Collection {
  explicit Collection(tessera_communicator* communicator, const char* optimizer = "adam",
                      int device = -1, void* stream = nullptr)
      : rank(rank_of(communicator)) {
    tessera_layout* layout = layout_for(ranks_of(communicator));
    tessera_collection_options options;
    ok(tessera_collection_defaults(&options));
    options.optimizer = optimizer;
    options.learning_rate = 0.05f;
    options.seed = 7;
    options.device = device;
    options.stream = stream;
    ok(tessera_collection_create(communicator, layout, &options, &collection));
    ok(tessera_step_create(collection, &step));
    tessera_layout_destroy(layout);
  }
  Collection(const Collection&) = delete;
  Collection& operator=(const Collection&) = delete;
  ~Collection() {
    tessera_collection_destroy(collection);  // before its step
    tessera_step_destroy(step);
  }

  int rank;
  tessera_collection* collection = nullptr;
  tessera_step* step = nullptr;
};

/// The ids of one rank in one step: bags of 0 to 3 of them.
struct Batch {
  Batch(int step, int rank, int ranks, int first_feature = 0) {
    offsets.push_back(0);
    for (std::size_t f = static_cast<std::size_t>(first_feature); f < kFeatures.size(); ++f)
      for (int s = 0; s < kSamples / ranks; ++s) {
        std::mt19937 random(
            static_cast<unsigned>(step * 1000 + (rank * (kSamples / ranks) + s) * 10) +
            static_cast<unsigned>(f));
        const std::int64_t rows = f == 4 ? 40 : kTables[f].rows;
        for (unsigned n = random() % 4; n > 0; --n) {
          ids.push_back(static_cast<std::int64_t>(random()) % rows);
          weights.push_back(0.25f + static_cast<float>(random() % 8) / 8);
        }
        offsets.push_back(static_cast<std::int64_t>(ids.size()));
      }
    samples = kSamples / ranks;
  }

  tessera_batch view() const {
    return {static_cast<std::int64_t>(kFeatures.size()),
            samples,
            ids.data(),
            ids.size(),
            64,
            offsets.data(),
            weights.data()};
  }
  std::int64_t ids_of(std::size_t feature) const {
    const std::size_t n = static_cast<std::size_t>(samples);
    return offsets[(feature + 1) * n] - offsets[feature * n];
  }

  std::vector<std::int64_t> ids, offsets;
  std::vector<float> weights;
  std::int64_t samples = 0;
};

/// A gradient that depends on what it is of.
std::vector<float> gradient_of(const std::vector<float>& values, int step) {
  std::vector<float> gradient(values.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    gradient[i] = 0.5f * values[i] + 0.01f * static_cast<float>(step + 1);
  return gradient;
}

void refused(tessera_status status, tessera_status expected, const std::string& text) {
  CAPTURE(text);
  CAPTURE(last_error());
  CHECK(status == expected);
  CHECK(last_error().find(text) != std::string::npos);
}

}  // namespace
