// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/checkpoint/reader.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/core/sequence_batch.hpp>
#include <tessera/dense/mlp.hpp>
#include <tessera/sequence/hstu.hpp>
#include <tessera_serving/model_description.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// The HSTU blocks of a model that ranks candidates, with the parameters of its checkpoint, and the
/// memory of some histories: what one thread scores with. A history is one sequence with all of its
/// candidates, which do not see each other: it is computed once.
class HistoryScratch {
 public:
  static constexpr std::int64_t kHistories = 64, kCandidates = 1024;  ///< at once

  /// Takes `dense`, the tensor of that name; layers only read it.
  HistoryScratch(const ModelDescription& model, std::span<float> dense)
      : layers_(*model.history), width_(model.vector_width), head_(width_, 1) {
    std::size_t at = 0;
    const auto take = [&](std::int64_t count) {
      const auto size = static_cast<std::size_t>(count);
      require<DataError>(size <= dense.size() - at,
                         "tensor 'dense' has {} numbers, fewer than '{}' tells of", dense.size(),
                         ModelDescription::kFile);
      at += size;
      return dense.subspan(at - size, size);
    };
    places_ = take((layers_.max_length + 1) * width_);
    number_ = take(width_);
    const auto columns = static_cast<int>(width_ / layers_.heads);
    for (std::int64_t b = 0; b < layers_.blocks; ++b) {
      blocks_.push_back(std::make_unique<AnyHstuLayer>(
          Host(), HstuHeads{static_cast<int>(layers_.heads), columns, columns}, width_,
          HstuOptions{.max_length = layers_.max_length + kCandidates,
                      .attention_length = layers_.attention_length}));
      const std::span<float> values = take(blocks_.back()->parameter_count());
      blocks_.back()->bind(values, values);  // no backward: nothing writes gradients
      blocks_.back()->keep_weights();
    }
    const std::span<float> values = take(head_.parameter_count());
    head_.bind(values, values);
    head_.keep_weights();
    require<DataError>(at == dense.size(), "tensor 'dense' has {} numbers, '{}' tells of {}",
                       dense.size(), ModelDescription::kFile, at);
    clear();
  }

  void clear() {
    items_.clear(), inputs_.clear(), places_of_.clear();
    offsets_.assign(1, 0), targets_.clear(), candidates_.clear();
  }
  std::int64_t histories() const { return std::ssize(targets_); }
  std::int64_t candidates() const { return std::ssize(candidates_); }

  /// Adds the next history: rows of its events, of which the last ones are read, and their numbers;
  /// none: all are 1. Candidates follow.
  void add_history(std::span<const std::int64_t> rows, std::span<const float> numbers) {
    const std::size_t kept = std::min(rows.size(), static_cast<std::size_t>(layers_.max_length));
    rows = rows.last(kept);
    for (std::size_t e = 0; e < kept; ++e) {
      items_.push_back(rows[e]);
      inputs_.push_back(numbers.empty() ? 1.0f : numbers[numbers.size() - kept + e]);
      places_of_.push_back(static_cast<std::int64_t>(e));
    }
    place_ = static_cast<std::int64_t>(kept);
    offsets_.push_back(std::ssize(items_)), targets_.push_back(0);
  }
  void add_candidate(std::int64_t row) {
    candidates_.push_back(std::ssize(items_));
    items_.push_back(row), inputs_.push_back(0), places_of_.push_back(place_);
    ++offsets_.back(), ++targets_.back();
  }

  /// Returns the logits of all candidates, in order. `read(rows, matrix)` reads vectors of items.
  /// `pad`: the last product is of a power of two of them.
  template <class Read>
  std::span<const float> logits(const Read& read, bool pad) {
    const std::int64_t rows = std::ssize(items_), count = candidates(),
                       padded = pad ? static_cast<std::int64_t>(
                                          std::bit_ceil(static_cast<std::uint64_t>(count)))
                                    : count;
    MatrixView<float> x = matrix(x_, rows), y = matrix(y_, rows);
    read(std::span<const std::int64_t>(items_), x);
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto row = static_cast<std::size_t>(r);
      const float* const place = places_.data() + places_of_[row] * width_;
      float* const to = x.row(r);
      for (std::int64_t c = 0; c < width_; ++c) to[c] += place[c];
      for (std::int64_t c = 0; c < width_; ++c)
        to[c] += inputs_[row] * number_[static_cast<std::size_t>(c)];
    }
    for (const auto& block : blocks_) {
      block->forward(x, {offsets_, targets_}, y);
      std::swap(x, y);
    }
    const MatrixView<float> chosen = matrix(chosen_, padded);
    std::fill_n(chosen.data, padded * width_, 0.0f);
    for (std::int64_t c = 0; c < count; ++c)
      std::copy_n(x.row(candidates_[static_cast<std::size_t>(c)]), width_, chosen.row(c));
    logits_.resize(static_cast<std::size_t>(padded));
    head_.forward(chosen, {logits_.data(), padded, 1});
    return std::span(logits_).first(static_cast<std::size_t>(count));
  }

 private:
  MatrixView<float> matrix(std::vector<float>& floats, std::int64_t rows) const {
    floats.resize(static_cast<std::size_t>(rows * width_));
    return {floats.data(), rows, width_};
  }

  HistoryLayers layers_;
  std::int64_t width_;
  std::span<const float> places_, number_;
  std::vector<std::unique_ptr<AnyHstuLayer>> blocks_;
  Linear<> head_;
  /// Of each position: its row, what its number is, its place in the history.
  std::vector<std::int64_t> items_, places_of_;
  std::vector<float> inputs_;
  std::int64_t place_ = 0;                                    ///< of candidates
  std::vector<std::int64_t> offsets_, targets_, candidates_;  ///< positions of candidates
  std::vector<float> x_, y_, chosen_, logits_;
};

}}}  // namespace tessera::v0::detail
