// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Trains a DLRM hybrid-parallel on click data: sharded embeddings, replicated linear layers, ranks
// that are threads or processes.
//   train_dlrm --help
#include "support/files.hpp"
#include "support/options.hpp"
#include "support/report.hpp"
#include "train_dlrm/clicks.hpp"
#include "train_dlrm/model_shape.hpp"
#include "train_dlrm/options.hpp"
#include "train_dlrm/plans.hpp"
#include "train_dlrm/ranks.hpp"
#include "train_dlrm/run_log.hpp"
#include "train_dlrm/trainer.hpp"

#include <tessera/core/error.hpp>
#include <tessera/io/npy_header.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

using namespace dlrm;
using namespace support;

/// A number where it is one for all tables, else the option's text.
nlohmann::ordered_json width_of(const Options& options) {
  const std::vector<std::int32_t> widths = parse_widths(options.embedding_width);
  return widths.size() == 1 ? nlohmann::ordered_json(widths[0])
                            : nlohmann::ordered_json(options.embedding_width);
}

nlohmann::ordered_json to_json(const Options& options, int ranks, const Clicks& clicks,
                               const Result& result) {
  nlohmann::ordered_json json{
      {"auc", result.quality.auc},
      {"logloss", result.quality.logloss},
      {"normalized_entropy", result.quality.normalized_entropy},
      {"calibration", result.quality.calibration},
      {"samples_per_second", result.samples_per_second},
      {"seconds", result.seconds},
      {"steps", result.steps},
      {"communicator", options.communicator},
      {"ranks", ranks},
      {"threads_per_rank", options.threads_per_rank},
      {"bucket_kib", options.bucket_kib},
      {"overlap", options.overlap},
      {"loader", options.loader},
      {"plan", options.plan},
      {"codec", options.codec},
      {"gradient_codec", options.gradient_codec},
      {"deduplicate", options.deduplicate},
      {"table_precision", options.table_precision},
      {"train_samples", clicks.train_samples()},
      {"validation_samples", options.validations(clicks.test_samples())},
      {"test_samples", clicks.test_samples() - options.validations(clicks.test_samples())},
      {"data", options.data.empty() ? "synthetic" : options.data},
      {"embedding_width", width_of(options)},
      {"interaction", options.interaction},
      {"model", options.synthetic_model.empty() ? options.model : options.synthetic_model},
      {"optimizer", options.optimizer},
      {"learning_rate", options.learning_rate},
      {"dense_optimizer", options.dense_optimizer},
      {"dense_precision", options.dense_precision},
      {"dense_learning_rate", options.dense_learning_rate},
      {"batch_size", options.batch_size},
      {"accumulate", options.accumulate},
      {"epochs", options.epochs},
      {"seed", options.seed},
      {"dense_parameters", result.dense_parameters},
      {"embedding_parameters", result.embedding_parameters}};
  if (options.epochs == Options::kAutoEpochs) json["epochs"] = "auto";
  if (std::isfinite(result.best_auc)) json["best_auc"] = result.best_auc;
  json["mode"] = options.mode;
  json["evaluations"] = nlohmann::ordered_json::array();
  for (const auto& [step, quality] : result.evaluations)
    json["evaluations"].push_back({{"step", step},
                                   {"auc", quality.auc},
                                   {"logloss", quality.logloss},
                                   {"normalized_entropy", quality.normalized_entropy},
                                   {"calibration", quality.calibration}});
  if (options.mode == "inference")
    for (std::size_t i = 0; i < kPercentiles.size(); ++i)
      json["latency_ms"][fmt::format("p{}", kPercentiles[i])] = 1e3 * result.latencies[i];
  if (options.graph)
    json["graph"] = {{"captured", result.graph.captured}, {"replayed", result.graph.replayed}};
  if (result.cache.rows > 0)
    json["table_files"] = {{"rows", result.cache.rows},
                           {"fetched_rows", result.cache.fetched_rows},
                           {"written_rows", result.cache.written_rows},
                           {"read_bytes", result.cache.read_bytes},
                           {"written_bytes", result.cache.written_bytes},
                           {"queue_depth", file_queue_depth()},
                           {"seconds", result.cache.seconds}};
  if (!result.auc_without.empty()) json["auc_without"] = result.auc_without;
  return json;
}

void print(const Options& options, const Clicks& clicks, const Result& result) {
  fmt::print("{} parameters in embeddings, {} in linear layers\n",
             grouped(result.embedding_parameters), grouped(result.dense_parameters));
  for (std::size_t f = 0; f < result.auc_without.size(); ++f)
    fmt::print("test AUC without {:<8} {:.4f}\n",
               f < clicks.shape().features.size() ? clicks.shape().features[f].name : "all",
               result.auc_without[f]);
  if (clicks.test_samples() > 0)
    fmt::print("normalized entropy {:.4f}, calibration {:.4f}\n", result.quality.normalized_entropy,
               result.quality.calibration);
  if (options.mode == "inference")
    fmt::print("{} samples at once: {:.3f} ms (median), {:.3f} ms (95 %), {:.3f} ms (99 %)\n",
               options.eval_batch_size, 1e3 * result.latencies[0], 1e3 * result.latencies[1],
               1e3 * result.latencies[2]);
  if (clicks.test_samples() > 0)
    fmt::print("test AUC {:.4f}, log loss {:.4f}{}", result.quality.auc, result.quality.logloss,
               options.mode == "eval" ? "\n" : ", ");
  if (options.mode != "eval")
    fmt::print("{} samples/s\n", grouped(std::llround(result.samples_per_second)));
  if (result.cache.rows > 0)
    fmt::print(
        "tables in files, of rank 0: {:.1f} % of rows were in memory, {} fetched, {} written back, "
        "{:.1f} s waited\n",
        100 * result.cache.hit_rate(), grouped(result.cache.fetched_rows),
        grouped(result.cache.written_rows), result.cache.seconds);
  if (std::isfinite(result.best_auc))
    fmt::print("best possible test AUC {:.4f} (the true probabilities)\n", result.best_auc);
}

/// The last line of --log: what --json holds.
RunLog::Event end_event(const Options& options, int ranks, const Clicks& clicks,
                        const Result& result) {
  RunLog::Event event{{"event", "end"}, {"step", result.steps}};
  event.update(to_json(options, ranks, clicks, result));
  return event;
}

/// A .npy file of one dimension.
std::string npy_of(const std::vector<float>& values) {
  std::string text = tessera::detail::format_npy_header(
      tessera::detail::TensorType::f32, std::vector<std::int64_t>{std::ssize(values)});
  text.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  return text;
}

/// What this process does; only that of rank 0 speaks.
void run(const Options& options, Ranks& ranks) {
  const bool speaks = ranks.first_is_here();
  std::optional<ResultFile> json, predictions, report;
  std::optional<RunLog> log;
  // before the training, so that a bad path costs no time
  if (speaks && !options.json.empty()) json.emplace(options.json);
  if (speaks && !options.predictions.empty())
    predictions.emplace(options.predictions, "--predictions");
  if (speaks && !options.report.empty()) report.emplace(options.report, "--report");
  if (speaks && options.logs()) log.emplace(options);
  const std::unique_ptr<Clicks> clicks = make_clicks(options);
  if (speaks) {
    const std::int64_t held = clicks->test_samples(), validations = options.validations(held);
    fmt::print(
        "data: {}\n{} training samples, {}{} test samples; {} ranks of {} thread(s), plan {}, "
        "width "
        "{}, {}, {}\n",
        clicks->description(), grouped(clicks->train_samples()),
        validations > 0 ? grouped(validations) + " of validations, " : "",
        grouped(held - validations), ranks.size(), options.threads_per_rank, options.plan,
        options.embedding_width, options.interaction, options.optimizer);
  }
  check_output();
  const Result result = train(options, *clicks, ranks, log ? &*log : nullptr);
  if (!speaks) return;
  print(options, *clicks, result);
  support::write_each(
      {[&] { tessera::require<tessera::DataError>(result.fault.empty(), "{}", result.fault); },
       [&] {
         if (log) log->add(end_event(options, ranks.size(), *clicks, result));
       },
       [&] {
         if (report) report->write(run_page(*log));
       },
       [&] {
         if (predictions) predictions->write(npy_of(result.predictions));
       },
       [&] {
         // A file's name may be bytes that are no UTF-8.
         if (json)
           json->write(to_json(options, ranks.size(), *clicks, result)
                           .dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
                       '\n');
       }});
}

/// Before the ranks meet: all usually have the same bad options, and the launcher ends the others,
/// within two seconds, when the first one has said so. A rank that is alone with them speaks later.
void let_first_rank_speak() {
  for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "RANK"})
    if (const char* const rank = std::getenv(variable);
        rank != nullptr && std::string_view(rank) != "0")
      return std::this_thread::sleep_for(std::chrono::seconds(3));
}

}  // namespace

int main(int argc, char** argv) {
  const auto body = [&] {
    std::optional<Options> options;
    try {
      options = parse_options(argc, argv);
    } catch (const CLI::Error&) {
      let_first_rank_speak();
      throw;
    }
    return options ? launch(*options, [&](Ranks& ranks) { run(*options, ranks); }) : 0;
  };
  return run_program("train_dlrm", "lower --max-rows, --embedding-width or --batch-size", body);
}
