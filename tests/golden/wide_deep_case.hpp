// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compare.hpp"
#include "plans.hpp"

#include <tessera/dense/loss.hpp>
#include <tessera/dense/mlp.hpp>
#include <tessera/dense/optimizer.hpp>
#include <tessera/dense/parameters.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace golden {

struct WideDeepCase {
  std::int64_t batch = 0, dense = 0;
  std::vector<std::int64_t> mlp;
  float mlp_rate = 0;
  std::vector<double> losses;
};

/// Whole training steps of a Wide & Deep under one plan: two training groups in one collection, wide
/// tables of one column (the plan's features begin with theirs) and deep ones.
template <class PlanT, class Trained>
class WideDeepRun {
 public:
  WideDeepRun(const ts::SafetensorsReader& file, const Trained& training, const WideDeepCase& model)
      : file_(file), training_(training), model_(model) {
    for (const ts::TableSpec& table : PlanT::tables)
      training_.group_of_table.push_back(is_wide(table.name) ? 0 : 1);
  }

  void operator()(int ranks, Verdict& verdict) {
    ts::run_ranks(ranks,
                  [&](ts::ThreadCommunicator& communicator) { run_rank(communicator, verdict); });
    for (const auto& [name, values] : final_) verdict.compare(name, values, floats(file_, name));
  }

 private:
  using Embeddings = ts::LayoutCollection<ts::Widths<>, Trained, ts::Host, ts::ThreadCommunicator>;

  static bool is_wide(std::string_view table) { return table.starts_with("wide."); }

  template <class Visit>
  static void for_each_parameter(ts::Mlp<>& mlp, Visit&& visit) {
    for (int l = 0; l < mlp.layers(); ++l) {
      const ts::MatrixView<float> w = mlp.weight(l);
      visit(fmt::format("mlp.{}.weight", l),
            std::span<float>(w.data, static_cast<std::size_t>(w.rows * w.columns)));
      visit(fmt::format("mlp.{}.bias", l), mlp.bias(l));
    }
  }

  void run_rank(ts::ThreadCommunicator& communicator, Verdict& verdict) {
    const ts::Topology topology{communicator.size(), ranks_per_node(communicator.size())};
    Embeddings embeddings{
        communicator, ts::Host{}, PlanT::layout(topology), {.optimizer = training_}};
    const ts::Layout& layout = embeddings.layout();
    for (const ts::TableSpec& table : layout.tables) {
      const std::vector<float> initial = floats(file_, fmt::format("{}.initial", table.name));
      embeddings.tables().set(table.name, {initial.data(), table.rows, table.width});
    }
    std::vector<std::int64_t> sizes{model_.dense};
    const auto wide = std::count_if(layout.features.begin(), layout.features.end(),
                                    [](const auto& f) { return is_wide(f.table); });
    sizes[0] += embeddings.columns() - wide;
    sizes.insert(sizes.end(), model_.mlp.begin(), model_.mlp.end());
    ts::Mlp<> mlp(sizes);
    ts::DenseParameters parameters(1, mlp);
    for_each_parameter(mlp, [&](const std::string& name, std::span<float> values) {
      std::ranges::copy(floats(file_, name + ".initial"), values.begin());
    });
    ts::DenseOptimizer<ts::Sgd> optimizer;
    const std::int64_t begin = ts::even_cut(model_.batch, communicator.size(), communicator.rank());
    const std::int64_t count =
        ts::even_cut(model_.batch, communicator.size(), communicator.rank() + 1) - begin;
    const auto part = [&](const std::vector<float>& all, std::int64_t per_sample) {
      return std::vector<float>(all.begin() + begin * per_sample,
                                all.begin() + (begin + count) * per_sample);
    };
    const std::int64_t columns = wide + sizes[0];
    // the wide vectors, then the deep input: numbers stand behind the wide ones
    std::vector<float> x(static_cast<std::size_t>(count * columns)), dx(x.size()),
        pooled(static_cast<std::size_t>(count * embeddings.columns())), d_pooled(pooled.size()),
        logit(static_cast<std::size_t>(count)), d_logit(logit.size());
    const ts::MatrixView<float> deep(x.data(), count, sizes[0]), d_deep(dx.data(), count, sizes[0]),
        y(logit.data(), count, 1), dy(d_logit.data(), count, 1),
        vectors(pooled.data(), count, embeddings.columns()),
        d_vectors(d_pooled.data(), count, embeddings.columns());
    for (std::size_t step = 0; step < model_.losses.size(); ++step) {
      const auto expect = [&](const char* what, std::span<const float> found, std::int64_t each) {
        const std::string name = fmt::format("step{}.{}", step, what);
        verdict.compare(name, found, part(floats(file_, name), each));
      };
      const std::vector<float> dense = part(floats(file_, fmt::format("step{}.dense", step)),
                                            model_.dense),
                               label = part(floats(file_, fmt::format("step{}.label", step)), 1);
      std::vector<std::int64_t> ids, offsets{0};
      for (const ts::FeatureSpec& feature : layout.features) {
        const std::string name = fmt::format("step{}.feature.{}.", step,
                                             feature.name.substr(feature.name.find('.') + 1));
        const std::vector<std::int64_t> all = integers(file_, name + "ids"),
                                        bags = integers(file_, name + "offsets");
        for (std::int64_t s = begin; s < begin + count; ++s) {
          ids.insert(ids.end(), all.begin() + bags[s], all.begin() + bags[s + 1]);
          offsets.push_back(std::ssize(ids));
        }
      }
      const auto found = embeddings.forward(
          ts::KeyedJagged<std::int64_t>{std::ssize(layout.features), count, ids, offsets, {}},
          vectors);
      for (std::int64_t s = 0; s < count; ++s) {
        std::copy_n(dense.begin() + s * model_.dense, model_.dense, deep.row(s));
        std::copy_n(vectors.row(s) + wide, embeddings.columns() - wide, deep.row(s) + model_.dense);
      }
      mlp.forward(deep, y);
      std::vector<float> wide_logit(static_cast<std::size_t>(count));
      for (std::int64_t s = 0; s < count; ++s) {
        for (std::int64_t f = 0; f < wide; ++f)
          wide_logit[static_cast<std::size_t>(s)] += vectors(s, f);
        logit[static_cast<std::size_t>(s)] += wide_logit[static_cast<std::size_t>(s)];
      }
      expect("wide", wide_logit, 1);
      expect("deep_input", {deep.data, static_cast<std::size_t>(count * sizes[0])}, sizes[0]);
      expect("logit", logit, 1);
      double sum = ts::BinaryCrossEntropyWithLogits{model_.batch}.forward_backward(y, label, dy);
      communicator.all_reduce(std::span(&sum, 1));
      const float loss = static_cast<float>(sum),
                  expected = static_cast<float>(model_.losses[step]);
      verdict.compare(fmt::format("loss of step {}", step), {&loss, 1}, {&expected, 1});
      mlp.backward(dy, d_deep);
      for (std::int64_t s = 0; s < count; ++s) {
        std::fill_n(d_vectors.row(s), wide, d_logit[static_cast<std::size_t>(s)]);
        std::copy_n(d_deep.row(s) + model_.dense, embeddings.columns() - wide,
                    d_vectors.row(s) + wide);
      }
      communicator.all_reduce(parameters.gradients());
      optimizer.step(parameters, model_.mlp_rate);
      embeddings.backward(found, d_vectors);
    }
    // Shards are written by their owners; what every rank has, one after another.
    for (int turn = 0; turn < communicator.size(); ++turn) {
      if (turn == communicator.rank()) keep(embeddings, mlp);
      communicator.barrier();
    }
  }

  void keep(const Embeddings& embeddings, ts::Mlp<>& mlp) {
    const auto& tables = embeddings.layout().tables;
    for (std::size_t t = 0; t < tables.size(); ++t) {
      const auto room = [&](const std::string& name) {
        std::vector<float>& values = final_[name];
        values.resize(static_cast<std::size_t>(tables[t].rows * tables[t].width));
        return ts::MatrixView<float>{values.data(), tables[t].rows, tables[t].width};
      };
      embeddings.tables().get(tables[t].name, room(fmt::format("{}.final", tables[t].name)));
      int k = 0;
      for (const auto& state : embeddings.tables().states(static_cast<int>(t)))
        embeddings.tables().get_state(
            tables[t].name, k++,
            room(fmt::format("state.{}.{}.final", tables[t].name, state.name)));
    }
    for_each_parameter(mlp, [&](const std::string& name, std::span<float> values) {
      final_[name + ".final"].assign(values.begin(), values.end());
    });
  }

  const ts::SafetensorsReader& file_;
  Trained training_;
  const WideDeepCase& model_;
  std::map<std::string, std::vector<float>> final_;
};

/// Every plan, every rank count.
template <class Plans, class Trained>
int run_wide_deep(int argc, char** argv, const Trained& training, const WideDeepCase& model) {
  const Arguments arguments(argc, argv);
  const ts::SafetensorsReader file{std::filesystem::path(arguments.file)};
  Tally tally;
  Plans::for_each([&]<class N>(N) {
    for (const int ranks : arguments.ranks)
      tally.run(fmt::format("{} {} ranks", N::name, ranks), [&](Verdict& verdict) {
        WideDeepRun<typename N::plan, Trained>(file, training, model)(ranks, verdict);
      });
  });
  return tally.finish();
}

}  // namespace golden
