// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/checkpoint/reader.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/dense/mlp.hpp>
#include <tessera/host/backend.hpp>
#include <tessera/interaction/cross.hpp>
#include <tessera/interaction/dot_any_shape.hpp>
#include <tessera/tables/buffer.hpp>
#include <tessera_serving/model_description.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// The layers of a model, with the parameters of its checkpoint.
struct DenseTensors {
  std::vector<float> bottom, cross, top;
  std::map<std::int64_t, std::vector<float>> projections;  ///< by the width of what they take
  std::vector<float> history;                              ///< all of a HistoryScratch

  DenseTensors(CheckpointReader& reader, const ModelDescription& model) {
    const auto read = [&](const std::string& name) {
      std::vector<float> values = reader.read<float>(name);
      for (std::size_t i = 0; i < values.size(); ++i)
        if (!std::isfinite(values[i])) {
          const StoredTensor& stored = reader.tensor(name);
          const std::int64_t row = static_cast<std::int64_t>(i) / stored.columns();
          throw DataError(
              formatted("file '{}', layer '{}', row {}: {} is no weight to score with; take "
                        "another checkpoint",
                        reader.file_of(stored, row), name, row, values[i]));
        }
      return values;
    };
    const auto add = [&](std::vector<float>& to, const std::string& name, std::int64_t count) {
      const std::vector<float> values = read(name);
      require<DataError>(std::ssize(values) == count,
                         "checkpoint '{}': tensor '{}' has {} numbers, '{}' tells of {}",
                         reader.folder().string(), name, values.size(), ModelDescription::kFile,
                         count);
      to.insert(to.end(), values.begin(), values.end());
    };
    const auto mlp = [&](std::vector<float>& to, std::string_view name,
                         const std::vector<std::int64_t>& sizes) {
      for (std::size_t l = 0; l + 1 < sizes.size(); ++l) {
        add(to, formatted("{}.{}.weight", name, l), sizes[l] * sizes[l + 1]);
        add(to, formatted("{}.{}.bias", name, l), sizes[l + 1]);
      }
    };
    if (model.history) {
      history = read("dense");
      return;
    }
    mlp(bottom, "bottom", model.bottom_mlp);
    const std::int64_t width = model.top_mlp.front();
    for (std::int64_t l = 0; l < model.cross_layers; ++l) {
      if (model.cross_rank > 0) add(cross, formatted("cross.{}.v", l), width * model.cross_rank);
      add(cross, formatted("cross.{}.u", l),
          width * (model.cross_rank > 0 ? model.cross_rank : width));
      add(cross, formatted("cross.{}.bias", l), width);
    }
    for (const std::int64_t from : model.projected_widths())
      add(projections[from], formatted("projection.{}.weight", from), from * model.vector_width);
    mlp(top, "top", model.top_mlp);
  }
};

inline DensePrecision dense_precision(const ModelDescription& model) {
  return model.dense_precision == "bf16" && supported(DensePrecision::bfloat16)
             ? DensePrecision::bfloat16
             : DensePrecision::float32;
}

/// Layers that share their parameters with others, and the memory of one batch: what one thread
/// scores with.
class ModelScratch {
 public:
  ModelScratch(const ModelDescription& model, DenseTensors& tensors)
      : first_(model.first_columns()),
        columns_(model.columns()),
        wide_(model.wide ? std::ssize(model.features) : 0),
        width_(model.vector_width),
        numbers_columns_(model.numbers()),
        top_(model.top_mlp, {.precision = dense_precision(model)}) {
    if (!model.bottom_mlp.empty()) {
      bottom_.emplace(model.bottom_mlp,
                      MlpOptions{.last_relu = true, .precision = dense_precision(model)});
      bind(*bottom_, tensors.bottom);
      bottom_->keep_weights();
    }
    bind(top_, tensors.top);
    top_.keep_weights();
    std::int64_t given = columns_;
    if (model.interaction == "cross") {
      cross_.emplace(columns_, CrossOptions{.layers = static_cast<int>(model.cross_layers),
                                            .rank = model.cross_rank});
      bind(*cross_, tensors.cross);
      cross_->keep_weights();
    } else if (model.interaction == "dot") {
      dot_.emplace(Host(), std::ssize(model.features) + 1, width_, 16);
      given = dot_->columns();
      if (!tensors.projections.empty()) project(model, tensors);
    }
    require<DataError>(given == top_.input_size(),
                       "the description tells of a top MLP of {} inputs; the interaction gives {}",
                       top_.input_size(), given);
  }

  void resize(std::int64_t samples) {
    samples_ = samples;
    matrix(vectors_, samples, columns_ + wide_);
    matrix(products_, samples, top_.input_size());
    matrix(numbers_, samples, numbers_columns_);
    matrix(logits_, samples, 1);
    matrix(scales_, samples, 1);
    matrix(row_, 1, columns_);
  }

  /// Returns what comes before the features' vectors, these, and a column for each wide feature.
  MatrixView<float> vectors() { return {vectors_.data(), samples_, columns_ + wide_}; }
  MatrixView<float> numbers() { return {numbers_.data(), samples_, numbers_columns_}; }
  /// Returns room for a row of any table.
  float* row() { return row_.data(); }
  std::span<float> scales() { return {scales_.data(), static_cast<std::size_t>(samples_)}; }
  std::span<const float> logits() const {
    return {logits_.data(), static_cast<std::size_t>(samples_)};
  }

  /// Runs from numbers() to the first columns of vectors().
  void run_bottom() {
    if (bottom_) return bottom_->forward(numbers(), vectors().column_range(0, first_));
    for (std::int64_t s = 0; s < samples_; ++s)
      std::copy_n(numbers().row(s), first_, vectors().row(s));
  }
  /// Runs from vectors() to logits().
  void run_top() {
    const MatrixView<float> x = vectors().column_range(0, columns_),
                            products(products_.data(), samples_, top_.input_size());
    if (cross_) {
      cross_->forward(x, products);
    } else if (dot_) {
      dot_->forward(projections_.empty() ? x : projected(x), products);
    } else {
      for (std::int64_t s = 0; s < samples_; ++s) std::copy_n(x.row(s), columns_, products.row(s));
    }
    top_.forward(products, {logits_.data(), samples_, 1});
    for (std::int64_t s = 0; wide_ > 0 && s < samples_; ++s) {
      const float* const weights = vectors().row(s) + columns_;
      logits_.data()[s] += std::accumulate(weights, weights + wide_, 0.0f);
    }
  }

 private:
  using Floats = Buffer<float, Host>;

  /// Where a vector begins: in a row of vectors(), and in one of vectors of one width.
  struct Place {
    std::int64_t from, to;
  };
  /// The vectors of one width on their way to another. One of `width_` has no layer.
  struct Projection {
    std::int64_t width;
    std::vector<Place> places{};
    std::optional<Linear<>> layer{};
    Floats in{}, out{};  ///< [samples * places, width or width_]
  };

  MatrixView<float> matrix(Floats& floats, std::int64_t rows, std::int64_t columns) {
    floats.resize(host_, static_cast<std::size_t>(rows * columns));
    return {floats.data(), rows, columns};
  }

  template <class Layers>
  static void bind(Layers& layers, std::vector<float>& values) {
    require<DataError>(std::ssize(values) == layers.parameter_count(),
                       "the layers have {} parameters, the description tells of {}",
                       layers.parameter_count(), values.size());
    layers.bind(values, values);  // no backward: nothing writes gradients
  }

  void project(const ModelDescription& model, DenseTensors& tensors) {
    std::map<std::int64_t, std::vector<Place>> places;
    places[width_].push_back({0, 0});  // the bottom MLP's
    Place next{first_, width_};
    for (const CategoryInput& feature : model.features) {
      const std::int64_t width = model.table(feature.table).width;
      places[width].push_back(next);
      next = {next.from + width, next.to + width_};
    }
    for (auto& [width, where] : places) {
      Projection& one = projections_.emplace_back(Projection{width, std::move(where)});
      if (width == width_) continue;
      one.layer.emplace(width, width_, LinearOptions{.bias = false});
      bind(*one.layer, tensors.projections.at(width));
      one.layer->keep_weights();
    }
    vectors_of_one_width_ = next.to;
  }

  MatrixView<const float> projected(MatrixView<const float> x) {
    const MatrixView<float> whole = matrix(projected_, x.rows, vectors_of_one_width_);
    for (Projection& one : projections_) {
      const std::int64_t count = std::ssize(one.places), rows = x.rows * count;
      const MatrixView<float> in = matrix(one.in, rows, one.width);
      for (std::int64_t r = 0; r < rows; ++r)
        std::copy_n(x.row(r / count) + one.places[static_cast<std::size_t>(r % count)].from,
                    one.width, in.row(r));
      const MatrixView<float> out = one.layer ? matrix(one.out, rows, width_) : in;
      if (one.layer) one.layer->forward(in, out);
      for (std::int64_t r = 0; r < rows; ++r)
        std::copy_n(out.row(r), width_,
                    whole.row(r / count) + one.places[static_cast<std::size_t>(r % count)].to);
    }
    return whole;
  }

  Host host_;
  std::int64_t first_, columns_, wide_, width_, numbers_columns_, samples_ = 0;
  std::int64_t vectors_of_one_width_ = 0;  ///< columns
  std::optional<Mlp<>> bottom_;
  Mlp<> top_;
  std::optional<CrossInteraction<Linear<>>> cross_;
  std::optional<AnyDotInteraction<>> dot_;  ///< neither: vectors side by side
  std::vector<Projection> projections_;     ///< by width; empty if all have one
  Floats vectors_, products_, numbers_, logits_, scales_, row_, projected_;
};

}}}  // namespace tessera::v0::detail
