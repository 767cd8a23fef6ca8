// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include "../support/options.hpp"
#include "blocks.hpp"
#include "data.hpp"
#include "items.hpp"

#include <tessera/core/error.hpp>

#include <fmt/format.h>

#include <array>
#include <limits>
#include <string>
#include <string_view>

namespace sequence {
namespace {

using namespace support;

constexpr std::array<std::string_view, 2> kBackends{"host", "cuda"};
constexpr std::array<std::string_view, 2> kModels{"next-item", "ranking"};

/// What a step has that cannot be captured: with --graph it is called all the same.
struct Uncaptured {
  std::string_view what, called, why;
  bool all;
  bool (*given)(const Options&);
};
constexpr std::array<Uncaptured, 2> kUncaptured{
    {{"--virtual-ranks", "all of a step is",
      "sums have other bits where rows without a history make room", true,
      [](const Options& o) { return o.virtual_ranks > 0; }},
     {"--ranks above 1", "lookups, exchanges and updates are",
      "ranks that share one GPU meet on the host", false,
      [](const Options& o) { return o.ranks > 1; }}}};

/// The lines of --help that say so.
std::string uncaptured() {
  std::string text = "What --graph does not capture:\n";
  for (const Uncaptured& u : kUncaptured)
    text += fmt::format("  with {}: {} called: {}\n", u.what, u.called, u.why);
  return text;
}

void check(Options& options) {
  using tessera::require;
  require<CLI::ValidationError>(!options.graph || options.backend == "cuda",
                                "--backend {} takes no --graph: graphs are CUDA's",
                                options.backend);
  for (const Uncaptured& u : kUncaptured)
    if (options.graph && u.given(options)) {
      options.graph = !u.all;
      options.called = fmt::format("{} called, with {}: {}", u.called, u.what, u.why);
    }
  check_paths({{"--data", options.data}},
              {{"--predictions", options.predictions}, {"--json", options.json}});
  require<CLI::ValidationError>(
      is_compiled(options.width, options.heads),
      "--width {} with --heads {}: a head then has {} columns; heads of 8, 16, 32 and 64 are "
      "compiled in",
      options.width, options.heads, options.width / options.heads);
  if (options.virtual_ranks > 0) {
    const auto one_bit = [](int n) { return (n & (n - 1)) == 0; };
    require<CLI::ValidationError>(
        one_bit(options.virtual_ranks) && one_bit(options.ranks) &&
            options.ranks <= options.virtual_ranks,
        "--virtual-ranks {} with --ranks {}: both must be powers of two, and the ranks at most as "
        "many",
        options.virtual_ranks, options.ranks);
    require<CLI::ValidationError>(
        options.plan != "replicated" && options.plan != "hot-rows",
        "--virtual-ranks: gradients of replicated rows are summed rank by rank; choose another "
        "--plan");
  }
  require<CLI::ValidationError>(
      options.hot_rows == Options().hot_rows || options.plan == "hot-rows",
      "--hot-rows is for --plan hot-rows; add that or leave it out");
  require<CLI::ValidationError>(options.predictions.empty() || !options.ranks_items(),
                                "--predictions are of --model ranking");
  require<CLI::ValidationError>(options.popularity == 0 || options.ranks_items(),
                                "--popularity is of --model next-item");
  require<CLI::ValidationError>(!options.log_q || options.popularity > 0,
                                "--log-q corrects for --popularity, which is 0");
  require<CLI::ValidationError>(!options.data.empty() || options.items >= 2 * kLongestMadeUp,
                                "--items {}: made-up histories need at least {}", options.items,
                                2 * kLongestMadeUp);
}

}  // namespace

std::optional<Options> parse_options(int argc, const char* const* argv) {
  Options options;
  CLI::App app(
      "Trains a sequence model of HSTU blocks on histories of events, with a sharded table of "
      "items, on ranks that are threads.",
      "train_sequence");
  app.option_defaults()->always_capture_default();
  app.get_formatter()->column_width(44);
  app.footer(uncaptured());
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  const auto add = [&](const char* name, auto& value, const char* what) {
    return app.add_option(name, value, what);
  };

  app.option_defaults()->group("Data");
  CLI::Option* const data = add("--data", options.data,
                                "File of events in any order, as CSV or TSV with a line of names, "
                                "also of gzip or zstd, or "
                                "Parquet or Arrow: a user, an item and a time in each line")
                                ->option_text("FILE [made-up histories]");
  add("--user-column", options.user_column, "Name of a column")->needs(data);
  add("--item-column", options.item_column, "Name of a column")->needs(data);
  add("--time-column", options.time_column, "Name of a column of whole numbers")->needs(data);
  CLI::Option* const label =
      add("--label-column", options.label_column, "Name of a column of numbers")
          ->option_text("NAME [none: every event is a 1]")
          ->needs(data);
  for (CLI::Option* option :
       add_text_format(app, options.format, "a tab if the first line holds one, else a comma"))
    option->needs(data);
  limit(add("--label-threshold", options.label_threshold, "A label is 1 from this number on"),
        -1e30, 1e30, "X")
      ->needs(label);
  app.add_flag("--skip-bad-lines", options.skip_bad_lines,
               "Count lines of a file that are no events, and go on")
      ->needs(data);
  limit<std::int64_t>(add("--sort-memory", options.sort_memory_mib,
                          "MiB of events in memory; more are sorted in a temporary file"),
                      1, 1 << 24, "MIB")
      ->needs(data);
  add("--temporary-folder", options.temporary_folder, "Of that file")
      ->option_text("DIR [the system's]")
      ->needs(data);
  limit<std::int64_t>(add("--users", options.users, "Of made-up histories"), 1, 1 << 28, "N")
      ->excludes(data);
  limit<std::int64_t>(add("--items", options.items, "Of made-up histories"), 1, 1 << 30, "N")
      ->excludes(data);
  limit<std::int64_t>(
      add("--test-window", options.test_window,
          "Test on the events of so long a time at the end, in the unit of the file's times, "
          "validate on as long a time before it, train on what is before that"),
      1, std::numeric_limits<std::int64_t>::max() / 4, "TIME",
      "leave one out: test on each user's last event, validate on the one before it");

  app.option_defaults()->group("Ranks");
  limit(add("--ranks", options.ranks, "Threads with a part of the tables and of each batch"), 1, 64,
        "N");
  limit(add("--threads-per-rank", options.threads_per_rank, "OpenMP threads of each rank"), 1, 64,
        "T");
  choose(add("--backend", options.backend,
             "Where tables and layers are and are computed; cuda: on a GPU that the ranks share, "
             "with every other option"),
         kBackends);
  app.add_flag("--graph", options.graph,
               "Of --backend cuda: capture a step after two that were called, and replay it; "
               "batches with fewer histories are called");
  choose(add("--plan", options.plan, "How the table of items is cut over the ranks"), kPlans);
  limit(add("--hot-rows", options.hot_rows,
            "First rows of the table that --plan hot-rows copies to every rank: for items that are "
            "numbered by how often they occur"),
        1, 1 << 30, "N");
  limit(add("--virtual-ranks", options.virtual_ranks,
            "Cut batches into so many parts, whose sums are always added in one order: the same "
            "model, to the bit, under any plan and on 1, 2, 4 ... up to so many ranks"),
        1, 256, "V", "off");

  app.option_defaults()->group("Model");
  choose(add("--model", options.model,
             "next-item: scores all items after each event; ranking: a history and a candidate "
             "give a logit"),
         kModels);
  choose(add("--width", options.width, "Columns of the table of items"), kWidths);
  limit(add("--blocks", options.blocks, "HSTU blocks"), 0, 64, "N");
  choose(add("--heads", options.heads, "Of each block's attention"), kHeads);
  limit<std::int64_t>(add("--max-length", options.max_length, "Events of a history that are read"),
                      1, 1 << 16, "N");
  limit(add("--dropout", options.dropout, "Share of zeros after the table and in each block"), 0.0f,
        0.95f, "P");

  app.option_defaults()->group("Training");
  limit<std::int64_t>(add("--negatives", options.negatives,
                          "Items that each event's next one is told from, the same for a whole "
                          "batch; as many as there are items or more: all of them"),
                      1, 1 << 24, "N", "1000, or all items of fewer");
  limit(add("--popularity", options.popularity,
            "Negatives are drawn by (how often an item occurs + 1) to this power"),
        0.0, 8.0, "A");
  app.add_flag("--log-q", options.log_q, "Correct the softmax for how negatives are drawn");
  limit<std::int64_t>(
      add("--batch-size", options.batch_size, "Histories of a step, over all ranks"), 1, 1 << 24,
      "B");
  app.add_option_function<std::string>(
         "--epochs",
         [&options](const std::string& text) {
           const std::optional<int> epochs =
               text == "auto" ? Options::kAutoEpochs : number_of<int>(text);
           tessera::require<CLI::ValidationError>(
               text == "auto" || (epochs && *epochs >= 1 && *epochs < Options::kAutoEpochs),
               "--epochs: {} is not a number from 1 to 1000000, or auto", text);
           options.epochs = *epochs;
         },
         "Passes over the training histories; auto: until the validation has not become better in "
         "--patience of them, and the best model, kept in DIR/best of --save, is tested")
      ->option_text("E [auto; 10 if no history has an event to validate on]");
  limit(add("--patience", options.patience, "Epochs without a better one that end --epochs auto"),
        1, 1'000, "N");
  limit(add("--learning-rate", options.learning_rate,
            "Of Adam, at first; it falls in a straight line to 0, but stays under --epochs auto"),
        0.0f, 1e30f, "R");
  limit<std::uint64_t>(add("--seed", options.seed, "Of first values, orders, dropout, negatives"),
                       0, std::numeric_limits<std::uint64_t>::max(), "N");
  app.add_flag("--validate", options.validate, "Test on the validation part after each epoch");

  app.option_defaults()->group("Checkpoints");
  CLI::Option* const save =
      add("--save", options.save, "Save the model to folders of this one, after each epoch")
          ->option_text("DIR");
  limit<std::int64_t>(add("--save-every", options.save_every, "Save every so many steps instead"),
                      1, kMost, "N", "after each epoch")
      ->needs(save);
  limit(add("--keep", options.keep, "Remove all but the last so many checkpoints"), 1, 1'000'000,
        "N", "all")
      ->needs(save);
  app.add_flag("--resume", options.resume,
               "Go on from the last checkpoint in --save, under any plan and number of ranks; "
               "without one begin")
      ->needs(save);

  app.add_option("--start-from", options.start_from,
                 "Begin with the items and layers of the last checkpoint there, or of that one, as "
                 "far as this model has them; what begins anew is printed")
      ->option_text("DIR");

  app.option_defaults()->group("Results");
  add("--json", options.json, "Write the results to this file")->option_text("FILE");
  add("--predictions", options.predictions,
      "Of --model ranking: write the test's histories and candidates with their logits to this "
      "file, "
      "tab-separated")
      ->option_text("FILE");

  refuse_empty_values(app);
  if (!parse(app, argc, argv)) return std::nullopt;
  check(options);
  return options;
}

}  // namespace sequence
