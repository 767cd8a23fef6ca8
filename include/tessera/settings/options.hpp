// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/op/inputs.hpp>
#include <tessera/sharding/cluster.hpp>
#include <tessera/sharding/plan.hpp>
#include <tessera/tables/matrix.hpp>
#include <tessera/tables/table_files.hpp>
#include <tessera/tables/training_groups.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// Options of a collection. `O`: its optimizer or training groups; `F`: its initializer.
///
///     const Embeddings::Options options{.learning_rate = 0.1f, .bad_ids = BadIds::zero_vector};
template <class O, class F>
struct CollectionOptions {
  float learning_rate = 0.01f;
  std::uint64_t seed = 0;  ///< of the first values, and of stochastic rounding
  O optimizer{};
  F initialize{};
  BadIds bad_ids = BadIds::throw_error;  ///< what happens to ids outside their table
  /// what `backward` does about gradients that are NaN or infinite; a training group may have its
  /// own
  NonFinite non_finite = NonFinite::use;
  std::vector<TableRows> rows{};  ///< of tables with dynamic_rows
  int ranks_per_node = 0;         ///< for Grid; 0: all ranks are on one node
  /// for debugging: before each exchange ranks compare where they are, and name who is elsewhere
  bool check_stages = false;
  /// names, under EncodeWithOneOf; empty: its first
  std::string forward_codec{}, backward_codec{};
  /// Each distinct id of a rank's batch travels once per feature and its row comes back once;
  /// pooling and the merging of gradients happen on the rank that asked. Saves traffic if ids
  /// repeat or bags are long, and costs if they do not. No effect on model-parallel input, whose
  /// ids do not travel. A row's gradient is summed per rank first: see docs/architecture.md.
  bool deduplicate = false;
  /// all ranks give batches of equal sizes and bounds: a GPU's steps need not ask for them
  /// (EqualSizes)
  bool equal_batches = false;
  /// A GPU sorts a step's ids for its update on a stream of its own from `lookup` on, where this
  /// rank's rows are updated without asking others: 16 bytes an id of memory (24 with weights).
  bool sort_ahead = true;
  /// Of sequences and max pooling a row's gradients are summed in blocks of samples first, so many
  /// over all ranks; 0: one a rank. A multiple of the ranks. See docs/architecture.md.
  int gradient_blocks = 0;
  /// of tables OnFile: where their rows are, and how many are in memory
  TableFiles files{};
};

/// Returns what an element and a row cost of a training group; of -1 the most of any.
template <class T, class Trained>
constexpr MemoryCost memory_cost(int group) {
  MemoryCost most{.per_element = 0, .per_row = 0};
  for_each_training_group<Trained>([&](auto i) {
    using O = typename GroupsOf<Trained>::template optimizer<i()>;
    if (group >= 0 && i() != group) return;
    using E = typename GroupsOf<Trained>::template element<i(), T>;
    most.per_element = std::max<std::int64_t>(
        most.per_element, static_cast<std::int64_t>(sizeof(E)) + state_bytes<O>);
    most.per_row = std::max<std::int64_t>(most.per_row, 4 * O::row_states);
  });
  return most;
}

/// Throws InvalidArgument for a matrix that is not [batch, columns].
template <class T>
void check_shape(const char* what, MatrixView<T> matrix, std::int64_t batch, std::int64_t columns) {
  require(matrix.rows == batch && matrix.columns == columns,
          "{} is [{}, {}], must be [{}, {}]: local batch x columns of the plan", what, matrix.rows,
          matrix.columns, batch, columns);
  check_view(what, matrix);
}

/// Returns the number of blocks of one rank's samples whose rows' gradients are summed apart
/// (gradient_blocks).
template <class Options>
constexpr int blocks_of_batch(const Options& options, int ranks) {
  return std::max(1, options.gradient_blocks / ranks);
}

/// Returns whether steps may have fixed sizes (EqualSizes).
template <class Options>
constexpr bool fixes_sizes(const Options& options, bool keeps_rows, int ranks) {
  return options.equal_batches && !(keeps_rows && blocks_of_batch(options, ranks) > 1);
}

/// Throws InvalidArgument for options that no collection can have.
template <class Options>
void require_sound(const Options& options, int ranks) {
  checked_rate(options.learning_rate);
  require(options.gradient_blocks >= 0 && options.gradient_blocks % ranks == 0,
          "EmbeddingCollection: option gradient_blocks is {} on {} ranks; give a multiple of them",
          options.gradient_blocks, ranks);
  using Trained = std::remove_cvref_t<decltype(options.optimizer)>;
  for_each_training_group<Trained>([&](auto i) {
    using Groups = GroupsOf<Trained>;
    checked_rate(Groups::template rate<i()>(options.optimizer, options.learning_rate));
    require(Groups::trains[static_cast<std::size_t>(i())] ||
                !Groups::template own_guard<i()>(options.optimizer),
            "EmbeddingCollection: training group {} is Frozen, its tables get no gradients; give "
            "the option non_finite to groups that train",
            i());
  });
  require(!options.equal_batches || !options.deduplicate,
          "EmbeddingCollection: the options equal_batches and deduplicate exclude each other: "
          "ranks have different numbers of ids left");
}

}}}  // namespace tessera::v0::detail
