// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Tessera beside PyTorch's C++ library in one process: the same ids, tables and threads, one call
// of each in turn, medians. Counters: `ms`, `peer_ms`, `ratio` = peer_ms / ms; `limit_ms`,
// `limit_ratio` = peer_ms / limit_ms: the ratio of who does nothing else than the least traffic of
// lookup and update, or of DLRM the arithmetic of MLPs and interaction in float, at the machine's
// rate in turn with both.
//   peer/lookup   at::embedding_bag, sum
//   peer/update   forward, backward and a sparse optimizer step (torch::optim)
//   peer/sequence a step of a sequence feature: nn.Embedding with sparse gradients, SGD; of the ids so
//                 many percent differ
//   peer/dlrm     a training step of DLRM with SGD (dlrm.hpp): EmbeddingBags with sparse gradients, Linear, bmm, the eager way
//   peer/dlrm_bf16  the same beside Tessera's with dense layers in bfloat16; PyTorch's stay in float
// PyTorch is measured at its best: freed memory stays with the process, so that a fresh output
// costs no page faults.
#include <torch/torch.h>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <malloc.h>

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "peer_cases.hpp"

using namespace tessera;
using namespace tessera::bench;

namespace {

/// Runs both, and what bounds them, in turn on batch after batch and reports.
template <class Theirs>
void duel(benchmark::State& state, Case& ours, const Theirs& theirs) {
  std::int64_t batch = 0;
  for (int warm_up = 0; warm_up < 2; ++warm_up) {
    ours.run(batch++);
    theirs(batch++);
  }
  std::vector<double> own_times, peer_times, limits;
  for (auto _ : state) {
    limits.push_back(seconds([&] { ours.limit(batch++); }));
    own_times.push_back(seconds([&] { ours.run(batch++); }));
    peer_times.push_back(seconds([&] { theirs(batch++); }));
    state.SetIterationTime(own_times.back() + peer_times.back());
  }
  state.counters["ms"] = median(own_times) * 1e3;
  state.counters["peer_ms"] = median(peer_times) * 1e3;
  state.counters["ratio"] = median(peer_times) / median(own_times);
  state.counters["limit_ms"] = median(limits) * 1e3;
  state.counters["limit_ratio"] = median(peer_times) / median(limits);
}

struct Shape {
  std::int64_t bag = 10;
  double skew = 0;
  int threads = 2;
  std::int64_t batch = 65536;
  std::int64_t rows = 4'000'000;
  std::int64_t distinct = 0;  // percent of the ids of a batch that differ; 0: as drawn
};

/// One table and some batches of ids, for both sides.
template <int Width>
struct Workload {
  explicit Workload(Shape given)
      : shape(given),
        arena(shape.rows * Width),
        ids(batches * shape.batch * shape.bag),
        output(shape.batch * Width),
        gradient(output.size()) {
    for (std::int64_t i = 0; i < ids.size(); ++i) ids.data()[i] = drawn(i);
    for (std::int64_t i = 0; i < gradient.size(); ++i)
      gradient.data()[i] = unit_float(random_word(2, i)) - 0.5f;
    for (std::int64_t b = 0; b <= shape.batch; ++b) offsets.push_back(b * shape.bag);
    at::set_num_threads(shape.threads);
    weights = at::from_blob(arena.data(), {shape.rows, Width});
    peer_gradient = at::from_blob(gradient.data(), {shape.batch, Width});
    peer_offsets = at::from_blob(offsets.data(), {shape.batch}, at::kLong);
  }
  const std::int64_t* batch_ids(std::int64_t batch) const {
    return ids.data() + batch % batches * shape.batch * shape.bag;
  }
  PeerTable table() const {
    return {.optimizer = "",
            .width = Width,
            .threads = shape.threads,
            .id_bytes = sizeof(std::int64_t),
            .rows = shape.rows,
            .batch = shape.batch,
            .bag = shape.bag,
            .batches = batches,
            .weights = arena.data(),
            .ids = ids.data(),
            .gradient = gradient.data(),
            .output = output.data()};
  }
  at::Tensor peer_ids(std::int64_t batch) const {
    return at::from_blob(const_cast<std::int64_t*>(batch_ids(batch)), {shape.batch * shape.bag},
                         at::kLong);
  }
  at::Tensor peer_forward(std::int64_t batch, bool sparse) const {
    return std::get<0>(at::embedding_bag(weights, peer_ids(batch), peer_offsets, false, 0, sparse));
  }

  std::int64_t drawn(std::int64_t i) const {
    const auto counter = static_cast<std::uint64_t>(i);
    if (shape.distinct == 0) return draw_id(1, counter, shape.rows, shape.skew);
    const std::int64_t pool = shape.batch * shape.bag * shape.distinct / 100,
                       member = draw_id(1, counter, pool, 0);
    return draw_id(3, static_cast<std::uint64_t>(member), shape.rows, 0);
  }

  static constexpr std::int64_t batches = 5;  // no multiple of 2 or 3: each side sees all of them
  Shape shape;
  HugeArray<float> arena;
  HugeArray<std::int64_t> ids;
  HugeArray<float> output, gradient;
  std::vector<std::int64_t> offsets;
  at::Tensor weights, peer_gradient, peer_offsets;
};

template <int Width>
void lookup(benchmark::State& state, Shape shape) {
  const Workload<Width> work(shape);
  LookupCase<Width, std::int64_t> ours(work.table());
  const at::NoGradGuard no_gradients;
  duel(state, ours, [&](std::int64_t batch) {
    benchmark::DoNotOptimize(work.peer_forward(batch, false).data_ptr());
  });
}

template <int Width, Optimizer O>
void update(benchmark::State& state, Shape shape) {
  Workload<Width> work(shape);
  StepCase<Width, std::int64_t, O> ours(work.table());
  work.weights.set_requires_grad(true);
  std::unique_ptr<torch::optim::Optimizer> peer;
  if constexpr (std::is_same_v<O, Sgd>) {
    peer = std::make_unique<torch::optim::SGD>(std::vector<at::Tensor>{work.weights}, 0.01);
  } else {
    peer = std::make_unique<torch::optim::Adagrad>(std::vector<at::Tensor>{work.weights}, 0.01);
  }
  duel(state, ours, [&](std::int64_t batch) {
    work.peer_forward(batch, true).backward(work.peer_gradient);
    peer->step();
    work.weights.mutable_grad() = at::Tensor();
  });
}

template <int Width>
void sequence(benchmark::State& state, Shape shape) {
  Workload<Width> work(shape);
  SequenceCase<Width, std::int64_t> ours(work.table());
  work.weights.set_requires_grad(true);
  torch::optim::SGD peer({work.weights}, 0.01);
  duel(state, ours, [&](std::int64_t batch) {
    at::embedding(work.weights, work.peer_ids(batch), -1, false, true).backward(work.peer_gradient);
    peer.step();
    work.weights.mutable_grad() = at::Tensor();
  });
}

/// DLRM in PyTorch, the shape of DlrmRank.
template <int Width>
class PeerDlrm {
 public:
  PeerDlrm(std::int64_t batch, bool large_top)
      : bottom_(mlp({13, 512, 256, Width}, true)),
        top_(mlp(large_top ? std::vector<std::int64_t>{kTop, 1024, 1024, 512, 256, 1}
                           : std::vector<std::int64_t>{kTop, 512, 256, 1},
                 false)),
        offsets_(at::arange(batch, at::kLong)),
        pairs_(at::tril_indices(kTables + 1, kTables + 1, -1)) {
    std::vector<at::Tensor> parameters = bottom_->parameters();
    for (const at::Tensor& p : top_->parameters()) parameters.push_back(p);
    for (int t = 0; t < kTables; ++t) {
      tables_.push_back(torch::nn::EmbeddingBag(
          torch::nn::EmbeddingBagOptions(kRows, Width).mode(torch::kSum).sparse(true)));
      parameters.push_back(tables_.back()->weight);
    }
    optimizer_ = std::make_unique<torch::optim::SGD>(parameters, 1e-3);
  }

  void step(const ClickBatch<std::int32_t>& batch) {
    const at::Tensor dense =
        at::from_blob(const_cast<float*>(batch.dense.data()), {batch.size, 13});
    const at::Tensor labels =
        at::from_blob(const_cast<float*>(batch.labels.data()), {batch.size, 1});
    const at::Tensor ids =
        at::from_blob(const_cast<std::int32_t*>(batch.ids.data()), {kTables, batch.size}, at::kInt)
            .to(at::kLong);
    std::vector<at::Tensor> vectors{bottom_->forward(dense)};
    for (int t = 0; t < kTables; ++t)
      vectors.push_back(tables_[static_cast<std::size_t>(t)](ids[t], offsets_));
    const at::Tensor x = at::stack(vectors, 1);
    const at::Tensor products =
        at::bmm(x, x.transpose(1, 2)).index({at::indexing::Slice(), pairs_[0], pairs_[1]});
    const at::Tensor y = top_->forward(at::cat({vectors[0], products}, 1));
    at::binary_cross_entropy_with_logits(y, labels).backward();
    optimizer_->step();
    optimizer_->zero_grad();
    for (auto& table : tables_) table->weight.mutable_grad() = at::Tensor();
  }

 private:
  static constexpr std::int64_t kTop = Width + (kTables + 1) * kTables / 2;

  static torch::nn::Sequential mlp(const std::vector<std::int64_t>& sizes, bool last_relu) {
    torch::nn::Sequential layers;
    for (std::size_t i = 0; i + 1 < sizes.size(); ++i) {
      layers->push_back(torch::nn::Linear(sizes[i], sizes[i + 1]));
      if (i + 2 < sizes.size() || last_relu) layers->push_back(torch::nn::ReLU(true));
    }
    return layers;
  }

  torch::nn::Sequential bottom_, top_;
  std::vector<torch::nn::EmbeddingBag> tables_;
  std::unique_ptr<torch::optim::SGD> optimizer_;
  at::Tensor offsets_, pairs_;
};

template <int Width>
void dlrm(benchmark::State& state, std::int64_t batch, int threads, bool large_top,
          DensePrecision precision) {
  if (!detail::supported(precision))
    return state.SkipWithError("this processor multiplies no bfloat16");
  at::set_num_threads(threads);
  PeerDlrm<Width> peer(batch, large_top);
  DlrmCase<Width> ours(batch, threads, large_top, precision);
  duel(state, ours, [&](std::int64_t i) {
    peer.step(ours.batches()[static_cast<std::size_t>(i) % ours.batches().size()]);
  });
  state.counters["samples_per_second"] = static_cast<double>(batch) / state.counters["ms"] * 1e3;
  state.counters["peer_samples_per_second"] =
      static_cast<double>(batch) / state.counters["peer_ms"] * 1e3;
}

template <class F>
void add(const std::string& name, double min_time, F f) {
  benchmark::RegisterBenchmark(name.c_str(), f)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond)
      ->MinTime(min_time);
}

template <int Width>
void add_tables() {
  for (const int threads : {1, 2})
    for (const std::int64_t bag : {1, 10})
      for (const double skew : {0.0, 1.05}) {
        const Shape shape{.bag = bag, .skew = skew, .threads = threads};
        const std::string name = fmt::format("width:{}/bag:{}/{}/threads:{}", Width, bag,
                                             skew == 0 ? "uniform" : "zipf:1.05", threads);
        add("peer/lookup/" + name, 0.3,
            [shape](benchmark::State& state) { lookup<Width>(state, shape); });
        add("peer/update/sgd/" + name, 0.5,
            [shape](benchmark::State& state) { update<Width, Sgd>(state, shape); });
        if (threads == 2)
          add("peer/update/adagrad/" + name, 0.5,
              [shape](benchmark::State& state) { update<Width, Adagrad>(state, shape); });
      }
}

void add_sequences() {
  for (const int threads : {1, 2})
    for (const std::int64_t distinct : {2, 10, 100}) {
      const Shape shape{
          .bag = 1, .threads = threads, .batch = 32'768, .rows = 293'000, .distinct = distinct};
      add(fmt::format("peer/sequence/width:64/distinct:{}/threads:{}", distinct, threads), 0.5,
          [shape](benchmark::State& state) { sequence<64>(state, shape); });
    }
}

template <int Width>
void add_dlrm() {
  for (const bool large_top : {false, true})
    for (const std::int64_t batch : {2048, 8192})
      for (const int threads : {1, 2})
        for (const auto precision : {DensePrecision::float32, DensePrecision::bfloat16})
          add(fmt::format("peer/dlrm{}/width:{}/batch:{}/top:{}/threads:{}",
                          precision == DensePrecision::bfloat16 ? "_bf16" : "", Width, batch,
                          large_top ? "large" : "small", threads),
              3.0, [=](benchmark::State& state) {
                dlrm<Width>(state, batch, threads, large_top, precision);
              });
}

}  // namespace

int main(int argc, char** argv) {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
  benchmark::Initialize(&argc, argv);
  add_dlrm<16>();
  add_dlrm<64>();
  add_dlrm<128>();
  add_tables<16>();
  add_tables<64>();
  add_tables<128>();
  add_sequences();
  benchmark::RunSpecifiedBenchmarks();
}
