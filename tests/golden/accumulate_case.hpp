// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compare.hpp"
#include "plans.hpp"
#include "sequence_features.hpp"

#include <numeric>

namespace golden {

/// Runs one `kind: accumulate` case under one plan: the outputs of every micro-batch, the norms, the
/// final tables and states.
template <class PlanT, class O, class Clip>
class AccumulateRun {
 public:
  AccumulateRun(const ts::SafetensorsReader& file, O optimizer, float learning_rate, Clip clip,
                const std::vector<std::int64_t>& micro_batches, int applies)
      : file_(file),
        optimizer_(optimizer),
        learning_rate_(learning_rate),
        clip_(clip),
        micro_batches_(micro_batches),
        applies_(applies) {}

  void operator()(int ranks, Verdict& verdict) {
    for (const ts::TableSpec& table : PlanT::tables) {
      const auto room = [&](std::int64_t width) {
        return std::vector<float>(static_cast<std::size_t>(table.rows * width));
      };
      final_.push_back(room(table.width));
      states_.emplace_back();
      for (int k = 0; k < kStates; ++k)
        states_.back().push_back(room(k < O::element_states ? table.width : 1));
    }
    ts::run_ranks(ranks,
                  [&](ts::ThreadCommunicator& communicator) { run_rank(communicator, verdict); });
    for (std::size_t t = 0; t < PlanT::tables.size(); ++t) {
      const std::string name(PlanT::tables[t].name);
      verdict.compare("table." + name + ".final", final_[t],
                      floats(file_, "table." + name + ".final"));
      for (int k = 0; k < kStates; ++k) {
        const std::string state = fmt::format("state.{}.{}.final", name, O::state_names[k]);
        verdict.compare(state, states_[t][k], floats(file_, state));
      }
    }
  }

 private:
  static constexpr int kStates = O::element_states + O::row_states;

  void run_rank(ts::ThreadCommunicator& communicator, Verdict& verdict) {
    const int ranks = communicator.size(), rank = communicator.rank();
    ts::EmbeddingCollection<PlanT, O, ts::Host, ts::ThreadCommunicator> embeddings{
        communicator,
        ts::Host{},
        {.learning_rate = learning_rate_,
         .optimizer = optimizer_,
         .ranks_per_node = ranks_per_node(ranks)}};
    const ts::Layout& layout = embeddings.layout();
    for (const ts::TableSpec& table : layout.tables) {
      const std::vector<float> initial = floats(file_, fmt::format("table.{}.initial", table.name));
      embeddings.tables().set(table.name, {initial.data(), table.rows, table.width});
    }
    for (int apply = 0; apply < applies_; ++apply) {
      for (std::size_t m = 0; m < micro_batches_.size(); ++m) {
        const std::int64_t begin = ts::even_cut(micro_batches_[m], ranks, rank),
                           end = ts::even_cut(micro_batches_[m], ranks, rank + 1);
        run_micro_batch(embeddings, fmt::format("apply{}.micro{}.", apply, m), begin, end, verdict);
      }
      const double norm = embeddings.apply(clip_);
      if constexpr (std::is_same_v<Clip, ts::ClipByGlobalNorm>)
        verdict.compare(fmt::format("apply{}.norm, rank {}", apply, rank),
                        std::vector<float>{static_cast<float>(norm)},
                        floats(file_, fmt::format("apply{}.norm", apply)));
    }
    // Shards are written by their owners; copies of replicated tables one after another.
    for (int turn = 0; turn < ranks; ++turn) {
      for (std::size_t t = 0; turn == rank && t < layout.tables.size(); ++t) {
        const ts::TableSpec& table = layout.tables[t];
        embeddings.tables().get(table.name, {final_[t].data(), table.rows, table.width});
        for (int k = 0; k < kStates; ++k)
          embeddings.tables().get_state(
              table.name, k,
              {states_[t][k].data(), table.rows, k < O::element_states ? table.width : 1});
      }
      communicator.barrier();
    }
  }

  template <class Embeddings>
  void run_micro_batch(Embeddings& embeddings, const std::string& prefix, std::int64_t begin,
                       std::int64_t end, Verdict& verdict) {
    std::vector<std::int64_t> ids, offsets{0};
    for (const ts::FeatureSpec& feature : embeddings.layout().features) {
      const std::string name = fmt::format("{}feature.{}.", prefix, feature.name);
      const std::vector<std::int64_t> all = integers(file_, name + "offsets"),
                                      of_feature = integers(file_, name + "ids");
      for (std::int64_t sample = begin; sample < end; ++sample) {
        ids.insert(ids.end(), of_feature.begin() + all[sample],
                   of_feature.begin() + all[sample + 1]);
        offsets.push_back(std::ssize(ids));
      }
    }
    const std::int64_t columns = embeddings.columns();
    const auto features = static_cast<std::int64_t>(embeddings.layout().features.size());
    const auto pooled =
        embeddings.forward(ts::KeyedJagged<std::int64_t>{features, end - begin, ids, offsets, {}});
    const std::vector<float> output = floats(file_, prefix + "output"),
                             gradient = floats(file_, prefix + "grad_output");
    const std::size_t first = static_cast<std::size_t>(begin * columns),
                      count = static_cast<std::size_t>((end - begin) * columns);
    verdict.compare(prefix + "output", {pooled.values.data, count},
                    std::span(output).subspan(first, count));
    const SequenceFeatures sequences(pooled, embeddings.layout(), file_, prefix, begin, end,
                                     verdict);
    embeddings.accumulate(pooled, {gradient.data() + first, end - begin, columns},
                          sequences.gradients());
  }

  const ts::SafetensorsReader& file_;
  O optimizer_;
  float learning_rate_;
  Clip clip_;
  std::vector<std::int64_t> micro_batches_;
  int applies_;
  std::vector<std::vector<float>> final_;
  std::vector<std::vector<std::vector<float>>> states_;  // by table, state
};

/// Every plan, every rank count. Where a case does not clip, its norm is found by a bound without end.
template <class Plans, class O, class Clip>
int run_accumulate(int argc, char** argv, O optimizer, float learning_rate, Clip clip,
                   const std::vector<std::int64_t>& micro_batches, int applies) {
  const Arguments arguments(argc, argv);
  const ts::SafetensorsReader file{std::filesystem::path(arguments.file)};
  Tally tally;
  Plans::for_each([&]<class N>(N) {
    for (const int ranks : arguments.ranks)
      tally.run(fmt::format("{} {} ranks", N::name, ranks), [&](Verdict& verdict) {
        AccumulateRun<typename N::plan, O, Clip>(file, optimizer, learning_rate, clip,
                                                 micro_batches, applies)(ranks, verdict);
      });
  });
  return tally.finish();
}

}  // namespace golden
