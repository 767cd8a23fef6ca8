// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/jagged.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/sharding/layout.hpp>
#include <tessera/sharding/plan.hpp>
#include <tessera/step/step_report.hpp>
#include <tessera/tables/cache_counters.hpp>
#include <tessera/vocabulary/cold_rows.hpp>
#include <tessera/vocabulary/vocabulary.hpp>

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera { inline namespace v0 {
class AnyCommunicator;
class CheckpointContents;
}}

namespace dlrm {

struct Options;

inline constexpr std::array<std::string_view, 4> kCodecs{"fp32", "bf16", "fp16", "int8"};

struct EmbeddingOptions {
  /// What the command line says of them.
  EmbeddingOptions(const Options& options, tessera::AnyCommunicator& second);

  /// first values are uniform in [-bound, bound); negative: as UniformByRows
  float initial_bound;
  std::uint64_t seed;
  int threads;
  tessera::AnyCommunicator* routing;  ///< of the same ranks, for `start`; null: it is not called
  std::string precision;              ///< one of kTablePrecisions
  std::string codec, gradient_codec;
  bool deduplicate;
  std::string table_files;  ///< as Options
  std::int64_t memory;      ///< of a rank for tables, where some are in files
  int file_queue_depth;
  std::string optimizer;           ///< as optimizers_of takes it
  float learning_rate;             ///< the first one
  std::vector<float> rate_shares;  ///< by optimizer of kOptimizers: of the rate that is set
  bool report;                     ///< step_report is asked for
  bool equal_batches;              ///< as LayoutCollection's
};

/// The embeddings of one rank, whatever the layout and the optimizer: the seam between what is
/// chosen on the command line and what is compiled. A step costs two virtual calls. A trainer that
/// knows its plan needs nothing like it: see tutorial.cpp.
class Embeddings {
 public:
  virtual ~Embeddings() = default;
  virtual const tessera::Layout& layout() const = 0;
  /// Of this rank's tables in files.
  virtual tessera::detail::CacheCounters cache_counters() const = 0;
  /// Under `equal_batches`: whether the batches that follow are so. Alike on all ranks.
  virtual void promise_equal_batches(bool on) = 0;
  /// Begins to route the ids of the next forward, on a thread. They stay in use until the end of
  /// their step.
  virtual void start(const tessera::KeyedJagged<std::int32_t>& ids) = 0;
  /// Looks this rank's samples up: output [batch, 26*width], any stride.
  virtual void forward(const tessera::KeyedJagged<std::int32_t>& ids,
                       tessera::MatrixView<float> output) = 0;
  /// The same for samples that get no backward.
  virtual void evaluate(const tessera::KeyedJagged<std::int32_t>& ids,
                        tessera::MatrixView<float> output) = 0;
  /// Rows that a vocabulary gave to other keys start anew.
  virtual void reset_rows(int table, std::span<const std::int64_t> rows) = 0;
  /// The same, but keys that had rows before get what they had then. Not of tables on a GPU.
  virtual void exchange(tessera::ColdRows& cold, tessera::AnyCommunicator& communicator,
                        const tessera::Vocabulary<tessera::AnyCommunicator>& vocabulary) = 0;
  /// Restores what is kept of keys without rows, from a checkpoint.
  virtual void load(tessera::ColdRows& cold, const std::filesystem::path& checkpoint) const = 0;
  /// Each optimizer's rate is its share of this one from now on.
  virtual void set_learning_rate(float rate) = 0;
  /// Updates the rows of the last forward.
  virtual void backward(tessera::MatrixView<const float> gradient) = 0;
  /// Sets the gradients of the last forward aside for `apply`. False, on all ranks, where they are
  /// refused.
  virtual bool accumulate(tessera::MatrixView<const float> gradient) = 0;
  /// Updates rows by what was set aside, clipped by the norm of all tables' gradients and of
  /// `dense`, which is clipped, too: in the backend's memory, alike on all ranks. Norm 0: as they
  /// are.
  virtual void apply(float norm, std::span<float> dense) = 0;
  /// Of the last step, where `report` was set; and no more of them.
  virtual const tessera::StepReport& step_report() = 0;
  virtual void stop_reports() = 0;
  /// Tells what a checkpoint must hold.
  virtual void add_to(tessera::CheckpointContents& contents) = 0;
};

/// Collective over the ranks of `communicator`. Throws tessera::InvalidArgument for an unknown
/// optimizer.
std::unique_ptr<Embeddings> make_embeddings(tessera::AnyCommunicator& communicator,
                                            const tessera::Layout& layout,
                                            const EmbeddingOptions& options);

}  // namespace dlrm
