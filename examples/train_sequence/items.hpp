// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/thread_communicator.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/host/backend.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace tessera { inline namespace v0 {
class CheckpointContents;
}}

namespace sequence {

inline constexpr std::array<std::string_view, 7> kPlans{
    "row-wise", "interleaved", "hot-rows", "table-wise", "column-wise", "grid", "replicated"};
inline constexpr std::array<int, 4> kWidths{16, 32, 64, 128};

/// The events of some histories; offsets: from 0, one more than they.
struct Asked {
  std::span<const std::int32_t> events;
  std::span<const std::int64_t> offsets;
};
/// A vector for each id, in the order of the parts: [ids, width], in the backend's memory.
struct Found {
  tessera::MatrixView<const float> events, negatives;
};

/// The table of items, cut over the ranks, with Adam. Ids are given in the host's memory, vectors
/// and gradients are in the backend's. All calls but `ask` and `set_learning_rate` are collective,
/// and what these tell is read by the calls after them. The events of a rank's histories
/// and the negatives are two sequence features: a row travels once to each rank that asks for it,
/// however often it asks.
class Items {
 public:
  virtual ~Items() = default;
  virtual std::int64_t rows() const = 0;
  /// Of the parts of this rank's batch, each of which asks for the negatives, too. `histories`: how
  /// many a part has at most, over all ranks. `room`: of a GPU's vectors of events; where there are
  /// fewer ids, zeros follow.
  virtual void ask(std::span<const Asked> parts, std::int64_t histories,
                   std::span<const std::int32_t> negatives, std::int64_t room) = 0;
  virtual void set_learning_rate(float rate) = 0;
  /// What was asked for. The vectors stay until the next call.
  virtual Found look_up() = 0;
  /// One gradient for each vector of the last look_up, of which those beyond the ids are not used;
  /// an id that stands several times gets their sum.
  virtual void update(tessera::MatrixView<const float> events,
                      tessera::MatrixView<const float> negatives) = 0;
  /// What gets no update: [ids, width] into `vectors`.
  virtual void evaluate(std::span<const std::int32_t> ids, tessera::MatrixView<float> vectors) = 0;
  virtual void add_to(tessera::CheckpointContents& contents) = 0;
};

/// What a table of items is made of.
struct ItemsOptions {
  std::string_view plan;
  int hot_rows = 0;  ///< of `hot-rows`
  std::int64_t rows = 0;
  int width = 0;
  std::uint64_t seed = 0;
  int virtual_ranks = 0;  ///< gradients are summed part by part, so many over all ranks; 0: by rank
  bool captured = false;  ///< calls are captured in a CUDA graph; `room` is what they are made for
};

/// On the host.
std::unique_ptr<Items> make_items(tessera::ThreadCommunicator& ranks, const tessera::Host& backend,
                                  const ItemsOptions& options);

}  // namespace sequence
