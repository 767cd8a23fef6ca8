// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// One rank of a DLRM of 26 tables of 100,000 rows, as a trainer would write it stage by stage, with
// the time of every stage.
#pragma once

#include <tessera/dense/loss.hpp>
#include <tessera/dense/mlp.hpp>
#include <tessera/dense/optimizer.hpp>
#include <tessera/tessera.hpp>
#include <tessera_data/synthetic.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tessera::bench {

inline constexpr int kTables = 26;
inline constexpr std::int64_t kRows = 100'000;
inline constexpr std::array<std::string_view, kTables> kNames{
    "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m",
    "n", "o", "p", "q", "r", "s", "t", "u", "v", "w", "x", "y", "z"};
template <int Width>
inline constexpr auto kSpecs = [] {
  std::array<TableSpec, kTables> specs;
  for (std::size_t i = 0; i < kTables; ++i)
    specs[i] = {.name = kNames[i], .rows = kRows, .width = Width};
  return specs;
}();

enum Stage { lookup, interaction, mlp, update, exchange, stages };
inline constexpr std::array<const char*, stages> kStageNames{"lookup_ms", "interaction_ms",
                                                             "mlp_ms", "update_ms", "exchange_ms"};

/// Adds the time since the last lap to a stage.
class Laps {
 public:
  void begin() { last_ = Clock::now(); }
  void lap(Stage stage) {
    const auto now = Clock::now();
    seconds_[stage] += std::chrono::duration<double>(now - last_).count();
    last_ = now;
  }
  const std::array<double, stages>& seconds() const { return seconds_; }
  double total() const {
    double sum = 0;
    for (const double s : seconds_) sum += s;
    return sum;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_;
  std::array<double, stages> seconds_{};
};

/// Rank `communicator.rank()` and its part of a global batch, with one of 8 batches prepared per
/// step in turn.
template <int Width>
class DlrmRank {
  using TablePlan = Plan<TableWise<Tables<kSpecs<Width>>>>;
  using Dot = DotInteraction<kTables + 1, Width, 16>;

 public:
  DlrmRank(ThreadCommunicator& communicator, int threads, std::int64_t batch, bool large_top,
           DensePrecision precision = DensePrecision::float32)
      : communicator_(communicator),
        host_({.threads = threads}),
        global_batch_(batch),
        local_batch_(batch / communicator.size()),
        embeddings_(communicator, host_, {.learning_rate = 1e-3f}),
        bottom_(host_, {13, 512, 256, Width}, {.last_relu = true, .precision = precision}),
        top_(host_,
             large_top ? std::vector<std::int64_t>{Dot::columns(), 1024, 1024, 512, 256, 1}
                       : std::vector<std::int64_t>{Dot::columns(), 512, 256, 1},
             {.precision = precision}),
        parameters_(host_, 1, bottom_, top_),
        sgd_(host_, Sgd{}),
        x_(floats(Dot::input_columns())),
        dx_(floats(Dot::input_columns())),
        z_(floats(Dot::columns())),
        dz_(floats(Dot::columns())),
        y_(floats(1)),
        dy_(floats(1)) {
    const SyntheticClicks clicks(
        std::vector<SyntheticFeature>(kTables, {.rows = kRows, .alpha = 1.05}));
    for (std::int64_t b = 0; b < 8; ++b)
      clicks.generate((b * communicator.size() + communicator.rank()) * local_batch_, local_batch_,
                      batches_.emplace_back());
  }

  void step(int i, Laps& laps) {
    const ClickBatch<std::int32_t>& batch = batches_[static_cast<std::size_t>(i) % batches_.size()];
    const std::int64_t n = local_batch_, embedded = Dot::input_columns() - Width;
    const MatrixView<float> x(x_.data(), n, Dot::input_columns()),
        dx(dx_.data(), n, Dot::input_columns()), z(z_.data(), n, Dot::columns()),
        dz(dz_.data(), n, Dot::columns()), y(y_.data(), n, 1), dy(dy_.data(), n, 1);
    laps.begin();
    bottom_.forward(batch.dense_view(), x.column_range(0, Width));
    laps.lap(mlp);
    embeddings_.route(step_, batch.keyed());
    embeddings_.lookup(step_, x.column_range(Width, embedded));
    laps.lap(lookup);
    embeddings_.exchange(step_);
    laps.lap(exchange);
    embeddings_.assemble(step_, x.column_range(Width, embedded));
    laps.lap(lookup);
    Dot::forward(host_, x, z);
    laps.lap(interaction);
    top_.forward(z, y);
    BinaryCrossEntropyWithLogits{.normalizer = global_batch_}.forward_backward(y, batch.labels, dy);
    top_.backward(dy, dz);
    laps.lap(mlp);
    Dot::backward(host_, x, dz, dx);
    laps.lap(interaction);
    bottom_.backward(dx.column_range(0, Width));
    laps.lap(mlp);
    communicator_.all_reduce(parameters_.gradients());
    laps.lap(exchange);
    sgd_.step(parameters_, 1e-3f);
    embeddings_.split(step_, dx.column_range(Width, embedded));
    laps.lap(update);
    embeddings_.exchange_gradients(step_);
    laps.lap(exchange);
    embeddings_.update(step_, dx.column_range(Width, embedded));
    laps.lap(update);
  }

  /// Floating-point operations of a step in the MLPs, whose first layer needs no gradient of its
  /// input, and in the interaction.
  double operations_per_sample() {
    std::int64_t products = 3 * Width * kTables * (kTables + 1) / 2 -
                            bottom_.weight(0).rows * bottom_.weight(0).columns;
    for (Mlp<>* mlp : {&bottom_, &top_})
      for (int l = 0; l < mlp->layers(); ++l)
        products += 3 * mlp->weight(l).rows * mlp->weight(l).columns;
    return 2.0 * static_cast<double>(products);
  }

  /// This rank's part of the batches.
  const std::vector<ClickBatch<std::int32_t>>& batches() const { return batches_; }

 private:
  // its vectors begin at cache lines, as those of a std::vector may not
  using Floats = Buffer<float, Host>;
  Floats floats(std::int64_t columns) const {
    Floats buffer;
    std::ranges::fill(buffer.resize(Host(), static_cast<std::size_t>(local_batch_ * columns)),
                      0.1f);
    return buffer;
  }

  ThreadCommunicator& communicator_;
  Host host_;
  std::int64_t global_batch_, local_batch_;
  EmbeddingCollection<TablePlan, Sgd, Host, ThreadCommunicator> embeddings_;
  Step<std::int32_t, Host> step_;
  Mlp<> bottom_, top_;
  DenseParameters<> parameters_;
  DenseOptimizer<Sgd> sgd_;
  Floats x_, dx_, z_, dz_, y_, dy_;
  std::vector<ClickBatch<std::int32_t>> batches_;
};

}  // namespace tessera::bench
