// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Trains a sequence model on histories of events: a sharded table of items, HSTU blocks, and a
// softmax over sampled items or a logit of a candidate. docs/train_sequence.md.
//   train_sequence --help
#include "support/files.hpp"
#include "support/options.hpp"
#include "support/report.hpp"
#include "train_sequence/backends.hpp"
#include "train_sequence/data.hpp"
#include "train_sequence/description.hpp"
#include "train_sequence/options.hpp"
#include "train_sequence/trainer.hpp"

#include <tessera/core/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <optional>
#include <string>

namespace {

using namespace sequence;

/// A score that is not a number, of too few samples, becomes null.
void add(nlohmann::ordered_json& json, const Options& options, const Quality& quality) {
  if (!options.ranks_items()) {
    json["auc"] = quality.auc;
    return;
  }
  json["hr10"] = quality.hr10;
  json["ndcg10"] = quality.ndcg10;
  json["mrr"] = quality.mrr;
  json["hr10_sampled"] = quality.hr10_sampled;
  json["ndcg10_sampled"] = quality.ndcg10_sampled;
}

struct Best {
  std::optional<tessera::RankingMetrics> ranking;
  std::optional<double> auc;
};

nlohmann::ordered_json to_json(const Options& options, const Data& data, const Result& result,
                               const Best& best) {
  nlohmann::ordered_json json;
  add(json, options, result.test);
  if (best.ranking) {
    json["best_hr10"] = best.ranking->hit_rate();
    json["best_ndcg10"] = best.ranking->ndcg();
    json["best_mrr"] = best.ranking->mean_reciprocal_rank();
  }
  if (best.auc) json["best_auc"] = *best.auc;
  json["loss"] = result.loss;
  json["samples_per_second"] = result.samples_per_second;
  json["tokens_per_second"] = result.tokens_per_second;
  json["seconds"] = result.seconds;
  json["steps"] = result.steps;
  json["data"] = options.data.empty() ? "synthetic" : options.data;
  json["users"] = data.histories().users();
  json["items"] = data.histories().items;
  json["events"] = std::ssize(data.histories().events);
  json["train_samples"] = data.train().size();
  json["test_samples"] = data.test().size();
  json["backend"] = options.backend;
  json["ranks"] = options.ranks;
  json["threads_per_rank"] = options.threads_per_rank;
  json["plan"] = options.plan;
  json["virtual_ranks"] = options.virtual_ranks;
  if (options.graph)
    json["graph"] = {{"captured", result.graph.captured}, {"replayed", result.graph.replayed}};
  json["model"] = options.model;
  json["width"] = options.width;
  json["blocks"] = options.blocks;
  json["heads"] = options.heads;
  json["max_length"] = options.max_length;
  json["dropout"] = options.dropout;
  json["negatives"] = options.negatives;
  json["popularity"] = options.popularity;
  json["log_q"] = options.log_q;
  json["batch_size"] = options.batch_size;
  json["epochs"] = options.epochs;
  if (options.automatic()) json["epochs"] = "auto";
  if (result.best_epoch > 0) json["best_epoch"] = result.best_epoch;
  json["learning_rate"] = options.learning_rate;
  json["seed"] = options.seed;
  json["dense_parameters"] = result.dense_parameters;
  json["embedding_parameters"] = result.embedding_parameters;
  json["validations"] = nlohmann::ordered_json::array();
  for (const auto& [epoch, quality] : result.validations) {
    nlohmann::ordered_json validation{{"epoch", epoch}};
    add(validation, options, quality);
    json["validations"].push_back(std::move(validation));
  }
  return json;
}

void print(const Options& options, const Result& result, const Best& best) {
  const Quality& test = result.test;
  fmt::print("{} parameters in embeddings, {} in other layers\n",
             support::grouped(result.embedding_parameters),
             support::grouped(result.dense_parameters));
  fmt::print("{} histories/s, {} positions/s\n",
             support::grouped(std::llround(result.samples_per_second)),
             support::grouped(std::llround(result.tokens_per_second)));
  if (options.ranks_items())
    fmt::print(
        "test, all unseen items ranked: hit rate at 10 {:.4f}, NDCG at 10 {:.4f}, mean "
        "reciprocal rank {:.4f}\n"
        "among at most 100 unseen items: hit rate at 10 {:.4f}, NDCG at 10 {:.4f}\n",
        test.hr10, test.ndcg10, test.mrr, test.hr10_sampled, test.ndcg10_sampled);
  else
    fmt::print("test AUC {:.4f}\n", test.auc);
  if (best.ranking)
    fmt::print(
        "best possible: hit rate at 10 {:.4f}, NDCG at 10 {:.4f}, mean reciprocal rank "
        "{:.4f} (the law itself)\n",
        best.ranking->hit_rate(), best.ranking->ndcg(), best.ranking->mean_reciprocal_rank());
  if (best.auc) fmt::print("best possible test AUC {:.4f} (the true logits)\n", *best.auc);
}

void run(const Options& given) {
  std::optional<support::ResultFile> json, predictions;
  // before the training, so that what is not there and a bad path cost no time
  static_cast<void>(backend_of(given));
  if (!given.predictions.empty()) predictions.emplace(given.predictions, "--predictions");
  if (!given.json.empty()) json.emplace(given.json);
  const Data data(given);
  const Options options = settled(given, data);
  const std::string header = predictions ? prediction_header(data) : "";
  fmt::print(
      "data: {}\n{} training histories, {} test histories; {} ranks of {} thread(s) on {}, plan "
      "{}; "
      "{}, width {}, {} blocks of {} heads\n",
      data.description(), support::grouped(data.train().size()),
      support::grouped(data.test().size()), options.ranks, options.threads_per_rank,
      options.backend, options.plan, options.model, options.width, options.blocks, options.heads);
  if (!options.called.empty()) fmt::print("--graph: {}\n", options.called);
  support::check_output();
  const Result result = train(options, data);
  Best best;
  if (options.ranks_items())
    best.ranking = data.best_ranking();
  else
    best.auc = data.best_auc();
  print(options, result, best);
  support::write_each(
      {[&] {
         if (predictions) predictions->write(header + result.predictions);
       },
       [&] {
         // a file's name may be bytes that are no UTF-8
         if (json)
           json->write(to_json(options, data, result, best)
                           .dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
                       '\n');
       }});
}

}  // namespace

int main(int argc, char** argv) {
  return support::run_program("train_sequence",
                              "lower --batch-size, --width, --max-length or --negatives", [&] {
                                if (const auto options = parse_options(argc, argv)) run(*options);
                                return 0;
                              });
}
