// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/tessera.cuh>

#include <doctest/doctest.h>
#include <gpu/golden_embeddings.hpp>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

// Golden vectors of kind "embedding" on Cuda: every step's output and sequences, and the tables at
// the end.

namespace {

using namespace tessera;

template <class O>
void run_golden(const GoldenCase& golden, const O& optimizer, int ranks) {
  const Layout layout = golden_layout(golden, ranks);
  const auto batch = golden.json["batch"].get<std::int64_t>();
  std::vector<std::vector<float>> finals;
  for (const TableSpec& t : golden.tables)
    finals.emplace_back(static_cast<std::size_t>(t.rows * t.width));
  run_ranks(ranks, [&](ThreadCommunicator& host) {
    const Cuda backend;
    BasicThreadCommunicator<CudaTransfer> communicator(host.group(), host.rank(),
                                                       CudaTransfer(backend));
    LayoutCollection<Widths<16>, O, Cuda, BasicThreadCommunicator<CudaTransfer>> embeddings{
        communicator,
        backend,
        layout,
        {.learning_rate = golden.json["optimizer"]["lr"].get<float>(), .optimizer = optimizer}};
    for (const TableSpec& t : golden.tables) {
      const std::vector<float> initial =
          golden.file.read<float>("table." + std::string(t.name) + ".initial");
      embeddings.tables().set(t.name, {initial.data(), t.rows, t.width});
    }
    const std::int64_t begin = even_cut(batch, ranks, host.rank()),
                       end = even_cut(batch, ranks, host.rank() + 1);
    for (int step = 0; step < golden.json["steps"].get<int>(); ++step) {
      const std::string prefix = "step" + std::to_string(step) + ".";
      const GoldenIds input(golden, prefix, begin, end);
      const GoldenArray<std::int64_t> device_ids(backend, input.ids),
          device_offsets(backend, input.offsets);
      const GoldenArray<float> device_weights(backend, input.weights);
      const auto pooled = embeddings.forward(KeyedJagged<std::int64_t>{
          static_cast<std::int64_t>(golden.features.size()), end - begin, device_ids.span(),
          device_offsets.span(), device_weights.span()});
      const auto first = static_cast<std::size_t>(begin * layout.columns()),
                 count = static_cast<std::size_t>((end - begin) * layout.columns());
      std::vector<float> output(count);
      backend.copy(output.data(), pooled.values.data, count * sizeof(float));
      backend.synchronize();
      const auto pooled_floats = [&](const char* name) {
        return count == 0 ? std::vector<float>() : golden.file.read<float>(prefix + name);
      };
      const std::vector<float> expected = pooled_floats("output");
      if (!golden_close(output, std::span(expected).subspan(first, count)))
        throw Error(prefix + "output differs");
      const std::vector<float> gradient = pooled_floats("grad_output");
      const GoldenArray<float> device_gradient(backend, std::span(gradient).subspan(first, count));
      const GoldenSequences sequences(backend, golden, pooled, prefix, begin, end);
      embeddings.backward(pooled, {device_gradient.span().data(), end - begin, layout.columns()},
                          sequences.gradients);
    }
    for (int rank = 0; rank < ranks; ++rank, host.barrier())
      if (rank == host.rank())
        for (std::size_t t = 0; t < golden.tables.size(); ++t)
          embeddings.tables().get(golden.tables[t].name, {finals[t].data(), golden.tables[t].rows,
                                                          golden.tables[t].width});
  });
  for (std::size_t t = 0; t < golden.tables.size(); ++t) {
    INFO("table ", std::string(golden.tables[t].name), ", ranks ", ranks);
    CHECK(golden_close(finals[t], golden.file.read<float>(
                                      "table." + std::string(golden.tables[t].name) + ".final")));
  }
}

void run_golden_embedding(const std::filesystem::path& path) {
  const GoldenCase golden(path);
  REQUIRE(golden.json["kind"] == "embedding");
  INFO(path.filename().string());
  const nlohmann::json& o = golden.json["optimizer"];
  const std::string kind = o["kind"];
  for (const int ranks : {1, 3}) {
    if (kind == "sgd")
      run_golden(golden, Sgd{}, ranks);
    else if (kind == "adagrad")
      run_golden(golden, Adagrad{o["eps"], o.value("initial_accumulator", 0.0f)}, ranks);
    else if (kind == "rowwise_adagrad" && !o.contains("weight_decay"))
      run_golden(golden, RowWiseAdagrad{o["eps"], o.value("initial_accumulator", 0.0f)}, ranks);
    else if (kind == "adam")
      run_golden(golden, Adam{o["beta1"], o["beta2"], o["eps"]}, ranks);
    else
      FAIL_CHECK("no optimizer of kind ", kind,
                 " is compiled here: golden_group_cases.hpp has all");
  }
}

}  // namespace

TEST_CASE("golden vectors of embeddings, whole tables and tables cut by rows") {
  run_golden_folder({"embedding", "max", "sequence"}, run_golden_embedding);
}
