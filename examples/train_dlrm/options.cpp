// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include "embeddings.hpp"
#include "plans.hpp"

#include <tessera/core/error.hpp>

#include <CLI/CLI.hpp>

#include <string_view>

namespace dlrm {
namespace {

template <class Names>
CLI::Validator one_of(const Names& names) {
  return CLI::IsMember(std::vector<std::string>(names.begin(), names.end()));
}

/// What is not given depends on the input: a file is small and seen several times, synthetic clicks are endless and seen once.
void resolve(Options& options) {
  const bool file = !options.data.empty();
  if (options.batch_size == 0) options.batch_size = file ? 256 : 4096;
  if (options.epochs == 0) options.epochs = file ? 2 : 1;
  if (options.learning_rate == 0) {
    if (options.optimizer == "sgd") options.learning_rate = 1.0f;
    if (options.optimizer == "adagrad" || options.optimizer == "rowwise-adagrad") options.learning_rate = 0.02f;
    if (options.optimizer == "adam") options.learning_rate = 0.001f;
  }
  if (options.dense_learning_rate == 0) {
    if (options.dense_optimizer == "sgd") options.dense_learning_rate = 0.1f;
    if (options.dense_optimizer == "adagrad") options.dense_learning_rate = 0.01f;
    if (options.dense_optimizer == "adam") options.dense_learning_rate = 0.001f;
  }
}

}  // namespace

std::optional<Options> parse_options(int argc, const char* const* argv) {
  Options options;
  CLI::App app("Trains a DLRM with sharded embeddings on click data, on ranks that are threads of this process.", "train_dlrm");
  app.option_defaults()->always_capture_default();
  app.formatter(std::make_shared<CLI::Formatter>());
  app.get_formatter()->column_width(36);

  app.add_option("--data", options.data,
                 "Criteo click file: label, 13 integers, 26 hex categories, tabs between; without: synthetic clicks")
      ->group("Data")
      ->capture_default_str();
  app.add_option("--samples", options.samples, "Synthetic clicks, for training and test together")
      ->check(CLI::Range(std::int64_t{2}, std::int64_t{1} << 50))
      ->group("Data");
  app.add_option("--power", options.power, "Exponent of the power law of synthetic ids; 0: uniform")
      ->check(CLI::Range(0.0, 16.0))
      ->group("Data");
  app.add_option("--test-fraction", options.test_fraction, "Share of the samples, the last ones, that test the model")
      ->check(CLI::Range(0.0, 0.9))
      ->group("Data");
  app.add_option("--max-rows", options.max_rows, "Cap of every table's rows; categories beyond it share rows")
      ->check(CLI::Range(std::int64_t{3}, std::int64_t{1} << 31))
      ->group("Data");
  app.add_option("--min-count", options.min_count, "Category values of a file seen less often in training share one row per table")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 31))
      ->group("Data");
  app.add_flag("--skip-bad-lines", options.skip_bad_lines, "Count lines of a file that are no clicks and go on")->group("Data");

  app.add_option("--ranks", options.ranks, "Ranks, each a thread")->check(CLI::Range(1, 256))->group("Ranks");
  app.add_option("--threads-per-rank", options.threads_per_rank, "OpenMP threads of each rank")->check(CLI::Range(1, 1024))->group("Ranks");
  app.add_option("--plan", options.plan, "How tables are cut over the ranks")->check(one_of(kPlans))->group("Ranks");

  app.add_option("--embedding-width", options.embedding_width, "Columns of every table")
      ->check(CLI::IsMember(std::vector<int>(kWidths.begin(), kWidths.end())))
      ->group("Model");
  app.add_option("--bottom-mlp", options.bottom_mlp, "Hidden layers for the 13 numbers")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20))
      ->group("Model");
  app.add_option("--top-mlp", options.top_mlp, "Hidden layers after the interaction")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20))
      ->group("Model");

  app.add_option("--optimizer", options.optimizer, "Of the embeddings")->check(one_of(kOptimizers))->group("Training");
  app.add_option("--learning-rate", options.learning_rate, "Of the embeddings; 0: 1 (sgd), 0.02 (adagrad, rowwise-adagrad), 0.001 (adam)")
      ->check(CLI::NonNegativeNumber)
      ->group("Training");
  app.add_option("--dense-optimizer", options.dense_optimizer, "Of the linear layers")
      ->check(CLI::IsMember({"sgd", "adagrad", "adam"}))
      ->group("Training");
  app.add_option("--dense-learning-rate", options.dense_learning_rate, "Of the linear layers; 0: 0.1 (sgd), 0.01 (adagrad), 0.001 (adam)")
      ->check(CLI::NonNegativeNumber)
      ->group("Training");
  app.add_option("--weight-decay", options.weight_decay, "Of the linear layers")->check(CLI::NonNegativeNumber)->group("Training");
  app.add_option("--initial-bound", options.initial_bound, "First embeddings are uniform in [-bound, bound)")
      ->check(CLI::NonNegativeNumber)
      ->group("Training");
  app.add_flag("!--constant-rates", options.decay, "Keep the learning rates; else they fall in a straight line to 0")->group("Training");
  app.add_option("--batch-size", options.batch_size, "Samples of a step, over all ranks; 0: 4096 (synthetic), 256 (file)")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 30))
      ->group("Training");
  app.add_option("--epochs", options.epochs, "Passes over the training samples; 0: 1 (synthetic), 2 (file)")
      ->check(CLI::Range(0, 1'000'000))
      ->group("Training");
  app.add_option("--seed", options.seed, "Of first values, orders of samples, and synthetic clicks")->group("Training");

  app.add_flag("--feature-check", options.feature_check, "After training, test again with each category's ids exchanged between samples")
      ->group("Results");
  app.add_option("--json", options.json, "Write the results to this file")->group("Results");

  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return std::nullopt;
  }
  resolve(options);
  return options;
}

}  // namespace dlrm
