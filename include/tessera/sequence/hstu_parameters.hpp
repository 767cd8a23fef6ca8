// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/dense/normal.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera { inline namespace v0 {

/// Lengths, masks and scales of an HSTU block.
struct HstuOptions {
  std::int64_t max_length = 0;        ///< of any sequence
  std::int64_t attention_length = 0;  ///< attention is divided by it; 0: by max_length
  float alpha = 0;                    ///< of queries times keys; 0: 1 / sqrt(AttentionDim)
  float norm_epsilon = 1e-6f;
  /// SiLU of U, V, Q and K, as in the paper; else of U alone, as in the reference's STULayer
  bool silu_all = true;
  bool concat_ux = false;             ///< the output product reads U and the attention, too
  std::int64_t attention_window = 0;  ///< how much of the history a position sees; 0: all
  bool tf32 = false;                  ///< as MlpOptions'
};

class Host;

/// An HSTU block on a backend: sequence/hstu.hpp has that of Host, sequence/hstu.cuh that of Cuda.
template <int Heads, int AttentionDim, int HiddenDim, class Backend = Host>
class HstuLayer;

namespace detail {

/// Heads of an HSTU block, and the columns of each: of queries and keys, of values.
struct HstuHeads {
  int heads = 1, attention_dim = 0, hidden_dim = 0;
};

/// What an HSTU block is on every backend: its options, the places of its parameters and their
/// first values.
class AnyHstuParameters {
 public:
  std::int64_t width() const { return width_; }
  std::int64_t parameter_count() const { return output_offset() + width_ * gated_width(); }

  /// Uses these spans (parameter_count() floats each, in the backend's memory) from now on; the
  /// dense parameters' constructor calls it.
  void bind(std::span<float> values, std::span<float> gradients) {
    const auto count = static_cast<std::size_t>(parameter_count());
    require(values.size() == count && gradients.size() == count,
            "HstuLayer: bind needs {} parameters, got {} values and {} gradients", count,
            values.size(), gradients.size());
    values_ = values;
    gradients_ = gradients;
  }

 protected:
  /// Throws InvalidArgument for sizes that are not positive.
  AnyHstuParameters(HstuHeads heads, std::int64_t width, HstuOptions options)
      : heads_(heads), width_(width), options_(options) {
    require(heads.heads > 0 && heads.attention_dim > 0 && heads.hidden_dim > 0,
            "HstuLayer: {} heads of {} and {} columns; all must be positive", heads.heads,
            heads.attention_dim, heads.hidden_dim);
    require(width > 0, "HstuLayer: width must be positive, got {}", width);
    require(options.max_length > 0, "HstuLayer: max_length must be positive, got {}",
            options.max_length);
    require(options.norm_epsilon > 0, "HstuLayer: norm_epsilon must be positive, got {}",
            options.norm_epsilon);
    require(options.attention_window >= 0, "HstuLayer: attention_window is {}; 0 means no limit",
            options.attention_window);
    require(options.attention_length >= 0,
            "HstuLayer: attention_length is {}; 0 means that of max_length",
            options.attention_length);
    require(std::isfinite(options.alpha), "HstuLayer: alpha is {}; it must be finite",
            options.alpha);
    if (options_.alpha == 0)
      options_.alpha = 1.0f / std::sqrt(static_cast<float>(heads.attention_dim));
    if (options_.attention_length == 0) options_.attention_length = options.max_length;
  }

  /// Writes first values into host memory: norms 1 and 0, matrices Glorot normal, biases 0; from
  /// (seed, layer number, index).
  void first_values(std::span<float> values, std::uint64_t seed, int first_layer) const {
    std::fill(values.begin(), values.end(), 0.0f);
    std::fill_n(values.data(), width_, 1.0f);
    std::fill_n(values.data() + output_norm_offset(), hidden_columns, 1.0f);
    const auto matrix = [&](std::int64_t at, std::int64_t out, std::int64_t in, int layer) {
      fill_normal(values.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(out * in)),
                  std::sqrt(2.0f / static_cast<float>(in + out)), seed,
                  static_cast<std::uint64_t>(layer) * 2);
    };
    matrix(uvqk_offset(), uvqk_columns, width_, first_layer);
    matrix(output_offset(), width_, gated_width(), first_layer + 1);
  }

  std::int64_t gated_width() const {
    return options_.concat_ux ? 3 * hidden_columns : hidden_columns;
  }
  std::int64_t activated() const { return options_.silu_all ? uvqk_columns : hidden_columns; }
  std::int64_t uvqk_offset() const { return 2 * width_; }
  std::int64_t uvqk_bias_offset() const { return uvqk_offset() + uvqk_columns * width_; }
  std::int64_t output_norm_offset() const { return uvqk_bias_offset() + uvqk_columns; }
  std::int64_t output_offset() const { return output_norm_offset() + 2 * hidden_columns; }
  const float* value(std::int64_t at) const { return values_.data() + at; }
  float* gradient(std::int64_t at) const { return gradients_.data() + at; }

  void require_bound() const {
    require(values_.size() == static_cast<std::size_t>(parameter_count()),
            "HstuLayer: has no parameters yet; construct DenseParameters with it, or call bind");
  }
  void check_forward(MatrixView<const float> x, MatrixView<float> y) const {
    require_bound();
    require(x.columns == width_ && y.columns == width_ && x.rows == y.rows,
            "HstuLayer: input is {} x {}, output {} x {}; both must be positions x {}", x.rows,
            x.columns, y.rows, y.columns, width_);
    require(x.sound() && y.sound(),
            "HstuLayer: input or output has no memory, or a stride below its columns");
    require(x.rows == 0 || x.data != y.data,
            "HstuLayer: input and output are one matrix; backward reads the input again");
  }
  void check_backward(MatrixView<const float> dy, MatrixView<float> dx) const {
    require_bound();
    require(dy.rows == x_.rows && dy.columns == width_,
            "HstuLayer: gradient is {} x {}, must be {} x {} as the output of the last forward",
            dy.rows, dy.columns, x_.rows, width_);
    require(dx.data == nullptr || (dx.rows == x_.rows && dx.columns == width_),
            "HstuLayer: gradient of the input is {} x {}, must be {} x {}", dx.rows, dx.columns,
            x_.rows, width_);
    require(dy.sound() && (dx.data == nullptr || dx.sound()),
            "HstuLayer: a gradient has no memory, or a stride below its columns");
  }

  HstuHeads heads_;
  std::int64_t hidden_columns = std::int64_t{heads_.heads} * heads_.hidden_dim,
               uvqk_columns = 2 * (hidden_columns + heads_.heads * heads_.attention_dim),
               v_column = hidden_columns, q_column = 2 * hidden_columns,
               k_column = q_column + heads_.heads * heads_.attention_dim;
  std::int64_t width_;
  HstuOptions options_;
  std::span<float> values_, gradients_;
  MatrixView<const float> x_;  ///< of the last forward
};

/// The same with heads that are known to the compiler.
template <int Heads, int AttentionDim, int HiddenDim>
class HstuParameters : public AnyHstuParameters {
  static_assert(Heads > 0 && AttentionDim > 0 && HiddenDim > 0,
                "HstuLayer: Heads, AttentionDim and HiddenDim must be positive");

 protected:
  HstuParameters(std::int64_t width, HstuOptions options)
      : AnyHstuParameters({Heads, AttentionDim, HiddenDim}, width, options) {}
};

}  // namespace detail

}}  // namespace tessera::v0
