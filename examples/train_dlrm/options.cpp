// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include "embeddings.hpp"
#include "plans.hpp"

#include <tessera/core/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <array>
#include <cstdio>
#include <string>
#include <string_view>

namespace dlrm {
namespace {

constexpr std::array<std::string_view, 3> kEvictions{"none", "least-frequent", "oldest"};
constexpr std::array<std::string_view, 3> kDenseOptimizers{"sgd", "adagrad", "adam"};
constexpr std::array<std::string_view, 2> kDensePrecisions{"fp32", "bf16"};
constexpr std::array<std::string_view, 2> kCommunicators{"threads", "mpi"};
constexpr std::array<std::string_view, 2> kLoaders{"every-rank", "first-rank"};
constexpr std::array<std::string_view, 2> kBackends{"host", "cuda"};
constexpr std::array<std::string_view, 2> kInteractions{"dot", "cross"};

/// One of a list of names or numbers, which --help shows.
template <class Values>
CLI::Option* choose(CLI::Option* option, const Values& values, std::string standard = "") {
  std::vector<std::string> texts;
  for (const auto& value : values) texts.push_back(fmt::format("{}", value));
  if (standard.empty()) standard = option->get_default_str();
  return option->check(CLI::IsMember(texts))->option_text(fmt::format("{} [{}]", fmt::join(texts, "|"), standard));
}

/// A number in [least, most], what --help calls it, and its default.
template <class T>
CLI::Option* limit(CLI::Option* option, T least, T most, const char* name, std::string standard = "") {
  const auto check = [least, most](const std::string& text) -> std::string {
    T value{};
    if (CLI::detail::lexical_cast(text, value) && value >= least && value <= most) return {};
    return fmt::format("{} is not a number from {} to {}", text, least, most);
  };
  if (standard.empty()) standard = option->get_default_str();
  return option->check(check)->option_text(fmt::format("{} [{}]", name, standard));
}

/// What is not given depends on the input: a file is small and seen several times, synthetic clicks are endless and seen once.
void resolve(Options& options) {
  tessera::require<CLI::ValidationError>(!options.vocabulary || options.loader != "first-rank",
                                         "--loader first-rank hands out rows, which --vocabulary has yet to find");
  const bool file = !options.data.empty();
  if (options.max_rows == 0) options.max_rows = !file ? 10'000 : options.vocabulary ? 20'000 : 1'000'000;
  if (options.ranks == 0 && options.communicator == "threads") options.ranks = 4;
  if (options.gradient_codec.empty()) options.gradient_codec = options.codec;
  if (options.batch_size == 0) options.batch_size = file ? 256 : 2048;
  if (options.epochs == 0) options.epochs = file ? 3 : 1;
  if (options.learning_rate == 0) {
    if (options.optimizer == "sgd") options.learning_rate = 10.0f;
    if (options.optimizer == "adagrad" || options.optimizer == "rowwise-adagrad") options.learning_rate = 0.04f;
    if (options.optimizer == "adam") options.learning_rate = 0.01f;
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
  CLI::App app("Trains a DLRM with sharded embeddings on click data, on ranks that are threads of this process or processes.",
               "train_dlrm");
  app.option_defaults()->always_capture_default();
  app.get_formatter()->column_width(44);
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  constexpr float kMostRate = 1e30f;

  app.option_defaults()->group("Data");
  app.add_option("--data", options.data,
                 "Criteo click file (label, 13 integers, 26 hex categories, tabs between), or a folder that convert_criteo or "
                 "NVIDIA's tools made")
      ->option_text("FILE|DIR [synthetic clicks]");
  limit<std::int64_t>(app.add_option("--samples", options.samples, "Synthetic clicks, for training and test together"), 2, kMost, "N");
  limit(app.add_option("--power", options.power, "Exponent of the power law of synthetic ids; 0: uniform"), 0.0, 16.0, "A");
  limit(app.add_option("--test-fraction", options.test_fraction, "Share of the samples, the last ones, that test the model"), 0.0, 0.9,
        "F");
  limit<std::int64_t>(app.add_option("--max-rows", options.max_rows, "Cap of every table's rows; values beyond it share rows"), 3,
                      2147483647, "N", "file 1000000, with --vocabulary 20000, synthetic 10000");
  limit<std::int64_t>(app.add_option("--min-count", options.min_count,
                                     "Category values of a file that training holds less often share one row of their table"),
                      1, kMost, "N");
  CLI::Option* vocabulary =
      app.add_flag("--vocabulary", options.vocabulary,
                   "Give rows to categories while training sees them, --min-count times each, instead of counting a file's beforehand");
  choose(app.add_option("--eviction", options.eviction, "Whose row a new category gets when a --vocabulary is full"), kEvictions)
      ->needs(vocabulary);
  app.add_flag("--skip-bad-lines", options.skip_bad_lines, "Count lines of a file that are no clicks, and go on");

  app.option_defaults()->group("Ranks");
  choose(app.add_option("--communicator", options.communicator, "What ranks are: threads of this process, or processes of mpirun"),
         kCommunicators);
  limit(app.add_option("--ranks", options.ranks, "Number of ranks"), 1, 256, "N", "threads 4, mpi as many as mpirun starts");
  limit(app.add_option("--threads-per-rank", options.threads_per_rank, "OpenMP threads of each rank"), 1, 256, "T");
  limit<std::int64_t>(
      app.add_option("--bucket-kib", options.bucket_kib,
                     "Gradients of the linear layers are summed over the ranks during backward, in buckets of this size; 0: at "
                     "once, after it"),
      0, 1 << 30, "N");
  choose(app.add_option("--loader", options.loader, "Who reads training batches: each rank its part, or the first for all, ahead of time"),
         kLoaders);
  app.add_flag("--overlap", options.overlap,
               "Send the next batch's ids to their owners, on a thread of each rank, during the linear layers of this one")
      ->excludes(vocabulary);
  choose(app.add_option("--backend", options.backend, "Where tables are and layers run; with cuda all ranks share one GPU"), kBackends);
  choose(app.add_option("--plan", options.plan, "How tables are cut over the ranks"), kPlans);
  choose(app.add_option("--codec", options.codec, "How pooled vectors travel between ranks"), kCodecs);
  choose(app.add_option("--gradient-codec", options.gradient_codec, "How their gradients travel"), kCodecs, "as --codec");
  app.add_flag("--deduplicate", options.deduplicate, "Send each distinct id of a rank's batch once, and pool what comes back there");

  app.option_defaults()->group("Model");
  choose(app.add_option("--embedding-width", options.embedding_width, "Columns of every table"), kWidths);
  const auto layers = [&](const char* name, std::vector<std::int64_t>& sizes, const char* what) {
    limit<std::int64_t>(app.add_option(name, sizes, what)->delimiter(',')->allow_extra_args(false), 1, 1 << 20, "N,N...",
                        fmt::format("{}", fmt::join(sizes, ",")));
  };
  layers("--bottom-mlp", options.bottom_mlp, "Hidden layers for the 13 numbers");
  layers("--top-mlp", options.top_mlp, "Hidden layers after the interaction");
  choose(app.add_option("--dense-precision", options.dense_precision,
                        "What both MLPs multiply; sums, parameters and their gradients stay fp32. bf16 needs AVX-512 or --backend cuda"),
         kDensePrecisions);
  choose(app.add_option("--interaction", options.interaction,
                        "What joins the 27 vectors of a sample: dot products of all pairs (DLRM), or cross layers (DCNv2)"),
         kInteractions);
  const CLI::Option* cross[] = {
      limit(app.add_option("--cross-layers", options.cross_layers, "Of --interaction cross"), 1, 1000, "N"),
      limit<std::int64_t>(app.add_option("--cross-rank", options.cross_rank, "Of its weights' two factors; 0: one full matrix"), 0, 1 << 20,
                          "N")};

  app.option_defaults()->group("Training");
  choose(app.add_option("--optimizer", options.optimizer, "Of the embeddings"), kOptimizers);
  limit(app.add_option("--learning-rate", options.learning_rate, "Of the embeddings"), 0.0f, kMostRate, "R",
        "sgd 10, adagrad and rowwise-adagrad 0.04, adam 0.01");
  choose(app.add_option("--dense-optimizer", options.dense_optimizer, "Of the linear layers"), kDenseOptimizers);
  limit(app.add_option("--dense-learning-rate", options.dense_learning_rate, "Of the linear layers"), 0.0f, kMostRate, "R",
        "sgd 0.1, adagrad 0.01, adam 0.001");
  limit(app.add_option("--weight-decay", options.weight_decay, "Of the linear layers"), 0.0f, kMostRate, "R");
  limit(app.add_option("--initial-bound", options.initial_bound, "First embeddings are uniform in [-B, B)"), 0.0f, kMostRate, "B");
  app.add_flag("--constant-rates", options.constant_rates, "Keep the learning rates; else they fall in a straight line to 0");
  limit<std::int64_t>(app.add_option("--batch-size", options.batch_size, "Samples of a step, over all ranks"), 1, 1 << 30, "B",
                      "file 256, synthetic 2048");
  limit(app.add_option("--epochs", options.epochs, "Passes over the training samples"), 1, 1'000'000, "E", "file 3, synthetic 1");
  app.add_option("--seed", options.seed, "Of first values, orders of samples, and synthetic clicks")->option_text("N [1]");

  app.option_defaults()->group("Checkpoints");
  CLI::Option* save = app.add_option("--save", options.save, "Save the model to folders of this one, at the end at least");
  save->option_text("DIR");
  limit<std::int64_t>(app.add_option("--save-every", options.save_every, "Save every so many steps, too"), 1, kMost, "N", "at the end only")
      ->needs(save);
  limit(app.add_option("--keep", options.keep, "Remove all but the last so many checkpoints"), 1, 1'000'000, "N", "all")->needs(save);
  CLI::Option* background = app.add_flag("--save-async", options.save_async, "Train on while checkpoints are written");
  background->needs(save)->excludes(vocabulary);
  limit(app.add_option("--save-increments", options.save_increments,
                       "After a whole checkpoint save so many times only the rows that changed"),
        0, 1'000'000, "N", "0")
      ->needs(save)
      ->excludes(background)
      ->excludes(vocabulary);
  app.add_flag("--resume", options.resume,
               "Go on from the last checkpoint in --save, under any plan and number of ranks; without one begin")
      ->needs(save);

  app.option_defaults()->group("Results");
  app.add_option("--json", options.json, "Write the results to this file")->option_text("FILE");
  app.add_flag("--feature-check", options.feature_check, "After training, test again with each category's ids exchanged between samples");

  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return std::nullopt;
  }
  resolve(options);
  for (const CLI::Option* option : cross)
    tessera::require<CLI::ValidationError>(options.interaction == "cross" || option->count() == 0,
                                           "{} is for --interaction cross; add that or leave it out", option->get_name());
  tessera::require<CLI::ValidationError>(options.backend == "host" || options.communicator == "threads",
                                         "--backend {}: its ranks are threads that share one GPU; leave --communicator {} out",
                                         options.backend, options.communicator);
  return options;
}

}  // namespace dlrm
