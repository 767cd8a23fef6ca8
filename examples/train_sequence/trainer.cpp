// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "trainer.hpp"

#include "../support/later_checkpoints.hpp"
#include "../support/report.hpp"
#include "backends.hpp"
#include "description.hpp"
#include "rank_model.hpp"

#include <tessera/checkpoint/agreement.hpp>
#include <tessera/checkpoint/contents.hpp>
#include <tessera/checkpoint/folder.hpp>
#include <tessera/checkpoint/load.hpp>
#include <tessera/checkpoint/save.hpp>
#include <tessera/checkpoint/warm_start.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/sharding/policies.hpp>
#include <tessera_data/metrics.hpp>
#include <tessera_data/negative_sampler.hpp>

#include <fmt/format.h>

#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

namespace sequence {
namespace {

using namespace tessera;

/// candidates of a training history: that of a page that is shown at once
constexpr std::int64_t kCandidates = 4;
/// unseen items that a test's item is told from in the sampled metrics
constexpr std::int64_t kUnseen = 100;

/// One rank's training and test. Every rank runs the same loop; the first one reports.
class Rank {
 public:
  Rank(const Options& options, const Data& data, ThreadCommunicator& ranks)
      : options_(options),
        data_(data),
        ranks_(ranks),
        model_(backend_of(options)(ranks, options, data.histories().items)),
        whole_softmax_(options.negatives >= data.histories().items) {
    if (options.ranks_items()) {
      sampler_.emplace(data.item_counts(), options.popularity, random_word(options.seed, 5));
      if (options.log_q && !whole_softmax_)
        for (std::int64_t i = 0; i < sampler_->items(); ++i)
          log_q_.push_back(sampler_->log_probability(i));
    }
    if (!options.save.empty() || options.automatic()) {
      model_->add_to(contents_);
      contents_.set_text("position", position());
      contents_.set_text("data", fmt::format("{:016x}", data.checksum()));
      contents_.set_text("heads", fmt::format("{}", options.heads));
      if (first_rank())
        options.ranks_items() ? name_items(contents_, data)
                              : describe_model(contents_, options, data);
    }
  }

  void run(Result& result) {
    const std::int64_t samples = data_.train().size(),
                       per_epoch = (samples + options_.batch_size - 1) / options_.batch_size,
                       most = per_epoch * options_.epochs;
    std::optional<FolderLock> lock;
    std::int64_t step = start(most, lock);
    if (step == 0 && !options_.start_from.empty()) begin_with_earlier();
    // the step of the end; under --epochs auto the last validations may bring it nearer
    std::int64_t steps = out_of_patience(step / per_epoch) ? step : most;
    support::Progress progress(steps, false);
    const std::int64_t interval =
        std::max<std::int64_t>(1, (options_.automatic() ? 10 * per_epoch : steps) / 200);
    std::int64_t seen = 0, tokens = 0, reported = step;
    double epoch_loss = 0;
    std::int64_t epoch_begin = step;
    while (step < steps) {
      const std::int64_t epoch = step / per_epoch, first = step % per_epoch * options_.batch_size,
                         size = std::min(options_.batch_size, samples - first);
      train_step(step, static_cast<int>(epoch), first, size);
      seen += size;
      for (const Batch& part : parts_) tokens += std::ssize(part.items) - part.size;
      ++step;
      const bool epoch_ends = step % per_epoch == 0;
      const bool saves = !options_.save.empty() &&
                         (options_.save_every > 0 ? step % options_.save_every == 0 : epoch_ends);
      if (step % interval == 0 || epoch_ends || saves || step == steps) {
        const double loss = model_->take_losses();
        require<Error>(std::isfinite(loss),
                       "the training diverged before step {}: lower --learning-rate", step);
        if (first_rank()) progress.show(step, seen, loss / static_cast<double>(step - reported));
        reported = step;
        epoch_loss += loss;
      }
      if (epoch_ends) {
        if (first_rank()) result.loss = epoch_loss / static_cast<double>(step - epoch_begin);
        epoch_loss = 0, epoch_begin = step;
      }
      if (epoch_ends && (options_.validate || options_.automatic())) {
        const Quality quality = test(data_.validation());
        if (first_rank()) {
          result.validations.emplace_back(static_cast<int>(epoch) + 1, quality);
          fmt::print("epoch {}: validation {}\n", epoch + 1, describe(quality));
        }
        if (options_.automatic()) keep_best(epoch + 1, step, quality);
        if (out_of_patience(epoch + 1)) steps = step;
      }
      if (saves || (step == steps && !options_.save.empty()))
        save_checkpoint(ranks_, options_.save, contents_, step,
                        {.keep = options_.keep, .finite = true, .locked = true});
    }
    ranks_.all_reduce(std::span(&tokens, 1));
    const double seconds = progress.seconds();
    predicts_ = !options_.predictions.empty();
    if (options_.automatic()) {
      load_checkpoint(ranks_, best_folder_ / detail::checkpoint_name(best_epoch_ * per_epoch),
                      contents_);
      if (first_rank()) {
        result.best_epoch = static_cast<int>(best_epoch_);
        fmt::print("the best model is that of epoch {}: the test is of it\n", best_epoch_);
      }
    }
    const Quality quality = test(data_.test());
    if (!first_rank()) return;
    result.test = quality;
    if (predicts_) result.predictions = predictions_;
    result.seconds = seconds;
    result.samples_per_second = static_cast<double>(seen) / seconds;
    result.tokens_per_second = static_cast<double>(tokens) / seconds;
    result.steps = steps;
    result.dense_parameters = model_->dense_parameters();
    result.graph = model_->graph_counts();
    result.embedding_parameters = data_.histories().items * options_.width;
  }

 private:
  bool first_rank() const { return ranks_.rank() == 0; }

  std::string describe(const Quality& q) const {
    return options_.ranks_items()
               ? fmt::format("hr10 {:.4f}, ndcg10 {:.4f}, mrr {:.4f}", q.hr10, q.ndcg10, q.mrr)
               : fmt::format("auc {:.4f}", q.auc);
  }

  /// What orders, rates and draws depend on; all else may change between a run and its resumption.
  std::string position() const {
    return fmt::format(
        "--model {}, {} training histories, --batch-size {}, --epochs {}, --seed {}, --negatives "
        "{}, --popularity {}, --dropout {}, --learning-rate {}, --heads {}, --log-q {}, "
        "--label-threshold {}, --test-window {}",
        options_.model, data_.train().size(), options_.batch_size, options_.epochs_text(),
        options_.seed, options_.negatives, options_.popularity, options_.dropout,
        options_.learning_rate, options_.heads, options_.log_q, options_.label_threshold,
        options_.test_window);
  }

  /// What this model has of an earlier one's items and layers.
  void begin_with_earlier() {
    CheckpointContents contents;
    model_->add_to(contents);
    std::filesystem::path checkpoint;
    LoadOptions load;
    detail::on_all_ranks(ranks_, [&] {
      checkpoint = options_.start_from;
      if (!std::filesystem::exists(checkpoint / detail::Manifest::kFile)) {
        const auto latest = latest_checkpoint(checkpoint);
        require<DataError>(latest.has_value(), "--start-from: the folder '{}' holds no checkpoint",
                           options_.start_from);
        checkpoint = *latest;
      }
      load = sequence::items_of(checkpoint, data_);
      const auto texts = detail::read_manifest(checkpoint).first.texts;
      if (const auto heads = texts.find("heads"); heads != texts.end())
        require<DataError>(heads->second == fmt::format("{}", options_.heads),
                           "--start-from: '{}' was trained with --heads {}, which its blocks need",
                           checkpoint.string(), heads->second);
    });
    const std::vector<std::string> changes = start_from(ranks_, checkpoint, contents, load);
    if (!first_rank()) return;
    fmt::print("started from {}\n", checkpoint.string());
    for (const std::string& line : changes) fmt::print("  {}\n", line);
  }

  /// Keeps the model if its validation is better than those before.
  void keep_best(std::int64_t epoch, std::int64_t step, const Quality& quality) {
    double score = first_rank() ? options_.ranks_items() ? quality.ndcg10 : quality.auc : 0;
    ranks_.all_reduce(std::span(&score, 1));
    require<DataError>(!std::isnan(score),
                       "--epochs auto: all events to validate on have the same label, so that "
                       "there is no AUC; give a number of epochs");
    if (best_epoch_ > 0 && !(score > best_score_)) return;
    best_epoch_ = epoch, best_score_ = score;
    detail::on_all_ranks(ranks_, [&] {
      if (first_rank()) support::remove_later_checkpoints(best_folder_, step);
    });
    CheckpointContents contents = contents_;
    contents.set_text("validation", fmt::format("{} {}", epoch, score));
    save_checkpoint(ranks_, best_folder_, contents, step,
                    {.keep = 1, .finite = true, .locked = !options_.save.empty()});
  }
  bool out_of_patience(std::int64_t epoch) const {
    return options_.automatic() && best_epoch_ > 0 && epoch - best_epoch_ >= options_.patience;
  }

  /// Throws DataError unless a checkpoint in the folder of --save is of this training. Returns what
  /// it says of itself.
  detail::Manifest of_this_training(const std::filesystem::path& checkpoint) const {
    require<DataError>(options_.resume,
                       "--save: '{}' holds checkpoints of an earlier training: go on with "
                       "--resume, or give another folder",
                       options_.save);
    detail::Manifest manifest = detail::read_manifest(checkpoint).first;
    require<DataError>(manifest.texts["position"] == position(),
                       "--resume: '{}' was saved with {}; now there are {}", checkpoint.string(),
                       manifest.texts["position"], position());
    require<DataError>(manifest.texts["data"] == fmt::format("{:016x}", data_.checksum()),
                       "--resume: '{}' was saved while training on other data",
                       checkpoint.string());
    return manifest;
  }

  /// Looks at the folder of --save and loads its last checkpoint where that is asked for. Answers
  /// the steps done.
  std::int64_t start(std::int64_t steps, std::optional<FolderLock>& lock) {
    best_folder_ = options_.save.empty() ? std::filesystem::path(options_.best_folder)
                                         : std::filesystem::path(options_.save) / "best";
    if (options_.save.empty()) return 0;
    std::optional<std::filesystem::path> latest;
    detail::on_all_ranks(ranks_, [&] {
      if (first_rank()) {
        std::error_code error;
        std::filesystem::create_directories(options_.save, error);
        require<DataError>(!error && std::filesystem::is_directory(options_.save),
                           "--save: cannot write to the folder '{}': {}", options_.save,
                           error.message());
        lock.emplace(options_.save);
        detail::remove_partial_checkpoints(options_.save);
      }
    });
    detail::on_all_ranks(ranks_, [&] {
      latest = latest_checkpoint(options_.save);
      if (latest) {
        const std::int64_t step = of_this_training(*latest).step;
        require<DataError>(step <= steps, "--resume: '{}' is of step {}, of {}", latest->string(),
                           step, steps);
      }
      if (const auto best = latest_checkpoint(best_folder_))
        std::istringstream(of_this_training(*best).texts["validation"]) >> best_epoch_ >>
            best_score_;
    });
    if (!latest) return 0;
    const std::int64_t step = load_checkpoint(ranks_, *latest, contents_).step;
    if (first_rank()) fmt::print("resumed from {}\n", latest->string());
    return step;
  }

  void train_step(std::int64_t step, int epoch, std::int64_t first, std::int64_t size) {
    for (std::size_t k = 0; k < parts_.size(); ++k) {
      const std::int64_t begin = first + model_->part_begin(size, static_cast<int>(k)),
                         end = first + model_->part_begin(size, static_cast<int>(k) + 1);
      data_.train().batch(epoch, begin, end - begin, parts_[k]);
      binary_labels(parts_[k]);
      keys_[k].clear();  // a history has the same on any rank
      for (std::int64_t i = begin; i < end; ++i)
        keys_[k].push_back(random_word(options_.seed, 7, epoch, i));
    }
    const std::int64_t all_parts = ranks_.size() * std::ssize(parts_),
                       histories = (size + all_parts - 1) / all_parts;
    const double done = static_cast<double>(step) / static_cast<double>(total_steps());
    const float rate =
        options_.learning_rate * (options_.automatic() ? 1.0f : 1.0f - static_cast<float>(done));
    if (!options_.ranks_items()) {
      std::vector<Rows> rows(parts_.size());
      std::int64_t candidates = 0;
      for (std::size_t k = 0; k < parts_.size(); ++k)
        for (std::int64_t s = 0; s < parts_[k].size; ++s)
          candidates +=
              add_training_rows(rows[k], parts_[k], s, keys_[k][static_cast<std::size_t>(s)]);
      ranks_.all_reduce(std::span(&candidates, 1));
      return model_->train_ranking(rows, histories, candidates, keys_, rate);
    }
    std::int64_t targets = 0;
    for (const Batch& part : parts_)
      targets = std::accumulate(part.targets.begin(), part.targets.end(), targets);
    ranks_.all_reduce(std::span(&targets, 1));
    draw_negatives(step);
    model_->train_next_item(parts_, histories, targets, negatives_, log_q_, keys_, rate);
  }
  std::int64_t total_steps() const {
    return (data_.train().size() + options_.batch_size - 1) / options_.batch_size * options_.epochs;
  }

  void draw_negatives(std::int64_t step) {
    negatives_.resize(
        static_cast<std::size_t>(whole_softmax_ ? data_.histories().items : options_.negatives));
    if (whole_softmax_)
      std::iota(negatives_.begin(), negatives_.end(), 0);
    else
      sampler_->draw(step, std::span(negatives_));
  }

  void binary_labels(Batch& batch) const {
    for (float& label : batch.labels)
      label = label >= static_cast<float>(options_.label_threshold) ? 1.0f : 0.0f;
  }

  /// A history up to a place among its targets, and the next ones as candidates. Without labels
  /// each of them is told from an item that the user never saw. Answers how many candidates.
  std::int64_t add_training_rows(Rows& rows, const Batch& batch, std::int64_t s,
                                 std::uint64_t key) {
    const std::int64_t n = batch.offsets[s + 1] - batch.offsets[s], targets = batch.targets[s],
                       cut = n - targets +
                             static_cast<std::int64_t>(random_word(key, 1) %
                                                       static_cast<std::uint64_t>(targets));
    return add_rows(rows, batch, s, cut, std::min(cut + kCandidates, n), key);
  }
  std::int64_t add_rows(Rows& rows, const Batch& batch, std::int64_t s, std::int64_t cut,
                        std::int64_t end, std::uint64_t key) {
    const auto at = static_cast<std::size_t>(batch.offsets[s]);
    for (std::int64_t e = 0; e < cut; ++e)
      rows.add(batch.items[at + e], e, batch.labels[at + e], false);
    for (std::int64_t e = cut; e < end; ++e)
      rows.add(batch.items[at + e], cut, batch.labels[at + e], true);
    std::int64_t candidates = end - cut;
    if (!data_.has_labels())
      for (const std::int32_t item : unseen(batch.users[s], end - cut, key)) {
        rows.add(item, cut, 0, true);
        ++candidates;
      }
    rows.end_history(candidates);
    return candidates;
  }

  /// Items that a user has not seen, nor will.
  std::vector<std::int32_t> unseen(std::int64_t user, std::int64_t count, std::uint64_t key) {
    std::vector<std::int32_t> seen = items_of(data_.histories().of(user));
    std::sort(seen.begin(), seen.end());
    return draw_unseen<std::int32_t>(data_.histories().items, seen, count, key);
  }
  static std::vector<std::int32_t> items_of(std::span<const HistoryEvent> events) {
    std::vector<std::int32_t> items;
    for (const HistoryEvent& event : events) items.push_back(event.item);
    return items;
  }

  /// Of all targets, on the first rank. Collective.
  Quality test(const HistorySamples& samples) {
    constexpr std::int64_t kBatch = 64;
    model_->load_all_items();
    // whole batches for each rank, so that products have the same shapes on any number of them
    const auto cut = [&](int rank) {
      return std::min(samples.size(), kBatch * even_cut((samples.size() + kBatch - 1) / kBatch,
                                                        ranks_.size(), rank));
    };
    const std::int64_t begin = cut(ranks_.rank()), end = cut(ranks_.rank() + 1);
    std::vector<std::int64_t> whole, sampled;  // ranks of the right items
    std::vector<float> logits, labels;
    for (std::int64_t first = begin; first < end; first += kBatch) {
      const std::int64_t count = std::min(kBatch, end - first);
      samples.in_order(first, count, batch_);
      binary_labels(batch_);
      const std::span<const HistoryRange> ranges(samples.ranges().data() + first,
                                                 static_cast<std::size_t>(count));
      options_.ranks_items() ? rank_items(ranges, whole, sampled) : score(ranges, logits, labels);
    }
    Quality quality;
    if (options_.ranks_items()) {
      RankingMetrics metrics, of_sampled;
      for (const std::int64_t rank : gather(whole)) metrics.add(rank);
      for (const std::int64_t rank : gather(sampled)) of_sampled.add(rank);
      quality.hr10 = metrics.hit_rate(), quality.ndcg10 = metrics.ndcg();
      quality.mrr = metrics.mean_reciprocal_rank();
      quality.hr10_sampled = of_sampled.hit_rate(), quality.ndcg10_sampled = of_sampled.ndcg();
    } else {
      Auc auc;
      const std::vector<float> all_logits = gather(logits), all_labels = gather(labels);
      auc.add(all_logits, all_labels);
      quality.auc = auc.value();
      if (predicts_) {
        const std::vector<char> lines =
            gather(std::vector<char>(predictions_.begin(), predictions_.end()));
        predictions_.assign(lines.begin(), lines.end());
      }
    }
    return quality;
  }

  void rank_items(std::span<const HistoryRange> ranges, std::vector<std::int64_t>& whole,
                  std::vector<std::int64_t>& sampled) {
    const std::span<const float> all = model_->scores(batch_);
    const auto items = static_cast<std::size_t>(data_.histories().items);
    std::size_t query = 0;
    for (const HistoryRange& range : ranges) {
      const auto events = data_.histories().of(range.user);
      for (std::int64_t e = range.target; e < range.end; ++e, ++query) {
        const std::span<const float> scores = all.subspan(query * items, items);
        const std::int32_t right = events[static_cast<std::size_t>(e)].item;
        const std::vector<std::int32_t> seen = items_of(events.first(static_cast<std::size_t>(e)));
        whole.push_back(rank_of(scores, right, std::span<const std::int32_t>(seen)));
        // what does not depend on a training's seed
        std::int64_t rank = 0;
        for (const std::int32_t item : unseen(range.user, kUnseen, random_word(9, range.user, e)))
          rank += scores[static_cast<std::size_t>(item)] >= scores[static_cast<std::size_t>(right)];
        sampled.push_back(rank);
      }
    }
  }

  void score(std::span<const HistoryRange> ranges, std::vector<float>& logits,
             std::vector<float>& labels) {
    Rows rows;
    for (std::size_t s = 0; s < ranges.size(); ++s)
      add_rows(rows, batch_, static_cast<std::int64_t>(s), ranges[s].target - ranges[s].begin,
               ranges[s].end - ranges[s].begin, random_word(9, ranges[s].user, ranges[s].target));
    const std::span<const float> found = model_->logits(rows), wanted = model_->candidate_labels();
    logits.insert(logits.end(), found.begin(), found.end());
    labels.insert(labels.end(), wanted.begin(), wanted.end());
    if (!predicts_) return;
    std::size_t c = 0;
    for (std::size_t s = 0; s < ranges.size(); ++s) {
      const HistoryRange& range = ranges[s];
      const auto history = data_.histories()
                               .of(range.user)
                               .subspan(static_cast<std::size_t>(range.begin),
                                        static_cast<std::size_t>(range.target - range.begin));
      const auto end = static_cast<std::size_t>(rows.offsets[s + 1]);
      for (std::size_t row = end - static_cast<std::size_t>(rows.targets[s]); row < end; ++row, ++c)
        add_prediction(predictions_, data_, history, rows.items[row], wanted[c], found[c]);
    }
  }

  template <class T>
  std::vector<T> gather(const std::vector<T>& own) {
    const auto ranks = static_cast<std::size_t>(ranks_.size());
    const std::size_t count = own.size();
    std::vector<std::size_t> counts(ranks);
    ranks_.all_gather(std::span<const std::size_t>(&count, 1), std::span(counts),
                      std::vector<std::size_t>(ranks, 1));
    std::vector<T> all(std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
    ranks_.all_gather(std::span<const T>(own), std::span(all), counts);
    return all;
  }

  const Options& options_;
  const Data& data_;
  ThreadCommunicator& ranks_;
  std::unique_ptr<RankModel> model_;
  bool whole_softmax_;
  std::optional<NegativeSampler> sampler_;
  CheckpointContents contents_;
  std::vector<Batch> parts_{static_cast<std::size_t>(model_->parts())};  ///< of a training batch
  std::vector<std::vector<std::uint64_t>> keys_{parts_.size()};
  Batch batch_;  ///< of a test
  std::vector<std::int32_t> negatives_;
  std::vector<float> log_q_;
  std::filesystem::path best_folder_;
  std::int64_t best_epoch_ = 0;  ///< 0: there is none yet
  double best_score_ = 0;
  bool predicts_ = false;
  std::string predictions_;  ///< lines of this rank, after the test of all
};

}  // namespace

Options settled(Options options, const Data& data) {
  constexpr std::int64_t kNegatives = 1000;
  constexpr int kEpochs = 10;
  const std::int64_t items = data.histories().items;
  if (options.negatives == 0) options.negatives = std::min(kNegatives, items);
  require<DataError>(options.negatives < items || options.popularity == 0,
                     "--popularity: all {} items are negatives; give fewer --negatives", items);
  const bool validates = data.validation().size() > 0;
  require<DataError>(validates || !options.automatic(),
                     "--epochs auto: no history has an event to validate on; give a number");
  if (options.epochs == 0) options.epochs = validates ? Options::kAutoEpochs : kEpochs;
  return options;
}

Result train(const Options& given, const Data& data) {
  Options options = given;
  // Without --save the best model is in a folder that ends with the run.
  struct Folder {
    std::filesystem::path path;
    ~Folder() {
      std::error_code ignored;
      if (!path.empty()) std::filesystem::remove_all(path, ignored);
    }
  } folder;
  if (options.automatic() && options.save.empty()) {
    std::string name = (std::filesystem::temp_directory_path() / "train_sequence-XXXXXX").string();
    require<DataError>(
        ::mkdtemp(name.data()) != nullptr,
        "--epochs auto: cannot make a folder for the best model in '{}'; give --save",
        std::filesystem::temp_directory_path().string());
    options.best_folder = folder.path = name;
  }
  Result result;
  run_ranks(options.ranks,
            [&](ThreadCommunicator& ranks) { Rank(options, data, ranks).run(result); });
  return result;
}

}  // namespace sequence
