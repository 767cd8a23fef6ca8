// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A sequence layer of a user's own, softmax attention, beside the library's HSTU block: the same
// program trains both. docs/concepts/sequence.md.
#include <tessera/dense.hpp>
#include <tessera/laws.hpp>
#include <tessera/sequence.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace ts = tessera;

// [attention]
/// y_i = x_i + sum_j softmax_j(x_i . M x_j) N x_j over the positions j that i sees: itself and the
/// history before it. Parameters: M, N [width, width].
class SoftmaxAttention {
 public:
  explicit SoftmaxAttention(std::int64_t width) : width_(width) {}

  std::int64_t width() const { return width_; }
  std::int64_t parameter_count() const { return 2 * width_ * width_; }
  void bind(std::span<float> values, std::span<float> gradients) {
    values_ = values, gradients_ = gradients;
  }
  int initialize(std::uint64_t seed, int first_layer) {
    ts::fill_normal(values_, 0.3f, seed, static_cast<std::uint64_t>(first_layer));
    return first_layer + 1;
  }

  void forward(ts::MatrixView<const float> x, const ts::SequenceBatch& batch,
               ts::MatrixView<float> y) {
    ts::check_sequences("SoftmaxAttention", batch, x.rows, 1'000);
    x_ = x;
    offsets_.assign(batch.offsets.begin(), batch.offsets.end());
    targets_.assign(batch.targets.begin(), batch.targets.end());
    keys_ = product(0), vectors_ = product(1);
    p_.clear();
    each_position([&](std::int64_t i, const std::vector<std::int64_t>& seen) {
      const std::size_t first = p_.size();
      float top = -INFINITY, sum = 0;
      for (const std::int64_t j : seen) {
        p_.push_back(dot(x.row(i), &keys_[j * width_]));
        top = std::max(top, p_.back());
      }
      for (std::size_t k = first; k < p_.size(); ++k) sum += p_[k] = std::exp(p_[k] - top);
      std::copy_n(x.row(i), width_, y.row(i));
      for (std::size_t k = 0; k < seen.size(); ++k)
        add(p_[first + k] /= sum, &vectors_[seen[k] * width_], y.row(i));
    });
  }

  void backward(ts::MatrixView<const float> dy, ts::MatrixView<float> dx) {
    std::fill(gradients_.begin(), gradients_.end(), 0.0f);
    std::vector<float> d_keys(keys_.size()), d_vectors(keys_.size()), d_x(keys_.size());
    std::size_t first = 0;
    each_position([&](std::int64_t i, const std::vector<std::int64_t>& seen) {
      add(1, dy.row(i), &d_x[i * width_]);
      float mean = 0;  // of the slopes of p
      for (std::size_t k = 0; k < seen.size(); ++k)
        mean += p_[first + k] * dot(dy.row(i), &vectors_[seen[k] * width_]);
      for (std::size_t k = 0; k < seen.size(); ++k) {
        const std::int64_t at = seen[k] * width_;
        const float p = p_[first + k], slope = p * (dot(dy.row(i), &vectors_[at]) - mean);
        add(p, dy.row(i), &d_vectors[at]);
        add(slope, x_.row(i), &d_keys[at]);
        add(slope, &keys_[at], &d_x[i * width_]);
      }
      first += seen.size();
    });
    for (const int matrix : {0, 1})
      for (std::int64_t r = 0; r < x_.rows; ++r)
        for (std::int64_t o = 0; o < width_; ++o) {
          const float d = (matrix == 0 ? d_keys : d_vectors)[r * width_ + o];
          const std::int64_t at = (matrix * width_ + o) * width_;
          add(d, x_.row(r), &gradients_[at]);
          add(d, &values_[at], &d_x[r * width_]);
        }
    if (dx.data != nullptr)
      for (std::int64_t r = 0; r < x_.rows; ++r) std::copy_n(&d_x[r * width_], width_, dx.row(r));
  }

 private:
  float dot(const float* a, const float* b) const {
    float sum = 0;
    for (std::int64_t c = 0; c < width_; ++c) sum += a[c] * b[c];
    return sum;
  }
  void add(float factor, const float* from, float* to) const {
    for (std::int64_t c = 0; c < width_; ++c) to[c] += factor * from[c];
  }
  std::vector<float> product(int matrix) const {
    std::vector<float> result;
    for (std::int64_t r = 0; r < x_.rows; ++r)
      for (std::int64_t o = 0; o < width_; ++o)
        result.push_back(dot(&values_[(matrix * width_ + o) * width_], x_.row(r)));
    return result;
  }
  /// Calls f(i, the positions that i sees). A candidate is seen by itself alone.
  template <class F>
  void each_position(const F& f) const {
    for (std::size_t s = 0; s + 1 < offsets_.size(); ++s) {
      const std::int64_t history = offsets_[s + 1] - (targets_.empty() ? 0 : targets_[s]);
      for (std::int64_t i = offsets_[s]; i < offsets_[s + 1]; ++i) {
        std::vector<std::int64_t> seen{i};
        for (std::int64_t j = offsets_[s]; j < std::min(i, history); ++j) seen.push_back(j);
        f(i, seen);
      }
    }
  }

  std::int64_t width_;
  std::span<float> values_, gradients_;
  ts::MatrixView<const float> x_;
  std::vector<std::int64_t> offsets_, targets_;
  std::vector<float> keys_, vectors_, p_;
};
static_assert(ts::explain_sequence_layer<SoftmaxAttention>());
// [attention end]

// [task]
/// Histories of pairs (key, sign), each key once, and candidates: a key, whose sign is asked for.
/// No single position knows it, nor does a mean over them.
constexpr int kKeys = 8, kHistory = 8, kCandidates = 4, kLength = kHistory + kCandidates;
constexpr int kWidth = kKeys + 2;  // which key, its sign, the logit

struct Batch {
  std::vector<float> x, labels;
  std::vector<std::int64_t> offsets{0}, targets;

  Batch(int sequences, std::mt19937& random) {
    for (int s = 0; s < sequences; ++s) {
      const unsigned signs = static_cast<unsigned>(random());
      int order[kKeys];
      for (int k = 0; k < kKeys; ++k) {
        const int other = static_cast<int>(random() % static_cast<unsigned>(k + 1));
        order[k] = order[other], order[other] = k;
      }
      for (int i = 0; i < kLength; ++i) {
        const int key = i < kHistory ? order[i] : static_cast<int>(random() % kKeys);
        const float sign = (signs >> key & 1u) != 0 ? 1.0f : -1.0f;
        float row[kWidth] = {};
        row[key] = 1;
        if (i < kHistory) row[kKeys] = sign;
        x.insert(x.end(), row, row + kWidth);
        if (i >= kHistory) labels.push_back(sign > 0 ? 1.0f : 0.0f);
      }
      offsets.push_back(offsets.back() + kLength);
      targets.push_back(kCandidates);
    }
  }
};
// [task end]

// [train]
/// Trains a layer on the task; the share of signs that it then gets right on new sequences.
template <ts::SequenceLayer Layer>
double trained_accuracy(Layer layer, float rate) {
  std::mt19937 random(1);
  ts::DenseParameters parameters(7, layer);
  ts::DenseOptimizer<ts::Adam> adam;
  int right = 0, asked = 0;
  for (int step = 0; step < 1'500; ++step) {
    const Batch batch(32, random);
    const std::int64_t rows = batch.offsets.back();
    std::vector<float> y(batch.x.size()), dy(batch.x.size());
    layer.forward({batch.x.data(), rows, kWidth}, {batch.offsets, batch.targets},
                  {y.data(), rows, kWidth});
    std::size_t candidate = 0;
    for (std::int64_t r = 0; r < rows; ++r) {
      if (r % kLength < kHistory) continue;
      const float label = batch.labels[candidate++], logit = y[r * kWidth + kWidth - 1];
      dy[r * kWidth + kWidth - 1] =
          (1 / (1 + std::exp(-logit)) - label) / static_cast<float>(batch.labels.size());
      if (step >= 1'450) ++asked, right += (logit > 0) == (label > 0);
    }
    layer.backward({dy.data(), rows, kWidth}, {});
    adam.step(parameters, rate);
  }
  return static_cast<double>(right) / asked;
}
// [train end]

int main() {
  // [laws]
  SoftmaxAttention mine(6);
  const std::vector<std::string> faults = ts::laws::sequence_layer_laws(mine);
  for (const std::string& fault : faults) fmt::print("{}\n", fault);
  // [laws end]
  const double of_mine = trained_accuracy(SoftmaxAttention(kWidth), 0.01f);
  const double of_hstu =
      trained_accuracy(ts::HstuLayer<2, 16, 16>(kWidth, {.max_length = kLength}), 0.003f);
  fmt::print("signs found again: softmax attention {:.3f}, HSTU block {:.3f}\n", of_mine, of_hstu);
  return faults.empty() && of_mine > 0.95 && of_hstu > 0.95 ? 0 : 1;
}
