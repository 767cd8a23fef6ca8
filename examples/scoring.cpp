// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Trains and saves a model, and scores with it as another program would: docs/first_day/scoring.md.
//   scoring             both, by way of a temporary folder
//   scoring train DIR   the trainer's part
//   scoring score DIR   the other program's
#include <tessera/checkpoint.hpp>
#include <tessera/dense.hpp>
#include <tessera/tessera.hpp>
#include <tessera_data/synthetic.hpp>
#include <tessera_serving/frozen_lookup.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <filesystem>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace ts = tessera;

// [model]
// What both programs share, as a header of theirs would hold it. Plan and optimizer are not part of
// it.
using User = ts::Table<"user", 2000, 8>;
using Item = ts::Table<"item", 1000, 8>;
using Top = ts::Mlp<ts::Host, 16, 16, 1>;

template <class Embeddings>
ts::CheckpointContents contents_of(Embeddings& embeddings, Top& top) {
  ts::CheckpointContents contents;
  contents.add(embeddings);
  for (int l = 0; l < top.layers(); ++l) {
    const ts::MatrixView<float> weight = top.weight(l);
    contents.add(fmt::format("top.{}.weight", l), {weight.rows, weight.columns},
                 std::span(weight.data, weight.rows * weight.columns));
    contents.add(fmt::format("top.{}.bias", l), {weight.rows}, top.bias(l));
  }
  return contents;
}
// [model end]

const ts::SyntheticClicks& clicks() {
  static const ts::SyntheticClicks made({{.rows = 2000}, {.rows = 1000}}, {.dense_columns = 0});
  return made;
}

// [scorer]
/// A loaded model, which nothing changes: any number of scorers share it. One rank; Sgd has no
/// state, so that no memory is spent on Adagrad's.
struct Model {
  using Plan = ts::Plan<ts::TableWise<User, Item>>;
  using Embeddings = ts::EmbeddingCollection<Plan, ts::Sgd, ts::Host, ts::SelfCommunicator>;

  explicit Model(const std::filesystem::path& directory)
      : embeddings(ranks, ts::Host({.threads = 1}), {}) {
    const auto latest = ts::latest_checkpoint(directory);
    if (!latest)
      throw ts::DataError(fmt::format("there is no checkpoint in '{}'", directory.string()));
    // The checkpoint has Adagrad's sums, which this model lacks. All else must be in both, of the
    // same shape.
    ts::load_checkpoint(ranks, *latest, contents_of(embeddings, top), {.extra = {"*.sum"}});
  }

  ts::SelfCommunicator ranks;
  Embeddings embeddings;
  Top top;
  ts::DenseParameters<> parameters{0, top};
};

/// What a thread needs of its own: the memory of a batch, and the layers, which remember the last
/// one.
class Scorer {
 public:
  explicit Scorer(const Model& model) : model_(model) {
    std::ranges::copy(model.parameters.values(), parameters_.values().begin());
  }

  /// Probabilities of a click.
  std::vector<float> score(const ts::KeyedJagged<std::int32_t>& ids) {
    ts::Matrix<float> pooled(ids.batch, 16), logits(ids.batch, 1);
    model_.embeddings.evaluate(step_, ids, pooled);
    top_.forward(pooled, logits);
    std::vector<float> p;
    for (int s = 0; s < ids.batch; ++s) p.push_back(1 / (1 + std::exp(-logits.view()(s, 0))));
    return p;
  }

 private:
  const Model& model_;
  Model::Embeddings::StepState<std::int32_t> step_;
  Top top_;
  ts::DenseParameters<> parameters_{0, top_};
};
// [scorer end]

// [frozen]
/// The tables in eight bits per element, mapped from a file: a third of the memory, and none of it
/// twice where several programs serve one model. The largest difference from `pooled`, which the
/// collection looked up in floats.
float frozen_difference(const std::filesystem::path& checkpoint, const std::filesystem::path& file,
                        const ts::KeyedJagged<std::int32_t>& ids,
                        ts::MatrixView<const float> pooled) {
  ts::freeze_checkpoint(checkpoint, file,
                        {.tables = {"user", "item"}, .format = ts::RowFormat::int8});
  const ts::FrozenTables tables(file);
  ts::FrozenLookup<std::int32_t> lookup(  // one per thread
      tables, std::vector<ts::FrozenFeature>{{.name = "user", .table = "user"},
                                             {.name = "item", .table = "item"}});
  ts::Matrix<float> quantized(ids.batch, lookup.columns());
  lookup.pool(ids, quantized);
  float most = 0;
  for (int s = 0; s < ids.batch; ++s)
    for (int c = 0; c < lookup.columns(); ++c)
      most = std::max(most, std::abs(quantized.view()(s, c) - pooled(s, c)));
  return most;
}
// [frozen end]

/// On four ranks, under another plan.
void train(const std::filesystem::path& directory) {
  ts::run_ranks(4, [&](ts::ThreadCommunicator& rank) {
    using Plan = ts::Plan<ts::RowWise<User>, ts::TableWise<Item>>;
    ts::EmbeddingCollection<Plan, ts::RowWiseAdagrad, ts::Host, ts::ThreadCommunicator> embeddings(
        rank, ts::Host(), {.learning_rate = 0.1f, .seed = 1});
    Top top;
    ts::DenseParameters parameters(1, top);
    constexpr int kSamples = 64, kSteps = 300;
    ts::Matrix<float> y(kSamples, 1), dy(kSamples, 1), gradient(kSamples, 16);
    ts::DenseOptimizer sgd(ts::Sgd{});
    ts::ClickBatch<std::int32_t> batch;
    for (int step = 0; step < kSteps; ++step) {
      clicks().generate((step * rank.size() + rank.rank()) * kSamples, kSamples, batch);
      const auto pooled = embeddings.forward(batch.keyed());
      top.forward(pooled.values, y);
      ts::BinaryCrossEntropyWithLogits{kSamples * rank.size()}.forward_backward(y, batch.labels,
                                                                                dy);
      top.backward(dy, gradient);
      rank.all_reduce(parameters.gradients());
      sgd.step(parameters, 0.2f);
      embeddings.backward(pooled, gradient);
    }
    ts::save_checkpoint(rank, directory, contents_of(embeddings, top), kSteps);
  });
}

/// Returns whether the scores of samples that were not trained on tell clicks from the others.
bool score(const std::filesystem::path& directory) {
  const Model model(directory);
  ts::ClickBatch<std::int32_t> batch;
  clicks().generate(1'000'000, 2000, batch);
  std::vector<float> p, other;
  std::thread second([&] { other = Scorer(model).score(batch.keyed()); });
  p = Scorer(model).score(batch.keyed());
  second.join();
  Model::Embeddings::StepState<std::int32_t> step;
  ts::Matrix<float> pooled(batch.size, 16);
  model.embeddings.evaluate(step, batch.keyed(), pooled);
  const float difference = frozen_difference(*ts::latest_checkpoint(directory),
                                             directory / "frozen", batch.keyed(), pooled);
  const float largest = std::abs(
      *std::ranges::max_element(std::span(pooled.view().data, 16 * batch.size),
                                [](float a, float b) { return std::abs(a) < std::abs(b); }));
  fmt::print("elements up to {:.3f}; in eight bits {:.5f} from that at most\n", largest,
             difference);
  double sum[2] = {0, 0}, count[2] = {0, 0};
  for (std::size_t s = 0; s < p.size(); ++s)
    sum[batch.labels[s] > 0] += p[s], ++count[batch.labels[s] > 0];
  const double others = sum[0] / count[0], clicked = sum[1] / count[1];
  fmt::print("mean probability {:.2f} where there was a click, {:.2f} where there was none\n",
             clicked, others);
  return clicked > others + 0.05 && other == p && difference < 0.01f * largest;
}

int main(int argc, char** argv) try {
  const std::string_view mode = argc == 3 ? argv[1] : "";
  if (mode == "train") return train(argv[2]), 0;
  if (mode == "score") return score(argv[2]) ? 0 : 1;
  if (argc != 1) return fmt::print(stderr, "scoring [train DIR | score DIR]\n"), 2;
  const std::filesystem::path directory = std::filesystem::temp_directory_path() /
                                          fmt::format("tessera_scoring_{}", std::random_device()());
  train(directory);
  const bool good = score(directory);
  std::filesystem::remove_all(directory);
  return good ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "scoring: {}\n", error.what());
  return 2;
}
