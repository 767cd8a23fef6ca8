// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compare.hpp"
#include "plans.hpp"
#include "sequence_features.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <type_traits>
#include <utility>

namespace golden {

/// A batch that is looked up: where its tensors' names begin, and its samples.
struct BatchOfCase {
  std::string prefix;
  std::int64_t samples = 0;
};

/// What a case of `kind: embedding` or `accumulate` says besides its plan: an optimizer for all
/// tables, or training groups, group k for the table of the kth name.
template <class Trained, class Clip>
struct TablesCase {
  Trained training;
  float learning_rate = 0;            ///< of the one optimizer
  std::vector<std::string> groups{};  ///< names of tables
  std::vector<std::vector<BatchOfCase>> steps{};
  bool accumulates = false;
  Clip clip{};
};

/// Runs a case under one plan: every batch's output, sequences and weight gradients, the norms, and
/// the final tables and states.
template <class PlanT, class Trained, class Clip>
class TablesRun {
 public:
  TablesRun(const ts::SafetensorsReader& file, const TablesCase<Trained, Clip>& the_case)
      : file_(file), case_(the_case) {}

  void operator()(int ranks, bool model_parallel, Verdict& verdict) {
    ts::run_ranks(ranks, [&](ts::ThreadCommunicator& communicator) {
      run_rank(communicator, model_parallel, verdict);
    });
    for (const auto& [name, values] : found_)
      if (!case_.accumulates || !name.ends_with(".grad_weights") || file_.contains(name))
        verdict.compare(name, values, floats(file_, name));
  }

 private:
  static constexpr bool one_optimizer = ts::Optimizer<Trained>;

  static auto make(ts::ThreadCommunicator& communicator, const TablesCase<Trained, Clip>& of) {
    const int per_node = ranks_per_node(communicator.size());
    if constexpr (one_optimizer) {
      return ts::EmbeddingCollection<PlanT, Trained, ts::Host, ts::ThreadCommunicator>{
          communicator,
          ts::Host{},
          {.learning_rate = of.learning_rate,
           .optimizer = of.training,
           .ranks_per_node = per_node}};
    } else {
      Trained training = of.training;
      for (const ts::TableSpec& table : PlanT::tables)
        training.group_of_table.push_back(static_cast<int>(
            std::find(of.groups.begin(), of.groups.end(), table.name) - of.groups.begin()));
      return ts::LayoutCollection<ts::Widths<>, Trained, ts::Host, ts::ThreadCommunicator>{
          communicator,
          ts::Host{},
          PlanT::layout(ts::Topology{communicator.size(), per_node}),
          {.optimizer = training}};
    }
  }

  /// Ids of some features, samples [begin, end), with where each id stands in the case's own
  /// arrays.
  struct Part {
    std::vector<std::int64_t> ids, offsets{0};
    std::vector<float> weights;
    std::vector<std::pair<int, std::int64_t>> origin;  // feature, index
    bool weighted = false;

    ts::KeyedJagged<std::int64_t> view(std::int64_t features, std::int64_t batch) const {
      return {features, batch, ids, offsets,
              weighted ? std::span<const float>(weights) : std::span<const float>()};
    }
  };
  Part cut(const ts::Layout& layout, const std::string& prefix, std::span<const int> features,
           std::int64_t begin, std::int64_t end) const {
    Part part;
    for (const int f : features) {
      const std::string name = fmt::format("{}feature.{}.", prefix, layout.features[f].name);
      const std::vector<std::int64_t> offsets = integers(file_, name + "offsets"),
                                      ids = integers(file_, name + "ids");
      const bool weighted = layout.features[f].weighted;
      part.weighted |= weighted;
      const std::vector<float> weights =
          weighted ? floats(file_, name + "weights") : std::vector<float>(ids.size(), 1.0f);
      for (std::int64_t sample = begin; sample < end; ++sample) {
        for (std::int64_t i = offsets[sample]; i < offsets[sample + 1]; ++i) {
          part.ids.push_back(ids[i]);
          part.weights.push_back(weights[i]);
          part.origin.emplace_back(f, i);
        }
        part.offsets.push_back(std::ssize(part.ids));
      }
    }
    return part;
  }

  void run_rank(ts::ThreadCommunicator& communicator, bool model_parallel, Verdict& verdict) {
    auto embeddings = make(communicator, case_);
    const ts::Layout& layout = embeddings.layout();
    for (const ts::TableSpec& table : layout.tables) {
      const std::vector<float> initial = floats(file_, fmt::format("table.{}.initial", table.name));
      embeddings.tables().set(table.name, {initial.data(), table.rows, table.width});
    }
    for (std::size_t step = 0; step < case_.steps.size(); ++step) {
      for (const BatchOfCase& batch : case_.steps[step])
        run_batch(embeddings, communicator, batch, model_parallel, verdict);
      if (!case_.accumulates) continue;
      const double norm = embeddings.apply(case_.clip);
      if constexpr (std::is_same_v<Clip, ts::ClipByGlobalNorm>)
        verdict.compare(fmt::format("apply{}.norm, rank {}", step, communicator.rank()),
                        std::vector<float>{static_cast<float>(norm)},
                        floats(file_, fmt::format("apply{}.norm", step)));
    }
    in_turn(communicator, [&] {
      for (std::size_t t = 0; t < layout.tables.size(); ++t) keep(embeddings, static_cast<int>(t));
    });
  }

  /// Shards are written by their owners; copies of replicated tables one after another.
  template <class F>
  static void in_turn(ts::ThreadCommunicator& communicator, const F& f) {
    for (int rank = 0; rank < communicator.size(); ++rank) {
      if (rank == communicator.rank()) f();
      communicator.barrier();
    }
  }

  template <class Embeddings>
  void keep(const Embeddings& embeddings, int t) {
    const ts::TableSpec& table = embeddings.layout().tables[static_cast<std::size_t>(t)];
    const auto room = [&](const std::string& name, std::int64_t width) {
      std::vector<float>& values = found_[name];
      values.resize(static_cast<std::size_t>(table.rows * width));
      return ts::MatrixView<float>{values.data(), table.rows, width};
    };
    embeddings.tables().get(table.name,
                            room(fmt::format("table.{}.final", table.name), table.width));
    int k = 0;
    for (const auto& state : embeddings.tables().states(t))
      embeddings.tables().get_state(table.name, k++,
                                    room(fmt::format("state.{}.{}.final", table.name, state.name),
                                         state.per_row ? 1 : table.width));
  }

  template <class Embeddings>
  void run_batch(Embeddings& embeddings, ts::ThreadCommunicator& communicator,
                 const BatchOfCase& batch, bool model_parallel, Verdict& verdict) {
    const ts::Layout& layout = embeddings.layout();
    const std::int64_t begin =
                           ts::even_cut(batch.samples, communicator.size(), communicator.rank()),
                       end = ts::even_cut(batch.samples, communicator.size(),
                                          communicator.rank() + 1),
                       columns = layout.columns();
    std::vector<int> all(layout.features.size());
    std::iota(all.begin(), all.end(), 0);
    const std::span<const int> features =
        model_parallel ? embeddings.local_features() : std::span<const int>(all);
    const Part part = cut(layout, batch.prefix, features, model_parallel ? 0 : begin,
                          model_parallel ? batch.samples : end);
    const auto ids = part.view(std::ssize(features), model_parallel ? batch.samples : end - begin);
    const std::vector<float> output = pooled_floats(file_, layout, batch.prefix + "output"),
                             gradient = pooled_floats(file_, layout, batch.prefix + "grad_output");
    const std::size_t first = static_cast<std::size_t>(begin * columns),
                      count = static_cast<std::size_t>((end - begin) * columns);
    const ts::MatrixView<const float> own{gradient.data() + first, end - begin, columns};
    std::vector<float> of_weights(part.ids.size());
    // `accumulate` gives no gradients of weights: the stages do, in a step that ends without update
    if (case_.accumulates && has_weights(layout)) {
      typename Embeddings::template StepState<std::int64_t> step;
      model_parallel ? embeddings.route_model_parallel(step, ids) : embeddings.route(step, ids);
      std::vector<float> again(count);
      const auto found = embeddings.forward_routed(step, {again.data(), end - begin, columns});
      const SequenceFeatures sequences(found, layout, file_, batch.prefix, begin, end, verdict);
      embeddings.split(step, own, sequences.gradients());
      embeddings.exchange_gradients(step);
      embeddings.weight_gradients(step, own, of_weights);
      embeddings.end(step);
    }
    const auto pooled =
        model_parallel ? embeddings.forward_model_parallel(ids) : embeddings.forward(ids);
    verdict.compare(fmt::format("{}output, rank {}", batch.prefix, communicator.rank()),
                    {pooled.values.data, count}, std::span(output).subspan(first, count));
    const SequenceFeatures sequences(pooled, layout, file_, batch.prefix, begin, end, verdict);
    if (case_.accumulates)
      embeddings.accumulate(pooled, own, sequences.gradients());
    else
      embeddings.backward(pooled, own, of_weights, sequences.gradients());
    in_turn(communicator, [&] {
      for (const ts::FeatureSpec& feature : layout.features)
        if (feature.weighted)
          found_[weight_gradients(batch, feature)].resize(static_cast<std::size_t>(
              integers(file_, fmt::format("{}feature.{}.offsets", batch.prefix, feature.name))
                  .back()));
      for (std::size_t i = 0; i < of_weights.size(); ++i) {
        const auto& [f, at] = part.origin[i];
        if (layout.features[f].weighted)
          found_[weight_gradients(batch, layout.features[f])][static_cast<std::size_t>(at)] +=
              of_weights[i];
      }
    });
  }

  static bool has_weights(const ts::Layout& layout) {
    return std::any_of(layout.features.begin(), layout.features.end(),
                       [](const ts::FeatureSpec& feature) { return feature.weighted; });
  }
  static std::string weight_gradients(const BatchOfCase& batch, const ts::FeatureSpec& feature) {
    return fmt::format("{}feature.{}.grad_weights", batch.prefix, feature.name);
  }

  const ts::SafetensorsReader& file_;
  const TablesCase<Trained, Clip>& case_;
  std::map<std::string, std::vector<float>> found_;  // by the tensor that it must equal
};

/// Every plan, every rank count, both kinds of input. Where a case does not clip, its norm is found
/// by a bound without end.
template <class Plans, class Trained, class Clip>
int run_tables(int argc, char** argv, const TablesCase<Trained, Clip>& the_case) {
  const Arguments arguments(argc, argv);
  const ts::SafetensorsReader file{std::filesystem::path(arguments.file)};
  Tally tally;
  Plans::for_each([&]<class N>(N) {
    for (const int ranks : arguments.ranks)
      for (const bool model_parallel : {false, true})
        tally.run(fmt::format("{} {} ranks {} input", N::name, ranks,
                              model_parallel ? "model-parallel" : "data-parallel"),
                  [&](Verdict& verdict) {
                    TablesRun<typename N::plan, Trained, Clip>(file, the_case)(
                        ranks, model_parallel, verdict);
                  });
  });
  return tally.finish();
}

}  // namespace golden
