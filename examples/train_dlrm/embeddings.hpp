// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/jagged.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/sharding/layout.hpp>
#include <tessera/sharding/plan.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::inline v0 {
class ThreadCommunicator;
}

namespace dlrm {

inline constexpr int kFeatures = 26;
inline constexpr std::array<int, 5> kWidths{8, 16, 32, 64, 128};
inline constexpr std::array<std::string_view, 6> kPlans{"table-wise", "column-wise", "row-wise", "grid", "replicated", "mixed"};
inline constexpr std::array<std::string_view, 4> kOptimizers{"sgd", "adagrad", "rowwise-adagrad", "adam"};

struct EmbeddingOptions {
  std::string plan = "mixed";
  std::string optimizer = "rowwise-adagrad";
  int width = 16;
  std::vector<std::int64_t> rows;  ///< of the 26 tables
  float initial_bound = 0.01f;     ///< first values are uniform in [-bound, bound)
  std::uint64_t seed = 0;
  int threads = 1;
};

/// The embeddings of one rank, whatever the plan, the optimizer and the width: the one seam between what is chosen on the command line
/// and what the compiler composes. A step costs three virtual calls.
class Embeddings {
 public:
  virtual ~Embeddings() = default;
  virtual const tessera::Layout& layout() const = 0;
  virtual tessera::MemoryCost memory_cost() const = 0;
  /// Looks this rank's samples up: output [batch, 26*width], any stride.
  virtual void forward(const tessera::KeyedJagged<std::int32_t>& ids, tessera::MatrixView<float> output) = 0;
  /// Updates the rows of the last forward.
  virtual void backward(tessera::MatrixView<const float> gradient, float learning_rate) = 0;
};

/// Collective over the ranks of `communicator`. Throws tessera::InvalidArgument for an unknown plan, optimizer or width.
std::unique_ptr<Embeddings> make_embeddings(tessera::ThreadCommunicator& communicator, const EmbeddingOptions& options);

/// The same for one width; each is compiled in a file of its own (embeddings_<width>.cpp).
template <int Width>
std::unique_ptr<Embeddings> make_embeddings_of_width(tessera::ThreadCommunicator& communicator, const EmbeddingOptions& options);

}  // namespace dlrm
