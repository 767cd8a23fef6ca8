// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compare.hpp"
#include "plans.hpp"

#include <tessera/dense/loss.hpp>
#include <tessera/dense/mlp.hpp>
#include <tessera/dense/optimizer.hpp>
#include <tessera/dense/parameters.hpp>
#include <tessera/interaction/cross.hpp>
#include <tessera/interaction/dot.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace golden {

/// A matrix with its memory.
struct Matrix {
  std::vector<float> data;
  std::int64_t rows, columns;

  Matrix(std::int64_t rows_, std::int64_t columns_)
      : data(static_cast<std::size_t>(rows_ * columns_)), rows(rows_), columns(columns_) {}
  ts::MatrixView<float> view() { return {data.data(), rows, columns}; }
};

/// DLRM's interaction, as a model's layer without parameters.
template <int Vectors, int Width>
class Dot {
  using Op = ts::DotInteraction<Vectors, Width>;

 public:
  static std::int64_t columns() { return Op::columns(); }
  std::int64_t parameter_count() const { return 0; }
  void bind(std::span<float>, std::span<float>) {}
  int initialize(std::uint64_t, int layer) { return layer; }
  void forward(ts::MatrixView<const float> x, ts::MatrixView<float> z) {
    x_ = x;
    Op::forward(ts::Host(), x, z);
  }
  void backward(ts::MatrixView<const float> dz, ts::MatrixView<float> dx) {
    Op::backward(ts::Host(), x_, dz, dx);
  }
  template <class Visit>
  void parameters(Visit&&) {}

 private:
  ts::MatrixView<const float> x_;
};

/// DCNv2's cross layers.
template <int Columns, int Layers, int Rank>
class Cross : public ts::CrossInteraction<ts::Linear<>> {
 public:
  Cross() : CrossInteraction(Columns, {.layers = Layers, .rank = Rank}) {}
  static std::int64_t columns() { return Columns; }
  template <class Visit>
  void parameters(Visit&& visit) {
    const auto all = [](ts::MatrixView<float> w) {
      return std::span<float>(w.data, static_cast<std::size_t>(w.rows * w.columns));
    };
    for (int l = 0; l < Layers; ++l) {
      if (Rank > 0) visit(fmt::format("cross.{}.v", l), all(v(l).weight(0)));
      visit(fmt::format("cross.{}.u", l), all(u(l).weight(0)));
      visit(fmt::format("cross.{}.bias", l), u(l).bias(0));
    }
  }
};

struct ModelCase {
  std::int64_t batch = 0, dense = 0;
  std::vector<std::int64_t> bottom, top;
  float learning_rate = 0;
  std::vector<double> losses;
};

/// Whole training steps of a DLRM or DCNv2, hybrid-parallel: what enters the top MLP, logits,
/// losses, and all parameters at the end.
template <class PlanT, class Interaction>
class ModelRun {
 public:
  ModelRun(const ts::SafetensorsReader& file, const ModelCase& model)
      : file_(file), model_(model) {}

  void operator()(int ranks, Verdict& verdict) {
    for (const ts::TableSpec& table : PlanT::tables)
      final_.push_back(std::vector<float>(static_cast<std::size_t>(table.rows * table.width)));
    ts::run_ranks(ranks,
                  [&](ts::ThreadCommunicator& communicator) { run_rank(communicator, verdict); });
    for (std::size_t t = 0; t < PlanT::tables.size(); ++t) {
      const std::string name = fmt::format("table.{}.final", PlanT::tables[t].name);
      verdict.compare(name, final_[t], floats(file_, name));
    }
  }

 private:
  using Embeddings = ts::EmbeddingCollection<PlanT, ts::Sgd, ts::Host, ts::ThreadCommunicator>;

  static std::vector<std::int64_t> sizes(std::int64_t input,
                                         const std::vector<std::int64_t>& layers) {
    std::vector<std::int64_t> all{input};
    all.insert(all.end(), layers.begin(), layers.end());
    return all;
  }

  /// Calls visit(name, values) for every dense parameter of the model.
  template <class Visit>
  static void for_each_parameter(ts::Mlp<>& bottom, Interaction& interaction, ts::Mlp<>& top,
                                 Visit&& visit) {
    const auto mlp = [&](const char* prefix, ts::Mlp<>& layers) {
      for (int l = 0; l < layers.layers(); ++l) {
        const ts::MatrixView<float> w = layers.weight(l);
        visit(fmt::format("{}.{}.weight", prefix, l),
              std::span<float>(w.data, static_cast<std::size_t>(w.rows * w.columns)));
        visit(fmt::format("{}.{}.bias", prefix, l), layers.bias(l));
      }
    };
    mlp("bottom", bottom);
    interaction.parameters(visit);
    mlp("top", top);
  }

  void run_rank(ts::ThreadCommunicator& communicator, Verdict& verdict) {
    Embeddings embeddings{communicator,
                          ts::Host{},
                          {.learning_rate = model_.learning_rate,
                           .ranks_per_node = ranks_per_node(communicator.size())}};
    for (const ts::TableSpec& table : PlanT::tables) {
      const std::vector<float> initial = floats(file_, fmt::format("table.{}.initial", table.name));
      embeddings.tables().set(table.name, {initial.data(), table.rows, table.width});
    }
    const std::int64_t width = model_.bottom.back(), columns = width + embeddings.columns();
    ts::Mlp<> bottom(sizes(model_.dense, model_.bottom), {.last_relu = true});
    Interaction interaction;
    ts::Mlp<> top(sizes(Interaction::columns(), model_.top));
    ts::DenseParameters parameters(1, bottom, interaction, top);
    for_each_parameter(
        bottom, interaction, top, [&](const std::string& name, std::span<float> values) {
          const std::vector<float> initial = floats(file_, name + ".initial");
          ts::require(initial.size() == values.size(), "{}: {} values, the model has {}", name,
                      initial.size(), values.size());
          std::copy(initial.begin(), initial.end(), values.begin());
        });
    ts::DenseOptimizer<ts::Sgd> optimizer;

    const std::int64_t begin = ts::even_cut(model_.batch, communicator.size(), communicator.rank());
    const std::int64_t count =
        ts::even_cut(model_.batch, communicator.size(), communicator.rank() + 1) - begin;
    const auto part = [&](const std::vector<float>& all, std::int64_t per_sample) {
      return std::span(all).subspan(static_cast<std::size_t>(begin * per_sample),
                                    static_cast<std::size_t>(count * per_sample));
    };
    Matrix x(count, columns), dx(count, columns), z(count, Interaction::columns()),
        dz(count, Interaction::columns()), logit(count, 1), dlogit(count, 1);
    for (std::size_t step = 0; step < model_.losses.size(); ++step) {
      const std::vector<float> dense = floats(file_, fmt::format("step{}.dense", step)),
                               label = floats(file_, fmt::format("step{}.label", step));
      std::vector<std::int64_t> ids;
      for (const ts::FeatureSpec& feature : embeddings.layout().features) {
        const std::vector<std::int64_t> all =
            integers(file_, fmt::format("step{}.ids.{}", step, feature.name));
        ids.insert(ids.end(), all.begin() + begin, all.begin() + begin + count);
      }
      const auto pooled = embeddings.forward(
          ts::KeyedJagged<std::int64_t>{
              static_cast<std::int64_t>(embeddings.layout().features.size()), count, ids, {}, {}},
          x.view().column_range(width, embeddings.columns()));
      bottom.forward({part(dense, model_.dense).data(), count, model_.dense},
                     x.view().column_range(0, width));
      interaction.forward(x.view(), z.view());
      top.forward(z.view(), logit.view());
      verdict.compare(
          fmt::format("step{}.interaction", step), z.data,
          part(floats(file_, fmt::format("step{}.interaction", step)), Interaction::columns()));
      verdict.compare(fmt::format("step{}.logit", step), logit.data,
                      part(floats(file_, fmt::format("step{}.logit", step)), 1));
      const ts::BinaryCrossEntropyWithLogits loss{model_.batch};
      double sum = loss.forward_backward(logit.view(), part(label, 1), dlogit.view());
      communicator.all_reduce(std::span(&sum, 1));
      const float found = static_cast<float>(sum),
                  expected = static_cast<float>(model_.losses[step]);
      verdict.compare(fmt::format("loss of step {}", step), {&found, 1}, {&expected, 1});
      top.backward(dlogit.view(), dz.view());
      interaction.backward(dz.view(), dx.view());
      bottom.backward(dx.view().column_range(0, width));
      communicator.all_reduce(parameters.gradients());
      optimizer.step(parameters, model_.learning_rate);
      embeddings.backward(pooled, dx.view().column_range(width, embeddings.columns()));
    }
    for_each_parameter(bottom, interaction, top,
                       [&](const std::string& name, std::span<float> values) {
                         verdict.compare(name + ".final", values, floats(file_, name + ".final"));
                       });
    for (int rank = 0; rank < communicator.size(); ++rank) {
      if (rank == communicator.rank())
        for (std::size_t t = 0; t < PlanT::tables.size(); ++t)
          embeddings.tables().get(PlanT::tables[t].name, {final_[t].data(), PlanT::tables[t].rows,
                                                          PlanT::tables[t].width});
      communicator.barrier();
    }
  }

  const ts::SafetensorsReader& file_;
  const ModelCase& model_;
  std::vector<std::vector<float>> final_;
};

template <class Plans, class Interaction>
int run_model(int argc, char** argv, const ModelCase& model) {
  const Arguments arguments(argc, argv);
  const ts::SafetensorsReader file{std::filesystem::path(arguments.file)};
  Tally tally;
  Plans::for_each([&]<class N>(N) {
    for (const int ranks : arguments.ranks)
      tally.run(fmt::format("{} {} ranks", N::name, ranks), [&](Verdict& verdict) {
        ModelRun<typename N::plan, Interaction>(file, model)(ranks, verdict);
      });
  });
  return tally.finish();
}

}  // namespace golden
