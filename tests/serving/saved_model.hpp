// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A small model in a checkpoint that says what it is, and samples as a client has them.
#pragma once

#include <tessera/checkpoint/folder.hpp>
#include <tessera/checkpoint/save.hpp>
#include <tessera/comm/self_communicator.hpp>
#include <tessera_serving/frozen_model.hpp>

#include <fmt/format.h>
#include <support/temporary_folder.hpp>

#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace saved_model {

using namespace tessera;

constexpr std::int64_t kWidth = 6;

/// Kinds: dot, cross, wide (Wide & Deep), projected (dot with a narrower table).
inline ModelDescription description(const std::string& kind) {
  ModelDescription model{
      .interaction = kind == "wide"    ? "concat"
                     : kind == "cross" ? kind
                                       : "dot",
      .vector_width = kWidth,
      .bottom_mlp = {2, 7, kWidth},
      .top_mlp = {16, 9, 1},
      .numeric = {{"price", NumberTransform::log1p, 0.5f, 2.0f, true, {}},
                  {"age", NumberTransform::none, 0.25f, 0.5f, true, 3.0f}},
      .tables = {{"C1", 40, kWidth, CategoryKey::hex, KeyRows::list, 0, 1, 0, {}},
                 {"city", 30, kWidth, CategoryKey::text, KeyRows::hash, 77, {}, 0, {}}},
      .features = {{"C1", "C1", Pooling::sum, false},
                   {"cities", "city", Pooling::mean, true},
                   {"home", "city", Pooling::sum, false}}};
  if (kind == "cross" || kind == "wide") model.features[1].pooling = Pooling::max;
  if (kind == "cross") model.cross_layers = 2, model.cross_rank = 3;
  if (kind == "wide" || kind == "projected") model.tables[0].width = 3;
  if (kind == "wide") model.bottom_mlp.clear(), model.wide = true;
  if (model.interaction != "dot") model.top_mlp[0] = model.columns();
  return model;
}

/// A checkpoint of random numbers, and these.
struct Saved {
  TemporaryFolder folder;
  std::map<std::string, std::vector<float>> tensors;
  std::filesystem::path checkpoint;

  explicit Saved(const ModelDescription& model, unsigned seed = 5, std::int64_t step = 12) {
    std::minstd_rand random(seed);
    SelfCommunicator self;
    CheckpointContents contents;
    const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
      std::size_t count = 1;
      for (const std::int64_t n : shape) count *= static_cast<std::size_t>(n);
      std::vector<float>& values = tensors[name];
      for (std::size_t i = 0; i < count; ++i)
        values.push_back(static_cast<float>(static_cast<int>(random() % 2001) - 1000) * 4e-4f);
      contents.add(Host(), name, std::move(shape), std::span(values));
    };
    for (const TableInput& table : model.tables) {
      add(table.name + ".weight", {table.rows, table.width});
      if (model.wide) add(wide_table(table.name) + ".weight", {table.rows, 1});
    }
    for (const std::int64_t width : model.projected_widths())
      add(fmt::format("projection.{}.weight", width), {kWidth, width});
    for (const auto& [name, sizes] :
         {std::pair("bottom", model.bottom_mlp), std::pair("top", model.top_mlp)})
      for (std::size_t l = 0; l + 1 < sizes.size(); ++l) {
        add(fmt::format("{}.{}.weight", name, l), {sizes[l + 1], sizes[l]});
        add(fmt::format("{}.{}.bias", name, l), {sizes[l + 1]});
      }
    for (std::int64_t l = 0; l < model.cross_layers; ++l) {
      add(fmt::format("cross.{}.v", l), {3, 24});
      add(fmt::format("cross.{}.u", l), {24, 3});
      add(fmt::format("cross.{}.bias", l), {24});
    }
    add_model_description(contents, model, {{"C1", {{0x1f, 0xabcdef01, 0}, {2, 39, 7}}}});
    save_checkpoint(self, folder.path, contents, step);
    checkpoint = *latest_checkpoint(folder.path);
  }
};

/// Samples as a client has them.
struct Samples {
  std::vector<float> price, age;
  std::vector<std::string> c1, cities, home;
  std::vector<std::int64_t> lengths;
  std::vector<std::string_view> views[3];

  Samples(unsigned seed, int count) {
    std::minstd_rand random(seed);
    const char* known[] = {"1f", "ABCDEF01", "00000000", "", "77"};
    for (int s = 0; s < count; ++s) {
      price.push_back(random() % 5 == 0 ? NAN : static_cast<float>(random() % 90) - 20);
      age.push_back(random() % 5 == 0 ? NAN : static_cast<float>(random() % 9));
      c1.emplace_back(known[random() % 5]);
      home.push_back(random() % 4 == 0 ? "" : "town " + std::to_string(random() % 99));
      lengths.push_back(random() % 4);
      for (std::int64_t i = 0; i < lengths.back(); ++i)
        cities.push_back("town " + std::to_string(random() % 99));
    }
    views[0].assign(c1.begin(), c1.end());
    views[1].assign(cities.begin(), cities.end());
    views[2].assign(home.begin(), home.end());
  }
  ModelColumns columns() const {
    return {std::ssize(price),
            {price, age},
            {{.texts = views[0], .given = true},
             {.texts = views[1], .lengths = lengths, .given = true},
             {.texts = views[2], .given = true}}};
  }
};

}  // namespace saved_model
