// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/element.hpp>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dlrm {

/// A checkpoint keeps these, so that it can be tested without them.
struct ModelOption {
  std::string name, value;
  bool given =
      false;  ///< by the command line, --config or --recipe; else the value is the standard

  bool operator==(const ModelOption&) const = default;
};
/// A line for each option, and what such a text says.
std::string to_text(const std::vector<ModelOption>& options);
std::vector<ModelOption> model_options_of(const std::string& text);

/// What the command line says. Rates and epochs that are not given depend on other options:
/// `resolve` in options.cpp.
struct Options {
  std::string data;    ///< Criteo TSV file, or folder of a binary dataset; empty: synthetic clicks
  std::string schema;  ///< YAML file that says what the columns of `data` mean; empty: Criteo's
  std::int64_t shuffle_window = 1 << 18;  ///< samples of a schema's file in memory
  int parser_threads = 1;
  std::int64_t samples = 1'600'000;
  double test_fraction = 0.1;
  double validation_fraction = 0;  ///< of the training samples
  bool skip_bad_lines = false;
  std::int64_t max_rows = 0;  ///< 0 here and below: not given
  std::int64_t min_count = 10;
  bool vocabulary = false;  ///< rows are given to keys while training sees them
  std::string eviction = "least-frequent";
  double admit_probability = 1;
  std::int64_t time_to_live = 0;  ///< batches; 0: forever
  std::int64_t cold_keys = 0;     ///< without rows, whose vectors are kept
  double power = 1.05;
  std::string synthetic_model;  ///< of tessera::synthetic_models; empty: Criteo's shape
  double scale = 1;             ///< of its rows

  std::string communicator = "threads";
  std::string dense_sums = "nccl";
  std::string bind = "near";  ///< where ranks with a GPU each run
  int ranks = 0;
  int threads_per_rank = 1;
  double timeout = 0;           ///< seconds that a rank waits for others; 0: for ever
  std::int64_t bucket_kib = 0;  ///< 0: one all-reduce after backward
  std::string loader = "every-rank";
  bool overlap = false;  ///< the next batch is routed while this one is in its linear layers
  std::string backend = "host";
  bool graph = false;        ///< steps are captured in a CUDA graph
  bool check_links = false;  ///< the messages of a step are timed first
  std::string
      graph_refused;  ///< why --graph captures nothing here; empty: it does, or is not given
  std::string plan = "mixed";
  int hot_rows = 1000;                              ///< of each table, that `hot-rows` copies
  std::string plan_file;                            ///< of tessera_plan --out; empty: `plan`
  std::int64_t device_memory = 0, host_memory = 0;  ///< bytes of a rank for tables; 0: not given
  std::string table_precision = "fp32";
  std::string table_files;     ///< folder of tables that do not fit a rank's memory; empty: none
  std::string codec = "fp32";  ///< of pooled vectors on their way between ranks
  std::string gradient_codec;  ///< of their gradients; empty: as `codec`
  bool deduplicate = false;    ///< duplicate ids of a rank's batch do not travel

  std::string embedding_width = "16";  ///< as parse_widths takes it
  int interaction_width = 0;           ///< 0: the widest table's
  std::vector<std::int64_t> bottom_mlp{512, 256};
  std::vector<std::int64_t> top_mlp{512, 256};
  std::string model = "dlrm";
  std::string interaction;  ///< parsed: never empty
  int cross_layers = 3;
  std::int64_t cross_rank = 0;  ///< 0: full

  std::string optimizer = "rowwise-adagrad";  ///< as parse_optimizers takes it
  std::string freeze;                         ///< tables that do not change, commas between
  std::vector<float> rate_shares;             ///< as EmbeddingOptions has them
  std::string wide_optimizer = "ftrl";        ///< of the wide part
  float wide_learning_rate = 0;
  std::string dense_optimizer = "adam";
  std::string dense_precision = "auto";  ///< of the dense layers' products; parsed: never auto
  float learning_rate = 0;               ///< of the embeddings
  float dense_learning_rate = 0;         ///< of the linear layers
  float weight_decay = 0;
  float clip_norm = 0;  ///< 0: gradients are not clipped
  float initial_bound = 0.01f;
  std::int64_t batch_size = 0;
  std::int64_t accumulate = 1;  ///< batches of a step
  static constexpr int kAutoEpochs = 1'000'001;
  int epochs = 0;
  int patience = 2;             ///< tests without a better one that end kAutoEpochs
  bool constant_rates = false;  ///< else they fall in a straight line to 0
  /// stages of the rates, as Schedule::parse reads them; empty: as above, dense: as the tables'
  std::string schedule, dense_schedule;
  std::int64_t max_steps = 0;
  std::uint64_t seed = 1;

  std::string save;  ///< directory of checkpoints; empty: none
  std::int64_t save_every = 0;
  int keep = 0;  ///< 0: all
  bool resume = false;
  std::string start_from;  ///< folder of an earlier model's checkpoints; empty: none
  bool save_async = false;
  int save_increments = 0;

  std::string mode = "train";
  std::int64_t evals_per_epoch = 0;  ///< 0: at the end only
  std::int64_t eval_batch_size = 0;
  double stop_at_auc = 0;
  std::string auc = "exact";
  std::int64_t print_every = 0;
  std::string predictions;  ///< npy file of the test samples' probabilities

  int virtual_ranks = 0;  ///< 0: sums depend on the number of ranks
  std::string trace;      ///< file; empty: none
  std::int64_t trace_steps = 100;
  bool feature_check = false;
  std::string json;
  std::string log, report;  ///< of the run: lines of JSON, and a page; empty: none
  std::string tensorboard;  ///< folder of event files; empty: none
  int metrics_port = -1;    ///< of the loopback; -1: none

  /// Of a rank for tables, where those that do not fit lie in files.
  std::int64_t memory_before_files() const {
    return backend == "cuda" ? device_memory : host_memory;
  }
  std::string epochs_text() const {
    return epochs == kAutoEpochs ? "auto" : std::to_string(epochs);
  }
  /// Share of all samples that no training sees: those of validations, then those of the test.
  double held_out() const { return test_fraction + (1 - test_fraction) * validation_fraction; }
  /// Of so many samples that no training sees, those of validations, which come first.
  std::int64_t validations(std::int64_t held) const {
    return validation_fraction > 0
               ? std::llround(static_cast<double>(held) * (1 - test_fraction / held_out()))
               : 0;
  }
  /// Whether it matters how data become rows: the model is saved, or compared with a saved one.
  bool describes() const { return !save.empty() || !start_from.empty(); }
  /// Whether a log, a page or --trace wants the times of stages.
  bool timed() const { return logs() || !trace.empty(); }
  /// Whether reports of progress go to anything but the terminal.
  bool logs() const {
    return !log.empty() || !report.empty() || !tensorboard.empty() || metrics_port >= 0;
  }

  /// what all ranks must be given alike: options and their values
  std::vector<std::pair<std::string, std::string>> shared;
  /// those of `shared` that say what the model is and how data become its rows
  std::vector<ModelOption> model_options;
};

inline tessera::DensePrecision dense_precision(const Options& options) {
  return options.dense_precision == "bf16" ? tessera::DensePrecision::bfloat16
                                           : tessera::DensePrecision::float32;
}

/// Whether products of floats may be on a GPU's tensor cores.
inline bool tf32(const Options& options) { return options.dense_precision != "fp32"; }

/// The checkpoint that --start-from names: the folder itself, or the last one in it. Throws
/// tessera::DataError if there is none.
std::filesystem::path checkpoint_to_start_from(const std::string& folder);

/// Parses and checks the command line. No value: help was printed. Throws CLI::Error or
/// tessera::InvalidArgument.
std::optional<Options> parse_options(int argc, const char* const* argv);

}  // namespace dlrm
