// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// What formats of the tables' rows do to a saved model's accuracy, and how long its scores take:
// docs/serving/evaluate.md.
//   evaluate_model accuracy --checkpoint run7 --data clicks.tsv --test-fraction 0.1
//   evaluate_model latency --checkpoint run7 --page latency.html
#include "evaluate_model/evaluate.hpp"
#include "support/options.hpp"
#include "support/report.hpp"
#include "support/text_format.hpp"

#include <tessera/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

const std::vector<std::string> kFormats{"fp32", "bf16", "fp16", "int8", "int8-half", "int4"};

void run_accuracy(const evaluate::AccuracyOptions& options) {
  std::int64_t samples = 0;
  const std::vector<evaluate::Accuracy> all = evaluate::accuracy(options, samples);
  const evaluate::Accuracy& first = all.front();
  fmt::print("{} samples\n{:<10}{:>14}{:>9}{:>11}{:>11}{:>11}{:>11}{:>16}\n",
             support::grouped(samples), "format", "bytes", "share", "AUC", "change", "log loss",
             "change", "largest change");
  for (const evaluate::Accuracy& one : all)
    fmt::print("{:<10}{:>14}{:>9.3f}{:>11.6f}{:>+11.6f}{:>11.6f}{:>+11.6f}{:>16.2e}\n", one.format,
               support::grouped(one.bytes),
               static_cast<double>(one.bytes) / static_cast<double>(first.bytes), one.auc,
               one.auc - first.auc, one.log_loss, one.log_loss - first.log_loss,
               one.largest_difference);
}

void run_latency(const evaluate::LatencyOptions& options, const std::string& page) {
  std::optional<support::ResultFile> file;  // shows first whether it can be written
  if (!page.empty()) file.emplace(page, "--page");
  fmt::print("{:>12}{:>9}{:>8}{:>10}{:>10}{:>10}{:>10}{:>10}{:>14}\n", "loop", "threads", "batch",
             "requests", "p50, us", "p95", "p99", "max", "samples/s");
  const auto all = evaluate::latency(options, [](const evaluate::Latency& one) {
    fmt::print("{:>12}{:>9}{:>8}{:>10}{:>10.1f}{:>10.1f}{:>10.1f}{:>10.1f}{:>14}\n",
               one.load == 0 ? "closed" : fmt::format("open {:.0f} %", 100 * one.load), one.threads,
               one.batch, one.requests, one.p50, one.p95, one.p99, one.largest,
               support::grouped(std::llround(one.samples_per_second)));
    std::fflush(stdout);
  });
  if (file) file->write(evaluate::latency_page(all, options));
}

CLI::Option* checkpoint_option(CLI::App* app, std::filesystem::path& checkpoint) {
  return app
      ->add_option("--checkpoint", checkpoint,
                   "Of a training: the folder of --save, whose last checkpoint is taken, or one")
      ->required()
      ->option_text("DIR");
}

int run(int argc, char** argv) {
  CLI::App app("Accuracy and latency of a model that train_dlrm or train_sequence saved",
               "evaluate_model");
  app.option_defaults()->always_capture_default();
  app.require_subcommand(1);

  evaluate::AccuracyOptions accuracy{.formats = kFormats};
  CLI::App* const how_right = app.add_subcommand(
      "accuracy", "AUC and log loss of each format of the tables' rows, on labelled data");
  how_right->option_defaults()->always_capture_default();
  checkpoint_option(how_right, accuracy.checkpoint);
  how_right->add_option("--data", accuracy.data, "Criteo's lines, or a file with a header")
      ->required()
      ->option_text("FILE");
  how_right
      ->add_option("--label", accuracy.label,
                   "The labels' column; it says that the file has a header")
      ->option_text("COLUMN");
  support::add_text_format(*how_right, accuracy.format, "a comma");
  how_right->add_option("--list-separator", accuracy.list_separator, "Between a list's entries");
  support::limit(how_right->add_option("--test-fraction", accuracy.test_fraction,
                                       "The last part of the lines, as in training"),
                 1e-9, 1.0, "SHARE", "1");
  how_right
      ->add_option("--formats", accuracy.formats,
                   "Of the rows; the first is what the others are compared with")
      ->delimiter(',')
      ->check(CLI::IsMember(kFormats))
      ->option_text("fp32,bf16,fp16,int8,int8-half,int4");

  evaluate::LatencyOptions latency{
      .batch_sizes = {1, 4, 16, 64, 256, 1024, 4096}, .threads = {1, 2}, .loads = {0.5, 0.8}};
  std::string page;
  CLI::App* const how_fast = app.add_subcommand(
      "latency",
      "Latencies of scores of random samples: closed loop, and open loop, whose requests "
      "come whether or not earlier ones are answered, and wait");
  how_fast->option_defaults()->always_capture_default();
  checkpoint_option(how_fast, latency.checkpoint);
  support::choose(how_fast->add_option("--format", latency.format, "Of the tables' rows"),
                  kFormats);
  how_fast->add_option("--batch-sizes", latency.batch_sizes, "Samples of a request")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20))
      ->option_text("1,4,16,64,256,1024,4096");
  how_fast->add_option("--threads", latency.threads, "That score at one time")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024))
      ->option_text("1,2");
  how_fast
      ->add_option("--loads", latency.loads,
                   "Of the open loop: shares of the closed loop's throughput")
      ->delimiter(',')
      ->check(CLI::Range(0.01, 2.0))
      ->option_text("0.5,0.8");
  support::limit(how_fast->add_option("--seconds", latency.seconds, "Of each measurement"), 0.01,
                 3600.0, "SECONDS", "1");
  how_fast
      ->add_option("--user-columns", latency.user_columns,
                   "One sample of these for all of a request: a user with candidates")
      ->delimiter(',')
      ->option_text("COLUMN,...");
  support::limit(how_fast->add_option("--entries", latency.entries, "Of a list, in each sample"), 0,
                 100'000, "N");
  support::limit(how_fast->add_option("--seed", latency.seed, "Of the samples"), std::uint64_t{0},
                 ~std::uint64_t{0}, "N");
  how_fast->add_option("--page", page, "Plots and figures as one HTML file")->option_text("FILE");

  app.parse(argc, argv);
  if (*how_right) run_accuracy(accuracy);
  if (*how_fast) run_latency(latency, page);
  support::check_output();
  return 0;
}

int fail(std::string text, int code) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  fmt::print(stderr, "evaluate_model: {}\n", text);
  return code;
}

}  // namespace

int main(int argc, char** argv) try {
  support::open_standard_streams();
  return run(argc, argv);
} catch (const CLI::Success& success) {
  return CLI::App().exit(success);
} catch (const CLI::Error& error) {
  return fail(std::string(error.what()) + " (see --help)", 2);
} catch (const std::exception& error) {
  return fail(error.what(), 1);
}
