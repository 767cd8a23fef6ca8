// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/optional_collectives.hpp>
#include <tessera/op/update.hpp>
#include <tessera/tables/arena_kernels.hpp>
#include <tessera/tables/buffer.hpp>
#include <tessera/tables/rank_tables.hpp>
#include <tessera/update/mean_square_exchange.hpp>
#include <tessera/update/merged_lists.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// Updates rows whose columns are cut under an optimizer that needs them whole: what it measures of
/// them is exchanged first.
template <class Backend, class Comm>
class CutRows {
 public:
  using Kernels = MergedRowKernels<Backend>;

  CutRows(const Backend& backend, Comm& communicator, const RankTables<Backend>& tables,
          const Kernels& kernels)
      : backend_(backend),
        communicator_(communicator),
        tables_(tables),
        kernels_(kernels),
        arenas_(tables.routing().arenas()),
        squares_(backend, communicator, tables,
                 [](const ArenaPlan& arena) { return arena.columns_split; }),
        weight_squares_(backend, communicator, tables,
                        [&](const ArenaPlan& arena) {
                          return arena.columns_split && kernels.measures(arena.group).weights;
                        }),
        measured_(arenas_.size()),
        weights_(arenas_.size()) {}

  /// Measures and exchanges, after arenas have merged their gradients. Collective. `placed(a)`: the
  /// merged gradients by where the arena's memory has its rows. `most_entries`: as
  /// MeanSquareExchange's. `send` is called where messages go, and sends others with them.
  template <class Placed, class Send>
  void exchange(const AnyUpdateStep& now, const std::vector<MergedLists>& merged,
                std::span<const std::int64_t> most_entries, Placed&& placed, Send&& send) {
    const std::set<int>& groups = tables_.routing().split_groups();
    const bool weights = std::any_of(groups.begin(), groups.end(),
                                     [&](int group) { return kernels_.measures(group).weights; });
    squares_of_ = merged;
    measure(now, merged, placed);
    squares_.write(squares_of_, most_entries);
    if (weights) weight_squares_.write(weights_.rows, most_entries);
    const auto send_all = [&] {
      send();
      squares_.exchange();
      if (weights) weight_squares_.exchange();
    };
    if constexpr (Backend::host_readable)
      send_all();
    else
      together(communicator_, send_all);
    row_squares_ = squares_.combine(squares_of_);
    if (weights) row_weight_squares_ = weight_squares_.combine(weights_.rows);
  }

  /// Applies the optimizer, after `exchange`, to an arena whose columns are cut. Returns the number
  /// of rows.
  std::int64_t apply(std::size_t a, const AnyUpdateStep& now, const MergedLists& placed) const {
    const bool weights = kernels_.measures(arenas_[a].group).weights;
    std::int64_t rows = 0;
    for (const op::MergedGradients& list : placed) {
      kernels_.apply(backend_, tables_, a, now, list, row_squares_[a] + rows,
                     weights ? row_weight_squares_[a] + rows : nullptr);
      rows += list.count;
    }
    return rows;
  }

 private:
  /// What an optimizer measures of rows, by arena: as merged gradients, which the exchange takes.
  struct Measured {
    std::vector<MergedLists> rows;
    std::vector<Buffer<float, Backend>> values;
    explicit Measured(std::size_t arenas) : rows(arenas), values(arenas) {}

    void resize(const Backend& backend, const MergedLists& merged, std::size_t a, int width) {
      rows[a] = merged;
      const auto floats = static_cast<std::size_t>(count_of(merged) * width);
      float* at = values[a].resize(backend, floats).data();
      for (op::MergedGradients& list : rows[a]) {
        list.gradients = at;
        at += list.count * width;
      }
    }
  };

  template <class Placed>
  void measure(const AnyUpdateStep& now, const std::vector<MergedLists>& merged, Placed&& placed) {
    for (std::size_t a = 0; a < arenas_.size(); ++a) {
      if (!arenas_[a].columns_split) continue;
      const auto [updates, weights] = kernels_.measures(arenas_[a].group);
      if (!updates && !weights) continue;
      if (updates) measured_.resize(backend_, merged[a], a, arenas_[a].width);
      if (weights) weights_.resize(backend_, merged[a], a, arenas_[a].width);
      const MergedLists& lists = placed(a);
      for (std::size_t l = 0; l < lists.size(); ++l)
        kernels_.measure(backend_, tables_, a, now, lists[l],
                         updates ? measured_.rows[a][l].gradients : nullptr,
                         weights ? weights_.rows[a][l].gradients : nullptr);
      if (updates) squares_of_[a] = measured_.rows[a];
    }
  }

  const Backend& backend_;
  Comm& communicator_;
  const RankTables<Backend>& tables_;
  const Kernels kernels_;
  const std::vector<ArenaPlan>& arenas_;
  MeanSquareExchange<Backend, Comm> squares_, weight_squares_;
  Measured measured_, weights_;
  std::vector<MergedLists> squares_of_;  // by arena: what mean squares are taken of
  std::span<const float* const> row_squares_, row_weight_squares_;
};

/// In place of CutRows, where no optimizer needs such rows whole.
struct NoCutRows {
  explicit NoCutRows(const auto&...) {}
};

}}}  // namespace tessera::v0::detail
