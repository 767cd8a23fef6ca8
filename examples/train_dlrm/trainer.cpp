// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "trainer.hpp"

#include "backends.hpp"
#include "plans.hpp"
#include "report.hpp"
#include "saver.hpp"

#include <tessera/checkpoint/agreement.hpp>
#include <tessera/comm/any_communicator.hpp>
#include <tessera/data/broadcasting_loader.hpp>
#include <tessera/data/metrics.hpp>
#include <tessera/sharding/policies.hpp>
#include <tessera/vocabulary/vocabulary.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

namespace dlrm {
namespace {

using namespace tessera;

/// A rank's part of a global batch.
struct Part {
  std::int64_t first, count;
  Part(std::int64_t begin, std::int64_t size, const AnyCommunicator& c)
      : first(begin + even_cut(size, c.size(), c.rank())),
        count(begin + even_cut(size, c.size(), c.rank() + 1) - first) {}
};

struct Quality {
  double auc, logloss;
};

/// One rank's training and test. Every rank runs the same loop; the first one reports.
class Rank {
 public:
  Rank(const Options& options, const Clicks& clicks, Communicators& communicators)
      : options_(options),
        clicks_(clicks),
        communicator_(communicators.main),
        data_(communicators.data),
        model_(communicators.backend.make_model(
            communicators, options, clicks.shape(),
            (options.batch_size + communicators.main.size() - 1) / communicators.main.size())),
        features_(static_cast<int>(std::ssize(clicks.shape().features))),
        saver_(options, clicks, communicators.main, *model_, vocabulary_) {
    require(!options.feature_check || !clicks.shape().has_lists(),
            "--feature-check exchanges single ids between samples; these data have lists: leave it "
            "out");
    if (options.vocabulary)
      vocabulary_.emplace(communicators.main, vocabulary_options(options, clicks.shape()));
  }

  void run(Result& result) {
    const Part test_part(0, clicks_.test_samples(), communicator_);
    on_all_ranks(communicator_, [&] { clicks_.check_test(test_part.first, test_part.count); });
    if (first()) {
      print_plan(model_->embeddings().layout(), model_->embeddings().memory_cost());
      fmt::print("{}", explain_plan(options_, model_->embeddings().layout()));
    }
    train(result);
    const Quality quality = test(kNothing);
    if (first()) {
      if (clicks_.test_samples() == 0 || std::isfinite(quality.logloss)) saver_.proven();
      result.auc = quality.auc;
      result.logloss = quality.logloss;
      result.dense_parameters = model_->dense_parameters();
      for (const TableSpec& table : model_->embeddings().layout().tables)
        result.embedding_parameters += table.rows * table.width;
    }
    if (!options_.feature_check) return;
    for (int f = 0; f <= features_; ++f) {
      const double auc = test(f).auc;
      if (first()) result.auc_without.push_back(auc);
    }
  }

 private:
  static constexpr int kNothing = -1;

  static VocabularyOptions vocabulary_options(const Options& options, const DataShape& shape) {
    const Eviction eviction = options.eviction == "none"     ? Eviction::none
                              : options.eviction == "oldest" ? Eviction::oldest
                                                             : Eviction::least_frequent;
    VocabularyOptions made{.tables = {},
                           .feature_table = {},
                           .seed = options.seed,
                           .threads = options.threads_per_rank};
    const auto admit_after =
        static_cast<std::uint32_t>(std::min<std::int64_t>(options.min_count, 1 << 30));
    for (const DataShape::Table& table : shape.tables)
      made.tables.push_back({table.rows, admit_after, eviction});
    for (const DataShape::Feature& feature : shape.features)
      made.feature_table.push_back(static_cast<int>(feature.table));
    return made;
  }

  /// Raw keys become rows; in training the vocabulary learns them, and rows that changed hands
  /// start anew.
  void to_rows(bool training) {
    if (!vocabulary_) return;
    if (!training) return vocabulary_->find(batch_.keyed_keys(), std::span(batch_.ids));
    std::vector<std::int64_t> rows;
    const std::span<const ReusedRow> reused =
        vocabulary_->learn(batch_.keyed_keys(), std::span(batch_.ids));
    for (std::size_t i = 0; i < reused.size(); ++i) {
      rows.push_back(reused[i].row);
      if (i + 1 < reused.size() && reused[i + 1].table == reused[i].table) continue;
      model_->embeddings().reset_rows(static_cast<int>(reused[i].table), rows);
      rows.clear();
    }
  }

  bool first() const { return communicator_.rank() == 0; }

  void train(Result& result) {
    const std::int64_t samples = clicks_.train_samples(), batch = options_.batch_size,
                       per_epoch = (samples + batch - 1) / batch;
    const std::int64_t steps = per_epoch * options_.epochs,
                       interval = std::max<std::int64_t>(1, steps / 400);
    Progress progress(steps);
    std::int64_t step = saver_.resume(steps), seen = 0;
    last_report_ = step;
    const auto begin_of = [&](std::int64_t at) { return at % per_epoch * batch; };
    const auto size_of = [&](std::int64_t at) { return std::min(batch, samples - begin_of(at)); };
    std::optional<BroadcastingLoader<std::int32_t, AnyCommunicator>> loader;
    if (options_.loader == "first-rank")
      loader.emplace(
          data_, [&, read = Batch(), at = step](ClickBatch<std::int32_t>& whole) mutable {
            if (at >= steps) return false;
            clicks_.train_batch(static_cast<int>(at / per_epoch), begin_of(at), size_of(at), read);
            std::swap<ClickBatch<std::int32_t>>(whole, read);
            ++at;
            return true;
          });
    const auto fetch = [&](std::int64_t at, Batch& to) {
      if (loader) return static_cast<void>(loader->next(to));
      const Part part(begin_of(at), size_of(at), communicator_);
      clicks_.train_batch(static_cast<int>(at / per_epoch), part.first, part.count, to);
    };
    if (options_.overlap && step < steps) {
      fetch(step, batch_);
      model_->start(batch_);
    }
    while (step < steps) {
      const bool ahead = options_.overlap && step + 1 < steps;
      if (ahead) fetch(step + 1, next_batch_);
      if (!options_.overlap) fetch(step, batch_);
      to_rows(true);
      const float rate = schedule(step, steps);
      model_->train(batch_, size_of(step), rate * options_.dense_learning_rate,
                    rate * options_.learning_rate, ahead ? &next_batch_ : nullptr);
      seen += size_of(step);
      // ids keep their addresses, as the routed step needs
      if (ahead) std::swap(batch_, next_batch_);
      const bool last = ++step == steps;
      if (saver_.wants_look(step, last)) {
        look(step);
        saver_.proven();
      }
      if (step % interval == 0 || last) {
        const double mean = mean_loss(step);
        if (first()) progress.show(step, seen, mean);
        last_report_ = step;
      }
      saver_.after_step(step, last);
    }
    if (!first()) return;
    result.seconds = progress.seconds();
    result.samples_per_second = static_cast<double>(seen) / result.seconds;
    result.steps = steps;
  }

  /// Rates fall in a straight line to nothing, which averages the last steps' noise out.
  float schedule(std::int64_t step, std::int64_t steps) const {
    return options_.constant_rates
               ? 1.0f
               : 1.0f - static_cast<float>(static_cast<double>(step) / static_cast<double>(steps));
  }

  /// Adds the losses since the last look up; ends a training that diverged.
  void look(std::int64_t step) {
    double sum = model_->take_loss();
    communicator_.all_reduce(std::span<double>(&sum, 1));
    loss_ += sum;
    require<Error>(
        std::isfinite(loss_) && model_->gradients_finite(),
        "the training diverged before step {}: lower {}--learning-rate or --dense-learning-rate{}",
        step, options_.initial_bound > 1 ? "--initial-bound, then " : "", saver_.advice());
  }

  /// Over all ranks, of the steps since the last report.
  double mean_loss(std::int64_t step) {
    look(step);
    return std::exchange(loss_, 0.0) / static_cast<double>(step - last_report_);
  }

  /// AUC and log loss of the test samples, on the first rank. `without`: exchange this category's
  /// ids between samples (features_: all).
  Quality test(int without) {
    std::vector<float> logits, labels;
    for (std::int64_t begin = 0; begin < clicks_.test_samples(); begin += options_.batch_size) {
      const Part part(begin, std::min(options_.batch_size, clicks_.test_samples() - begin),
                      communicator_);
      clicks_.test_batch(part.first, part.count, batch_);
      to_rows(false);
      for (int f = 0; f < features_; ++f)
        if (without == f || without == features_) exchange_ids(f);
      const std::span<const float> scores = model_->forward(batch_);
      logits.insert(logits.end(), scores.begin(), scores.end());
      labels.insert(labels.end(), batch_.labels.begin(), batch_.labels.end());
    }
    const std::vector<float> all_logits = gather(logits), all_labels = gather(labels);
    if (!first()) return {};
    Auc auc;
    LogLoss loss;
    auc.add(all_logits, all_labels);
    loss.add(all_logits, all_labels);
    return {auc.value(), loss.value()};
  }

  /// Each sample gets the category of another: with its distribution unchanged, only its bearing on
  /// the label is lost.
  void exchange_ids(int feature) {
    const auto begin = batch_.ids.begin() + feature * batch_.size;
    std::rotate(begin, begin + (batch_.size + feature) / 2 % std::max<std::int64_t>(batch_.size, 1),
                begin + batch_.size);
  }

  std::vector<float> gather(const std::vector<float>& own) {
    const std::size_t ranks = static_cast<std::size_t>(communicator_.size()), count = own.size();
    std::vector<std::size_t> counts(ranks);
    communicator_.all_gather(std::span<const std::size_t>(&count, 1),
                             std::span<std::size_t>(counts), std::vector<std::size_t>(ranks, 1));
    std::vector<float> all(std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
    communicator_.all_gather(std::span<const float>(own), std::span<float>(all), counts);
    return all;
  }

  const Options& options_;
  const Clicks& clicks_;
  AnyCommunicator &communicator_, &data_;
  Batch batch_, next_batch_;
  std::unique_ptr<RankModel> model_;
  std::optional<Vocabulary<AnyCommunicator>> vocabulary_;
  int features_;
  Saver saver_;
  std::int64_t last_report_ = 0;
  double loss_ = 0;  ///< the sum of the steps' since then, as far as it was looked at
};

}  // namespace

Result train(const Options& options, const Clicks& clicks, Ranks& ranks) {
  Result result;
  ranks.run([&](Communicators& communicators) {
    require_same(
        communicators.main,
        {{"the number of training samples", std::to_string(clicks.train_samples())},
         {"the number of test samples", std::to_string(clicks.test_samples())},
         {"the checksum of the training data", fmt::format("{:016x}", clicks.checksum())}});
    Rank rank(options, clicks, communicators);
    try {
      rank.run(result);
    } catch (const std::exception& error) {
      // here, before the model gives a batch up without saying why
      communicators.routing.interrupt(error.what());
      throw;
    }
  });
  if (ranks.first_is_here()) result.best_auc = clicks.best_auc();
  return result;
}

}  // namespace dlrm
