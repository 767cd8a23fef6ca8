// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A checkpoint of train_dlrm or train_sequence as an ONNX model: docs/ways_out.md.
//   export_onnx --help
#include "export_onnx/onnx_file.hpp"
#include "support/options.hpp"

#include <tessera/checkpoint/folder.hpp>
#include <tessera/checkpoint/reader.hpp>
#include <tessera/sequence/hstu_parameters.hpp>
#include <tessera_serving/freeze.hpp>
#include <tessera_serving/model_description.hpp>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <vector>

namespace {

using namespace tessera;
using onnx_export::OnnxFile;
using Type = OnnxFile::Type;

/// Writes the graph of a model that its checkpoint describes.
class Exporter {
 public:
  Exporter(CheckpointReader& reader, const ModelDescription& model, OnnxFile& to)
      : reader_(reader), model_(model), to_(to) {
    const auto add = [&](const std::string& table, std::int64_t rows, std::int64_t width) {
      require<DataError>(shape_of(table + ".weight") == std::vector<std::int64_t>{rows, width},
                         "checkpoint '{}': tensor '{}.weight' is not as its description says",
                         reader.folder().string(), table);
      copy(table + ".weight");
    };
    for (const TableInput& table : model.tables) {
      add(table.name, table.rows, table.width);
      if (model.wide) add(wide_table(table.name), table.rows, 1);
    }
    for (const std::int64_t width : model.projected_widths()) copy(projection(width));
  }

  void run() {
    model_.history ? run_history() : run_clicks();
    to_.node("Sigmoid", {"logit"}, {}, "score");
    to_.output("score", Type::float32, {-1, 1});
    to_.output("logit", Type::float32, {-1, 1});
  }

 private:
  void run_clicks() {
    std::vector<std::string> vectors{model_.bottom_mlp.empty() ? numbers() : bottom()}, weights;
    for (const CategoryInput& feature : model_.features) {
      const TableInput& table = model_.table(feature.table);
      const Entries entries = entries_of(feature);
      const std::string vector = pooled(entries, feature, table.name, table.width);
      vectors.push_back(model_.interaction == "dot" && table.width != model_.vector_width
                            ? to_.node("Gemm", {vector, projection(table.width)},
                                       {{.name = "transB", .number = 1}})
                            : vector);
      if (model_.wide) weights.push_back(pooled(entries, feature, wide_table(table.name), 1));
    }
    const std::string joined =
        to_.node("Concat", vectors, {{.name = "axis", .number = 1}}, "vectors");
    const std::string logit = mlp("top", model_.top_mlp,
                                  model_.interaction == "dot"     ? dot(joined, vectors.front())
                                  : model_.interaction == "cross" ? cross(joined)
                                                                  : joined,
                                  false, model_.wide ? "deep_logit" : "logit");
    if (model_.wide)
      to_.node("Add",
               {logit, to_.node("ReduceSum",
                                {to_.node("Concat", weights, {{.name = "axis", .number = 1}}),
                                 indices({1})},
                                {{.name = "keepdims", .number = 1}})},
               {}, "logit");
  }

  /// One history with any number of candidates: a position for each event and for each candidate.
  void run_history() {
    const HistoryLayers& layers = *model_.history;
    const CategoryInput &events = model_.features[0], &candidate = model_.features[1];
    const std::int64_t width = model_.vector_width, heads = layers.heads;
    const std::vector<float> dense = reader_.read<float>("dense");
    std::size_t at = 0;
    const auto parameters = [&](const std::string& name, const std::vector<std::int64_t>& shape) {
      const auto count = static_cast<std::size_t>(
          std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>()));
      require<DataError>(count <= dense.size() - at,
                         "checkpoint '{}': tensor 'dense' has {} numbers, too few",
                         reader_.folder().string(), dense.size());
      to_.tensor(name, shape, [&](const auto& take) { take(std::span(dense).subspan(at, count)); });
      at += count;
      return name;
    };
    const auto scalar = [&](const std::string& one) { return to_.node("Squeeze", {one}); };
    const auto part = [&](const std::string& x, const std::string& from, const std::string& to,
                          std::int64_t axis) {
      return to_.node("Slice", {x, from, to, indices({axis})});
    };
    constexpr std::int64_t end = std::numeric_limits<std::int64_t>::max();
    const auto last = [&](const std::string& x) {
      return part(x, indices({-layers.max_length}), indices({end}), 0);
    };

    to_.input(events.name, Type::int64, {-2});
    if (!model_.numeric.empty()) to_.input(model_.numeric[0].name, Type::float32, {-2});
    to_.input(candidate.name, Type::int64, {-1, 1});
    const std::string history = last(events.name),
                      candidates = to_.node("Reshape", {candidate.name, indices({-1})}),
                      length = to_.node("Shape", {history}),
                      count = to_.node("Shape", {candidates}), zero = scalar(indices({0})),
                      step = scalar(indices({1})),
                      place =
                          to_.node("Range", {zero, scalar(to_.node("Add", {length, count})), step});
    const auto fill = [&](float value, const std::string& shape) {
      return to_.node("Expand", {one(value), shape});
    };
    const std::string numbers =
        model_.numeric.empty()
            ? fill(1, length)
            : to_.node(
                  "Cast",
                  {to_.node("GreaterOrEqual", {last(model_.numeric[0].name),
                                               one(static_cast<float>(model_.numeric[0].shift))})},
                  {{.name = "to", .number = 1}});
    const std::string all_numbers = to_.node("Concat", {numbers, fill(0, count)},
                                             {{.name = "axis", .number = 0}}),
                      rows = to_.node("Concat", {history, candidates},
                                      {{.name = "axis", .number = 0}});
    std::string x =
        to_.node("Add", {to_.node("Gather", {events.table + ".weight", rows}),
                         to_.node("Gather", {parameters("places", {layers.max_length + 1, width}),
                                             to_.node("Min", {place, length})})});
    x = to_.node("Add", {x, to_.node("Mul", {to_.node("Unsqueeze", {all_numbers, indices({1})}),
                                             parameters("number", {1, width})})});
    // a position sees the history up to itself; a candidate itself, too
    const auto as_float = [&](const std::string& truth) {
      return to_.node("Cast", {truth}, {{.name = "to", .number = 1}});
    };
    const std::string column = to_.node("Unsqueeze", {place, indices({1})}),
                      sees = as_float(
                          to_.node("LessOrEqual", {part(place, indices({0}), length, 0), column})),
                      is_candidate = as_float(to_.node("GreaterOrEqual", {column, length}));
    const auto silu = [&](const std::string& z) {
      return to_.node("Mul", {z, to_.node("Sigmoid", {z})});
    };
    const auto norm = [&](const std::string& z, const std::string& name) {
      const std::string weight = parameters(name + ".weight", {width});
      return to_.node("LayerNormalization", {z, weight, parameters(name + ".bias", {width})},
                      {{.name = "epsilon", .real = HstuOptions().norm_epsilon}});
    };
    const std::vector<OnnxFile::Attribute> transposed{{.name = "transB", .number = 1}};
    const float alpha = 1.0f / std::sqrt(static_cast<float>(width / heads)),
                scale = 1.0f / static_cast<float>(layers.attention_length);
    const auto scores = [&](const std::string& products) {
      return to_.node("Mul", {silu(to_.node("Mul", {products, one(alpha)})), one(scale)});
    };
    const auto swapped = [&](const std::string& z, std::vector<std::int64_t> axes) {
      return to_.node("Transpose", {z}, {{.name = "perm", .numbers = std::move(axes)}});
    };
    for (std::int64_t b = 0; b < layers.blocks; ++b) {
      const auto name = [&](const char* what) { return fmt::format("blocks.{}.{}", b, what); };
      const std::string normed = norm(x, name("norm")),
                        weight = parameters(name("uvqk.weight"), {4 * width, width}),
                        uvqk = silu(to_.node(
                            "Gemm", {normed, weight, parameters(name("uvqk.bias"), {4 * width})},
                            transposed));
      const auto of_heads = [&](std::int64_t index) {  // [heads, positions, columns]
        const std::string columns =
            part(uvqk, indices({index * width}), indices({(index + 1) * width}), 1);
        return swapped(to_.node("Reshape", {columns, indices({-1, heads, width / heads})}),
                       {1, 0, 2});
      };
      const std::string v = of_heads(1), q = of_heads(2), k = of_heads(3);
      const auto of_history = [&](const std::string& z) {
        return part(z, indices({0}), length, 1);
      };
      const std::string seen = to_.node(
          "Mul", {scores(to_.node("MatMul", {q, swapped(of_history(k), {0, 2, 1})})), sees});
      const std::string own =
          to_.node("Mul", {scores(to_.node("ReduceSum", {to_.node("Mul", {q, k}), indices({2})},
                                           {{.name = "keepdims", .number = 1}})),
                           is_candidate});
      const std::string attention =
          to_.node("Reshape", {swapped(to_.node("Add", {to_.node("MatMul", {seen, of_history(v)}),
                                                        to_.node("Mul", {own, v})}),
                                       {1, 0, 2}),
                               indices({-1, width})});
      const std::string gated = to_.node("Mul", {part(uvqk, indices({0}), indices({width}), 1),
                                                 norm(attention, name("output_norm"))});
      x = to_.node("Add", {x, to_.node("Gemm", {gated, parameters(name("output"), {width, width})},
                                       transposed)});
    }
    const std::string weight = parameters("top.0.weight", {1, width});
    to_.node("Gemm", {part(x, length, indices({end}), 0), weight, parameters("top.0.bias", {1})},
             transposed, "logit");
    require<DataError>(at == dense.size(), "checkpoint '{}': tensor 'dense' has {} numbers, not {}",
                       reader_.folder().string(), dense.size(), at);
  }

  const std::vector<std::int64_t>& shape_of(const std::string& tensor) {
    return reader_.tensor(tensor).shape;
  }
  /// A tensor of the checkpoint under its name, in float; its first `columns` (0: all).
  std::string copy(const std::string& name, std::int64_t columns = 0) {
    const detail::StoredTensor& tensor = reader_.tensor(name);
    require<DataError>(tensor.type == detail::TensorType::f32 ||
                           tensor.type == detail::TensorType::bf16 ||
                           tensor.type == detail::TensorType::f16,
                       "checkpoint '{}', tensor '{}': {} is no type of weights",
                       reader_.folder().string(), name, detail::tensor_type_name(tensor.type));
    std::vector<std::int64_t> shape = tensor.shape;
    const std::int64_t stored = tensor.columns(), kept = columns == 0 ? stored : columns;
    if (columns != 0) shape.back() = columns;
    to_.tensor(name, shape, [&](const auto& take) {
      const std::int64_t at_once =
          std::max<std::int64_t>(1, (4 << 20) / std::max<std::int64_t>(1, tensor.row_bytes()));
      std::vector<std::byte> bytes;
      std::vector<float> floats;
      for (std::int64_t first = 0; first < tensor.rows(); first += at_once) {
        const std::int64_t n = std::min(at_once, tensor.rows() - first);
        bytes.resize(static_cast<std::size_t>(n * tensor.row_bytes()));
        reader_.read_rows(tensor, first, n, bytes.data());
        detail::floats_of(tensor.type, bytes, floats);
        if (kept == stored) {
          take(floats);
          continue;
        }
        for (std::int64_t r = 0; r < n; ++r)
          take(std::span<const float>(floats).subspan(static_cast<std::size_t>(r * stored),
                                                      static_cast<std::size_t>(kept)));
      }
    });
    return name;
  }

  /// A tensor named `batch_size`'s place: the number of samples as a shape [1], from any input.
  const std::string& batch() {
    if (!batch_.empty()) return batch_;
    for (const CategoryInput& feature : model_.features)
      if (!feature.list) return batch_ = first_of_shape(feature.name);
    if (!model_.numeric.empty()) return batch_ = first_of_shape(model_.numeric.front().name);
    to_.input("batch_size", Type::int64, {1});
    return batch_ = "batch_size";
  }
  std::string first_of_shape(const std::string& input) {
    return to_.node("Gather", {to_.node("Shape", {input}), indices({0})});
  }
  std::string indices(const std::vector<std::int64_t>& values) { return to_.constant(values); }
  std::string one(float value) { return to_.constant(std::span(&value, 1), {1}); }
  /// [batch, columns] of one value.
  std::string filled_with(float value, std::int64_t columns) {
    const std::string shape =
        to_.node("Concat", {batch(), indices({columns})}, {{.name = "axis", .number = 0}});
    return to_.node("Expand", {to_.constant(std::span(&value, 1), {1, 1}), shape});
  }

  /// Raw numbers to what the bottom layers take.
  std::string numbers() {
    if (model_.numeric.empty()) return filled_with(1, 1);
    std::vector<std::string> columns;
    // a shift is the sum of two floats: the first, and what that lacks
    std::vector<float> shift, rest, scale, fill;
    std::vector<bool> logarithmic;
    for (const NumberInput& input : model_.numeric) {
      const bool wide = input.needs_double();
      to_.input(input.name, wide ? Type::float64 : Type::float32, {-1, 1});
      const auto in_double = [&](double value) {
        return to_.constant(std::span(&value, 1), {1, 1});
      };
      columns.push_back(
          !wide ? input.name
                : to_.node("Cast",
                           {to_.node("Mul", {to_.node("Sub", {input.name, in_double(input.shift)}),
                                             in_double(input.scale)})},
                           {{.name = "to", .number = 1}}));
      shift.push_back(wide ? 0.0f : static_cast<float>(input.shift));
      rest.push_back(wide ? 0.0f : static_cast<float>(input.shift - double{shift.back()}));
      scale.push_back(wide ? 1.0f : static_cast<float>(input.scale));
      // an empty field of which nothing is said is 0 in the end
      fill.push_back(!input.may_be_empty ? std::numeric_limits<float>::quiet_NaN()
                     : input.empty ? static_cast<float>((*input.empty - input.shift) * input.scale)
                                   : 0.0f);
      logarithmic.push_back(input.transform != NumberTransform::none);
    }
    const std::vector<std::int64_t> shape{1, std::ssize(columns)};
    const auto constant = [&](const auto& values) { return to_.constant(values, shape); };
    const std::string x = to_.node("Concat", columns, {{.name = "axis", .number = 1}}),
                      logs = to_.node("Log",
                                      {to_.node("Add", {to_.node("Max", {x, one(0)}), one(1)})}),
                      moved = to_.node("Where", {constant(logarithmic), logs, x}),
                      apart = to_.node("Sub",
                                       {to_.node("Sub", {moved, constant(shift)}), constant(rest)}),
                      scaled = to_.node("Mul", {apart, constant(scale)});
    return to_.node("Where", {to_.node("IsNaN", {x}), constant(fill), scaled});
  }

  /// Layers x W^T + b. `last`: the name of the last one's result.
  std::string mlp(const std::string& name, const std::vector<std::int64_t>& sizes, std::string x,
                  bool relu_at_end, const std::string& last) {
    const std::size_t layers = sizes.size() - 1;
    for (std::size_t l = 0; l < layers; ++l) {
      const std::string layer = fmt::format("{}.{}", name, l);
      // columns that stand for padding of the interaction are left out
      const std::int64_t columns =
          name == "top" && l == 0 && model_.interaction == "dot" ? dot_columns() : 0;
      const bool ends = l + 1 == layers;
      x = to_.node("Gemm", {x, copy(layer + ".weight", columns), copy(layer + ".bias")},
                   {{.name = "transB", .number = 1}}, ends && !relu_at_end ? last : "");
      if (!ends || relu_at_end) x = to_.node("Relu", {x}, {}, ends ? last : "");
    }
    return x;
  }
  std::string bottom() { return mlp("bottom", model_.bottom_mlp, numbers(), true, "bottom"); }

  static std::string projection(std::int64_t width) {
    return fmt::format("projection.{}.weight", width);
  }

  /// The rows that a feature reads; of a list, the sample of each and what its sum is divided by;
  /// under max pooling, the samples that have entries.
  struct Entries {
    std::string rows, samples{}, divisor{}, filled{};
  };
  Entries entries_of(const CategoryInput& feature) {
    if (!feature.list) {
      to_.input(feature.name, Type::int64, {-1, 1});
      return {to_.node("Reshape", {feature.name, indices({-1})})};
    }
    const std::string samples = feature.name + "_samples";
    to_.input(feature.name, Type::int64, {-2});
    to_.input(samples, Type::int64, {-2});
    Entries entries{feature.name, to_.node("Reshape", {samples, indices({-1, 1})})};
    if (feature.pooling == Pooling::sum) return entries;
    const std::string ones = to_.node(
        "Add", {to_.node("Mul", {to_.node("Cast", {entries.samples}, {{.name = "to", .number = 1}}),
                                 one(0)}),
                one(1)});
    const std::string counts = add_up(entries, 1, ones);
    if (feature.pooling == Pooling::max) {
      entries.filled = to_.node("Greater", {counts, one(0)});
      return entries;
    }
    entries.divisor = to_.node("Max", {counts, one(1)});
    if (feature.pooling == Pooling::sqrtn) entries.divisor = to_.node("Sqrt", {entries.divisor});
    return entries;
  }
  /// Rows of a matrix added up by sample.
  std::string add_up(const Entries& entries, std::int64_t columns, const std::string& what) {
    return to_.node("ScatterND", {filled_with(0, columns), entries.samples, what},
                    {{.name = "reduction", .text = "add"}});
  }
  /// The largest of each column by sample; 0 of a sample without entries.
  std::string largest(const Entries& entries, std::int64_t columns, const std::string& what) {
    to_.require_opset(18);  // the first in which ScatterND knows max
    const std::string lowest = filled_with(-std::numeric_limits<float>::infinity(), columns);
    return to_.node("Where", {entries.filled,
                              to_.node("ScatterND", {lowest, entries.samples, what},
                                       {{.name = "reduction", .text = "max"}}),
                              one(0)});
  }
  /// A feature's vectors, [batch, width of the table].
  std::string pooled(const Entries& entries, const CategoryInput& feature, const std::string& table,
                     std::int64_t width) {
    const std::string rows = to_.node("Gather", {table + ".weight", entries.rows});
    if (!feature.list) return rows;
    if (feature.pooling == Pooling::max) return largest(entries, width, rows);
    const std::string sum = add_up(entries, width, rows);
    return entries.divisor.empty() ? sum : to_.node("Div", {sum, entries.divisor});
  }

  std::int64_t vectors() const { return std::ssize(model_.features) + 1; }
  std::int64_t dot_columns() const { return model_.vector_width + vectors() * (vectors() - 1) / 2; }
  /// The bottom layers' vector, and the products of all pairs of vectors.
  std::string dot(const std::string& joined, const std::string& first) {
    const std::int64_t n = vectors();
    std::vector<std::int64_t> pairs;
    for (std::int64_t i = 1; i < n; ++i)
      for (std::int64_t j = 0; j < i; ++j) pairs.push_back(i * n + j);
    const std::string x = to_.node("Reshape", {joined, indices({-1, n, model_.vector_width})}),
                      transposed =
                          to_.node("Transpose", {x}, {{.name = "perm", .numbers = {0, 2, 1}}}),
                      products = to_.node(
                          "Reshape", {to_.node("MatMul", {x, transposed}), indices({-1, n * n})}),
                      chosen = to_.node("Gather", {products, to_.constant(pairs)},
                                        {{.name = "axis", .number = 1}});
    return to_.node("Concat", {first, chosen}, {{.name = "axis", .number = 1}});
  }

  std::string cross(const std::string& x0) {
    std::string x = x0;
    for (std::int64_t l = 0; l < model_.cross_layers; ++l) {
      const auto name = [&](const char* part) { return fmt::format("cross.{}.{}", l, part); };
      const std::vector<OnnxFile::Attribute> transposed{{.name = "transB", .number = 1}};
      const std::string low =
          model_.cross_rank == 0 ? x : to_.node("Gemm", {x, copy(name("v"))}, transposed);
      const std::string y =
          to_.node("Gemm", {low, copy(name("u")), copy(name("bias"))}, transposed);
      x = to_.node("Add", {to_.node("Mul", {x0, y}), x});
    }
    return x;
  }

  CheckpointReader& reader_;
  const ModelDescription& model_;
  OnnxFile& to_;
  std::string batch_;
};

struct Options {
  std::string checkpoint, output;
};

void run(const Options& options) {
  const std::filesystem::path given = options.checkpoint;
  // a folder of checkpoints stands for its latest whole one
  std::filesystem::path folder = given;
  const std::vector<std::int64_t> steps = detail::checkpoint_steps(given);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    folder = given / detail::checkpoint_name(*step);
    if (detail::read_manifest(folder).first.base.empty()) break;
  }
  CheckpointReader reader(folder);
  const ModelDescription model = read_model_description(reader);
  reader.verify(0, reader.chunks());
  OnnxFile to(options.output);
  Exporter(reader, model, to).run();
  to.finish(
      fmt::format("step {} of a training with Tessera. Inputs: numbers as in the "
                  "data, NaN for an empty field; categories as rows of their tables; of a "
                  "list, its values and, in NAME_samples, the sample of each; a history comes "
                  "alone, with any number of candidates.",
                  reader.manifest().step));
  fmt::print("{} and {}.data: step {}\n", options.output, options.output, reader.manifest().step);
}

}  // namespace

int main(int argc, char** argv) {
  return support::run_program("export_onnx", "export on a machine with more", [&] {
    Options options;
    CLI::App app("Writes a checkpoint of train_dlrm or train_sequence as an ONNX model",
                 "export_onnx");
    app.add_option("--checkpoint", options.checkpoint,
                   "A checkpoint, or the folder of --save: its latest whole one")
        ->required()
        ->option_text("DIR");
    app.add_option("--output", options.output, "The file; FILE.data beside it has the weights")
        ->required()
        ->option_text("FILE.onnx");
    if (support::parse(app, argc, argv)) run(options);
    return 0;
  });
}
