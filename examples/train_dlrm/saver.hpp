// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../support/later_checkpoints.hpp"
#include "clicks.hpp"
#include "description.hpp"
#include "options.hpp"
#include "rank_model.hpp"
#include "table_optimizers.hpp"

#include <tessera/checkpoint/agreement.hpp>
#include <tessera/checkpoint/async_save.hpp>
#include <tessera/checkpoint/cold_rows.hpp>
#include <tessera/checkpoint/contents.hpp>
#include <tessera/checkpoint/folder.hpp>
#include <tessera/checkpoint/increments.hpp>
#include <tessera/checkpoint/load.hpp>
#include <tessera/checkpoint/non_finite.hpp>
#include <tessera/checkpoint/save.hpp>
#include <tessera/checkpoint/vocabulary.hpp>
#include <tessera/comm/any_communicator.hpp>
#include <tessera/vocabulary/cold_rows.hpp>
#include <tessera/vocabulary/vocabulary.hpp>
#include <tessera_serving/model_description.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace dlrm {

/// One rank's part in saving and resuming. Collective.
class Saver {
 public:
  using Vocabulary = std::optional<tessera::Vocabulary<tessera::AnyCommunicator>>;
  using Cold = std::optional<tessera::ColdRows>;

  Saver(const Options& options, const Clicks& clicks, tessera::AnyCommunicator& communicator,
        RankModel& model, Vocabulary& vocabulary, Cold& cold)
      : options_(options),
        communicator_(communicator),
        layout_(model.embeddings().layout()),
        vocabulary_(vocabulary),
        cold_(cold),
        embeddings_(model.embeddings()) {
    if (options.save.empty()) return;
    tessera::detail::on_all_ranks(communicator, [&] {
      if (options.mode != "train") return;
      check_folder(options.save);
      if (communicator.rank() != 0) return;
      lock_.emplace(options.save);
      for (const std::filesystem::path& folder :
           {std::filesystem::path(options.save), best_folder()})
        if (std::filesystem::exists(folder)) tessera::detail::remove_partial_checkpoints(folder);
      // Its checkpoints would lie among those of another training, and --resume would take the
      // wrong one.
      auto latest = tessera::latest_checkpoint(options.save);
      if (!latest) latest = tessera::latest_checkpoint(best_folder());
      tessera::require<tessera::DataError>(
          options.resume || !latest,
          "--save: '{}' holds checkpoints of an earlier training, up to '{}': go on with --resume, "
          "or give another folder",
          options.save, latest ? latest->filename().string() : "");
    });
    if (options.mode == "train") check_shared();
    model.add_to(contents_);
    if (communicator.rank() == 0 && options.synthetic_model.empty())  // which nothing serves
      tessera::add_model_description(contents_,
                                     description_of(options, clicks.shape(), clicks.inputs()),
                                     clicks.inputs().lists);
    // What the position in the data and the learning rates depend on; all else may change.
    position_ = fmt::format("{} training samples, batch size {}, {} epochs, seed {}",
                            clicks.train_samples(), options.batch_size, options.epochs_text(),
                            options.seed);
    if (options.accumulate > 1) position_ += fmt::format(", {} batches a step", options.accumulate);
    if (const std::string order = clicks.order(); !order.empty()) position_ += ", " + order;
    contents_.set_text("position", position_);
    data_ = fmt::format("{:016x}", clicks.checksum());
    contents_.set_text("data", data_);
    inputs_ = inputs_of(clicks);
    contents_.set_text("inputs", inputs_);
    contents_.set_text("optimizer", options.optimizer);
    contents_.set_text("options", to_text(options.model_options));
    if (options.save_increments > 0 && options.mode == "train") changed_.emplace(contents_);
  }

  /// Loads the last checkpoint where that is asked for and there is one. Answers the steps done, of
  /// `steps`.
  std::int64_t resume(std::int64_t steps) {
    if (!options_.resume) return 0;
    std::optional<std::filesystem::path> latest;
    tessera::detail::on_all_ranks(communicator_, [&] {
      latest = tessera::latest_checkpoint(options_.save);
      if (!latest) return;
      const tessera::detail::Manifest manifest = tessera::detail::read_manifest(*latest).first;
      const auto& texts = manifest.texts;
      check_training(*latest, texts);
      if (const auto auc = texts.find(kStopped); auc != texts.end())
        stopped_ = std::stod(auc->second);
      tessera::require<tessera::DataError>(manifest.step <= steps,
                                           "--resume: '{}' is of step {}, and this training has {}",
                                           latest->string(), manifest.step, steps);
    });
    if (!latest) return 0;
    const std::int64_t step = load(*latest);
    find_best();
    unproven_ = step;
    return step;
  }

  /// The training ends with this step, whose model's test gave an AUC of --stop-at-auc or more. The
  /// checkpoint says so.
  void stop_at(double auc) { contents_.set_text(kStopped, fmt::format("{}", auc)); }
  /// That AUC of a checkpoint that was resumed.
  std::optional<double> stopped_at() const { return stopped_; }

  /// Loads the last checkpoint to test it. Answers its step.
  std::int64_t load() {
    std::optional<std::filesystem::path> latest;
    tessera::detail::on_all_ranks(communicator_, [&] {
      latest = tessera::latest_checkpoint(options_.save);
      tessera::require<tessera::DataError>(
          latest.has_value(), "--mode {}: the folder '{}' of --save holds no checkpoint",
          options_.mode, options_.save);
      check_data(*latest, tessera::detail::read_manifest(*latest).first.texts);
    });
    return load(*latest);
  }

  /// The step of the best model, of this training or the one that it goes on with.
  std::optional<std::int64_t> best_step() const { return best_step_; }
  /// Loads the best model. Answers its step and AUC.
  std::pair<std::int64_t, double> load_best() {
    const std::filesystem::path folder =
        best_folder() / tessera::detail::checkpoint_name(*best_step_);
    return {load(folder, false), *best_};
  }

  /// Keeps the model in the folder `best` if its AUC is above those before, also of the training
  /// that this one goes on with. All ranks give the same AUC.
  void keep_best(std::int64_t step, double auc) {
    if (options_.save.empty()) return;
    const std::filesystem::path folder = best_folder();
    if (!best_) find_best();
    if (!(auc > *best_)) return;
    best_ = auc;
    best_step_ = step;
    if (running_) saved(running_->finish(communicator_));
    tessera::detail::on_all_ranks(communicator_, [&] {
      if (communicator_.rank() != 0) return;
      check_folder(folder);
      support::remove_later_checkpoints(folder, step);
    });
    Whole whole(contents_, vocabulary_, cold_);
    whole.contents.set_text("auc", fmt::format("{}", auc));
    tessera::save_checkpoint(communicator_, folder, whole.contents, step,
                             {.finite = true, .locked = true});
    if (communicator_.rank() == 0) tessera::detail::remove_old_checkpoints(folder, 1, step);
  }

  /// Whether the model is saved after this step.
  bool due(std::int64_t step, bool last) const {
    return !options_.save.empty() &&
           (last || (options_.save_every > 0 && step % options_.save_every == 0));
  }

  /// Whether the loss must be looked at after this step: before a model is saved, and as soon as a
  /// saved one has been used.
  bool wants_look(std::int64_t step, bool last) const { return unproven_ || due(step, last); }

  /// The loss of what was saved last is a number: it stays, and what --keep has no room for goes.
  void proven() {
    const std::optional<std::int64_t> step = std::exchange(unproven_, std::nullopt);
    if (!step || options_.keep == 0 || communicator_.rank() != 0) return;
    try {
      tessera::detail::remove_old_checkpoints(options_.save, options_.keep, *step);
    } catch (const std::exception& error) {
      std::fputs(
          fmt::format("train_dlrm: warning: older checkpoints were not removed: {}\n", error.what())
              .c_str(),
          stderr);
    }
  }

  /// What a training that diverged can go on from.
  std::string advice() const {
    if (options_.save.empty()) return {};
    const std::vector<std::int64_t> steps = tessera::detail::checkpoint_steps(options_.save);
    const auto suspect =
        unproven_ ? std::lower_bound(steps.begin(), steps.end(), *unproven_) : steps.end();
    if (suspect == steps.begin()) return {};
    const auto name = [&](std::int64_t step) {
      return (std::filesystem::path(options_.save) / tessera::detail::checkpoint_name(step))
          .string();
    };
    std::string text = fmt::format("; the last good checkpoint is '{}'", name(*std::prev(suspect)));
    if (suspect != steps.end())
      text += fmt::format(": remove '{}', which leads here, and use --resume", name(*suspect));
    return text;
  }

  void after_step(std::int64_t step, bool last) {
    if (options_.save.empty()) return;
    try {
      save(step, last);
    } catch (const tessera::DataError& error) {
      throw tessera::DataError(fmt::format("--save, step {}: {}{}", step, error.what(), advice()));
    }
  }

 private:
  /// What becomes of the data's fields, by the schema: a line for each column.
  static std::string inputs_of(const Clicks& clicks) {
    std::string lines;
    for (const tessera::NumberInput& number : clicks.inputs().numeric)
      lines += fmt::format(
          "numeric column '{}', transform {}{}, empty: {}\n", number.name,
          tessera::detail::kNumberTransforms[static_cast<std::size_t>(number.transform)],
          number.shift == 0 && number.scale == 1 ? "" : " and standardize",
          number.empty ? fmt::format("{}", *number.empty) : "none");
    for (const DataShape::Feature& feature : clicks.shape().features)
      lines += fmt::format("column '{}', pooling {}\n", feature.name,
                           tessera::to_string(feature.pooling));
    return lines;
  }

  /// Looks for the best model of the training that this one goes on with. Collective.
  void find_best() {
    best_ = -1;
    tessera::detail::on_all_ranks(communicator_, [&] {
      const auto last = options_.resume ? tessera::latest_checkpoint(best_folder()) : std::nullopt;
      if (!last) return;
      const tessera::detail::Manifest manifest = tessera::detail::read_manifest(*last).first;
      check_training(*last, manifest.texts);
      const auto auc = manifest.texts.find("auc");
      if (auc == manifest.texts.end()) return;
      best_ = std::stod(auc->second);
      best_step_ = manifest.step;
    });
    // all have looked before one writes
    communicator_.barrier();
  }

  static constexpr const char* kStopped = "stopped at AUC";

  std::filesystem::path best_folder() const {
    return std::filesystem::path(options_.save) / "best";
  }

  /// Throws if a checkpoint is of another training than this one.
  void check_training(const std::filesystem::path& checkpoint, const auto& texts) const {
    const auto found = texts.find("position");
    const std::string position = found == texts.end() ? std::string() : found->second;
    tessera::require(position == position_, "--resume: '{}' was saved with {}; now there are {}",
                     checkpoint.string(), position, position_);
    check_data(checkpoint, texts);
  }

  void check_data(const std::filesystem::path& checkpoint, const auto& texts) const {
    // Checkpoints of earlier versions do not say what data they are of.
    const auto data = texts.find("data");
    tessera::require(data == texts.end() || data->second == data_,
                     "--resume: '{}' was saved while training on other data (checksum {}; now "
                     "{}); give it its --data, --max-rows, --min-count and --power again",
                     checkpoint.string(), data == texts.end() ? "" : data->second, data_);
    const auto inputs = texts.find("inputs");
    if (inputs == texts.end() || inputs->second == inputs_) return;
    const auto same = std::ranges::mismatch(inputs->second, inputs_).in1 - inputs->second.begin();
    const auto line = [&](const std::string& text) {  // the first that differs
      const std::size_t begin = text.substr(0, static_cast<std::size_t>(same)).rfind('\n') + 1;
      return text.substr(begin, text.find('\n', begin) - begin);
    };
    throw tessera::InvalidArgument(
        fmt::format("--resume: '{}' was trained with {}; the schema now has {}",
                    checkpoint.string(), line(inputs->second), line(inputs_)));
  }

  std::int64_t load(const std::filesystem::path& checkpoint, bool says = true) {
    // Cold rows are of other tables now than when it was saved.
    const Whole whole(contents_, vocabulary_, std::nullopt);
    std::vector<std::string> begun_anew;
    tessera::detail::Manifest loaded;
    try {
      loaded = tessera::load_checkpoint(communicator_, checkpoint, whole.contents,
                                        {.new_optimizers = &begun_anew, .extra = {"cold_rows.*"}});
    } catch (const tessera::DataError& error) {
      const std::string text = error.what();
      if (text.find("and the model differ") == std::string::npos) throw;
      throw tessera::DataError(
          "give the options of the training, by --config or as --bottom-mlp, --top-mlp, --model, "
          "--embedding-width, --min-count and --max-rows: " +
          text);
    }
    if (vocabulary_)
      tessera::detail::on_all_ranks(communicator_,
                                    [&] { tessera::load_vocabulary(checkpoint, *vocabulary_); });
    if (cold_)
      tessera::detail::on_all_ranks(communicator_, [&] {
        cold_.emplace(options_.cold_keys);
        embeddings_.load(*cold_, checkpoint);
      });
    if (options_.mode != "train") check_finite(checkpoint, whole.contents);
    if (communicator_.rank() != 0 || !says) return loaded.step;
    fmt::print("resumed from {}\n", checkpoint.string());
    if (options_.mode == "train" && !begun_anew.empty())
      for (const std::string& line :
           optimizer_changes(loaded.texts["optimizer"], options_.optimizer, layout_, begun_anew))
        fmt::print("{}\n", line);
    return loaded.step;
  }

  /// A model of NaN may still score finite numbers: of a table that no test sample reads, say.
  void check_finite(const std::filesystem::path& checkpoint,
                    const tessera::CheckpointContents& contents) {
    tessera::detail::on_all_ranks(communicator_, [&] {
      std::vector<std::string> names = tessera::detail::non_finite_tensors(contents);
      std::erase_if(names, [](const std::string& name) { return name.starts_with("dense."); });
      constexpr std::size_t shown = 5;
      const std::size_t more = names.size() - std::min(names.size(), shown);
      names.resize(names.size() - more);
      tessera::require<tessera::DataError>(
          names.empty(),
          "--mode {}: '{}' holds NaN or infinite numbers in {}{}: its training went wrong; test an "
          "earlier checkpoint",
          options_.mode, checkpoint.string(), fmt::format("{}", fmt::join(names, ", ")),
          more == 0 ? "" : fmt::format(" and {} more", more));
    });
  }

  void save(std::int64_t step, bool last) {
    const bool now = due(step, last);
    if (running_ && now) saved(running_->finish(communicator_));
    if (running_)
      if (auto base = running_->poll(communicator_)) saved(std::move(*base));
    if (!now) return;
    const Whole whole(contents_, vocabulary_, cold_);
    // --keep waits for proven()
    const tessera::SaveOptions options{.finite = true, .locked = true};
    if (base_ && increments_ < options_.save_increments && !last) {
      tessera::save_increment(communicator_, options_.save, whole.contents, *changed_, *base_, step,
                              options);
      ++increments_;
      unproven_ = step;
      return;
    }
    increments_ = 0;
    if (options_.save_async && !last) {
      running_.emplace(communicator_, options_.save, whole.contents, step,
                       tessera::AsyncSaveOptions{.save = options});
      running_step_ = step;
    } else {
      base_ = tessera::save_checkpoint(communicator_, options_.save, whole.contents, step, options);
      unproven_ = step;
    }
    if (changed_) changed_->clear();
  }

  /// What was written in the background can be read.
  void saved(tessera::CheckpointBase base) {
    running_.reset();
    base_ = std::move(base);
    unproven_ = running_step_;
  }

  /// Before the training, so that a bad path costs no time.
  static void check_folder(const std::filesystem::path& folder) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (!error && ::access(folder.c_str(), W_OK | X_OK) != 0)
      error.assign(errno, std::generic_category());
    if (!error && !std::filesystem::is_directory(folder))
      error = std::make_error_code(std::errc::not_a_directory);
    tessera::require<tessera::DataError>(!error, "--save: cannot write to the folder '{}': {}",
                                         folder.string(), error.message());
  }

  /// Throws on all ranks unless they see one folder: a process on another machine may have one of
  /// its own there, and would find out at the first save.
  void check_shared() const {
    const auto step =
        tessera::detail::gather_one<std::int64_t>(communicator_, std::random_device()());
    const std::filesystem::path mark =
        std::filesystem::path(options_.save) /
        (std::string(tessera::detail::kPartialPrefix) + tessera::detail::checkpoint_name(step[0]));
    tessera::detail::on_all_ranks(communicator_, [&] {
      if (communicator_.rank() == 0) std::filesystem::create_directory(mark);
    });
    std::error_code error;
    const auto seen =
        tessera::detail::gather_one<char>(communicator_, std::filesystem::exists(mark, error));
    if (communicator_.rank() == 0) std::filesystem::remove(mark, error);
    const auto other = std::ranges::find(seen, 0) - seen.begin();
    tessera::require<tessera::DataError>(
        other == communicator_.size(),
        "--save: '{}' is another folder on rank {} than on rank 0: give one that all ranks share",
        options_.save, other);
  }

  /// The model and what the vocabulary knows now.
  struct Whole {
    tessera::CheckpointContents contents;
    std::optional<tessera::SavedVocabulary<Vocabulary::value_type>> saved;
    std::optional<tessera::SavedColdRows<tessera::ColdRows>> saved_cold;
    Whole(const tessera::CheckpointContents& model, const Vocabulary& vocabulary, const Cold& cold)
        : contents(model) {
      if (vocabulary) saved.emplace(contents, *vocabulary);
      if (cold) saved_cold.emplace(contents, *cold);
    }
  };

  const Options& options_;
  tessera::AnyCommunicator& communicator_;
  const tessera::Layout& layout_;
  Vocabulary& vocabulary_;
  Cold& cold_;
  const Embeddings& embeddings_;
  tessera::CheckpointContents contents_;
  std::string position_, data_, inputs_;
  std::optional<tessera::FolderLock> lock_;  ///< on the first rank
  std::optional<tessera::AsyncSave> running_;
  std::int64_t running_step_ = 0;
  /// the step of the last checkpoint, until its model has given a loss
  std::optional<std::int64_t> unproven_;
  std::optional<tessera::ChangedRows> changed_;  ///< since base_ was saved
  std::optional<tessera::CheckpointBase> base_;
  int increments_ = 0;
  std::optional<double> stopped_;
  std::optional<std::int64_t> best_step_;
  std::optional<double> best_;  ///< AUC of the model in the folder `best`; -1: there is none
};

}  // namespace dlrm
