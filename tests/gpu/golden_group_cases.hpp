// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/tessera.cuh>

#include <doctest/doctest.h>
#include <gpu/golden_embeddings.hpp>
#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

// Golden vectors of every optimizer, of tables with optimizers of their own, and of steps of several
// batches, clipped, on Cuda: outputs, norms, and tables and states at the end. One collection for all
// of them.

namespace golden_groups {

using namespace tessera;

/// Two of a kind, for two rates.
using Again = Table<"again", 1, 1>;
using Groups =
    TrainingGroups<Train<Sgd>, Train<Adagrad>, Train<Adagrad, Again>, Train<RowWiseAdagrad>,
                   Train<RowWiseAdagrad, Again>, Train<RowWiseAdagradL2>,
                   Train<RowWiseAdagradDecoupled>, Train<Adam>, Train<AdamW>,
                   Train<PartialRowWiseAdam>, Train<Momentum>, Train<Ftrl>, Frozen<>>;
using Comm = BasicThreadCommunicator<CudaTransfer>;
using Embeddings = LayoutCollection<Widths<16>, Groups, Cuda, Comm>;

/// Gives a table's optimizer to a group.
class Choice {
 public:
  Groups training;

  void add(const nlohmann::json& o) {
    const std::string kind = o["kind"], decay = o.value("weight_decay_mode", "none");
    require(decay != "none" || kind != "rowwise_adagrad" || o.value("weight_decay", 0.0f) == 0,
            "a weight_decay, and no weight_decay_mode");
    if (kind == "sgd")
      set<0>(Sgd{}, o);
    else if (kind == "adagrad")
      one_of<1, 2>(Adagrad{o["eps"], o.value("initial_accumulator", 0.0f)}, o);
    else if (kind == "rowwise_adagrad" && decay == "none")
      one_of<3, 4>(RowWiseAdagrad{o["eps"], o.value("initial_accumulator", 0.0f)}, o);
    else if (kind == "rowwise_adagrad" && decay == "l2")
      set<5>(RowWiseAdagradL2{o["eps"], o.value("initial_accumulator", 0.0f), o["weight_decay"]},
             o);
    else if (kind == "rowwise_adagrad" && decay == "decoupled")
      set<6>(RowWiseAdagradDecoupled{o["eps"], o.value("initial_accumulator", 0.0f),
                                     o["weight_decay"]},
             o);
    else if (kind == "adam")
      set<7>(Adam{o["beta1"], o["beta2"], o["eps"]}, o);
    else if (kind == "adamw")
      set<8>(AdamW{o["beta1"], o["beta2"], o["eps"], o["weight_decay"]}, o);
    else if (kind == "partial_rowwise_adam")
      set<9>(PartialRowWiseAdam{o["beta1"], o["beta2"], o["eps"], o.value("weight_decay", 0.0f)},
             o);
    else if (kind == "momentum")
      set<10>(Momentum{o["momentum"]}, o);
    else if (kind == "ftrl")
      set<11>(Ftrl{.beta = o["beta"],
                   .l1 = o["l1"],
                   .l2 = o["l2"],
                   .initial_accumulator = o["initial_accumulator"]},
              o);
    else if (kind == "frozen")
      training.group_of_table.push_back(12);
    else
      FAIL("no optimizer is known of kind ", kind, ", weight decay ", decay);
  }

 private:
  template <int I, class O>
  void set(const O& optimizer, const nlohmann::json& o) {
    std::get<I>(training.groups).optimizer = optimizer;
    std::get<I>(training.groups).learning_rate = o["lr"].get<float>();
    training.group_of_table.push_back(I);
  }
  template <int I, int J, class O>
  void one_of(const O& optimizer, const nlohmann::json& o) {
    const auto [rate, first] = rates_.try_emplace(I, o["lr"].get<float>());
    if (first || rate->second == o["lr"].get<float>())
      set<I>(optimizer, o);
    else
      set<J>(optimizer, o);
  }

  std::map<int, float> rates_;
};

/// Looks samples [begin, end) of a batch up, and gives `then` the result and its gradients.
template <class Then>
void run_batch(Embeddings& embeddings, const GoldenCase& golden, const std::string& prefix,
               std::int64_t begin, std::int64_t end, const Then& then) {
  const Cuda& backend = embeddings.backend();
  const std::int64_t columns = embeddings.columns();
  const GoldenIds input(golden, prefix, begin, end);
  const GoldenArray<std::int64_t> ids(backend, input.ids), offsets(backend, input.offsets);
  const GoldenArray<float> weights(backend, input.weights);
  const auto pooled = embeddings.forward(KeyedJagged<std::int64_t>{
      std::ssize(golden.features), end - begin, ids.span(), offsets.span(), weights.span()});
  const auto first = static_cast<std::size_t>(begin * columns),
             count = static_cast<std::size_t>((end - begin) * columns);
  std::vector<float> output(count);
  backend.copy(output.data(), pooled.values.data, count * sizeof(float));
  backend.synchronize();
  const std::vector<float> expected = golden.file.read<float>(prefix + "output"),
                           gradient = golden.file.read<float>(prefix + "grad_output");
  if (!golden_close(output, std::span(expected).subspan(first, count)))
    throw Error(prefix + "output differs");
  const GoldenArray<float> on_device(backend, std::span(gradient).subspan(first, count));
  const GoldenSequences sequences(backend, golden, pooled, prefix, begin, end);
  then(pooled, MatrixView<const float>{on_device.span().data(), end - begin, columns},
       sequences.gradients);
  backend.synchronize();
}

inline void run_steps(Embeddings& embeddings, const GoldenCase& golden, int ranks, int rank) {
  const auto batch = golden.json["batch"].get<std::int64_t>();
  for (int step = 0; step < golden.json["steps"].get<int>(); ++step)
    run_batch(embeddings, golden, "step" + std::to_string(step) + ".", even_cut(batch, ranks, rank),
              even_cut(batch, ranks, rank + 1),
              [&](const auto& pooled, const auto& gradient, const auto& sequences) {
                embeddings.backward(pooled, gradient, sequences);
              });
}

inline void run_applies(Embeddings& embeddings, const GoldenCase& golden, int ranks, int rank) {
  const nlohmann::json& clip = golden.json["clip"];
  const std::string kind = clip.is_null() ? "" : clip["kind"].get<std::string>();
  for (int apply = 0; apply < golden.json["applies"].get<int>(); ++apply) {
    const std::string prefix = "apply" + std::to_string(apply) + ".";
    int m = 0;
    for (const auto& size : golden.json["micro_batches"]) {
      const auto batch = size.get<std::int64_t>();
      run_batch(embeddings, golden, prefix + "micro" + std::to_string(m++) + ".",
                even_cut(batch, ranks, rank), even_cut(batch, ranks, rank + 1),
                [&](const auto& pooled, const auto& gradient, const auto& sequences) {
                  embeddings.accumulate(pooled, gradient, sequences);
                });
    }
    if (kind == "value") {
      embeddings.apply(ClipByValue{clip["max"].get<float>()});
      continue;
    }
    const auto norm = static_cast<float>(embeddings.apply(ClipByGlobalNorm{
        clip.is_null() ? std::numeric_limits<float>::infinity() : clip["max"].get<float>()}));
    if (!golden_close({&norm, 1}, golden.file.read<float>(prefix + "norm")))
      throw Error(prefix + "norm differs");
  }
}

inline void run_case(const GoldenCase& golden, int ranks) {
  const Layout layout = golden_layout(golden, ranks);
  const bool accumulates = golden.json["kind"] == "accumulate";
  Choice choice;
  for (const auto& table : golden.json["tables"])
    choice.add(table.contains("optimizer") ? table["optimizer"] : golden.json["optimizer"]);
  std::map<std::string, std::vector<float>> found;  // ranks write their own parts
  run_ranks(ranks, [&](ThreadCommunicator& host) {
    const Cuda backend;
    Comm communicator(host.group(), host.rank(), CudaTransfer(backend));
    Embeddings embeddings{communicator, backend, layout, {.optimizer = choice.training}};
    for (const TableSpec& t : golden.tables) {
      const std::vector<float> initial =
          golden.file.read<float>("table." + std::string(t.name) + ".initial");
      embeddings.tables().set(t.name, {initial.data(), t.rows, t.width});
    }
    if (accumulates)
      run_applies(embeddings, golden, ranks, host.rank());
    else
      run_steps(embeddings, golden, ranks, host.rank());
    for (int turn = 0; turn < ranks; ++turn, host.barrier()) {
      if (turn != host.rank()) continue;
      for (std::size_t t = 0; t < golden.tables.size(); ++t) {
        const TableSpec& table = golden.tables[t];
        const std::string name(table.name);
        const auto room = [&](const std::string& what, std::int64_t width) {
          std::vector<float>& values = found[what];
          values.resize(static_cast<std::size_t>(table.rows * width));
          return MatrixView<float>{values.data(), table.rows, width};
        };
        embeddings.tables().get(name, room("table." + name + ".final", table.width));
        int k = 0;
        for (const auto& state : embeddings.tables().states(static_cast<int>(t)))
          embeddings.tables().get_state(
              name, k++,
              room("state." + name + "." + std::string(state.name) + ".final",
                   state.per_row ? 1 : table.width));
      }
    }
  });
  for (const auto& tensor : found) {
    INFO(tensor.first, ", ranks ", ranks);
    CHECK(golden_close(tensor.second, golden.file.read<float>(tensor.first)));
  }
  CHECK(found.size() >= golden.tables.size());
}

inline int cases = 0;

inline void run_file(const std::filesystem::path& path) {
  INFO(path.filename().string());
  ++cases;
  // for the emulator: ranks differ from case to case
  run_case(GoldenCase(path), 1 + cases % 2);
}

}  // namespace golden_groups

TEST_CASE("golden vectors of optimizers, training groups and accumulated, clipped steps") {
  golden_groups::cases = 0;
  run_golden_folder({"accumulate", "groups", "optimizer"}, golden_groups::run_file);
}
