// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "clicks.hpp"
#include "options.hpp"
#include "rank_model.hpp"

#include <tessera/checkpoint/async_save.hpp>
#include <tessera/checkpoint/contents.hpp>
#include <tessera/checkpoint/increments.hpp>
#include <tessera/checkpoint/load.hpp>
#include <tessera/checkpoint/save.hpp>
#include <tessera/checkpoint/vocabulary.hpp>
#include <tessera/comm/any_communicator.hpp>
#include <tessera/table/vocabulary.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

namespace dlrm {

/// One rank's part in saving and resuming. Collective.
class Saver {
 public:
  using Vocabulary = std::optional<tessera::Vocabulary<tessera::AnyCommunicator>>;

  Saver(const Options& options, const Clicks& clicks, tessera::AnyCommunicator& communicator, RankModel& model, Vocabulary& vocabulary)
      : options_(options), communicator_(communicator), vocabulary_(vocabulary) {
    if (options.save.empty()) return;
    tessera::on_all_ranks(communicator, [&] { check_folder(options.save); });
    model.add_to(contents_);
    // What the position in the data and the learning rates depend on; all else may change.
    position_ = fmt::format("{} training samples, batch size {}, {} epochs, seed {}", clicks.train_samples(), options.batch_size,
                            options.epochs, options.seed);
    contents_.set_text("position", position_);
    data_ = fmt::format("{:016x}", clicks.checksum());
    contents_.set_text("data", data_);
    if (options.save_increments > 0) changed_.emplace(contents_);
  }

  /// Loads the last checkpoint where that is asked for and there is one. Answers the steps done.
  std::int64_t resume() {
    if (!options_.resume) return 0;
    std::optional<std::filesystem::path> latest;
    tessera::on_all_ranks(communicator_, [&] {
      latest = tessera::latest_checkpoint(options_.save);
      if (!latest) return;
      auto texts = tessera::read_manifest(*latest).first.texts;
      const std::string position = texts["position"];
      tessera::require(position == position_, "--resume: '{}' was saved with {}; now there are {}", latest->string(), position, position_);
      // Checkpoints of earlier versions do not say what data they are of.
      tessera::require(!texts.contains("data") || texts["data"] == data_,
                       "--resume: '{}' was saved while training on other data (checksum {}; now {}); give it its --data, --max-rows, "
                       "--min-count and --power again",
                       latest->string(), texts["data"], data_);
    });
    if (!latest) return 0;
    const Whole whole(contents_, vocabulary_);
    const std::int64_t step = tessera::load_checkpoint(communicator_, *latest, whole.contents).step;
    if (vocabulary_) tessera::on_all_ranks(communicator_, [&] { tessera::load_vocabulary(*latest, *vocabulary_); });
    if (communicator_.rank() == 0) fmt::print("resumed from {}\n", latest->string());
    return step;
  }

  void after_step(std::int64_t step, bool last) {
    if (options_.save.empty()) return;
    const bool due = last || (options_.save_every > 0 && step % options_.save_every == 0);
    if (running_ && (due ? running_->finish(communicator_), true : running_->poll(communicator_).has_value())) running_.reset();
    if (!due) return;
    const tessera::SaveOptions options{.keep = options_.keep};
    if (options_.save_async && !last) {
      running_.emplace(communicator_, options_.save, contents_, step, tessera::AsyncSaveOptions{.save = options});
    } else if (base_ && increments_ < options_.save_increments && !last) {
      tessera::save_increment(communicator_, options_.save, *changed_, *base_, step, options);
      ++increments_;
    } else {
      base_ = tessera::save_checkpoint(communicator_, options_.save, Whole(contents_, vocabulary_).contents, step, options);
      increments_ = 0;
      if (changed_) changed_->clear();
    }
  }

 private:
  /// Before the training, so that a bad path costs no time.
  static void check_folder(const std::filesystem::path& folder) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (!error && ::access(folder.c_str(), W_OK | X_OK) != 0) error.assign(errno, std::generic_category());
    if (!error && !std::filesystem::is_directory(folder)) error = std::make_error_code(std::errc::not_a_directory);
    tessera::require<tessera::DataError>(!error, "--save: cannot write to the folder '{}': {}", folder.string(), error.message());
  }

  /// The model and what the vocabulary knows now.
  struct Whole {
    tessera::CheckpointContents contents;
    std::optional<tessera::SavedVocabulary<Vocabulary::value_type>> saved;
    Whole(const tessera::CheckpointContents& model, const Vocabulary& vocabulary) : contents(model) {
      if (vocabulary) saved.emplace(contents, *vocabulary);
    }
  };

  const Options& options_;
  tessera::AnyCommunicator& communicator_;
  Vocabulary& vocabulary_;
  tessera::CheckpointContents contents_;
  std::string position_, data_;
  std::optional<tessera::AsyncSave> running_;
  std::optional<tessera::ChangedRows> changed_;  ///< since base_ was saved
  std::optional<tessera::CheckpointBase> base_;
  int increments_ = 0;
};

}  // namespace dlrm
