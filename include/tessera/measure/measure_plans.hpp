// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Plans of the same tables, measured on this machine beside what the cost model predicts.
#pragma once

#include <tessera/comm/thread_communicator.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/format.hpp>
#include <tessera/core/jagged.hpp>
#include <tessera/host/kernels.hpp>
#include <tessera/measure/measure_steps.hpp>
#include <tessera/optimizer/optimizers.hpp>
#include <tessera/planner/cost.hpp>
#include <tessera/planner/explain_plan.hpp>
#include <tessera/sharding/cluster.hpp>
#include <tessera/sharding/layout.hpp>
#include <tessera/sharding/plan.hpp>
#include <tessera/tables/widths.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// What measure_plans does. O: the optimizer of all tables.
template <class O = RowWiseAdagrad>
struct MeasureOptions {
  /// for the predictions; its ranks are those that are measured
  Cluster cluster =
      cpu_host(1, static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  /// the same: the power law of ids. Batch, ids per sample and optimizer are those that are measured
  Workload workload{};
  int steps = 20;                    ///< that are timed, of each plan
  std::vector<std::string> names{};  ///< of the plans; without: plan 1, plan 2, ...
  TableFiles files{};                ///< of tables OnFile
};

/// One plan, as it was measured and as it was predicted.
struct MeasuredPlan {
  std::string name;
  Layout layout;
  Workload workload;
  detail::MeasuredSteps measured;
  detail::Prediction predicted;

  /// Returns the bytes that the rank that sends most sends in a step, as predicted.
  double predicted_bytes() const {
    const std::size_t ranks = predicted.ranks.size();
    double most = 0;
    for (std::size_t from = 0; from < ranks; ++from) {
      double sent = 0;
      for (std::size_t to = 0; to < ranks; ++to)
        if (to != from)
          sent += predicted.id_traffic[from * ranks + to] +
                  predicted.vector_traffic[from * ranks + to] +
                  predicted.vector_traffic[to * ranks + from];  // gradients, to the owners
      most = std::max(most, sent);
    }
    return most;
  }
  /// Returns the imbalance of the time in lookup and update, as it is measured.
  double predicted_imbalance() const {
    double most = 0, sum = 0;
    for (const detail::StageTimes& rank : predicted.ranks) {
      most = std::max(most, rank.lookup + rank.update);
      sum += rank.lookup + rank.update;
    }
    return sum > 0 ? most * static_cast<double>(predicted.ranks.size()) / sum : 1;
  }
};

namespace detail {

/// The widths of all of these plans' shards.
template <class WidthList, class... More>
struct JoinedWidths {
  using type = WidthList;
};
template <int... A, int... B, class... More>
struct JoinedWidths<Widths<A...>, Widths<B...>, More...>
    : JoinedWidths<Widths<A..., B...>, More...> {};
template <class PlanT, std::size_t... I>
Widths<PlanT::widths[I]...> widths_of(std::index_sequence<I...>);
template <class... Plans>
using WidthsOfAll = typename JoinedWidths<decltype(widths_of<Plans>(
    std::make_index_sequence<Plans::widths.size()>()))...>::type;

/// A rank's samples of a batch.
template <IdType Id>
struct SampleSlice {
  std::vector<Id> ids;
  std::vector<std::int64_t> offsets{0};
  std::vector<float> weights;
  std::int64_t samples = 0, features = 0;

  /// Takes part `rank` of `ranks` of a batch's samples, with its features in this order.
  SampleSlice(const KeyedJagged<Id>& batch, std::span<const std::size_t> order, int rank, int ranks)
      : samples(batch.batch / ranks), features(batch.features) {
    for (const std::size_t feature : order) {
      const auto f = static_cast<std::int64_t>(feature);
      for (std::int64_t s = samples * rank; s < samples * (rank + 1); ++s) {
        for (std::int64_t i = batch.bag_begin(f, s); i < batch.bag_end(f, s); ++i) {
          ids.push_back(batch.ids[static_cast<std::size_t>(i)]);
          if (!batch.weights.empty()) weights.push_back(batch.weights[static_cast<std::size_t>(i)]);
        }
        offsets.push_back(static_cast<std::int64_t>(ids.size()));
      }
    }
  }
  KeyedJagged<Id> view() const { return {features, samples, ids, offsets, weights}; }
};

/// Throws InvalidArgument if a plan is not of the first one's tables and features, in any order.
inline void require_same_tables(const MeasuredPlan& plan, const MeasuredPlan& first) {
  const auto compare = [&](const auto& own, const auto& others, const char* what, auto same) {
    for (const auto& one : own) {
      const bool found = std::any_of(others.begin(), others.end(), [&](const auto& other) {
        return one.name == other.name && same(one, other);
      });
      require(
          found,
          "measure_plans: {} '{}' of '{}' is not the same in '{}'; give plans of the same tables "
          "and features",
          what, one.name, plan.name, first.name);
    }
    require(own.size() == others.size(), "measure_plans: '{}' has {} {}s, '{}' has {}", plan.name,
            own.size(), what, first.name, others.size());
  };
  compare(plan.layout.tables, first.layout.tables, "table",
          [](const TableSpec& a, const TableSpec& b) {
            return a.rows == b.rows && a.width == b.width;
          });
  compare(plan.layout.features, first.layout.features, "feature",
          [](const FeatureSpec& a, const FeatureSpec& b) {
            return a.table == b.table && a.pooling == b.pooling;
          });
}

/// Throws InvalidArgument for what cannot be measured.
template <IdType Id>
void require_measurable(const std::vector<KeyedJagged<Id>>& batches, const MeasuredPlan& plan) {
  const int ranks = plan.layout.ranks();
  require(plan.layout.fault.ok(), "measure_plans: '{}': {}", plan.name,
          describe(plan.layout.fault));
  for (const FeatureSpec& feature : plan.layout.features)
    require(!keeps_rows(feature.pooling),
            "measure_plans: feature '{}' has pooling '{}'; sums, means and sqrtn are measured",
            feature.name, to_string(feature.pooling));
  for (std::size_t b = 0; b < batches.size(); ++b) {
    batches[b].validate_sizes();
    require(batches[b].features == std::ssize(plan.layout.features),
            "measure_plans: batch {} has {} features, the plans {}", b, batches[b].features,
            plan.layout.features.size());
    require(batches[b].batch > 0 && batches[b].batch % ranks == 0,
            "measure_plans: batch {} has {} samples, which do not part among {} ranks; give a "
            "multiple of {}",
            b, batches[b].batch, ranks, ranks);
  }
}

/// Predicts a step with these batches: their samples, and their ids per sample.
template <class O, IdType Id>
void predict_plan(MeasuredPlan& plan, const std::vector<KeyedJagged<Id>>& batches,
                  std::span<const std::size_t> order, const MeasureOptions<O>& options) {
  std::int64_t samples = 0;
  for (const KeyedJagged<Id>& batch : batches) samples += batch.batch;
  for (std::size_t f = 0; f < order.size(); ++f) {
    const auto feature = static_cast<std::int64_t>(order[f]);
    std::int64_t ids = 0;
    for (const KeyedJagged<Id>& batch : batches) ids += batch.end(feature) - batch.begin(feature);
    plan.layout.features[f].hotness =
        std::max(1e-3, static_cast<double>(ids) / static_cast<double>(samples));
  }
  plan.workload = options.workload;
  plan.workload.batch = samples / std::ssize(batches);
  plan.workload.id_bytes = sizeof(Id);
  plan.workload.memory = memory_cost_of<O>;
  Cluster cluster = options.cluster;
  cluster.ranks = plan.layout.ranks();
  cluster.ranks_per_node = 0;
  plan.predicted = predict(plan.layout, cluster, plan.workload, true);
}

}  // namespace detail

/// Measures each plan with the same batches on so many thread ranks, and predicts it. `batches` are
/// whole ones, of all ranks, with features in the first plan's order. Plans take turns, so that what
/// else the machine does slows all of them. Throws InvalidArgument if there is no batch or no rank,
/// if samples do not part among the ranks, and for plans of other tables.
///
///     const std::vector<MeasuredPlan> plans =
///         measure_plans<MyPlan, OtherPlan>(std::vector{batch}, 4);
///     const std::string text = describe_plans(plans);
template <class... Plans, IdType Id, class O = RowWiseAdagrad>
std::vector<MeasuredPlan> measure_plans(const std::vector<KeyedJagged<Id>>& batches, int ranks,
                                        const MeasureOptions<O>& options = {}) {
  static_assert(sizeof...(Plans) > 0, "measure_plans: name plans, as measure_plans<A, B>(...)");
  require(!batches.empty(), "measure_plans: there are no batches; give at least one");
  require(ranks >= 1 && ranks < 32768, "measure_plans: {} ranks; give 1 to 32767", ranks);
  require(options.steps >= 1, "measure_plans: {} steps; give at least one", options.steps);
  require(options.names.empty() || options.names.size() == sizeof...(Plans),
          "measure_plans: {} names for {} plans", options.names.size(), sizeof...(Plans));
  std::vector<MeasuredPlan> all;
  (all.push_back({.name = options.names.empty() ? detail::formatted("plan {}", all.size() + 1)
                                                : options.names[all.size()],
                  .layout = Plans::layout(Topology{ranks}),
                  .workload = {},
                  .measured = {},
                  .predicted = {}}),
   ...);
  std::vector<std::vector<std::size_t>> orders;  // where the first plan has each feature
  for (MeasuredPlan& plan : all) {
    detail::require_same_tables(plan, all.front());
    detail::require_measurable(batches, plan);
    const std::vector<FeatureSpec>& features = all.front().layout.features;
    std::vector<std::size_t>& order = orders.emplace_back();
    for (const FeatureSpec& feature : plan.layout.features)
      order.push_back(static_cast<std::size_t>(
          std::ranges::find(features, feature.name, &FeatureSpec::name) - features.begin()));
  }
  for (std::size_t p = 0; p < all.size(); ++p)
    detail::predict_plan<O>(all[p], batches, orders[p], options);
  constexpr int kRounds = 3;
  for (int round = 0; round < kRounds; ++round)
    for (std::size_t p = 0; p < all.size(); ++p)
      run_ranks(ranks, [&](ThreadCommunicator& rank) {
        std::vector<detail::SampleSlice<Id>> slices;
        std::vector<KeyedJagged<Id>> own;
        for (const KeyedJagged<Id>& batch : batches)
          slices.emplace_back(batch, orders[p], rank.rank(), ranks);
        for (const detail::SampleSlice<Id>& slice : slices) own.push_back(slice.view());
        const detail::MeasuredSteps m = detail::measure_steps<detail::WidthsOfAll<Plans...>, O, Id>(
            rank, all[p].layout, own, options.steps, Host(), options.files);
        // other work only ever adds to the time
        if (rank.rank() == 0 && (round == 0 || m.step_seconds < all[p].measured.step_seconds))
          all[p].measured = m;
      });
  return all;
}

/// Returns a table for a terminal: each plan as measured, and below as predicted.
inline std::string describe_plans(std::span<const MeasuredPlan> plans) {
  std::string text = detail::formatted("{:<20} {:<9} {:>8}", "plan", "", "step ms");
  for (const char* title : {"route", "lookup", "exchange", "assemble", "gradients", "update"})
    text += detail::formatted(" {:>9}", title);
  text +=
      detail::formatted(" {:>10} {:>10} {:>6} {:>6}\n", "bytes sent", "memory", "memory", "time");
  const auto line = [&](const std::string& name, const char* what, double step,
                        const detail::StageTimes& stages, double bytes, const std::string& memory,
                        double time) {
    text += detail::formatted("{:<20} {:<9} {:>8.3f}", name, what, 1e3 * step);
    for (const detail::StageMember stage : detail::embedding_stages)
      text += detail::formatted(" {:>9.3f}", 1e3 * (stages.*stage));
    text += detail::formatted(" {:>10} {:>17} {:>6.2f}\n",
                              detail::bytes_text(static_cast<std::int64_t>(bytes)), memory, time);
  };
  for (const MeasuredPlan& plan : plans) {
    const detail::Prediction& p = plan.predicted;
    line(plan.name, "measured", plan.measured.step_seconds, plan.measured.stages,
         static_cast<double>(plan.measured.traffic.bytes), "", plan.measured.time_imbalance);
    line("", "predicted", p.step_seconds, p.stages, plan.predicted_bytes(),
         detail::formatted("{} {:>6.2f}", detail::bytes_text(p.most_bytes()), p.memory_imbalance()),
         plan.predicted_imbalance());
  }
  return text +
         "bytes sent: of the rank that sends most, in a step; memory: of the fullest rank, with "
         "optimizer state, and max/mean over the ranks; time: max/mean over the ranks, in lookup "
         "and update\n";
}

}}  // namespace tessera::v0
