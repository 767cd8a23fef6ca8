// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "trainer.hpp"

#include "../support/report.hpp"
#include "backends.hpp"
#include "links.hpp"
#include "model_shape.hpp"
#include "plans.hpp"
#include "saver.hpp"
#include "stage_times.hpp"
#include "table_optimizers.hpp"
#include "trace.hpp"
#include "warm_start.hpp"

#include "../tessera_plan/picture.hpp"

#include <tessera/checkpoint/agreement.hpp>
#include <tessera/comm/any_communicator.hpp>
#include <tessera/optimizer/schedule.hpp>
#include <tessera/sharding/policies.hpp>
#include <tessera/vocabulary/vocabulary.hpp>
#include <tessera_data/binned_auc.hpp>
#include <tessera_data/broadcasting_loader.hpp>
#include <tessera_data/metrics.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace dlrm {
namespace {

using namespace support;
using namespace tessera;

/// A rank's part of a global batch that is cut into `parts`, as many for each rank.
struct Part {
  std::int64_t first, count;
  Part(std::int64_t begin, std::int64_t size, const AnyCommunicator& c, std::int64_t parts)
      : first(begin + even_cut(size, parts, c.rank() * (parts / c.size()))),
        count(begin + even_cut(size, parts, (c.rank() + 1) * (parts / c.size())) - first) {}
};

/// One rank's training and test. Every rank runs the same loop; the first one reports.
class Rank {
 public:
  /// `log`: null, or where the first rank tells what happens.
  Rank(const Options& options, const Clicks& clicks, const ModelShape& shape,
       Communicators& communicators, RunLog* log)
      : options_(options),
        clicks_(clicks),
        log_(log),
        communicators_(communicators),
        communicator_(communicators.main),
        data_(communicators.data),
        parts_(parts_of(options, communicators.main.size())),
        model_(communicators.backend.make_model(
            communicators, options, shape,
            (std::max(options.batch_size, options.eval_batch_size) + parts_ - 1) / parts_ *
                std::max<std::int64_t>(1, parts_ / communicators.main.size()))),
        features_(static_cast<int>(std::ssize(clicks.shape().features))),
        wide_table_(shape.wide > 0 ? static_cast<int>(shape.data_tables) : 0),
        validation_(options.validations(clicks.test_samples())),
        saver_(options, clicks, communicators.main, *model_, vocabulary_, cold_) {
    require(options.validation_fraction == 0 || validation_ > 0,
            "--validation-fraction {} holds out no sample of {}; give a larger one",
            options.validation_fraction, clicks.train_samples() + clicks.test_samples());
    require(!options.feature_check || !clicks.shape().has_lists(),
            "--feature-check exchanges single ids between samples; these data have lists: leave it "
            "out");
    if (options.vocabulary)
      vocabulary_.emplace(communicators.main, Host({.threads = options.threads_per_rank}),
                          vocabulary_options(options, clicks.shape()));
    if (options.cold_keys > 0) cold_.emplace(options.cold_keys);
  }

  void run(Result& result) {
    const Part test_part(0, clicks_.test_samples(), communicator_, parts_);
    detail::on_all_ranks(communicator_,
                         [&] { clicks_.check_test(test_part.first, test_part.count); });
    if (first()) {
      print_plan(model_->embeddings().layout(), {});
      fmt::print("{}", explain_plan(options_, model_->embeddings().layout()));
      if (!options_.graph_refused.empty())
        fmt::print("--graph: steps are called, none is captured, {}\n", options_.graph_refused);
      if (log_ != nullptr) {
        const plan::Fragment picture = plan::plan_fragment(model_->embeddings().layout(), {});
        log_->plan_picture = plan::svg(picture.svg, picture.height);
      }
    }
    if (options_.check_links) check_links(options_, communicators_, *model_);
    std::int64_t loaded_step = 0;
    if (options_.mode == "train")
      train(result);
    else
      loaded_step = saver_.load();
    if (options_.mode == "inference") measure(result);
    if (!tested_) {
      const Quality quality = test(kNothing, end_samples(), &result);
      if (first()) result.quality = quality;
    }
    if (first()) {
      if (clicks_.test_samples() == 0 || std::isfinite(result.quality.logloss)) saver_.proven();
      if (options_.mode != "train") result.steps = loaded_step;
      result.cache = model_->embeddings().cache_counters();
      result.graph = model_->graph_counts();
      result.dense_parameters = model_->dense_parameters();
      for (const TableSpec& table : model_->embeddings().layout().tables)
        result.embedding_parameters += table.rows * table.width;
    }
    if (!options_.feature_check) return;
    for (int f = 0; f <= features_; ++f) {
      const double auc = test(f, end_samples()).auc;
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
                           .report_keys = options.cold_keys > 0};
    for (const DataShape::Table& table : shape.tables)
      made.tables.push_back(
          {table.rows,
           static_cast<std::uint32_t>(std::min<std::int64_t>(
               table.min_count > 0 ? table.min_count : options.min_count, 1 << 30)),
           eviction, static_cast<float>(options.admit_probability),
           static_cast<std::uint32_t>(options.time_to_live)});
    for (const DataShape::Feature& feature : shape.features)
      made.feature_table.push_back(static_cast<int>(feature.table));
    return made;
  }

  /// Raw keys become rows that the vocabulary knows.
  void find_rows(Batch& batch) {
    if (vocabulary_) vocabulary_->find(batch.keyed_keys(), std::span(batch.ids));
  }

  /// The vocabulary learns keys before they become rows. Rows that change hands start anew by
  /// `reset_rows`, which follows the step of the batch before.
  void learn_rows(Batch& batch) {
    if (!vocabulary_) return;
    const std::span<const detail::ReusedRow> reused =
        vocabulary_->learn(batch.keyed_keys(), std::span(batch.ids));
    reused_.assign(reused.begin(), reused.end());
    learned_ = true;
  }

  void reset_rows() {
    if (cold_) {
      if (std::exchange(learned_, false))
        model_->embeddings().exchange(*cold_, communicator_, *vocabulary_);
      return;
    }
    std::vector<std::int64_t> rows;
    for (std::size_t i = 0; i < reused_.size(); ++i) {
      rows.push_back(reused_[i].row);
      if (i + 1 < reused_.size() && reused_[i + 1].table == reused_[i].table) continue;
      const int table = static_cast<int>(reused_[i].table);
      model_->embeddings().reset_rows(table, rows);
      if (wide_table_ > 0) model_->embeddings().reset_rows(wide_table_ + table, rows);
      rows.clear();
    }
    reused_.clear();
  }

  bool first() const { return communicator_.rank() == 0; }

  void train(Result& result) {
    const std::int64_t samples = clicks_.train_samples(), batch = options_.batch_size,
                       batches = (samples + batch - 1) / batch,  // of an epoch
        per_epoch = (batches + options_.accumulate - 1) / options_.accumulate;
    const std::int64_t whole = per_epoch * options_.epochs;
    std::int64_t steps = options_.max_steps > 0 ? std::min(whole, options_.max_steps) : whole;
    // under --epochs auto the end is not known: as in ten epochs
    const std::int64_t interval =
        options_.print_every > 0
            ? options_.print_every
            : std::max<std::int64_t>(1, (automatic() ? 10 * per_epoch : steps) / 400);
    const Rates rates(options_, whole);
    Progress progress(steps, options_.print_every > 0);
    std::int64_t step = saver_.resume(steps), seen = 0;
    if (step == 0 && !options_.start_from.empty())
      start_from(options_, clicks_, communicator_, *model_, vocabulary_);
    const bool stopped = options_.stop_at_auc > 0 && saver_.stopped_at() &&
                         *saver_.stopped_at() >= options_.stop_at_auc;
    if (stopped || out_of_patience(step, per_epoch)) steps = step;
    const bool ended = step > 0 && step == steps;
    if (first() && ended)
      fmt::print(
          "the training has ended at step {}{}: nothing is left to train\n", step,
          stopped ? fmt::format(", at a test AUC of {:.4f}", *saver_.stopped_at()) : std::string());
    last_report_ = step;
    if (first() && log_ != nullptr) begin_log(step, ended);
    std::int64_t seen_at_report = 0;
    double seconds_at_report = 0;
    // Batches are counted through all epochs; the last step of an epoch may have fewer of them.
    const auto batches_before = [&](std::int64_t steps_done) {
      return steps_done / per_epoch * batches + steps_done % per_epoch * options_.accumulate;
    };
    const auto begin_of = [&](std::int64_t at) { return at % batches * batch; };
    const auto size_of = [&](std::int64_t at) { return std::min(batch, samples - begin_of(at)); };
    const std::int64_t whole_batches = batches_before(steps);
    std::int64_t at = batches_before(step);
    std::optional<BroadcastingLoader<std::int32_t, AnyCommunicator>> loader;
    if (options_.loader == "first-rank")
      loader.emplace(data_, [&, read = Batch(), at](ClickBatch<std::int32_t>& whole) mutable {
        if (at >= whole_batches) return false;
        clicks_.train_batch(static_cast<int>(at / batches), begin_of(at), size_of(at), read);
        std::swap<ClickBatch<std::int32_t>>(whole, read);
        ++at;
        return true;
      });
    const auto fetch = [&](std::int64_t at, Batch& to) {
      if (loader) return static_cast<void>(loader->next(to));
      const Part part(begin_of(at), size_of(at), communicator_, parts_);
      clicks_.train_batch(static_cast<int>(at / batches), part.first, part.count, to);
    };
    // Tests that are due after so many steps; the last step has its own.
    const auto test_due = [&](std::int64_t at) {
      const std::int64_t n = std::min(options_.evals_per_epoch, per_epoch);
      return at < steps && at * n / per_epoch != (at - 1) * n / per_epoch;
    };
    const auto start = [&] {
      if (!options_.overlap || step >= steps) return;
      fetch(at, batch_);
      learn_rows(batch_);
      reset_rows();
      model_->start(batch_);
    };
    std::optional<Trace> trace;
    std::int64_t traced = 0;
    if (!options_.trace.empty()) trace.emplace(communicator_, options_.trace);
    start();
    while (step < steps) {
      const bool tests = test_due(step + 1),
                 // what is saved knows no keys of a later batch
          pauses = tests || (vocabulary_ && saver_.due(step + 1, step + 1 == steps));
      const double step_began = Spans::now();
      const std::int64_t end = batches_before(step + 1);
      OptimizerStep now{.samples = begin_of(end - 1) + size_of(end - 1) - begin_of(at),
                        .dense_rate = rates.dense(step),
                        .table_rate = rates.tables(step)};
      while (at < end) {
        now.batch = size_of(at);
        now.ends = at + 1 == end;
        // a test in between would take the place of a batch that was routed ahead
        const bool ahead = options_.overlap && at + 1 < whole_batches && !(pauses && now.ends);
        {
          const auto timing = model_->spans().time_host("read batch");
          Batch& read = options_.overlap ? next_batch_ : batch_;
          if (ahead || !options_.overlap) {
            fetch(ahead ? at + 1 : at, read);
            learn_rows(read);
          }
          if (!ahead) reset_rows();
        }
        model_->train(batch_, now, ahead ? &next_batch_ : nullptr);
        reset_rows();
        // ids keep their addresses, as the routed step needs
        if (ahead) std::swap(batch_, next_batch_);
        ++at;
      }
      seen += now.samples;
      ++step;
      if (model_->spans().wanted()) {
        const std::vector<Span> spans = model_->spans().take();
        const StepReport& report = model_->embeddings().step_report();
        if (trace) trace->add(report, spans, options_.overlap);
        if (logs()) times_.add(report, spans, step_began);
        if (trace && (++traced == options_.trace_steps || step == steps)) {
          or_say_later(result, [&] { trace->write(); });
          trace.reset();
          if (!logs()) stop_timing();
        }
      }
      if (tests) {
        look(step);
        saver_.proven();
        const double auc = evaluate(step, result);
        if (options_.stop_at_auc > 0 && auc >= options_.stop_at_auc) {
          saver_.stop_at(auc);
          steps = step;
          tested_ = validation_ == 0;
        }
        if (out_of_patience(step, per_epoch)) steps = step;
      }
      const bool last = step == steps;
      if (saver_.wants_look(step, last)) {
        look(step);
        saver_.proven();
      }
      if (step % interval == 0 || last) {
        const std::int64_t steps_since = step - last_report_;
        const double mean = mean_loss(step), seconds = progress.seconds();
        if (first()) progress.show(step, seen, mean);
        last_report_ = step;
        if (logs()) {
          const StageTimes::Means means = times_.take(communicator_, steps_since);
          if (first())
            log_->add({{"event", "report"},
                       {"step", step},
                       {"seconds", seconds},
                       {"loss", mean},
                       {"rate", rates.tables(step - 1)},
                       {"dense_rate", rates.dense(step - 1)},
                       {"samples_per_second",
                        static_cast<double>(seen - seen_at_report) / (seconds - seconds_at_report)},
                       {"memory_bytes", resident_bytes()},
                       {"bytes_sent", means.bytes_sent},
                       {"stages", means.seconds}});
        }
        seen_at_report = seen;
        seconds_at_report = seconds;
      }
      {
        const StageTimes::Timed timed(times_, StageTimes::save);
        if (last)
          or_say_later(result, [&] { saver_.after_step(step, last); });
        else
          saver_.after_step(step, last);
      }
      if (pauses) start();
    }
    if (trace) or_say_later(result, [&] { trace->write(); });  // ended early
    if (!tested_ && options_.evals_per_epoch > 0 && !(automatic() && step == last_validation_)) {
      evaluate(step, result);
      tested_ = validation_ == 0;
    }
    if (automatic() && saver_.best_step()) {
      const auto [best, auc] = saver_.load_best();
      if (first())
        fmt::print("the best model is that of step {}, validation AUC {:.4f}: the test is of it\n",
                   best, auc);
    }
    if (!first()) return;
    result.seconds = progress.seconds();
    result.samples_per_second = static_cast<double>(seen) / result.seconds;
    result.steps = steps;
  }

  /// Writes what the training made. A full disk takes no test's result with it: it is said last.
  template <class F>
  void or_say_later(Result& result, F&& write) {
    try {
      write();
    } catch (const DataError& error) {
      if (first()) result.fault += (result.fault.empty() ? "" : "; ") + std::string(error.what());
    }
  }

  /// Whether validations end the training.
  bool automatic() const { return options_.epochs == Options::kAutoEpochs; }
  /// Whether the last --patience tests were not better than one before, or none had an AUC.
  bool out_of_patience(std::int64_t step, std::int64_t per_epoch) const {
    const std::int64_t tests = std::min(options_.evals_per_epoch, per_epoch);
    return automatic() &&
           (step - saver_.best_step().value_or(0)) * tests >= options_.patience * per_epoch;
  }

  void stop_timing() {
    model_->spans().stop();
    model_->embeddings().stop_reports();
  }

  /// The learning rates of every step.
  class Rates {
   public:
    Rates(const Options& options, std::int64_t steps) : options_(options), steps_(steps) {
      const std::string& dense =
          options.dense_schedule.empty() ? options.schedule : options.dense_schedule;
      if (!options.schedule.empty())
        tables_ = Schedule::parse(options.schedule, options.learning_rate);
      if (!dense.empty()) dense_ = Schedule::parse(dense, options.dense_learning_rate);
    }
    float tables(std::int64_t step) const {
      return tables_ ? tables_->at(step) : share(step) * options_.learning_rate;
    }
    float dense(std::int64_t step) const {
      return dense_ ? dense_->at(step) : share(step) * options_.dense_learning_rate;
    }

   private:
    /// Without a schedule rates fall in a straight line to nothing, which averages the last steps'
    /// noise out.
    float share(std::int64_t step) const {
      return options_.constant_rates ? 1.0f
                                     : 1.0f - static_cast<float>(static_cast<double>(step) /
                                                                 static_cast<double>(steps_));
    }

    const Options& options_;
    std::int64_t steps_;
    std::optional<Schedule> tables_, dense_;
  };

  /// Tests the model in the middle of a training and keeps it if none was better. Answers the AUC,
  /// on all ranks.
  double evaluate(std::int64_t step, Result& result) {
    const StageTimes::Timed timed(times_, StageTimes::test);
    const Quality quality =
        test(kNothing, validation_ > 0 ? Samples{0, validation_} : end_samples(), &result);
    double auc = first() ? quality.auc : 0;
    communicator_.all_reduce(std::span<double>(&auc, 1));
    if (first()) {
      result.quality = quality;
      result.evaluations.emplace_back(step, quality);
      fmt::print("step {}: {} AUC {:.4f}, log loss {:.4f}\n", step,
                 validation_ > 0 ? "validation" : "test", quality.auc, quality.logloss);
      if (log_ != nullptr)
        log_->add({{"event", "test"},
                   {"step", step},
                   {"auc", quality.auc},
                   {"logloss", quality.logloss},
                   {"normalized_entropy", quality.normalized_entropy},
                   {"calibration", quality.calibration}});
    }
    last_validation_ = step;
    saver_.keep_best(step, auc);
    return auc;
  }

  /// Whether reports are logged: on all ranks alike.
  bool logs() const { return options_.logs(); }

  void begin_log(std::int64_t step, bool ended) {
    log_->go_on(step, ended);
    RunLog::Event options = RunLog::Event::object();
    for (const auto& [name, value] : options_.shared) options[name] = value;
    log_->add({{"event", "begin"},
               {"step", step},
               {"data", clicks_.description()},
               {"train_samples", clicks_.train_samples()},
               {"validation_samples", validation_},
               {"test_samples", clicks_.test_samples() - validation_},
               {"ranks", communicator_.size()},
               {"threads_per_rank", options_.threads_per_rank},
               {"options", std::move(options)}});
  }

  /// Adds the losses since the last look up; ends a training that diverged.
  void look(std::int64_t step) {
    loss_ += model_->take_loss();
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

  /// Some of the samples behind the training's.
  struct Samples {
    std::int64_t begin, end;
    /// of the batch that begins there
    std::int64_t batch(std::int64_t at, std::int64_t most) const {
      return std::min(most, end - at);
    }
  };
  /// Those behind the validations'.
  Samples end_samples() const { return {validation_, clicks_.test_samples()}; }

  /// What test samples say, on the first rank. `without`: exchange this category's ids between
  /// samples (features_: all). `result`, if given, gets the predictions, if asked for.
  Quality test(int without, const Samples& samples, Result* result = nullptr) {
    std::vector<float>* const probabilities =
        first() && result != nullptr && !options_.predictions.empty() ? &result->predictions
                                                                      : nullptr;
    if (probabilities != nullptr) probabilities->clear();
    Auc auc;
    BinnedAuc binned;
    LogLoss loss;
    NormalizedEntropy entropy;
    Calibration calibration;
    for (std::int64_t begin = samples.begin; begin < samples.end;
         begin += options_.eval_batch_size) {
      const std::int64_t size = samples.batch(begin, options_.eval_batch_size);
      read_test_batch(begin, size);
      for (int f = 0; f < features_; ++f)
        if (without == f || without == features_) exchange_ids(f);
      // per batch, so that samples come in their order however many ranks there are
      const std::vector<float> logits = gather(model_->forward(batch_, size)),
                               labels = gather(batch_.labels);
      if (!first()) continue;
      loss.add(logits, labels);
      entropy.add(logits, labels);
      calibration.add(logits, labels);
      if (options_.auc == "exact") auc.add(logits, labels);
      if (options_.auc == "exact" && probabilities == nullptr) continue;
      std::vector<float> scores = logits;
      for (float& score : scores) score = static_cast<float>(1 / (1 + std::exp(-double{score})));
      if (options_.auc == "binned") binned.add(scores, labels);
      if (probabilities != nullptr)
        probabilities->insert(probabilities->end(), scores.begin(), scores.end());
    }
    return {options_.auc == "exact" ? auc.value() : binned.value(), loss.value(), entropy.value(),
            calibration.value()};
  }

  void read_test_batch(std::int64_t begin, std::int64_t size) {
    const Part part(begin, size, communicator_, parts_);
    clicks_.test_batch(part.first, part.count, batch_);
    find_rows(batch_);
  }

  /// Speed of forward passes on the test samples, from before the look-up until all ranks have
  /// their logits.
  void measure(Result& result) {
    using Clock = std::chrono::steady_clock;
    std::vector<double> seconds;
    const Samples samples = end_samples();
    for (std::int64_t begin = samples.begin; begin < samples.end;
         begin += options_.eval_batch_size) {
      const std::int64_t size = samples.batch(begin, options_.eval_batch_size);
      read_test_batch(begin, size);
      communicator_.barrier();
      const auto start = Clock::now();
      model_->forward(batch_, size);
      communicator_.barrier();
      seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    }
    if (!first() || seconds.empty()) return;
    result.seconds = std::accumulate(seconds.begin(), seconds.end(), 0.0);
    result.samples_per_second = static_cast<double>(samples.end - samples.begin) / result.seconds;
    std::sort(seconds.begin(), seconds.end());
    for (std::size_t i = 0; i < kPercentiles.size(); ++i)
      result.latencies[i] = seconds[(seconds.size() - 1) * kPercentiles[i] / 100];
  }

  /// Each sample gets the category of another: with its distribution unchanged, only its bearing on
  /// the label is lost.
  void exchange_ids(int feature) {
    const auto begin = batch_.ids.begin() + feature * batch_.size;
    std::rotate(begin, begin + (batch_.size + feature) / 2 % std::max<std::int64_t>(batch_.size, 1),
                begin + batch_.size);
  }

  std::vector<float> gather(std::span<const float> own) {
    const std::size_t ranks = static_cast<std::size_t>(communicator_.size()), count = own.size();
    std::vector<std::size_t> counts(ranks);
    communicator_.all_gather(std::span<const std::size_t>(&count, 1),
                             std::span<std::size_t>(counts), std::vector<std::size_t>(ranks, 1));
    std::vector<float> all(std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
    communicator_.all_gather(own, std::span<float>(all), counts);
    return all;
  }

  const Options& options_;
  const Clicks& clicks_;
  RunLog* log_;
  StageTimes times_;
  Communicators& communicators_;
  AnyCommunicator &communicator_, &data_;
  std::int64_t parts_;  ///< of a global batch
  Batch batch_, next_batch_;
  std::unique_ptr<RankModel> model_;
  std::optional<Vocabulary<AnyCommunicator>> vocabulary_;
  std::optional<ColdRows> cold_;
  std::vector<detail::ReusedRow> reused_;  ///< by table; since the last reset_rows
  bool learned_ = false;                   ///< since the last reset_rows
  int features_;
  int wide_table_;                     ///< the first of the wide part's tables; 0: there is none
  std::int64_t last_validation_ = -1;  ///< the step of it
  std::int64_t validation_;            ///< the first of the samples behind the training's
  Saver saver_;
  bool tested_ = false;  ///< result.quality is that of the model at the end
  std::int64_t last_report_ = 0;
  double loss_ = 0;  ///< the sum of the steps' since then, as far as it was looked at
};

}  // namespace

Result train(const Options& options, const Clicks& clicks, Ranks& ranks, RunLog* log) {
  Result result;
  const ModelShape shape = model_shape(options, clicks.shape());
  ranks.run([&](Communicators& communicators) {
    require_same(
        communicators.main,
        {{"the number of training samples", std::to_string(clicks.train_samples())},
         {"the number of test samples", std::to_string(clicks.test_samples())},
         {"the checksum of the training data", fmt::format("{:016x}", clicks.checksum())}});
    Rank rank(options, clicks, shape, communicators,
              communicators.main.rank() == 0 ? log : nullptr);
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
