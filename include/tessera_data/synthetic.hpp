// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/core/jagged.hpp>
#include <tessera/core/random.hpp>
#include <tessera_data/click_batch.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

namespace detail {

/// Returns log2 of a positive normal number, to about 1e-12. Branch-free, so that loops over it
/// vectorize.
inline double fast_log2(double x) {
  const std::uint64_t bits = __builtin_bit_cast(std::uint64_t, x);
  // The exponent of x / sqrt(1/2), so that the mantissa is around 1: [sqrt(1/2), sqrt(2)).
  const std::int64_t shifted = static_cast<std::int64_t>(bits - 0x3fe6a09e667f3bcdu);
  const double exponent = static_cast<double>(shifted >> 52);
  const double mantissa = __builtin_bit_cast(
      double, bits - (static_cast<std::uint64_t>(shifted) & 0xfff0000000000000u));
  const double s = (mantissa - 1.0) / (mantissa + 1.0);
  const double q = s * s;
  const double series =
      1 + q * (1.0 / 3 +
               q * (1.0 / 5 + q * (1.0 / 7 + q * (1.0 / 9 + q * (1.0 / 11 + q * (1.0 / 13))))));
  return exponent + 2.885390081777927 * s * series;  // 2/ln(2) atanh(s)
}

/// Returns 2^x for |x| < 1000, to about 1e-12.
inline double fast_exp2(double x) {
  constexpr double kRound = 0x1.8p52;  // adding it leaves the nearest whole number in the low bits
  const double rounded = x + kRound;
  const double t = (x - (rounded - kRound)) * 0.6931471805599453;
  // The Taylor series up to t^10/10!, |t| <= ln(2)/2.
  double series = 1.0 / 3628800;
  for (const double c : {1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24,
                         1.0 / 6, 1.0 / 2, 1.0, 1.0})
    series = series * t + c;
  const std::uint64_t scale = (__builtin_bit_cast(std::uint64_t, rounded) + 1023) << 52;
  return series * __builtin_bit_cast(double, scale);
}

}  // namespace detail

/// Ids in [0, rows) whose probability falls with a power of the rank: id k is drawn as often as the
/// continuous density x^-alpha falls into [k+1, k+2). alpha 0 is uniform, 1 to 1.2 is like real
/// categories. Id 0 is the most frequent. Any alpha >= 0; one uniform number in [0, 1) makes one id
/// (inverse of the distribution function).
class PowerLaw {
 public:
  PowerLaw(std::int64_t rows, double alpha) : last_(static_cast<double>(rows - 1)) {
    require(rows >= 1 && rows <= std::int64_t{1} << 32, "PowerLaw: rows ({}) must be 1 .. 2^32",
            rows);
    require(alpha >= 0 && alpha <= 16, "PowerLaw: alpha ({}) must be 0 .. 16", alpha);
    const double gamma = 1.0 - alpha;
    const double end = static_cast<double>(rows) + 1.0;
    // x^(1-alpha) degenerates at alpha 1, where the inverse is end^u. Nearby, the formula loses
    // digits: take alpha 1 there.
    if (std::abs(gamma) < 1e-6) {
      logarithmic_ = std::log2(end);
    } else {
      span_ = std::pow(end, gamma) - 1.0;
      inverse_gamma_ = 1.0 / gamma;
    }
  }

  std::int64_t operator()(double u) const {
    const double exponent = detail::fast_log2(u * span_ + 1.0) * inverse_gamma_ + u * logarithmic_;
    // Rounding may reach the open end of the range.
    return static_cast<std::int64_t>(std::min(detail::fast_exp2(exponent) - 1.0, last_));
  }

 private:
  double last_;
  double span_ = 0.0;
  double inverse_gamma_ = 0.0;
  double logarithmic_ = 0.0;
};

/// How the ids of a feature are drawn.
struct SyntheticFeature {
  std::int64_t rows = 100'000;
  double alpha = 1.05;           ///< of the ids' power law; 0: uniform
  std::int32_t min_hotness = 1;  ///< ids per bag: uniform in [min_hotness, max_hotness]
  std::int32_t max_hotness = 1;
};

/// Returns 26 one-hot features with the table sizes of Criteo's 1 TB click logs (values seen fewer
/// than 15 times left out), each capped.
inline std::vector<SyntheticFeature> criteo_like_features(std::int64_t max_rows,
                                                          double alpha = 1.05) {
  static constexpr std::array<std::int64_t, 26> kRows = {
      7912889, 33823,   17139,   7339,    20046,  4,     7105, 1382, 63,
      5554114, 582469,  245828,  11,      2209,   10667, 104,  4,    968,
      15,      8165896, 2675940, 7156453, 302516, 12022, 97,   35};
  std::vector<SyntheticFeature> features;
  for (const std::int64_t rows : kRows)
    features.push_back({.rows = std::min(rows, max_rows), .alpha = alpha});
  return features;
}

/// The law of SyntheticClicks.
struct SyntheticOptions {
  std::uint64_t seed = 0;
  std::int64_t dense_columns = 13;
  /// spread frequent ids over the table; false: id 0 is the most frequent
  bool scatter_ids = true;
  double bias = -1.5;         ///< of the true logit
  double main_effect = 1.6;   ///< deviation of the part of the true logit that single ids make,
  double interaction = 0.7;   ///< that pairs of ids make,
  double dense_effect = 0.8;  ///< that dense columns make
  int threads = 1;            ///< OpenMP threads that make a batch, the same one for any number
};

/// Clicks that can be learned. Ids follow power laws; every id has a hidden effect and a hidden
/// vector of three numbers; the true logit adds the effects, the dot products of all pairs of
/// features' vectors (a factorisation machine), and dense effects; the label is drawn with the true
/// logit's probability. Everything is a function of (seed, feature, row) or (seed, sample): any
/// rank makes any range of samples, without storage, and gets what every other would get.
///
///     const SyntheticClicks clicks({{.rows = 20'000}, {.rows = 5'000}});
///     ClickBatch<std::int32_t> batch;
///     clicks.generate(0, 256, batch);  // samples [0, 256)
class SyntheticClicks {
 public:
  explicit SyntheticClicks(std::vector<SyntheticFeature> features, SyntheticOptions options = {})
      : features_(std::move(features)), options_(options) {
    require(options.dense_columns >= 0, "SyntheticClicks: dense_columns ({}) must not be negative",
            options.dense_columns);
    require(options.threads >= 1, "SyntheticClicks: threads ({}) must be at least 1",
            options.threads);
    const double count = static_cast<double>(features_.size());
    for (std::size_t f = 0; f < features_.size(); ++f) {
      const SyntheticFeature& feature = features_[f];
      require(feature.min_hotness >= 0 && feature.max_hotness >= feature.min_hotness &&
                  feature.max_hotness >= 1,
              "SyntheticClicks: feature {}: hotness [{}, {}] is no range of bag sizes", f,
              feature.min_hotness, feature.max_hotness);
      one_hot_ = one_hot_ && feature.min_hotness == 1 && feature.max_hotness == 1;
      Generator g{.law = PowerLaw(feature.rows, feature.alpha)};
      g.ids = random_word(options.seed, f, 1);
      g.lengths = random_word(options.seed, f, 2);
      g.hidden = random_word(options.seed, f, 3);
      g.rows = feature.rows;
      g.inverse_rows = 1.0 / static_cast<double>(feature.rows);
      if (options.scatter_ids) {
        const auto rows = static_cast<std::uint64_t>(feature.rows);
        g.factor = static_cast<std::uint64_t>(0.6180339887498949 * static_cast<double>(rows)) | 1;
        while (std::gcd(g.factor, rows) != 1) ++g.factor;
        g.shift = random_word(options.seed, f, 4) % rows;
      }
      const double hotness = 0.5 * (feature.min_hotness + feature.max_hotness);
      g.main_scale = static_cast<float>(options.main_effect / std::sqrt(count * hotness) * kUnit);
      // A pair's dot product of three unit numbers has variance 3; each factor carries the root of
      // the scale.
      const double pairs = std::max(count * (count - 1) / 2, 1.0);
      g.vector_scale = static_cast<float>(std::sqrt(options.interaction / std::sqrt(3 * pairs)) /
                                          std::sqrt(hotness) * kUnit);
      generators_.push_back(g);
    }
    dense_stream_ = random_word(options.seed, std::uint64_t{1} << 32);
    label_stream_ = random_word(options.seed, std::uint64_t{2} << 32);
    for (std::int64_t c = 0; c < options.dense_columns; ++c)
      dense_weights_.push_back(static_cast<float>(
          options.dense_effect / std::sqrt(static_cast<double>(options.dense_columns)) *
          (2.0 * unit_float(random_word(options.seed, std::uint64_t{3} << 32, c)) - 1.0) *
          std::sqrt(3.0)));
  }

  const std::vector<SyntheticFeature>& features() const { return features_; }
  bool one_hot() const { return one_hot_; }

  /// Makes samples [first, first + count) of the endless stream. Without ragged features the batch
  /// is one-hot (no offsets). `true_logits`, if given, receives what the labels were drawn from:
  /// its AUC is the best that any model can reach.
  template <IdType Id>
  void generate(std::int64_t first, std::int64_t count, ClickBatch<Id>& batch,
                std::vector<float>* true_logits = nullptr) const {
    require(first >= 0 && count >= 0, "SyntheticClicks: samples [{}, {} + {}) are no range", first,
            first, count);
    for (const SyntheticFeature& feature : features_)
      require(feature.rows - 1 <= std::numeric_limits<Id>::max(),
              "SyntheticClicks: {} rows need 64-bit ids", feature.rows);
    batch.size = count;
    batch.features = static_cast<std::int64_t>(features_.size());
    batch.dense_columns = options_.dense_columns;
    batch.labels.resize(static_cast<std::size_t>(count));
    batch.dense.resize(static_cast<std::size_t>(count * options_.dense_columns));
    if (true_logits != nullptr) true_logits->resize(static_cast<std::size_t>(count));
    make_offsets(first, batch);
#pragma omp parallel for schedule(static) num_threads(options_.threads)
    for (std::int64_t begin = 0; begin < count; begin += kBlock) {
      Block block;
      const std::int64_t size = std::min(kBlock, count - begin);
      for (std::size_t f = 0; f < features_.size(); ++f)
        make_ids(f, first, begin, size, batch, block);
      make_dense(first + begin, size, batch.dense.data() + begin * options_.dense_columns, block);
      finish(first + begin, size, batch.labels.data() + begin,
             true_logits == nullptr ? nullptr : true_logits->data() + begin, block);
    }
  }

 private:
  static constexpr std::int64_t kBlock = 256;
  // 16 signed random bits times this have variance 1.
  static constexpr double kUnit = 1.7320508075688772 / 32768.0;
  static constexpr std::uint64_t kNext = 0x9e3779b97f4a7c15u;

  struct Generator {
    PowerLaw law;
    std::uint64_t ids = 0;
    std::uint64_t lengths = 0;
    std::uint64_t hidden = 0;
    std::int64_t rows = 0;
    std::uint64_t factor = 1;  // coprime to rows: (id * factor + shift) mod rows scatters
    std::uint64_t shift = 0;
    double inverse_rows = 0.0;
    float main_scale = 0.0f;
    float vector_scale = 0.0f;
  };

  /// Running sums of a few samples' true logits, feature by feature.
  struct Block {
    std::array<float, kBlock> logit{};
    std::array<std::array<float, kBlock>, 3> sum{};
    std::array<float, kBlock> squares{};
  };

  static std::int64_t draw(const Generator& g, std::uint64_t counter) {
    const std::uint64_t word = mix64(g.ids ^ counter);
    const std::int64_t id =
        g.law(static_cast<double>(static_cast<std::int64_t>(word >> 11)) * 0x1p-53);
    // (id * factor + shift) mod rows; the quotient by way of double is off by one at most.
    const std::uint64_t product = static_cast<std::uint64_t>(id) * g.factor + g.shift;
    const std::uint64_t quotient =
        static_cast<std::uint64_t>(static_cast<double>(product) * g.inverse_rows);
    const std::int64_t rest =
        static_cast<std::int64_t>(product - quotient * static_cast<std::uint64_t>(g.rows));
    const std::int64_t at_least_0 = rest + (rest < 0 ? g.rows : 0);
    return at_least_0 - (at_least_0 >= g.rows ? g.rows : 0);
  }

  static float hidden_number(std::uint64_t word, int which) {
    return static_cast<float>(static_cast<std::int64_t>(word << (48 - 16 * which)) >> 48);
  }

  std::int64_t hotness(std::size_t feature, std::int64_t sample) const {
    const SyntheticFeature& f = features_[feature];
    const std::uint64_t word =
        mix64(generators_[feature].lengths ^ static_cast<std::uint64_t>(sample));
    return f.min_hotness +
           static_cast<std::int64_t>(
               ((word >> 32) * static_cast<std::uint64_t>(f.max_hotness - f.min_hotness + 1)) >>
               32);
  }

  template <IdType Id>
  void make_offsets(std::int64_t first, ClickBatch<Id>& batch) const {
    batch.offsets.clear();
    if (one_hot_) {
      batch.ids.resize(static_cast<std::size_t>(batch.features * batch.size));
      return;
    }
    batch.offsets.reserve(static_cast<std::size_t>(batch.features * batch.size + 1));
    batch.offsets.push_back(0);
    for (std::size_t f = 0; f < features_.size(); ++f)
      for (std::int64_t s = 0; s < batch.size; ++s)
        batch.offsets.push_back(batch.offsets.back() + hotness(f, first + s));
    batch.ids.resize(static_cast<std::size_t>(batch.offsets.back()));
  }

  template <IdType Id>
  void make_ids(std::size_t f, std::int64_t first, std::int64_t begin, std::int64_t size,
                ClickBatch<Id>& batch, Block& block) const {
    const Generator g = generators_[f];
    std::array<float, kBlock> effect{}, x{}, y{}, z{};
    if (one_hot_) {
      // Straight loops over arrays of this function, so that they vectorize.
      std::array<std::int64_t, kBlock> drawn;
      const std::uint64_t counter = static_cast<std::uint64_t>(first + begin);
      for (std::int64_t s = 0; s < kBlock; ++s)
        drawn[s] = draw(g, counter + static_cast<std::uint64_t>(s));
      for (std::int64_t s = 0; s < kBlock; ++s) {
        const std::uint64_t word = mix64(g.hidden ^ static_cast<std::uint64_t>(drawn[s]));
        effect[s] = hidden_number(word, 0);
        x[s] = hidden_number(word, 1);
        y[s] = hidden_number(word, 2);
        z[s] = hidden_number(word, 3);
      }
      Id* const ids = batch.ids.data() + static_cast<std::int64_t>(f) * batch.size + begin;
      for (std::int64_t s = 0; s < size; ++s) ids[s] = static_cast<Id>(drawn[s]);
    } else {
      const std::int64_t* const offsets =
          batch.offsets.data() + static_cast<std::int64_t>(f) * batch.size + begin;
      for (std::int64_t s = 0; s < size; ++s) {
        std::uint64_t counter = static_cast<std::uint64_t>(first + begin + s);
        for (std::int64_t i = offsets[s]; i < offsets[s + 1]; ++i, counter += kNext) {
          const std::int64_t id = draw(g, counter);
          batch.ids[static_cast<std::size_t>(i)] = static_cast<Id>(id);
          const std::uint64_t word = mix64(g.hidden ^ static_cast<std::uint64_t>(id));
          effect[s] += hidden_number(word, 0);
          x[s] += hidden_number(word, 1);
          y[s] += hidden_number(word, 2);
          z[s] += hidden_number(word, 3);
        }
      }
    }
    const float v = g.vector_scale;
    for (std::int64_t s = 0; s < kBlock; ++s) {
      block.logit[s] += g.main_scale * effect[s];
      block.sum[0][s] += v * x[s];
      block.sum[1][s] += v * y[s];
      block.sum[2][s] += v * z[s];
      block.squares[s] += v * v * (x[s] * x[s] + y[s] * y[s] + z[s] * z[s]);
    }
  }

  /// Makes dense columns, which are uniform with mean 0 and variance 1. They act linearly, each
  /// with a weight of its own.
  void make_dense(std::int64_t first, std::int64_t size, float* dense, Block& block) const {
    const std::int64_t columns = options_.dense_columns;
    for (std::int64_t s = 0; s < size; ++s) {
      std::uint64_t word = mix64(dense_stream_ ^ static_cast<std::uint64_t>(first + s));
      float sum = 0.0f;
      for (std::int64_t c = 0; c < columns; ++c) {
        if (c % 4 == 0 && c != 0) word = mix64(word);
        const float value =
            hidden_number(word, static_cast<int>(c % 4)) * static_cast<float>(kUnit);
        dense[s * columns + c] = value;
        sum += dense_weights_[static_cast<std::size_t>(c)] * value;
      }
      block.logit[s] += sum;
    }
  }

  void finish(std::int64_t first, std::int64_t size, float* labels, float* true_logits,
              const Block& block) const {
    for (std::int64_t s = 0; s < size; ++s) {
      float pairs = -block.squares[s];
      for (const auto& sum : block.sum) pairs += sum[s] * sum[s];
      const float logit = static_cast<float>(options_.bias) + block.logit[s] + 0.5f * pairs;
      const float u = unit_float(mix64(label_stream_ ^ static_cast<std::uint64_t>(first + s)));
      labels[s] = u * (1.0f + std::exp(-logit)) < 1.0f ? 1.0f : 0.0f;
      if (true_logits != nullptr) true_logits[s] = logit;
    }
  }

  std::vector<SyntheticFeature> features_;
  SyntheticOptions options_;
  bool one_hot_ = true;
  std::vector<Generator> generators_;
  std::vector<float> dense_weights_;
  std::uint64_t dense_stream_ = 0;
  std::uint64_t label_stream_ = 0;
};

}}  // namespace tessera::v0
