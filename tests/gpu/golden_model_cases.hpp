// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/dense/dense.cuh>
#include <tessera/interaction/cross.cuh>

#include <gpu/golden_cases.hpp>

// Golden vectors of kinds "dlrm" and "dcnv2" on Cuda: whole training steps, everything in device
// memory.

namespace {

/// DLRM's interaction as a layer without parameters, of the golden case's shape.
class GoldenDot {
  using Dot = DotInteraction<5, 8>;

 public:
  GoldenDot(const Cuda& backend, const GoldenCase& golden) : backend_(backend) {
    require(golden.tables.size() == 4 && golden.tables[0].width == 8,
            "GoldenDot is for 4 tables of width 8");
  }
  std::int64_t width() const { return Dot::columns(); }
  std::int64_t parameter_count() const { return 0; }
  void bind(std::span<float>, std::span<float>) {}
  int initialize(std::uint64_t, int layer) { return layer; }
  void forward(MatrixView<const float> x, MatrixView<float> z) {
    x_ = x;
    Dot::forward(backend_, x, z);
  }
  void backward(MatrixView<const float> dz, MatrixView<float> dx) {
    Dot::backward(backend_, x_, dz, dx);
  }

 private:
  Cuda backend_;
  MatrixView<const float> x_;
};

/// DCNv2's cross layers, of the golden case's shape.
struct GoldenCross : CrossInteraction<Linear<Cuda>> {
  GoldenCross(const Cuda& backend, const GoldenCase& golden)
      : CrossInteraction<Linear<Cuda>>(backend, golden_columns(golden),
                                       {.layers = golden.json["cross"]["layers"].get<int>(),
                                        .rank = golden.json["cross"]["rank"].get<std::int64_t>()}) {
  }
  static std::int64_t golden_columns(const GoldenCase& golden) {
    std::int64_t columns = golden.json["bottom_mlp"].back().get<std::int64_t>();
    for (const TableSpec& t : golden.tables) columns += t.width;
    return columns;
  }
};

/// All dense parameters of a model in the order of its layers; `when`: "initial" or "final".
std::vector<float> golden_parameters(const GoldenCase& golden, const std::string& when) {
  std::vector<float> all;
  const auto add = [&](const std::string& name) {
    const std::vector<float> values = golden.file.read<float>(name + "." + when);
    all.insert(all.end(), values.begin(), values.end());
  };
  const auto layers = [&](const std::string& prefix, std::size_t count,
                          std::initializer_list<const char*> parameters) {
    for (std::size_t l = 0; l < count; ++l)
      for (const char* parameter : parameters)
        add(prefix + "." + std::to_string(l) + "." + parameter);
  };
  layers("bottom", golden.json["bottom_mlp"].size(), {"weight", "bias"});
  if (golden.json["kind"] == "dcnv2")
    layers("cross", golden.json["cross"]["layers"].get<std::size_t>(), {"v", "u", "bias"});
  layers("top", golden.json["top_mlp"].size(), {"weight", "bias"});
  return all;
}

std::vector<std::int64_t> golden_sizes(std::int64_t input, const nlohmann::json& layers) {
  std::vector<std::int64_t> sizes{input};
  for (const auto& size : layers) sizes.push_back(size.get<std::int64_t>());
  return sizes;
}

template <class Interaction>
void run_golden_model(const GoldenCase& golden, int ranks) {
  using Ranks = BasicThreadCommunicator<CudaTransfer>;
  const Layout layout = golden_layout(golden, ranks);
  const auto batch = golden.json["batch"].get<std::int64_t>(),
             dense_features = golden.json["dense_features"].get<std::int64_t>();
  const auto rate = golden.json["lr"].get<float>();
  std::vector<std::vector<float>> finals;
  for (const TableSpec& t : golden.tables)
    finals.emplace_back(static_cast<std::size_t>(t.rows * t.width));
  std::vector<float> final_parameters;
  run_ranks(ranks, [&](ThreadCommunicator& host) {
    const Cuda backend;
    Ranks communicator(host.group(), host.rank(), CudaTransfer(backend));
    LayoutCollection<Widths<16>, Sgd, Cuda, Ranks> embeddings{
        communicator, backend, layout, {.learning_rate = rate}};
    for (const TableSpec& t : golden.tables) {
      const std::vector<float> initial =
          golden.file.read<float>("table." + std::string(t.name) + ".initial");
      embeddings.tables().set(t.name, {initial.data(), t.rows, t.width});
    }
    Mlp<Cuda> bottom(backend, golden_sizes(dense_features, golden.json["bottom_mlp"]),
                     {.last_relu = true});
    Interaction interaction(backend, golden);
    Mlp<Cuda> top(backend, golden_sizes(interaction.width(), golden.json["top_mlp"]));
    DenseParameters parameters(backend, 1, bottom, interaction, top);
    const std::vector<float> first = golden_parameters(golden, "initial");
    require(std::ssize(first) == parameters.size(), "{} parameters, the model has {}", first.size(),
            parameters.size());
    backend.copy(parameters.values().data(), first.data(), first.size() * sizeof(float));
    DenseOptimizer optimizer(backend, Sgd{});

    const std::int64_t begin = even_cut(batch, ranks, host.rank()),
                       count = even_cut(batch, ranks, host.rank() + 1) - begin;
    const std::int64_t width = bottom.output_size(), columns = width + layout.columns();
    const auto room = [&](std::int64_t per_sample) {
      return std::vector<float>(static_cast<std::size_t>(count * per_sample));
    };
    const auto part = [&](const std::vector<float>& all, std::int64_t per_sample) {
      return std::span(all).subspan(static_cast<std::size_t>(begin * per_sample),
                                    static_cast<std::size_t>(count * per_sample));
    };
    const auto check = [&](const std::string& what, const GoldenArray<float>& device,
                           std::int64_t per_sample) {
      std::vector<float> found = room(per_sample);
      backend.copy(found.data(), device.span().data(), found.size() * sizeof(float));
      backend.synchronize();
      if (!golden_close(found, part(golden.file.read<float>(what), per_sample)))
        throw Error(what + " differs");
    };
    const GoldenArray<float> x(backend, room(columns)), dx(backend, room(columns)),
        z(backend, room(interaction.width())), dz(backend, room(interaction.width())),
        logit(backend, room(1)), dlogit(backend, room(1));
    const auto view = [&](const GoldenArray<float>& array, std::int64_t per_sample) {
      return MatrixView<float>(array.span().data(), count, per_sample);
    };
    for (int step = 0; step < golden.json["steps"].get<int>(); ++step) {
      const std::string prefix = "step" + std::to_string(step) + ".";
      std::vector<std::int64_t> ids;
      for (const FeatureSpec& f : golden.features) {
        const auto all = golden.file.read<std::int64_t>(prefix + "ids." + std::string(f.name));
        ids.insert(ids.end(), all.begin() + begin, all.begin() + begin + count);
      }
      const GoldenArray<std::int64_t> device_ids(backend, ids);
      const GoldenArray<float> dense(
          backend, part(golden.file.read<float>(prefix + "dense"), dense_features)),
          labels(backend, part(golden.file.read<float>(prefix + "label"), 1));
      const auto pooled = embeddings.forward(
          KeyedJagged<std::int64_t>{
              static_cast<std::int64_t>(golden.features.size()), count, device_ids.span(), {}, {}},
          view(x, columns).column_range(width, layout.columns()));
      bottom.forward(view(dense, dense_features), view(x, columns).column_range(0, width));
      interaction.forward(view(x, columns), view(z, interaction.width()));
      top.forward(view(z, interaction.width()), view(logit, 1));
      check(prefix + "interaction", z, interaction.width());
      check(prefix + "logit", logit, 1);
      const double zero = 0;
      const GoldenArray<double> loss(backend, {&zero, 1});
      BinaryCrossEntropyWithLogits{batch}.forward_backward(backend, view(logit, 1), labels.span(),
                                                           view(dlogit, 1), loss.span().data());
      double sum = 0;
      backend.copy(&sum, loss.span().data(), sizeof(sum));
      backend.synchronize();
      host.all_reduce(std::span(&sum, 1));
      const float found = static_cast<float>(sum),
                  expected = golden.json["losses"][static_cast<std::size_t>(step)].get<float>();
      if (!golden_close({&found, 1}, {&expected, 1})) throw Error("loss of " + prefix + " differs");
      top.backward(view(dlogit, 1), view(dz, interaction.width()));
      interaction.backward(view(dz, interaction.width()), view(dx, columns));
      bottom.backward(view(dx, columns).column_range(0, width));
      communicator.all_reduce(parameters.gradients());
      optimizer.step(parameters, rate);
      embeddings.backward(pooled, view(dx, columns).column_range(width, layout.columns()));
    }
    for (int rank = 0; rank < ranks; ++rank, host.barrier())
      if (rank == host.rank())
        for (std::size_t t = 0; t < golden.tables.size(); ++t)
          embeddings.tables().get(golden.tables[t].name, {finals[t].data(), golden.tables[t].rows,
                                                          golden.tables[t].width});
    if (host.rank() != 0) return;
    final_parameters.resize(first.size());
    backend.copy(final_parameters.data(), parameters.values().data(), first.size() * sizeof(float));
    backend.synchronize();
  });
  INFO("ranks ", ranks);
  for (std::size_t t = 0; t < golden.tables.size(); ++t)
    CHECK(golden_close(finals[t], golden.file.read<float>(
                                      "table." + std::string(golden.tables[t].name) + ".final")));
  CHECK(golden_close(final_parameters, golden_parameters(golden, "final")));
}

void run_golden_model_file(const std::filesystem::path& path) {
  const GoldenCase golden(path);
  INFO(path.filename().string());
  for (const int ranks : {1, 3}) {
    if (golden.json["kind"] == "dlrm") run_golden_model<GoldenDot>(golden, ranks);
    if (golden.json["kind"] == "dcnv2") run_golden_model<GoldenCross>(golden, ranks);
  }
}

}  // namespace

TEST_CASE("golden vectors of models: interactions, logits, losses, and all parameters at the end") {
  run_golden_folder({"dcnv2", "dlrm"}, run_golden_model_file);
}
