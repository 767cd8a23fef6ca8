// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compare.hpp"
#include "plans.hpp"
#include "sequence_features.hpp"

#include <numeric>

namespace golden {

/// Runs one `kind: embedding` case under one plan: every step's output, sequences, weight gradients,
/// and the final tables and states.
template <class PlanT, class O>
class EmbeddingRun {
 public:
  EmbeddingRun(const ts::SafetensorsReader& file, O optimizer, float learning_rate,
               std::int64_t batch, int steps)
      : file_(file),
        optimizer_(optimizer),
        learning_rate_(learning_rate),
        batch_(batch),
        steps_(steps) {}

  void operator()(int ranks, bool model_parallel, Verdict& verdict) {
    for (const ts::TableSpec& table : PlanT::tables) {
      final_.push_back(std::vector<float>(static_cast<std::size_t>(table.rows * table.width)));
      final_state_.emplace_back();
      for (int k = 0; k < kStates; ++k)
        final_state_.back().push_back(
            std::vector<float>(static_cast<std::size_t>(table.rows * state_width(table, k))));
    }
    weight_gradients_.assign(static_cast<std::size_t>(steps_), {});
    ts::run_ranks(ranks, [&](ts::ThreadCommunicator& communicator) {
      run_rank(communicator, model_parallel, verdict);
    });
    for (int step = 0; step < steps_; ++step) check_weight_gradients(step, verdict);
    for (std::size_t t = 0; t < PlanT::tables.size(); ++t) {
      const std::string name(PlanT::tables[t].name);
      verdict.compare("table." + name + ".final", final_[t],
                      floats(file_, "table." + name + ".final"));
      for (int k = 0; k < kStates; ++k) {
        const std::string state = fmt::format("state.{}.{}.final", name, O::state_names[k]);
        verdict.compare(state, final_state_[t][k], floats(file_, state));
      }
    }
  }

 private:
  using Embeddings = ts::EmbeddingCollection<PlanT, O, ts::Host, ts::ThreadCommunicator>;
  static constexpr int kStates = O::element_states + O::row_states;
  static std::int64_t state_width(const ts::TableSpec& table, int state) {
    return state < O::element_states ? table.width : 1;
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
  Part cut(const ts::Layout& layout, int step, std::span<const int> features, std::int64_t begin,
           std::int64_t end) const {
    Part part;
    for (const int f : features) {
      const std::string prefix = fmt::format("step{}.feature.{}.", step, layout.features[f].name);
      const std::vector<std::int64_t> offsets = integers(file_, prefix + "offsets"),
                                      ids = integers(file_, prefix + "ids");
      const bool weighted = layout.features[f].weighted;
      part.weighted |= weighted;
      const std::vector<float> weights =
          weighted ? floats(file_, prefix + "weights") : std::vector<float>(ids.size(), 1.0f);
      for (std::int64_t sample = begin; sample < end; ++sample) {
        for (std::int64_t i = offsets[sample]; i < offsets[sample + 1]; ++i) {
          part.ids.push_back(ids[i]);
          part.weights.push_back(weights[i]);
          part.origin.emplace_back(f, i);
        }
        part.offsets.push_back(static_cast<std::int64_t>(part.ids.size()));
      }
    }
    return part;
  }

  void run_rank(ts::ThreadCommunicator& communicator, bool model_parallel, Verdict& verdict) {
    Embeddings embeddings{communicator,
                          ts::Host{},
                          {.learning_rate = learning_rate_,
                           .optimizer = optimizer_,
                           .ranks_per_node = ranks_per_node(communicator.size())}};
    const ts::Layout& layout = embeddings.layout();
    for (const ts::TableSpec& table : layout.tables) {
      const std::vector<float> initial = floats(file_, fmt::format("table.{}.initial", table.name));
      embeddings.tables().set(table.name, {initial.data(), table.rows, table.width});
    }
    const std::int64_t begin = ts::even_cut(batch_, communicator.size(), communicator.rank());
    const std::int64_t end = ts::even_cut(batch_, communicator.size(), communicator.rank() + 1);
    const std::int64_t columns = embeddings.columns();
    std::vector<int> all(layout.features.size());
    std::iota(all.begin(), all.end(), 0);
    for (int step = 0; step < steps_; ++step) {
      const std::span<const int> features =
          model_parallel ? embeddings.local_features() : std::span<const int>(all);
      const Part part = model_parallel ? cut(layout, step, features, 0, batch_)
                                       : cut(layout, step, features, begin, end);
      const auto ids = part.view(static_cast<std::int64_t>(features.size()),
                                 model_parallel ? batch_ : end - begin);
      const auto pooled =
          model_parallel ? embeddings.forward_model_parallel(ids) : embeddings.forward(ids);
      const std::string prefix = fmt::format("step{}.", step);
      const std::vector<float> output = pooled_floats(file_, layout, prefix + "output");
      const std::vector<float> gradient = pooled_floats(file_, layout, prefix + "grad_output");
      const std::size_t first = static_cast<std::size_t>(begin * columns),
                        count = static_cast<std::size_t>((end - begin) * columns);
      verdict.compare(fmt::format("step{}.output, rank {}", step, communicator.rank()),
                      {pooled.values.data, count}, std::span(output).subspan(first, count));
      const SequenceFeatures sequences(pooled, layout, file_, prefix, begin, end, verdict);
      std::vector<float> weight_gradients(part.ids.size());
      embeddings.backward(pooled, {gradient.data() + first, end - begin, columns}, weight_gradients,
                          sequences.gradients());
      for (int rank = 0; rank < communicator.size(); ++rank) {
        if (rank == communicator.rank())
          for (std::size_t i = 0; i < weight_gradients.size(); ++i)
            weight_gradients_[step][part.origin[i]] += weight_gradients[i];
        communicator.barrier();
      }
    }
    // Shards are written by their owners; copies of replicated tables one after another.
    for (int rank = 0; rank < communicator.size(); ++rank) {
      if (rank == communicator.rank())
        for (std::size_t t = 0; t < layout.tables.size(); ++t) {
          const ts::TableSpec& table = layout.tables[t];
          embeddings.tables().get(table.name, {final_[t].data(), table.rows, table.width});
          for (int k = 0; k < kStates; ++k)
            embeddings.tables().get_state(
                table.name, k, {final_state_[t][k].data(), table.rows, state_width(table, k)});
        }
      communicator.barrier();
    }
  }

  void check_weight_gradients(int step, Verdict& verdict) {
    const ts::Layout layout = PlanT::layout({1});
    for (std::size_t f = 0; f < layout.features.size(); ++f) {
      if (!layout.features[f].weighted) continue;
      const std::string name =
          fmt::format("step{}.feature.{}.grad_weights", step, layout.features[f].name);
      const std::vector<float> expected = floats(file_, name);
      std::vector<float> found(expected.size());
      for (std::size_t i = 0; i < found.size(); ++i)
        found[i] = weight_gradients_[step][{static_cast<int>(f), static_cast<std::int64_t>(i)}];
      verdict.compare(name, found, expected);
    }
  }

  const ts::SafetensorsReader& file_;
  O optimizer_;
  float learning_rate_;
  std::int64_t batch_;
  int steps_;
  std::vector<std::vector<float>> final_;
  std::vector<std::vector<std::vector<float>>> final_state_;                     // by table, state
  std::vector<std::map<std::pair<int, std::int64_t>, float>> weight_gradients_;  // by step
};

/// Every plan, every rank count, both kinds of input where the features allow it.
template <class Plans, class O>
int run_embedding(int argc, char** argv, O optimizer, float learning_rate, std::int64_t batch,
                  int steps) {
  const Arguments arguments(argc, argv);
  const ts::SafetensorsReader file{std::filesystem::path(arguments.file)};
  Tally tally;
  Plans::for_each([&]<class N>(N) {
    for (const int ranks : arguments.ranks)
      for (const bool model_parallel : {false, true})
        tally.run(fmt::format("{} {} ranks {} input", N::name, ranks,
                              model_parallel ? "model-parallel" : "data-parallel"),
                  [&](Verdict& verdict) {
                    EmbeddingRun<typename N::plan, O>(file, optimizer, learning_rate, batch, steps)(
                        ranks, model_parallel, verdict);
                  });
  });
  return tally.finish();
}

}  // namespace golden
