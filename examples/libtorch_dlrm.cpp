// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// DLRM (Naumov et al. 2019) with tables of Tessera under dense layers of libtorch, on thread ranks:
// docs/first_day/libtorch.md. Beside it, on the same batches in turn: the same model without
// libtorch, whose losses it must have, and, on one rank, libtorch's own EmbeddingBags.
#include <tessera/dense.hpp>
#include <tessera/dlpack.hpp>
#include <tessera/interaction.hpp>
#include <tessera/tessera.hpp>
#include <tessera_data/synthetic.hpp>

#include <ATen/DLConvertor.h>
#include <torch/torch.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace ts = tessera;

namespace {

constexpr int kTables = 26, kWidth = 16, kDense = 13, kVectors = kTables + 1;
constexpr std::int64_t kRows = 100'000;
constexpr float kRate = 0.1f;
constexpr std::string_view kNames = "abcdefghijklmnopqrstuvwxyz";
constexpr auto kSpecs = [] {
  std::array<ts::TableSpec, kTables> specs;
  for (std::size_t t = 0; t < kTables; ++t)
    specs[t] = {.name = kNames.substr(t, 1), .rows = kRows, .width = kWidth};
  return specs;
}();
using Plan = ts::Plan<ts::TableWise<ts::Tables<kSpecs>>>;
using Embeddings = ts::EmbeddingCollection<Plan, ts::Sgd, ts::Host, ts::ThreadCommunicator>;
using Dot = ts::DotInteraction<kVectors, kWidth>;
using Batch = ts::ClickBatch<std::int64_t>;

/// Layers of Tessera with their first values, which the other models begin with, too.
struct Layers {
  ts::Mlp<> bottom, top;
  ts::DenseParameters<> parameters;

  Layers()
      : bottom({kDense, 128, kWidth}, {.last_relu = true}),
        top({Dot::columns(), 128, 64, 1}),
        parameters(1, bottom, top) {}
};

/// The model without libtorch.
class Pure {
 public:
  Pure(ts::ThreadCommunicator& rank, std::int64_t samples)
      : rank_(rank),
        samples_(samples),
        embeddings_(rank, ts::Host({.threads = 1}), {.learning_rate = kRate}),
        x_(samples, Dot::input_columns()),
        dx_(samples, Dot::input_columns()),
        z_(samples, Dot::columns()),
        dz_(samples, Dot::columns()),
        y_(samples, 1),
        dy_(samples, 1) {}

  double step(Batch& batch) {
    const ts::MatrixView<float> x = x_, dx = dx_, z = z_, dz = dz_, y = y_, dy = dy_;
    layers_.bottom.forward(batch.dense_view(), x.column_range(0, kWidth));
    const auto pooled =
        embeddings_.forward(batch.keyed(), x.column_range(kWidth, x.columns - kWidth));
    Dot::forward(ts::Host({.threads = 1}), x, z);
    layers_.top.forward(z, y);
    const double loss = ts::BinaryCrossEntropyWithLogits{samples_ * rank_.size()}.forward_backward(
        y, batch.labels, dy);
    layers_.top.backward(dy, dz);
    Dot::backward(ts::Host({.threads = 1}), x, dz, dx);
    layers_.bottom.backward(dx.column_range(0, kWidth));
    rank_.all_reduce(layers_.parameters.gradients());
    sgd_.step(layers_.parameters, kRate);
    embeddings_.backward(pooled, dx.column_range(kWidth, dx.columns - kWidth));
    return loss;
  }

 private:
  ts::ThreadCommunicator& rank_;
  std::int64_t samples_;
  Embeddings embeddings_;
  Layers layers_;
  ts::DenseOptimizer<ts::Sgd> sgd_;
  ts::Matrix<float> x_, dx_, z_, dz_, y_, dy_;
};

/// A layer of libtorch for each of an Mlp's, with its values.
torch::nn::Sequential layers_as(ts::Mlp<>& mlp, bool last_relu) {
  const torch::NoGradGuard no_gradients;
  torch::nn::Sequential layers;
  for (int l = 0; l < mlp.layers(); ++l) {
    const ts::MatrixView<float> weight = mlp.weight(l);
    torch::nn::Linear linear(weight.columns, weight.rows);
    linear->weight.copy_(torch::from_blob(weight.data, {weight.rows, weight.columns}));
    linear->bias.copy_(torch::from_blob(mlp.bias(l).data(), {weight.rows}));
    layers->push_back(linear);
    if (l + 1 < mlp.layers() || last_relu) layers->push_back(torch::nn::ReLU());
  }
  return layers;
}

/// Dense layers of libtorch, above vectors of whichever tables.
class TorchLayers {
 public:
  TorchLayers(ts::ThreadCommunicator& rank, std::int64_t samples) : rank_(rank), samples_(samples) {
    Layers first;
    bottom_ = layers_as(first.bottom, true);
    top_ = layers_as(first.top, false);
    for (const auto* layers : {&bottom_, &top_})
      for (const torch::Tensor& parameter : (*layers)->parameters())
        parameters_.push_back(parameter);
    sgd_ = std::make_unique<torch::optim::SGD>(parameters_, kRate);
    const torch::Tensor pairs = torch::tril_indices(kVectors, kVectors, -1);
    places_ = pairs[0] * kVectors + pairs[1];
  }

  // [layers]
  /// Returns the share of this rank in the loss, from its samples' vectors [samples, tables, width].
  torch::Tensor loss(Batch& batch, const torch::Tensor& vectors) {
    const auto dense = torch::from_blob(batch.dense.data(), {samples_, kDense}),
               labels = torch::from_blob(batch.labels.data(), {samples_, 1}),
               bottom = bottom_->forward(dense), x = torch::cat({bottom.unsqueeze(1), vectors}, 1),
               products = torch::bmm(x, x.transpose(1, 2)).flatten(1).index_select(1, places_);
    const torch::Tensor losses = torch::binary_cross_entropy_with_logits(
        top_->forward(torch::cat({bottom, products}, 1)), labels, {}, {}, at::Reduction::None);
    return losses.sum(torch::kDouble) / (samples_ * rank_.size());  // as Tessera adds them
  }

  /// Makes a step by all ranks' gradients.
  void step() {
    for (const torch::Tensor& parameter : parameters_) {
      const torch::Tensor gradient = parameter.grad();
      rank_.all_reduce(std::span(gradient.data_ptr<float>(), gradient.numel()));
    }
    sgd_->step();
    sgd_->zero_grad();
  }
  // [layers end]

 private:
  ts::ThreadCommunicator& rank_;
  std::int64_t samples_;
  torch::nn::Sequential bottom_, top_;
  std::vector<torch::Tensor> parameters_;
  torch::Tensor places_;  // of the pairs of vectors among all products
  std::unique_ptr<torch::optim::SGD> sgd_;
};

/// Tables of Tessera under layers of libtorch.
class Joined {
 public:
  Joined(ts::ThreadCommunicator& rank, std::int64_t samples)
      : layers_(rank, samples),
        embeddings_(rank, ts::Host({.threads = 1}), {.learning_rate = kRate}) {}

  // [step]
  double step(Batch& batch) {
    const auto pooled = embeddings_.forward(batch.keyed());
    const auto [data, samples, columns, stride] = pooled.values;
    const auto vectors = torch::from_blob(const_cast<float*>(data), {samples, kTables, kWidth},
                                          {stride, kWidth, 1});  // no copy
    const torch::Tensor loss = layers_.loss(batch, vectors.requires_grad_());
    loss.backward();
    // No copy either; a gradient that is not contiguous floats would be an error here.
    const auto gradient =
        ts::from_dlpack<const float>(at::toDLPack(vectors.grad().view({samples, columns})));
    embeddings_.backward(pooled, gradient.matrix());
    layers_.step();
    return loss.item<double>();
  }
  // [step end]

 private:
  TorchLayers layers_;
  Embeddings embeddings_;
};

/// Tables of libtorch, with Tessera's first values.
class Bags {
 public:
  Bags(ts::ThreadCommunicator& rank, std::int64_t samples)
      : layers_(rank, samples), offsets_(torch::arange(samples)) {
    const Embeddings first(rank, ts::Host(), {});
    std::vector<torch::Tensor> weights;
    for (const ts::TableSpec& spec : kSpecs) {
      const torch::Tensor table = torch::empty({kRows, kWidth});
      first.tables().get(spec.name, {table.data_ptr<float>(), kRows, kWidth});
      bags_.push_back(torch::nn::EmbeddingBag(torch::nn::EmbeddingBagOptions(kRows, kWidth)
                                                  .mode(torch::kSum)
                                                  .sparse(true)
                                                  ._weight(table)));
      weights.push_back(bags_.back()->weight);
    }
    sgd_ = std::make_unique<torch::optim::SGD>(weights, kRate);
  }

  double step(Batch& batch) {
    const auto ids = torch::from_blob(batch.ids.data(), {kTables, batch.size}, torch::kLong);
    std::vector<torch::Tensor> vectors;
    for (std::size_t t = 0; t < bags_.size(); ++t)
      vectors.push_back(bags_[t](ids[static_cast<std::int64_t>(t)], offsets_));
    const torch::Tensor loss = layers_.loss(batch, torch::stack(vectors, 1));
    loss.backward();
    sgd_->step();
    for (auto& bag : bags_) bag->weight.mutable_grad() = torch::Tensor();
    layers_.step();
    return loss.item<double>();
  }

 private:
  TorchLayers layers_;
  torch::Tensor offsets_;
  std::vector<torch::nn::EmbeddingBag> bags_;
  std::unique_ptr<torch::optim::SGD> sgd_;
};

/// A model's losses over the global batch, and what its steps took.
struct Run {
  std::vector<double> losses, seconds;

  template <class Model>
  void step(ts::ThreadCommunicator& rank, Model& model, Batch& batch) {
    const auto begin = std::chrono::steady_clock::now();
    double loss = model.step(batch);
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    rank.all_reduce(std::span(&loss, 1));
    losses.push_back(loss);
  }
  double per_second(std::int64_t samples) {
    std::ranges::nth_element(seconds, seconds.begin() + std::ssize(seconds) / 2);
    return static_cast<double>(samples) / seconds[seconds.size() / 2];
  }
};

/// Trains all models on each rank's part of the same batches. Returns the largest difference of a
/// loss of Joined from Pure's.
double train(ts::ThreadCommunicator& rank, int steps, std::int64_t global_batch) {
  at::set_num_threads(1);
  const std::int64_t samples = global_batch / rank.size();
  const ts::SyntheticClicks clicks(
      std::vector<ts::SyntheticFeature>(kTables, {.rows = kRows, .alpha = 1.05}));
  Pure pure(rank, samples);
  Joined joined(rank, samples);
  std::vector<Bags> bags;
  if (rank.size() == 1) bags.emplace_back(rank, samples);
  Run by_pure, by_joined, by_bags;
  Batch batch;
  for (int n = 0; n < steps; ++n) {
    clicks.generate((static_cast<std::int64_t>(n) * rank.size() + rank.rank()) * samples, samples,
                    batch);
    by_pure.step(rank, pure, batch);
    by_joined.step(rank, joined, batch);
    for (Bags& model : bags) by_bags.step(rank, model, batch);
  }
  double apart = 0;
  for (int n = 0; n < steps; ++n)
    apart = std::max(apart, std::abs(by_joined.losses[n] - by_pure.losses[n]));
  if (rank.rank() != 0) return apart;
  fmt::print("{} rank{}: loss {:.4f} -> {:.4f} in {} steps, at most {:.1e} from Tessera's alone\n",
             rank.size(), rank.size() == 1 ? "" : "s", by_joined.losses.front(),
             by_joined.losses.back(), steps, apart);
  fmt::print("  samples/s: {:.0f}; Tessera alone {:.0f}", by_joined.per_second(global_batch),
             by_pure.per_second(global_batch));
  if (!bags.empty())
    fmt::print("; libtorch's EmbeddingBag(sparse) {:.0f}", by_bags.per_second(global_batch));
  fmt::print("\n");
  return apart;
}

}  // namespace

int main(int argc, char** argv) {
  int numbers[] = {500, 128};  // steps, samples of the global batch
  for (int i = 1; i < argc; ++i) {
    const std::string_view text = argv[i];
    const char* const end = text.data() + text.size();
    if (i > 2 || std::from_chars(text.data(), end, numbers[i - 1]).ptr != end ||
        numbers[i - 1] < 2) {
      fmt::print(stderr, "libtorch_dlrm [STEPS [SAMPLES]]: '{}' is no number of 2 or more here\n",
                 text);
      return 2;
    }
  }
  double apart = 0;
  for (const int ranks : {1, 2})
    ts::run_ranks(ranks, [&](ts::ThreadCommunicator& rank) {
      const double own = train(rank, numbers[0], numbers[1]);
      if (rank.rank() == 0) apart = std::max(apart, own);
    });
  return apart < 1e-6 ? 0 : 1;
}
