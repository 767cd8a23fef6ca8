// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include "../support/options.hpp"
#include "embeddings.hpp"
#include "plans.hpp"
#include "table_optimizers.hpp"

#include <tessera/core/error.hpp>
#include <tessera/optimizer/schedule.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace dlrm {
namespace {

using namespace support;

constexpr std::array<std::string_view, 3> kEvictions{"none", "least-frequent", "oldest"};
constexpr std::array<std::string_view, 3> kDenseOptimizers{"sgd", "adagrad", "adam"};
constexpr std::array<std::string_view, 4> kDensePrecisions{"auto", "fp32", "tf32", "bf16"};
constexpr std::array<std::string_view, 2> kCommunicators{"threads", "mpi"};
constexpr std::array<std::string_view, 2> kLoaders{"every-rank", "first-rank"};
constexpr std::array<std::string_view, 2> kBackends{"host", "cuda"};
constexpr std::array<std::string_view, 2> kInteractions{"dot", "cross"};
constexpr std::array<std::string_view, 3> kModes{"train", "eval", "inference"};
constexpr std::array<std::string_view, 2> kAucs{"exact", "binned"};

/// more than any machine has; beyond it OpenMP ends the process
constexpr int kMostThreads = 4096;

constexpr std::int64_t kMostNeurons = 1 << 20;

/// "512,256", the value of option `name`. Throws CLI::ValidationError.
std::vector<std::int64_t> sizes_of(const char* name, const std::string& text) {
  std::vector<std::int64_t> sizes;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    const std::optional<std::int64_t> size = number_of<std::int64_t>(word);
    tessera::require<CLI::ValidationError>(size && *size >= 1 && *size <= kMostNeurons,
                                           "{}: '{}' in '{}' is not a number from 1 to {}; give "
                                           "sizes with a comma between two, as in 512,256",
                                           name, word, text, kMostNeurons);
    sizes.push_back(*size);
    begin = end + 1;
  }
  return sizes;
}

template <class T>
std::string text_of(const T& value) {
  return fmt::format("{}", value);
}
std::string text_of(const std::vector<std::int64_t>& sizes) {
  return fmt::format("{}", fmt::join(sizes, ","));
}

/// "" where this is a schedule, else what is wrong.
std::string check_schedule(const std::string& text) try {
  static_cast<void>(tessera::Schedule::parse(text, 1));
  return {};
} catch (const tessera::InvalidArgument& error) {
  return error.what();
}

/// What is not given depends on the input: a file is small and seen several times, synthetic clicks
/// are endless and seen once.
void resolve(Options& options, bool rate_given, bool dense_rate_given) {
  tessera::require<CLI::ValidationError>(
      !options.vocabulary || options.loader != "first-rank",
      "--loader first-rank hands out rows, which --vocabulary has yet to find");
  const bool file = !options.data.empty();
  if (options.max_rows == 0)
    options.max_rows = !file ? 10'000 : options.vocabulary ? 20'000 : 1'000'000;
  if (options.ranks == 0 && options.communicator == "threads") options.ranks = 4;
  tessera::require<CLI::ValidationError>(
      options.ranks * options.threads_per_rank <= kMostThreads,
      "--ranks {} with --threads-per-rank {} needs {} threads; {} is the most", options.ranks,
      options.threads_per_rank, options.ranks * options.threads_per_rank, kMostThreads);
  std::error_code ignored;
  const std::pair<const char*, const std::string&> inputs[] = {{"--data", options.data},
                                                               {"--schema", options.schema},
                                                               {"--plan-file", options.plan_file}},
                                                   outputs[] = {
                                                       {"--json", options.json},
                                                       {"--predictions", options.predictions},
                                                       {"--log", options.log},
                                                       {"--report", options.report},
                                                       {"--trace", options.trace}};
  for (const auto& [out, path] : outputs) {
    for (const auto& [in, read] : inputs)
      tessera::require<CLI::ValidationError>(
          path.empty() || read.empty() || !std::filesystem::equivalent(path, read, ignored),
          "{}: '{}' is what {} reads; give another file", out, path, in);
    for (const auto& [other, written] : outputs)
      tessera::require<CLI::ValidationError>(path.empty() || other == out || path != written ||
                                                 std::filesystem::is_character_file(path, ignored),
                                             "{}: '{}' is the file of {}, too; give another one",
                                             out, path, other);
  }
  tessera::require<CLI::ValidationError>(
      options.schema.empty() || !std::filesystem::is_directory(options.data, ignored),
      "--schema is for files; '{}' is a folder, whose feature_spec.yaml says what it holds",
      options.data);
  if (options.gradient_codec.empty()) options.gradient_codec = options.codec;
  if (options.batch_size == 0) options.batch_size = file ? 256 : 2048;
  if (options.eval_batch_size == 0) options.eval_batch_size = options.batch_size;
  if (options.stop_at_auc > 0 && options.evals_per_epoch == 0) options.evals_per_epoch = 1;
  tessera::require<CLI::ValidationError>(
      options.mode == "train" || options.resume,
      "--mode {}: add --save DIR --resume, which name the checkpoint", options.mode);
  if (options.epochs == 0) options.epochs = file ? 3 : 1;
  if (options.virtual_ranks > 0) {
    const auto one_bit = [](int n) { return (n & (n - 1)) == 0; };
    tessera::require<CLI::ValidationError>(
        one_bit(options.virtual_ranks) && one_bit(options.ranks) &&
            options.ranks <= options.virtual_ranks,
        "--virtual-ranks {} with --ranks {}: both must be powers of two, and the ranks at most as "
        "many",
        options.virtual_ranks, options.ranks);
    tessera::require<CLI::ValidationError>(
        options.codec == "fp32" && options.gradient_codec == "fp32",
        "--virtual-ranks: what is encoded depends on the ranks; leave --codec and --gradient-codec "
        "at fp32");
    tessera::require<CLI::ValidationError>(
        options.loader == "every-rank",
        "--virtual-ranks: the first rank cuts batches by ranks; leave --loader {} out",
        options.loader);
  }
  options.one_rate = rate_given;
  if (!rate_given) {
    options.learning_rate = standard_rate(options.optimizer);
  }
  if (!dense_rate_given) {
    if (options.dense_optimizer == "sgd") options.dense_learning_rate = 0.1f;
    if (options.dense_optimizer == "adagrad") options.dense_learning_rate = 0.01f;
    if (options.dense_optimizer == "adam") options.dense_learning_rate = 0.001f;
  }
}

}  // namespace

std::optional<Options> parse_options(int argc, const char* const* argv) {
  Options options;
  CLI::App app(
      "Trains a DLRM with sharded embeddings on click data, on ranks that are threads of this "
      "process or processes.",
      "train_dlrm");
  app.option_defaults()->always_capture_default();
  app.get_formatter()->column_width(44);
  // Most options, in the order of --help: those whose values all ranks must share.
  std::vector<std::pair<std::string, std::function<std::string()>>> shared;
  const auto add = [&](const char* name, auto& value, const char* what) {
    shared.emplace_back(name, [&value] { return text_of(value); });
    return app.add_option(name, value, what);
  };
  const auto flag = [&](const char* name, bool& value, const char* what) {
    shared.emplace_back(name, [&value] { return std::string(value ? "given" : "not given"); });
    return app.add_flag(name, value, what);
  };
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  constexpr float kMostRate = 1e30f;

  app.option_defaults()->group("Data");
  app.add_option("--data", options.data,
                 "Criteo click file (label, 13 integers, 26 hex categories, tabs between), or a "
                 "folder that convert_criteo or "
                 "NVIDIA's tools made")
      ->option_text("FILE|DIR [synthetic clicks]");
  CLI::Option* schema =
      add("--schema", options.schema,
          "YAML file that says what the columns of --data mean, a CSV or TSV file with a header, "
          "also of gzip or zstd (docs/your_own_data.md)")
          ->option_text("FILE");
  schema->needs("--data");
  limit<std::int64_t>(add("--shuffle-window", options.shuffle_window,
                          "Samples of a --schema's file that are in memory, in a random order; a "
                          "larger file is read again every epoch"),
                      1, kMost, "N")
      ->needs(schema);
  limit(app.add_option("--parser-threads", options.parser_threads,
                       "That read a --schema's file ahead"),
        1, 256, "T")
      ->needs(schema);
  limit<std::int64_t>(
      add("--samples", options.samples, "Synthetic clicks, for training and test together"), 2,
      kMost, "N");
  limit(add("--power", options.power, "Exponent of the power law of synthetic ids; 0: uniform"),
        0.0, 16.0, "A");
  limit(add("--test-fraction", options.test_fraction,
            "Share of the samples, the last ones, that test the model"),
        0.0, 0.9, "F");
  limit<std::int64_t>(
      add("--max-rows", options.max_rows, "Cap of every table's rows; values beyond it share rows"),
      3, 2147483647, "N", "file 1000000, with --vocabulary 20000, synthetic 10000");
  limit<std::int64_t>(
      add("--min-count", options.min_count,
          "Category values of a file that training holds less often share one row of their table"),
      1, kMost, "N");
  CLI::Option* vocabulary = flag("--vocabulary", options.vocabulary,
                                 "Give rows to categories while training sees them, --min-count "
                                 "times each, instead of counting a file's beforehand");
  choose(add("--eviction", options.eviction,
             "Whose row a new category gets when a --vocabulary is full"),
         kEvictions)
      ->needs(vocabulary);
  flag("--skip-bad-lines", options.skip_bad_lines,
       "Count lines of a file that are no clicks, and go on");

  app.option_defaults()->group("Ranks");
  choose(add("--communicator", options.communicator,
             "What ranks are: threads of this process, or processes of mpirun"),
         kCommunicators);
  limit(app.add_option("--ranks", options.ranks, "Number of ranks"), 1, 256, "N",
        "threads 4, mpi as many as mpirun starts");
  limit(
      app.add_option("--threads-per-rank", options.threads_per_rank, "OpenMP threads of each rank"),
      1, 256, "T");
  CLI::Option* timeout = limit(add("--timeout", options.timeout,
                                   "Seconds that a rank waits for the others before it gives up "
                                   "and names them; 0: for ever"),
                               0.0, 1e8, "SECONDS", "threads 0, mpi 600");
  CLI::Option* buckets =
      limit<std::int64_t>(add("--bucket-kib", options.bucket_kib,
                              "Gradients of the linear layers are summed over the ranks during "
                              "backward, in buckets of this size; 0: at "
                              "once, after it"),
                          0, 1 << 30, "N");
  choose(add("--loader", options.loader,
             "Who reads training batches: each rank its part, or the first for all, ahead of time"),
         kLoaders);
  flag("--overlap", options.overlap,
       "Send the next batch's ids to their owners, on a thread of each rank, during the linear "
       "layers of this one")
      ->excludes(vocabulary);
  choose(add("--backend", options.backend,
             "Where tables are and layers run; with cuda all ranks share one GPU"),
         kBackends);
  CLI::Option* named_plan =
      choose(add("--plan", options.plan, "How tables are cut over the ranks"), kPlans);
  CLI::Option* plan_file =
      app.add_option("--plan-file", options.plan_file,
                     "The same as tessera_plan --out wrote it, for these tables and ranks")
          ->option_text("FILE")
          ->excludes(named_plan);
  CLI::Option* device_memory =
      add("--device-memory", options.device_memory,
          "Of each rank for tables and their optimizer's state, with --backend cuda; those that do "
          "not fit stay in the host's memory, where the GPU reads them: 8GiB")
          ->transform(CLI::AsSizeValue(false))
          ->check(CLI::Range(std::int64_t{1}, kMost << 10))
          ->option_text("SIZE [no limit]")
          ->excludes(plan_file);
  add("--host-memory", options.host_memory, "Of each rank for the tables that stay there")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::int64_t{1}, kMost << 10))
      ->option_text("SIZE [no limit]")
      ->needs(device_memory);
  choose(add("--codec", options.codec, "How pooled vectors travel between ranks"), kCodecs);
  choose(add("--gradient-codec", options.gradient_codec, "How their gradients travel"), kCodecs,
         "as --codec");
  CLI::Option* deduplicate =
      flag("--deduplicate", options.deduplicate,
           "Send each distinct id of a rank's batch once, and pool what comes back there");
  limit(add("--virtual-ranks", options.virtual_ranks,
            "Cut batches into so many parts, whose sums are always added in one order: the same "
            "model, to the bit, under any plan and on 1, 2, 4 ... up to so many ranks"),
        1, 256, "V", "off")
      ->excludes(deduplicate)
      ->excludes(buckets);

  app.option_defaults()->group("Model");
  choose(add("--embedding-width", options.embedding_width, "Columns of every table"), kWidths);
  const auto layers = [&](const char* name, std::vector<std::int64_t>& sizes, const char* what) {
    shared.emplace_back(name, [&sizes] { return text_of(sizes); });
    const auto set = [&sizes, name](const std::string& text) { sizes = sizes_of(name, text); };
    app.add_option_function<std::string>(name, set, what)
        ->option_text(fmt::format("N,N... [{}]", text_of(sizes)));
  };
  layers("--bottom-mlp", options.bottom_mlp, "Hidden layers for the 13 numbers");
  layers("--top-mlp", options.top_mlp, "Hidden layers after the interaction");
  choose(add("--dense,--dense-precision", options.dense_precision,
             "What dense layers multiply; sums, parameters and their gradients stay fp32. auto: "
             "fp32 on the host, tf32 with --backend cuda: floats rounded to 10 bits of mantissa, "
             "on the tensor cores. bf16, of the MLPs, needs AVX-512 or --backend cuda, where the "
             "interaction is in tf32 then"),
         kDensePrecisions);
  choose(add("--interaction", options.interaction,
             "What joins the 27 vectors of a sample: dot products of all pairs (DLRM), or cross "
             "layers (DCNv2)"),
         kInteractions);
  const CLI::Option* cross[] = {
      limit(add("--cross-layers", options.cross_layers, "Of --interaction cross"), 1, 1000, "N"),
      limit<std::int64_t>(add("--cross-rank", options.cross_rank,
                              "Of its weights' two factors; 0: one full matrix"),
                          0, 1 << 20, "N")};

  app.option_defaults()->group("Training");
  add("--optimizer", options.optimizer,
      "Of the embeddings: sgd, adagrad, rowwise-adagrad, adam or ftrl; or pairs NAME:PATTERN, as "
      "in "
      "ftrl:C1*,frozen:C26,rowwise-adagrad:*, of which the first that matches a table's name "
      "counts; "
      "frozen: tables that never change")
      ->type_name("NAME[:PATTERN,...]")
      ->check([](const std::string& text) {
        try {
          parse_optimizers(text);
        } catch (const tessera::InvalidArgument& error) {
          return std::string(error.what());
        }
        return std::string();
      });
  const CLI::Option* rate = limit(
      add("--learning-rate", options.learning_rate, "Of the embeddings"), 0.0f, kMostRate, "R",
      "of each optimizer: sgd 10, adagrad and rowwise-adagrad 0.04, adam 0.01, ftrl 0.1");
  choose(add("--dense-optimizer", options.dense_optimizer, "Of the linear layers"),
         kDenseOptimizers);
  const CLI::Option* dense_rate =
      limit(add("--dense-learning-rate", options.dense_learning_rate, "Of the linear layers"), 0.0f,
            kMostRate, "R", "sgd 0.1, adagrad 0.01, adam 0.001");
  limit(add("--weight-decay", options.weight_decay, "Of the linear layers"), 0.0f, kMostRate, "R");
  limit(
      app.add_option("--clip-norm", options.clip_norm,
                     "Scale a step's gradients, of tables and linear layers together, down to this "
                     "norm where theirs is larger"),
      1e-30f, 1e30f, "NORM");
  limit(add("--initial-bound", options.initial_bound, "First embeddings are uniform in [-B, B)"),
        0.0f, kMostRate, "B");
  CLI::Option* constant = flag("--constant-rates", options.constant_rates,
                               "Keep the learning rates; else they fall in a straight line to 0");
  const auto stages = [&](const char* name, std::string& value, const char* what) {
    return add(name, value, what)->check(check_schedule)->excludes(constant);
  };
  CLI::Option* schedule =
      stages("--schedule", options.schedule,
             "Stages of the learning rates, as warmup:8000,hold:40000,poly:24000:2; kinds are "
             "constant, hold:STEPS, warmup:STEPS, poly:STEPS[:POWER[:END]], cosine:STEPS[:END], "
             "inverse-sqrt:WARMUP, step:EVERY:FACTOR");
  schedule->option_text("STAGE,STAGE... [a straight line to 0]");
  stages("--dense-schedule", options.dense_schedule, "The same, of the linear layers alone")
      ->option_text("STAGE,STAGE... [as --schedule]");
  limit<std::int64_t>(add("--batch-size", options.batch_size, "Samples of a batch, over all ranks"),
                      1, 1 << 30, "B", "file 256, synthetic 2048");
  CLI::Option* accumulate = limit<std::int64_t>(
      add("--accumulate", options.accumulate,
          "Batches whose gradients are summed for one step: as a batch of so many times the size, "
          "in the memory of one"),
      1, 1 << 20, "K");
  // a row may be given to another key while its gradients wait
  vocabulary->excludes(accumulate);
  buckets->excludes(accumulate);
  limit(add("--epochs", options.epochs, "Passes over the training samples"), 1, 1'000'000, "E",
        "file 3, synthetic 1");
  limit<std::int64_t>(add("--max-steps", options.max_steps,
                          "End after so many steps; the rates stay those of all --epochs"),
                      1, kMost, "N", "all of --epochs");
  limit<std::uint64_t>(
      add("--seed", options.seed, "Of first values, orders of samples, and synthetic clicks"), 0,
      std::numeric_limits<std::uint64_t>::max(), "N");

  app.option_defaults()->group("Checkpoints");
  CLI::Option* save =
      add("--save", options.save, "Save the model to folders of this one, at the end at least");
  save->option_text("DIR");
  limit<std::int64_t>(add("--save-every", options.save_every, "Save every so many steps, too"), 1,
                      kMost, "N", "at the end only")
      ->needs(save);
  limit(add("--keep", options.keep, "Remove all but the last so many checkpoints"), 1, 1'000'000,
        "N", "all")
      ->needs(save);
  CLI::Option* background =
      flag("--save-async", options.save_async, "Train on while checkpoints are written");
  background->needs(save);
  limit(add("--save-increments", options.save_increments,
            "After a whole checkpoint save so many times only the rows that changed"),
        0, 1'000'000, "N", "0")
      ->needs(save)
      ->excludes(background);
  flag("--resume", options.resume,
       "Go on from the last checkpoint in --save, under any plan and number of ranks; without one "
       "begin")
      ->needs(save);

  app.option_defaults()->group("Evaluation");
  choose(add("--mode", options.mode,
             "eval: test the last checkpoint in --save; inference: measure its speed, too"),
         kModes);
  limit<std::int64_t>(add("--evals-per-epoch", options.evals_per_epoch,
                          "Test so often in each epoch; with --save the best model is kept in "
                          "DIR/best"),
                      1, kMost, "N", "at the end only");
  limit<std::int64_t>(add("--eval-batch-size", options.eval_batch_size,
                          "Samples that are tested at once, over all ranks"),
                      1, 1 << 30, "B", "as --batch-size");
  limit(add("--stop-at-auc", options.stop_at_auc, "End when a test reaches this AUC"), 0.0, 1.0,
        "X", "never");
  choose(add("--auc", options.auc,
             "exact: from all test samples, in memory; binned: from 8,000 thresholds"),
         kAucs);
  app.add_option("--predictions", options.predictions,
                 "Write the test samples' probabilities, in their order, as float32")
      ->option_text("FILE.npy");

  app.option_defaults()->group("Results");
  limit<std::int64_t>(add("--print-every", options.print_every,
                          "Print progress every so many "
                          "steps"),
                      1, kMost, "N", "now and then");
  CLI::Option* trace =
      add("--trace", options.trace,
          "Write when each rank did what in its first steps, for Perfetto or chrome://tracing");
  trace->option_text("FILE.json");
  limit<std::int64_t>(add("--trace-steps", options.trace_steps, "How many steps"), 1, 1'000'000,
                      "N")
      ->needs(trace);
  add("--log", options.log,
      "Write a line of JSON at each report of progress and each test; with --resume go on behind "
      "the lines there")
      ->option_text("FILE");
  add("--report", options.report,
      "Write a page with loss, AUC, rates, time by stage, the plan and the options at the end")
      ->option_text("FILE.html");
  app.add_option("--json", options.json, "Write the results to this file")->option_text("FILE");
  flag("--feature-check", options.feature_check,
       "After training, test again with each category's ids exchanged between samples");

  // a script's variable that is not set, not a wish for the default
  for (CLI::Option* option : app.get_options())
    if (option->get_expected_max() > 0)
      option->check([](const std::string& text) {
        return std::string(text.empty() ? "the value is empty" : "");
      });
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return std::nullopt;
  }
  if (timeout->count() == 0 && options.communicator == "mpi") options.timeout = 600;
  resolve(options, rate->count() > 0, dense_rate->count() > 0);
  for (const CLI::Option* option : cross)
    tessera::require<CLI::ValidationError>(
        options.interaction == "cross" || option->count() == 0,
        "{} is for --interaction cross; add that or leave it out", option->get_name());
  if (options.dense_precision == "auto")
    options.dense_precision = options.backend == "cuda" ? "tf32" : "fp32";
  tessera::require<CLI::ValidationError>(
      options.backend == "cuda" || options.dense_precision != "tf32",
      "--dense tf32 is for --backend cuda; on the host take fp32 or bf16");
  tessera::require<CLI::ValidationError>(
      options.backend == "cuda" || options.device_memory == 0,
      "--device-memory is for --backend cuda: on the host all tables lie in one memory");
  tessera::require<CLI::ValidationError>(
      options.backend == "host" || options.communicator == "threads",
      "--backend {}: its ranks are threads that share one GPU; leave --communicator {} out",
      options.backend, options.communicator);
  if (!options.plan_file.empty()) options.plan = "file";
  for (const auto& [name, value] : shared) options.shared.emplace_back(name, value());
  return options;
}

}  // namespace dlrm
