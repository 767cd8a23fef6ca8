// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compare.hpp"
#include "plans.hpp"

#include <algorithm>
#include <map>

namespace golden {

/// What a case says besides its training groups: group k is that of table k.
struct GroupsCase {
  std::vector<std::string> tables;
  std::vector<std::string> sequences;  ///< features that are not pooled
  std::int64_t batch = 0;
  int steps = 0;
};

/// Runs one `kind: embedding` case with an optimizer per table under one plan. A feature that is not
/// pooled is looked up by itself, one id a sample, and its gradients are accumulated with those of
/// the pooled features.
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

  bool is_sequence(std::string_view feature) const {
    return std::find(case_.sequences.begin(), case_.sequences.end(), feature) !=
           case_.sequences.end();
  }

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
    for (int step = 0; step < case_.steps; ++step) {
      const std::string prefix = fmt::format("step{}.", step);
      const auto name = [&](std::size_t f, std::string_view what) {
        return fmt::format("{}feature.{}.{}", prefix, layout.features[f].name, what);
      };
      std::vector<int> pooled;
      for (std::size_t f = 0; f < layout.features.size(); ++f)
        if (!is_sequence(layout.features[f].name)) pooled.push_back(static_cast<int>(f));
      run_batch(embeddings, pooled, case_.batch, prefix + "output", prefix + "grad_output", verdict,
                [&](int f) {
                  const auto feature = static_cast<std::size_t>(f);
                  return std::pair(integers(file_, name(feature, "offsets")),
                                   integers(file_, name(feature, "ids")));
                });
      for (std::size_t f = 0; f < layout.features.size(); ++f) {
        if (!is_sequence(layout.features[f].name)) continue;
        const std::vector<std::int64_t> ids = integers(file_, name(f, "ids"));
        std::vector<std::int64_t> one_each(ids.size() + 1);
        for (std::size_t i = 0; i < one_each.size(); ++i)
          one_each[i] = static_cast<std::int64_t>(i);
        run_batch(embeddings, {static_cast<int>(f)}, std::ssize(ids), name(f, "rows"),
                  name(f, "grad_rows"), verdict, [&](int) { return std::pair(one_each, ids); });
      }
      embeddings.apply();
    }
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

  /// One batch in which only some features have ids: offsets_and_ids(feature). `output` and
  /// `gradient` hold those features' columns side by side.
  template <class OffsetsAndIds>
  void run_batch(Embeddings& embeddings, const std::vector<int>& features, std::int64_t batch,
                 const std::string& output, const std::string& gradient, Verdict& verdict,
                 const OffsetsAndIds& offsets_and_ids) {
    const ts::Layout& layout = embeddings.layout();
    const int ranks = embeddings.tables().routing().ranks(),
              rank = embeddings.tables().routing().rank();
    const std::int64_t begin = ts::even_cut(batch, ranks, rank),
                       end = ts::even_cut(batch, ranks, rank + 1);
    std::vector<std::int64_t> ids, offsets{0};
    for (int f = 0; f < static_cast<int>(layout.features.size()); ++f) {
      if (std::find(features.begin(), features.end(), f) == features.end()) {
        offsets.insert(offsets.end(), static_cast<std::size_t>(end - begin), std::ssize(ids));
        continue;
      }
      const auto [all, of_feature] = offsets_and_ids(f);
      for (std::int64_t sample = begin; sample < end; ++sample) {
        ids.insert(ids.end(), of_feature.begin() + all[sample],
                   of_feature.begin() + all[sample + 1]);
        offsets.push_back(std::ssize(ids));
      }
    }
    const auto found = embeddings.forward(
        ts::KeyedJagged<std::int64_t>{std::ssize(layout.features), end - begin, ids, offsets, {}});
    const std::vector<float> expected = floats(file_, output), given = floats(file_, gradient);
    std::int64_t columns = 0;
    for (const int f : features) columns += layout.feature_column[f + 1] - layout.feature_column[f];
    std::vector<float> values,
        gradients(static_cast<std::size_t>((end - begin) * embeddings.columns()));
    for (std::int64_t sample = begin; sample < end; ++sample) {
      std::int64_t from = sample * columns;
      for (const int f : features)
        for (std::int64_t c = layout.feature_column[f]; c < layout.feature_column[f + 1]; ++c) {
          values.push_back(found.values(sample - begin, c));
          gradients[static_cast<std::size_t>((sample - begin) * embeddings.columns() + c)] =
              given[static_cast<std::size_t>(from++)];
        }
    }
    verdict.compare(fmt::format("{}, rank {}", output, rank), values,
                    std::span(expected).subspan(static_cast<std::size_t>(begin * columns),
                                                static_cast<std::size_t>((end - begin) * columns)));
    embeddings.accumulate(found, {gradients.data(), end - begin, embeddings.columns()});
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
