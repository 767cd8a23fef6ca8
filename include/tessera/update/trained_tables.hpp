// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/settings/options.hpp>
#include <tessera/settings/policies.hpp>
#include <tessera/sharding/plan.hpp>
#include <tessera/tables/table_store.hpp>
#include <tessera/update/training_steps.hpp>

#include <cstdint>
#include <string_view>
#include <utility>

namespace tessera { inline namespace v0 { namespace detail {

/// The tables of a collection on one rank, and how they train: rates, steps, rows that start anew.
template <class TableStoreT, class F, class InitializersT, class Backend>
class TrainedTables {
 public:
  using Store = TableStoreT;
  using element = typename Store::element;
  using initializer = F;
  using Initializers = InitializersT;
  using Options = CollectionOptions<typename Store::training, F>;

  const Layout& layout() const { return layout_; }
  std::int64_t columns() const { return layout_.columns(); }
  const Backend& backend() const { return backend_; }
  float learning_rate() const { return options_.learning_rate; }
  /// Sets the rate of later updates of all tables; every rank sets the same one. Throws
  /// InvalidArgument unless it is finite and not negative.
  void set_learning_rate(float rate) {
    options_.learning_rate = checked_rate(rate);
    steps_.set_learning_rate(rate);
  }
  /// Does the same for a table's training group. Throws InvalidArgument for a name that no table
  /// has.
  float learning_rate(std::string_view table) const {
    return steps_.learning_rate(store_.group_of(store_.table_index(table)));
  }
  void set_learning_rate(std::string_view table, float rate) {
    steps_.set_learning_rate(store_.group_of(store_.table_index(table)), checked_rate(rate));
  }
  /// Updates so far. Once a step was captured in a CUDA graph the host waits and reads the number
  /// back, for only the GPU knows how often the graph ran.
  std::int64_t steps() const { return steps_.all(); }
  /// Counts as after so many updates. Throws InvalidArgument for a number below 0, or so large that
  /// it could not be counted on.
  void set_steps(std::int64_t steps) {
    require(steps >= 0 && steps <= most_steps, "EmbeddingCollection: {} steps; give 0 .. 2^62",
            steps);
    steps_.set(steps);
  }
  /// Returns the number of weights of this rank that are NaN or infinite now. Reads all of them.
  std::int64_t count_non_finite_weights() const { return store_.count_non_finite(backend_); }
  /// Returns this rank's rectangles: weights and optimizer state, by table name or one by one.
  Store& tables() { return store_; }
  const Store& tables() const { return store_; }

 protected:
  TrainedTables(int rank, Backend backend, Layout layout, Options options)
      : backend_(std::move(backend)),
        options_(std::move(options)),
        store_(backend_, std::move(layout), rank, options_.optimizer, options_.seed,
               Initializers{options_.initialize, options_.optimizer}, options_.files) {}
  ~TrainedTables() = default;

  Backend backend_;
  Options options_;
  Store store_;
  const Layout& layout_ = store_.layout();
  TrainingSteps<typename Store::training, Backend> steps_{backend_, options_.optimizer,
                                                          options_.learning_rate};

 private:
  static constexpr std::int64_t most_steps = std::int64_t{1} << 62;
};

template <class WidthList, class O, class Backend, class Settings>
struct TablesUnder {
  using F = typename decltype(initializer_of<typename Settings::initializer, O>())::type;
  using type = TrainedTables<TableStore<WidthList, typename Settings::element, O, Backend>, F,
                             Initializers<typename Settings::initializer, O, F>, Backend>;
};
template <class WidthList, class O, class Backend, class... Policies>
using TablesOf = typename TablesUnder<WidthList, O, Backend, CheckedPolicies<Policies...>>::type;

}  // namespace detail
}}  // namespace tessera::v0
