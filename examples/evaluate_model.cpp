// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// What formats of the tables' rows do to a saved model's accuracy, how long its scores take, and the
// scores themselves of data without labels: docs/serving/evaluate.md.
//   evaluate_model accuracy --checkpoint run7 --data clicks.tsv --test-fraction 0.1
//   evaluate_model latency --checkpoint run7 --page latency.html
//   evaluate_model predict --checkpoint run7 --data today.csv --keep user,item --out scores.csv
#include "evaluate_model/evaluate.hpp"
#include "support/files.hpp"
#include "support/options.hpp"
#include "support/parquet.hpp"
#include "support/report.hpp"
#include "support/text_format.hpp"

#include <tessera/io/npy_header.hpp>

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
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

/// A field of a CSV file: in quotes if it holds what would end it.
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += c;
    quoted += c;
  }
  return quoted + '"';
}

void run_predict(const evaluate::PredictOptions& options, const std::filesystem::path& out) {
  support::check_paths({{"--data", options.data}, {"--checkpoint", options.checkpoint}},
                       {{"--out", out}});
  const bool npy = out.extension() == ".npy", parquet = out.extension() == ".parquet";
  if (!npy && !parquet && out.extension() != ".csv")
    throw CLI::ValidationError(
        fmt::format("--out: '{}' must end in .npy, .csv or .parquet", out.string()));
  if (npy && !options.keep.empty())
    throw CLI::ValidationError(
        "--keep: a .npy file holds probabilities alone; give --out a .csv or .parquet");
  support::ResultFile file(out, "--out");
  std::vector<float> values;  // of a .npy file, whose begin says how many there are
  std::optional<support::ParquetWriter> rows;
  if (parquet) {
    rows.emplace(options.keep, "prediction", [&](std::string_view bytes) { file.add(bytes); });
  } else if (!npy) {
    for (const std::string& name : options.keep) file.add(csv_field(name) + ',');
    file.add("prediction\n");
  }
  const std::int64_t samples =
      evaluate::predict(options, [&](std::span<const std::string> kept, float probability) {
        if (npy) return values.push_back(probability);
        if (parquet) return rows->add(kept, probability);
        std::string line;
        for (const std::string& text : kept) line += csv_field(text) + ',';
        file.add(fmt::format("{}{}\n", line, probability));
      });
  if (npy) {
    file.add(tessera::detail::format_npy_header(tessera::detail::TensorType::f32,
                                                std::vector<std::int64_t>{samples}));
    file.add({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  }
  if (parquet) rows->finish();
  file.finish();
  fmt::print("{} samples\n", support::grouped(samples));
}

CLI::Option* checkpoint_option(CLI::App* app, std::filesystem::path& checkpoint) {
  return app
      ->add_option("--checkpoint", checkpoint,
                   "Of a training: the folder of --save, whose last checkpoint is taken, or one")
      ->required()
      ->option_text("DIR");
}

void list_separator_option(CLI::App* app, char& separator) {
  app->add_option_function<std::string>(
         "--list-separator",
         [&separator](const std::string& text) {
           tessera::require<CLI::ValidationError>(
               text.size() == 1, "--list-separator: '{}' is not one character", text);
           separator = text[0];
         },
         "Between a list's entries")
      ->option_text("C [the model's]");
}

int run(int argc, char** argv) {
  CLI::App app(
      "Accuracy, latency and predictions of a model that train_dlrm or train_sequence saved",
      "evaluate_model");
  app.option_defaults()->always_capture_default();
  app.require_subcommand(1);

  evaluate::AccuracyOptions accuracy{{}, 1, kFormats};
  CLI::App* const how_right = app.add_subcommand(
      "accuracy", "AUC and log loss of each format of the tables' rows, on labelled data");
  how_right->option_defaults()->always_capture_default();
  checkpoint_option(how_right, accuracy.checkpoint);
  how_right
      ->add_option("--data", accuracy.data,
                   "Criteo's lines, or a file with a header, Parquet or Arrow")
      ->required()
      ->option_text("FILE");
  how_right
      ->add_option("--label", accuracy.label,
                   "The labels' column; it says that the file has a header")
      ->option_text("COLUMN");
  support::add_text_format(*how_right, accuracy.format, "a comma");
  list_separator_option(how_right, accuracy.list_separator);
  support::limit(how_right->add_option("--test-fraction", accuracy.test_fraction,
                                       "The last part of the lines, as in training"),
                 1e-9, 1.0, "SHARE", "1");
  how_right
      ->add_option("--formats", accuracy.formats,
                   "Of the rows; the first is what the others are compared with")
      ->delimiter(',')
      ->check(CLI::IsMember(kFormats))
      ->option_text("fp32,bf16,fp16,int8,int8-half,int4");

  evaluate::PredictOptions predict;
  std::filesystem::path out;
  CLI::App* const how_likely =
      app.add_subcommand("predict", "Probabilities of samples without labels");
  how_likely->option_defaults()->always_capture_default();
  checkpoint_option(how_likely, predict.checkpoint);
  how_likely
      ->add_option("--data", predict.data,
                   "A file that has the model's columns: with a header, Parquet or Arrow")
      ->required()
      ->option_text("FILE");
  support::add_text_format(*how_likely, predict.format, "a comma");
  list_separator_option(how_likely, predict.list_separator);
  support::choose(how_likely->add_option("--format", predict.row_format, "Of the tables' rows"),
                  kFormats);
  how_likely->add_option("--keep", predict.keep, "Columns of the data that go to the output, too")
      ->delimiter(',')
      ->option_text("COLUMN,...");
  how_likely
      ->add_option("--out", out, "Probabilities in the order of the samples, as float32 or as text")
      ->required()
      ->option_text("FILE.npy|FILE.csv|FILE.parquet");

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
      ->check([](const std::string& text) -> std::string {
        const std::optional<double> share = support::number_of<double>(text);
        if (share && *share >= 0.01 && *share <= 2) return {};
        return text + " is not a share from 0.01 to 2";
      })
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

  if (!support::parse(app, argc, argv)) return 0;
  if (*how_right) run_accuracy(accuracy);
  if (*how_fast) run_latency(latency, page);
  if (*how_likely) run_predict(predict, out);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return support::run_program("evaluate_model", "give a smaller --data or --batch-sizes",
                              [&] { return run(argc, argv); });
}
