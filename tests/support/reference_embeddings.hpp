// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Embedding tables as the definitions say, in double, one id at a time: what collections are
// compared with.
#pragma once

#include <tessera/core/table_spec.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace reference {

enum class Rule { sgd, adagrad, rowwise_adagrad, rowwise_adagrad_l2, adam, lamb };
/// Weight decay of rowwise_adagrad_l2.
inline constexpr double l2_decay = 0.25;

/// One bag: ids and their weights.
struct Bag {
  std::vector<std::int64_t> ids;
  std::vector<float> weights;
};

/// bags[feature][sample]
using Batch = std::vector<std::vector<Bag>>;

struct Table {
  std::int64_t rows, width;
  std::vector<double> weights, first, second;  // Adagrad: sum in `first`; Adam: m, v
  std::vector<double> row_sum;
};

class Embeddings {
 public:
  Embeddings(std::vector<tessera::TableSpec> tables, std::vector<tessera::FeatureSpec> features,
             Rule rule, double learning_rate)
      : features_(std::move(features)), rule_(rule), learning_rate_(learning_rate) {
    for (const tessera::TableSpec& t : tables) {
      const auto n = static_cast<std::size_t>(t.rows * t.width);
      tables_[std::string(t.name)] = {t.rows,
                                      t.width,
                                      std::vector<double>(n),
                                      std::vector<double>(n),
                                      std::vector<double>(n),
                                      std::vector<double>(static_cast<std::size_t>(t.rows))};
    }
  }

  Table& table(std::string_view name) { return tables_.at(std::string(name)); }
  std::int64_t columns() {
    std::int64_t sum = 0;
    for (const auto& f : features_) sum += table(f.table).width;
    return sum;
  }

  /// [batch, columns]
  std::vector<double> forward(const Batch& batch) {
    std::vector<double> out;
    const std::size_t samples = batch.front().size();
    for (std::size_t s = 0; s < samples; ++s)
      for (std::size_t f = 0; f < features_.size(); ++f) {
        const Table& t = table(features_[f].table);
        for (std::int64_t c = 0; c < t.width; ++c) {
          double sum = 0;
          const Bag& bag = batch[f][s];
          for (std::size_t i = 0; i < bag.ids.size(); ++i)
            sum += coefficient(f, bag, i) * t.weights[bag.ids[i] * t.width + c];
          out.push_back(sum);
        }
      }
    return out;
  }

  /// gradient: [batch, columns]
  void backward(const Batch& batch, const std::vector<float>& gradient) {
    ++step_;
    std::map<std::string, std::map<std::int64_t, std::vector<double>>> rows;
    const std::size_t samples = batch.front().size(), stride = static_cast<std::size_t>(columns());
    std::size_t column = 0;
    for (std::size_t f = 0; f < features_.size(); ++f) {
      const Table& t = table(features_[f].table);
      for (std::size_t s = 0; s < samples; ++s)
        for (std::size_t i = 0; i < batch[f][s].ids.size(); ++i) {
          std::vector<double>& g = rows[std::string(features_[f].table)][batch[f][s].ids[i]];
          g.resize(static_cast<std::size_t>(t.width));
          for (std::int64_t c = 0; c < t.width; ++c)
            g[c] += coefficient(f, batch[f][s], i) * gradient[s * stride + column + c];
        }
      column += static_cast<std::size_t>(t.width);
    }
    for (auto& [name, of_table] : rows)
      for (auto& [row, g] : of_table) apply(tables_.at(name), row, g);
  }

  /// Gradients of the weights, by feature, sample, id.
  std::vector<double> weight_gradient(const Batch& batch, const std::vector<float>& gradient,
                                      std::size_t feature, std::size_t sample) {
    std::size_t column = 0;
    for (std::size_t f = 0; f < feature; ++f)
      column += static_cast<std::size_t>(table(features_[f].table).width);
    const Table& t = table(features_[feature].table);
    const Bag& bag = batch[feature][sample];
    std::vector<double> out;
    for (const std::int64_t id : bag.ids) {
      double dot = 0;
      for (std::int64_t c = 0; c < t.width; ++c)
        dot += t.weights[id * t.width + c] *
               gradient[sample * static_cast<std::size_t>(columns()) + column + c];
      out.push_back(dot / divisor(feature, bag));
    }
    return out;
  }

 private:
  double coefficient(std::size_t f, const Bag& bag, std::size_t i) const {
    const double weight = features_[f].weighted ? bag.weights[i] : 1.0;
    return weight / divisor(f, bag);
  }
  double divisor(std::size_t f, const Bag& bag) const {
    const double ids = static_cast<double>(bag.ids.size());
    return features_[f].pooling == tessera::Pooling::sum    ? 1
           : features_[f].pooling == tessera::Pooling::mean ? ids
                                                            : std::sqrt(ids);
  }

  void apply(Table& t, std::int64_t row, const std::vector<double>& g) {
    double mean_square = 0, ratio = 1;
    std::vector<double> h = g;
    if (rule_ == Rule::rowwise_adagrad_l2)
      for (std::int64_t c = 0; c < t.width; ++c) h[c] += l2_decay * t.weights[row * t.width + c];
    for (const double x : h) mean_square += x * x / static_cast<double>(t.width);
    if (rule_ == Rule::rowwise_adagrad || rule_ == Rule::rowwise_adagrad_l2)
      t.row_sum[row] += mean_square;
    if (rule_ == Rule::lamb) {
      double weights = 0, directions = 0;
      for (std::int64_t c = 0; c < t.width; ++c) {
        const std::size_t i = static_cast<std::size_t>(row * t.width + c);
        t.first[i] = 0.9 * t.first[i] + 0.1 * g[c];
        t.second[i] = 0.999 * t.second[i] + 0.001 * g[c] * g[c];
        h[c] = t.first[i] / (1 - std::pow(0.9, step_)) /
               (std::sqrt(t.second[i] / (1 - std::pow(0.999, step_))) + 1e-6);
        weights += t.weights[i] * t.weights[i];
        directions += h[c] * h[c];
      }
      if (weights > 0 && directions > 0) ratio = std::sqrt(weights / directions);
    }
    for (std::int64_t c = 0; c < t.width; ++c) {
      const std::size_t i = static_cast<std::size_t>(row * t.width + c);
      double& w = t.weights[i];
      switch (rule_) {
        case Rule::sgd:
          w -= learning_rate_ * g[c];
          break;
        case Rule::adagrad:
          t.first[i] += g[c] * g[c];
          w -= learning_rate_ * g[c] / (std::sqrt(t.first[i]) + 1e-10);
          break;
        case Rule::lamb:
          w -= learning_rate_ * ratio * h[c];
          break;
        case Rule::rowwise_adagrad:
        case Rule::rowwise_adagrad_l2:
          w -= learning_rate_ * h[c] / (std::sqrt(t.row_sum[row]) + 1e-8);
          break;
        case Rule::adam:
          t.first[i] = 0.9 * t.first[i] + 0.1 * g[c];
          t.second[i] = 0.999 * t.second[i] + 0.001 * g[c] * g[c];
          w -= learning_rate_ * std::sqrt(1 - std::pow(0.999, step_)) / (1 - std::pow(0.9, step_)) *
               t.first[i] / (std::sqrt(t.second[i]) + 1e-8);
          break;
      }
    }
  }

  std::vector<tessera::FeatureSpec> features_;
  Rule rule_;
  double learning_rate_;
  int step_ = 0;
  std::map<std::string, Table> tables_;
};

}  // namespace reference
