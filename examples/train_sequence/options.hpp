// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../support/text_format.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace sequence {

/// What the command line says.
struct Options {
  std::string data;  ///< file of events; empty: made-up histories
  std::string user_column = "user", item_column = "item", time_column = "timestamp", label_column;
  support::TextFormat format;    ///< of the file
  double label_threshold = 0.5;  ///< a label is 1 from here on
  bool skip_bad_lines = false;
  std::int64_t sort_memory_mib = 256;
  std::string temporary_folder;
  std::int64_t users = 8'000, items = 500;  ///< of made-up histories
  std::int64_t test_window = 0;             ///< of time; 0: leave one out

  std::string backend = "host";
  int ranks = 2;
  int threads_per_rank = 1;
  std::string plan = "row-wise";
  int hot_rows = 100;     ///< of the table, that `hot-rows` copies
  int virtual_ranks = 0;  ///< 0: as many as ranks, any number
  bool graph = false;     ///< what can be captured of a step is, in a CUDA graph
  std::string called;     ///< what --graph does not capture here, and why; empty: nothing

  std::string model = "next-item";
  int width = 64;
  int blocks = 2;
  int heads = 2;
  std::int64_t max_length = 50;
  float dropout = 0.2f;

  std::int64_t negatives = 0;  ///< 0: not given
  double popularity = 0;       ///< negatives are drawn by (count + 1) to this power
  bool log_q = false;
  std::int64_t batch_size = 128;
  static constexpr int kAutoEpochs = 1'000'001;
  int epochs = 0;           ///< 0: not given
  std::string best_folder;  ///< of the best model without --save
  int patience = 3;         ///< validations without a better one that end kAutoEpochs
  float learning_rate = 0.003f;
  std::uint64_t seed = 1;
  bool validate = false;

  std::string save;
  std::int64_t save_every = 0;
  int keep = 0;
  bool resume = false;
  std::string start_from;  ///< folder of an earlier model's checkpoints; empty: none
  std::string json;
  std::string predictions;  ///< TSV file of the ranking model's test

  /// Whether validations end the training.
  bool automatic() const { return epochs == kAutoEpochs; }
  std::string epochs_text() const { return automatic() ? "auto" : std::to_string(epochs); }
  bool ranks_items() const { return model == "next-item"; }
  /// Positions of a sequence; attention is divided by it.
  std::int64_t longest_sequence() const {
    return ranks_items() ? max_length : 2 * (max_length + 1);
  }
};

/// Parses and checks the command line. No value: help was printed. Throws CLI::Error.
std::optional<Options> parse_options(int argc, const char* const* argv);

}  // namespace sequence
