// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compare.hpp"
#include "plans.hpp"
#include "sequence_features.hpp"

#include <algorithm>
#include <map>

namespace golden {

/// What a case says besides its training groups: group k is that of table k.
struct GroupsCase {
  std::vector<std::string> tables;
  std::int64_t batch = 0;
  int steps = 0;
};

/// Runs one `kind: embedding` case with an optimizer per table under one plan.
template <class PlanT, class Trained>
class GroupsRun {
 public:
  GroupsRun(const ts::SafetensorsReader& file, const Trained& training, const GroupsCase& the_case)
      : file_(file), training_(training), case_(the_case) {
    for (const ts::TableSpec& table : PlanT::tables) {
      const auto group = std::find(case_.tables.begin(), case_.tables.end(), table.name);
      training_.group_of_table.push_back(static_cast<int>(group - case_.tables.begin()));
    }
  }

  void operator()(int ranks, Verdict& verdict) {
    ts::run_ranks(ranks,
                  [&](ts::ThreadCommunicator& communicator) { run_rank(communicator, verdict); });
    for (const auto& [name, values] : final_) verdict.compare(name, values, floats(file_, name));
  }

 private:
  using Embeddings = ts::LayoutCollection<ts::Widths<>, Trained, ts::Host, ts::ThreadCommunicator>;

  void run_rank(ts::ThreadCommunicator& communicator, Verdict& verdict) {
    const int ranks = communicator.size(), rank = communicator.rank();
    const ts::Topology topology{ranks, ranks_per_node(ranks)};
    Embeddings embeddings{
        communicator, ts::Host{}, PlanT::layout(topology), {.optimizer = training_}};
    const ts::Layout& layout = embeddings.layout();
    for (const ts::TableSpec& table : layout.tables) {
      const std::vector<float> initial = floats(file_, fmt::format("table.{}.initial", table.name));
      embeddings.tables().set(table.name, {initial.data(), table.rows, table.width});
    }
    for (int step = 0; step < case_.steps; ++step)
      run_step(embeddings, fmt::format("step{}.", step), ts::even_cut(case_.batch, ranks, rank),
               ts::even_cut(case_.batch, ranks, rank + 1), verdict);
    // Shards are written by their owners; copies of replicated tables one after another.
    for (int turn = 0; turn < ranks; ++turn) {
      for (std::size_t t = 0; turn == rank && t < layout.tables.size(); ++t)
        keep(embeddings, static_cast<int>(t));
      communicator.barrier();
    }
  }

  void keep(const Embeddings& embeddings, int t) {
    const ts::TableSpec& table = embeddings.layout().tables[static_cast<std::size_t>(t)];
    const auto room = [&](const std::string& name, std::int64_t width) {
      std::vector<float>& values = final_[name];
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

  /// Samples [begin, end) of a step.
  void run_step(Embeddings& embeddings, const std::string& prefix, std::int64_t begin,
                std::int64_t end, Verdict& verdict) {
    const ts::Layout& layout = embeddings.layout();
    std::vector<std::int64_t> ids, offsets{0};
    for (const ts::FeatureSpec& feature : layout.features) {
      const std::string name = fmt::format("{}feature.{}.", prefix, feature.name);
      const std::vector<std::int64_t> all = integers(file_, name + "offsets"),
                                      of_feature = integers(file_, name + "ids");
      for (std::int64_t sample = begin; sample < end; ++sample) {
        ids.insert(ids.end(), of_feature.begin() + all[sample],
                   of_feature.begin() + all[sample + 1]);
        offsets.push_back(std::ssize(ids));
      }
    }
    const auto found = embeddings.forward(
        ts::KeyedJagged<std::int64_t>{std::ssize(layout.features), end - begin, ids, offsets, {}});
    const std::int64_t columns = layout.columns();
    const auto first = static_cast<std::size_t>(begin * columns),
               count = static_cast<std::size_t>((end - begin) * columns);
    const std::vector<float> output = floats(file_, prefix + "output"),
                             gradient = floats(file_, prefix + "grad_output");
    verdict.compare(prefix + "output", {found.values.data, count},
                    std::span(output).subspan(first, count));
    const SequenceFeatures sequences(found, layout, file_, prefix, begin, end, verdict);
    embeddings.backward(found, {gradient.data() + first, end - begin, columns},
                        sequences.gradients());
  }

  const ts::SafetensorsReader& file_;
  Trained training_;
  const GroupsCase& case_;
  std::map<std::string, std::vector<float>> final_;
};

/// Every plan, every rank count.
template <class Plans, class Trained>
int run_groups(int argc, char** argv, const Trained& training, const GroupsCase& the_case) {
  const Arguments arguments(argc, argv);
  const ts::SafetensorsReader file{std::filesystem::path(arguments.file)};
  Tally tally;
  Plans::for_each([&]<class N>(N) {
    for (const int ranks : arguments.ranks)
      tally.run(fmt::format("{} {} ranks", N::name, ranks), [&](Verdict& verdict) {
        GroupsRun<typename N::plan, Trained>(file, training, the_case)(ranks, verdict);
      });
  });
  return tally.finish();
}

}  // namespace golden
