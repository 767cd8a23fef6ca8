// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/deadline.hpp>
#include <tessera/core/error.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

namespace detail {

/// How one rank meets the others by files in a folder that all see. Each rank's file has a random
/// word of its own and repeats rank 0's; rank 0 then writes what all have brought, with the words of
/// all. So no rank takes a file of another job for one of this: who finds its own word there was
/// meant. Rank 0 removes the files when all have read.
class FolderMeeting {
 public:
  FolderMeeting(std::filesystem::path folder, int rank, int size, std::chrono::nanoseconds timeout)
      : folder_(std::move(folder)),
        rank_(rank),
        size_(size),
        timeout_(timeout),
        deadline_(deadline_after(timeout)) {
    std::random_device random;
    for (int i = 0; i < 4; ++i) word_ += formatted("{:08x}", random());
  }

  std::vector<std::string> meet(const std::string& mine) {
    std::error_code code;
    std::filesystem::create_directories(folder_, code);
    return rank_ == 0 ? lead(mine) : follow(mine);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::string_view kFirstLine = "tessera meeting 1";
  static constexpr std::chrono::milliseconds kPause{5};

  /// What a rank's file says.
  struct Card {
    std::string word, word_of_first, brought;
  };

  std::filesystem::path card_of(int rank) const {
    return folder_ / formatted("meeting_rank_{}", rank);
  }
  std::filesystem::path list() const { return folder_ / "meeting_all"; }

  std::vector<std::string> lead(const std::string& mine) {
    write(card_of(0), {word_, word_, mine});
    std::vector<std::optional<Card>> cards(static_cast<std::size_t>(size_));
    cards[0] = Card{word_, word_, mine};
    for (;;) {
      for (int rank = 1; rank < size_; ++rank) {
        std::optional<Card>& card = cards[static_cast<std::size_t>(rank)];
        if (card) continue;
        card = read(card_of(rank));
        if (card && card->word_of_first != word_) card.reset();  // of another job, or not yet
      }
      if (std::all_of(cards.begin(), cards.end(),
                      [](const auto& card) { return card.has_value(); }))
        break;
      own_is_there();
      pause([&] {
        std::string missing;
        for (int rank = 1; rank < size_; ++rank)
          if (!cards[static_cast<std::size_t>(rank)]) name(missing, rank);
        return missing;
      });
    }
    std::string all;
    for (const auto& card : cards)
      all += formatted("{} {}\n{}", card->word, card->brought.size(), card->brought);
    write(list(), {word_, word_, all});
    // A rank that has read removes its file. One that does not has died: connecting to it says so.
    for (int rank = 1; rank < size_; ++rank)
      while (std::filesystem::exists(card_of(rank)) && Clock::now() < deadline_)
        std::this_thread::sleep_for(kPause);
    remove(list());
    remove(card_of(0));
    std::vector<std::string> brought;
    for (auto& card : cards) brought.push_back(std::move(card->brought));
    return brought;
  }

  std::vector<std::string> follow(const std::string& mine) {
    std::string seen;  // rank 0's word that this rank's file repeats
    for (bool written = false;;) {
      const std::optional<Card> first = read(card_of(0));
      if (first && (!written || first->word != seen)) {
        seen = first->word;
        write(card_of(rank_), {word_, seen, mine});
        written = true;
      }
      if (const std::optional<Card> all = read(list()))
        if (std::vector<std::string> brought = find_self(all->brought); !brought.empty()) {
          remove(card_of(rank_));
          return brought;
        }
      if (written) own_is_there();
      pause([&] {
        std::string missing;
        for (int rank = 1; rank < size_; ++rank) {
          const std::optional<Card> card = read(card_of(rank));
          if (rank != rank_ && (!card || card->word_of_first != seen)) name(missing, rank);
        }
        if (!missing.empty() && !seen.empty()) return missing;
        return formatted(
            "0{}", first ? formatted(" (is '{}' left over from another job?)", card_of(0).string())
                         : std::string());
      });
    }
  }

  /// Returns what the ranks of a list brought; nothing if it is not of this meeting.
  std::vector<std::string> find_self(std::string_view all) const {
    std::vector<std::string> brought;
    bool own = false;
    while (!all.empty()) {
      const std::size_t end = all.find('\n');
      if (end == std::string_view::npos) return {};
      std::istringstream line{std::string(all.substr(0, end))};
      std::string word;
      std::size_t bytes = 0;
      if (!(line >> word >> bytes) || bytes > all.size() - end - 1) return {};
      if (brought.size() == static_cast<std::size_t>(rank_)) own = word == word_;
      brought.emplace_back(all.substr(end + 1, bytes));
      all.remove_prefix(end + 1 + bytes);
    }
    if (!own || brought.size() != static_cast<std::size_t>(size_)) return {};
    return brought;
  }

  /// Throws if another process has written this rank's file.
  void own_is_there() const {
    const std::optional<Card> card = read(card_of(rank_));
    if (card && card->word != word_)
      throw CommunicatorError(
          rank_, "meeting",
          formatted("rank {}: another process writes '{}': another job, or another rank {} of "
                    "this one; give each job a folder of its own, and each process a rank",
                    rank_, card_of(rank_).string(), rank_));
  }

  /// Waits a little, or says who is missing.
  template <class Missing>
  void pause(Missing missing) const {
    if (Clock::now() >= deadline_)
      throw CommunicatorError(
          -1, "meeting",
          formatted("rank {} waited {} ms in the folder '{}' for rank(s) {}; start all {} ranks "
                    "with the same folder, which all see, or raise the timeout",
                    rank_, std::chrono::duration_cast<std::chrono::milliseconds>(timeout_).count(),
                    folder_.string(), missing(), size_));
    std::this_thread::sleep_for(kPause);
  }
  static void name(std::string& names, int rank) {
    names += formatted("{}{}", names.empty() ? "" : ", ", rank);
  }

  /// Writes a whole file under another name, then renames it.
  void write(const std::filesystem::path& path, const Card& card) const {
    const std::filesystem::path part = path.string() + "." + word_;
    std::ofstream file(part, std::ios::binary);
    file << kFirstLine << '\n'
         << card.word << '\n'
         << card.word_of_first << '\n'
         << card.brought.size() << '\n'
         << card.brought;
    file.close();
    std::error_code code;
    if (file) std::filesystem::rename(part, path, code);
    if (!file || code) {
      remove(part);
      throw DataError(
          formatted("rank {} cannot write '{}' to meet the others{}: is the folder "
                    "there, and may this process write in it?",
                    rank_, path.string(), code ? ": " + code.message() : ""));
    }
  }
  /// Returns what a file says; nothing if there is none, or one of another kind.
  static std::optional<Card> read(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::string first_line, bytes;
    Card card;
    if (!std::getline(file, first_line) || first_line != kFirstLine ||
        !std::getline(file, card.word) || !std::getline(file, card.word_of_first) ||
        !std::getline(file, bytes))
      return std::nullopt;
    std::ostringstream rest;
    rest << file.rdbuf();
    card.brought = rest.str();
    if (std::to_string(card.brought.size()) != bytes) return std::nullopt;
    return card;
  }
  static void remove(const std::filesystem::path& path) {
    std::error_code code;  // another rank may have done it
    std::filesystem::remove(path, code);
  }

  std::filesystem::path folder_;
  int rank_, size_;
  std::chrono::nanoseconds timeout_;
  Clock::time_point deadline_;
  std::string word_;
};

}  // namespace detail

/// Returns a meeting of processes in a folder that all see, for GlooCommunicator: each gives its
/// bytes to all. Files that another job left there are not taken for this one's, and the meeting's
/// own are removed. Two jobs must not meet in one folder at the same time. It throws
/// CommunicatorError, naming the ranks that did not come within `timeout` of the call.
inline std::function<std::vector<std::string>(std::string)> meet_in_folder(
    std::filesystem::path folder, int rank, int size,
    std::chrono::nanoseconds timeout = std::chrono::minutes(1)) {
  require(size >= 1 && rank >= 0 && rank < size, "meet_in_folder: rank {} of {} ranks is none",
          rank, size);
  return [folder = std::move(folder), rank, size, timeout](const std::string& mine) {
    return detail::FolderMeeting(folder, rank, size, timeout).meet(mine);
  };
}

}}  // namespace tessera::v0
