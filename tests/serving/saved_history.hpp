// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A small model that ranks candidates for a history, in a checkpoint, and samples of a client.
#pragma once

#include <tessera/checkpoint/folder.hpp>
#include <tessera/checkpoint/save.hpp>
#include <tessera/comm/self_communicator.hpp>
#include <tessera_serving/frozen_model.hpp>

#include <support/hstu_reference.hpp>
#include <support/temporary_folder.hpp>

#include <cmath>
#include <random>
#include <string>
#include <vector>

namespace saved_history {

using namespace tessera;

constexpr int kHeads = 2, kDim = 3, kWidth = 6, kBlocks = 2, kItems = 30, kLength = 5;
using Plain = PlainHstu<kHeads, kDim, kDim, kWidth>;

inline ModelDescription description(bool numbers) {
  ModelDescription model{
      .interaction = "hstu",
      .vector_width = kWidth,
      .top_mlp = {kWidth, 1},
      .history = HistoryLayers{kBlocks, kHeads, kLength, 12},
      .tables = {{"item", kItems, kWidth, CategoryKey::text, KeyRows::list, 0, {}, {}, {}}},
      .features = {{"history", "item", Pooling::none, true},
                   {"candidate", "item", Pooling::none, false}}};
  if (numbers) model.numeric = {{"stars", NumberTransform::at_least, 4.0f, 1, false, {}, true}};
  return model;
}

inline std::string item(std::int64_t row) { return "item " + std::to_string(row); }

struct Saved {
  TemporaryFolder folder;
  std::vector<float> table, dense;
  std::filesystem::path checkpoint;

  explicit Saved(const ModelDescription& model, std::int64_t more = 0) {
    std::minstd_rand random(5);
    const auto draw = [&](std::vector<float>& to, std::int64_t count) {
      while (std::ssize(to) < count)
        to.push_back(static_cast<float>(static_cast<int>(random() % 2001) - 1000) * 1e-3f);
    };
    AnyHstuLayer block(Host(), {kHeads, kDim, kDim}, kWidth, {.max_length = 1});
    draw(table, kItems * kWidth);
    draw(dense, (kLength + 2) * kWidth + kBlocks * block.parameter_count() + kWidth + 1 + more);
    KeyList keys;
    for (int row = 0; row < kItems; ++row) {
      keys.keys.push_back(static_cast<std::int64_t>(detail::name_key(item(row))));
      keys.rows.push_back(row);
    }
    SelfCommunicator self;
    CheckpointContents contents;
    contents.add(Host(), "item.weight", {kItems, kWidth}, std::span(table));
    contents.add(Host(), "dense", {std::ssize(dense)}, std::span(dense));
    add_model_description(contents, model, {{"item", keys}});
    save_checkpoint(self, folder.path, contents, 12);
    checkpoint = *latest_checkpoint(folder.path);
  }

  /// The logit of a candidate after these events, in double.
  double logit(std::vector<std::int64_t> history, std::vector<double> numbers,
               std::int64_t candidate) const {
    while (history.size() > kLength) history.erase(history.begin()), numbers.erase(numbers.begin());
    history.push_back(candidate), numbers.push_back(0);
    const auto rows = std::ssize(history);
    Plain plain{{.max_length = 12, .alpha = 1 / std::sqrt(3.0f)}, {}, {}, {0, rows}, {1}};
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < kWidth; ++c)
        plain.x.push_back(double{table[history[r] * kWidth + c]} + dense[r * kWidth + c] +
                          numbers[r] * dense[(kLength + 1) * kWidth + c]);
    const float* at = dense.data() + (kLength + 2) * kWidth;
    AnyHstuLayer block(Host(), {kHeads, kDim, kDim}, kWidth, {.max_length = 1});
    for (int b = 0; b < kBlocks; ++b, at += block.parameter_count()) {
      plain.p.assign(at, at + block.parameter_count());
      plain.x = plain.output();
    }
    double sum = at[kWidth];
    for (int c = 0; c < kWidth; ++c) sum += plain.x[(rows - 1) * kWidth + c] * at[c];
    return sum;
  }
};

/// Samples as a client has them; some neighbours have one history.
struct Samples {
  std::vector<std::vector<std::int64_t>> histories;
  std::vector<std::vector<double>> labels;
  std::vector<std::int64_t> candidates, lengths;
  std::vector<std::string> texts, candidate_texts;
  std::vector<std::string_view> views, candidate_views;
  std::vector<float> stars;

  Samples(unsigned seed, int count, int repeat) {
    std::minstd_rand random(seed);
    for (int s = 0; s < count; ++s) {
      if (s % repeat == 0) {
        histories.emplace_back(), labels.emplace_back();
        for (auto n = random() % 9; n > 0; --n) histories.back().push_back(random() % kItems);
      } else {
        histories.push_back(histories.back());
        labels.push_back(labels.back());
      }
      for (std::size_t i = 0; i < histories.back().size(); ++i) {
        if (labels.back().size() <= i) labels.back().push_back(random() % 2);
        texts.push_back(item(histories.back()[i]));
        stars.push_back(labels.back()[i] > 0 ? 4.0f + static_cast<float>(i) : 3.5f);
      }
      lengths.push_back(std::ssize(histories.back()));
      candidates.push_back(random() % kItems);
      candidate_texts.push_back(item(candidates.back()));
    }
    views.assign(texts.begin(), texts.end());
    candidate_views.assign(candidate_texts.begin(), candidate_texts.end());
  }
  ModelColumns columns(bool numbers = true) const {
    ModelColumns columns{.samples = std::ssize(candidates),
                         .categories = {{.texts = views, .lengths = lengths, .given = true},
                                        {.texts = candidate_views, .given = true}}};
    if (numbers) columns.numbers = {stars}, columns.number_lengths = lengths;
    return columns;
  }
};

}  // namespace saved_history
