// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/gradients.cuh>
#include <tessera/dense/dense_kernels.cuh>
#include <tessera/dense/mlp.cuh>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

namespace tessera::inline v0 {

/// DenseParameters in device memory: all dense parameters of a model in one array and their
/// gradients in another. Binds and initializes the layers in the given order.
class CudaDenseParameters {
 public:
  template <class... Layers>
  CudaDenseParameters(const Cuda& backend, std::uint64_t seed, Layers&... layers)
      : values_(backend.buffer<float>((std::int64_t{0} + ... + layers.parameter_count()))),
        gradients_(backend.buffer<float>(values_.size())) {
    backend.fill_zero(gradients_.data(), gradients_.bytes());
    detail::bind_layers(values(), gradients(), seed, layers...);
  }

  std::int64_t size() const { return values_.size(); }
  std::span<float> values() const {
    return {values_.data(), static_cast<std::size_t>(values_.size())};
  }
  std::span<float> gradients() const {
    return {gradients_.data(), static_cast<std::size_t>(gradients_.size())};
  }

  /// As DenseParameters'.
  void accumulate(const Cuda& backend) {
    if (sum_.size() != size()) sum_ = backend.buffer<float>(size());
    if (!accumulated_) backend.fill_zero(sum_.data(), sum_.bytes());
    accumulated_ = true;
    op::run<op::AddValues>(backend, {sum_.data(), gradients_.data(), size()});
  }
  void take_accumulated(const Cuda& backend) {
    require(accumulated_,
            "take_accumulated: no gradients are accumulated; call accumulate after each backward");
    backend.copy(gradients_.data(), sum_.data(), sum_.bytes());
    accumulated_ = false;
  }

 private:
  gpu::DeviceBuffer<float> values_, gradients_, sum_;
  bool accumulated_ = false;
};

/// Updates all dense parameters of a model by the formula of an optimizer without states per row:
/// Sgd, Adagrad, Adam. `weight_decay` is added to the gradient as weight_decay * w.
template <Optimizer O>
class CudaDenseOptimizer {
  static_assert(O::row_states == 0 && !O::needs_mean_square,
                "CudaDenseOptimizer: dense parameters have no rows; use Sgd, Adagrad or Adam");
  static_assert(std::is_same_v<StateElement<O>, float>,
                "CudaDenseOptimizer: states of dense parameters are floats, not NarrowStates");

 public:
  explicit CudaDenseOptimizer(const Cuda& backend, O optimizer = {}, float weight_decay = 0)
      : backend_(backend), optimizer_(optimizer), weight_decay_(weight_decay) {}

  /// What a checkpoint must hold beside the parameters, in device memory. The spans stay valid as
  /// long as the optimizer does.
  std::vector<DenseState> states(const CudaDenseParameters& parameters) {
    make_states(parameters.size());
    std::vector<DenseState> states;
    for (const std::string_view name : O::state_names)
      states.push_back({name,
                        {states_.data() + std::ssize(states) * parameters.size(),
                         static_cast<std::size_t>(parameters.size())}});
    return states;
  }
  /// Updates so far: part of the state of Adam and its like, which correct moments by it. What is
  /// written there counts from the next call of this or of `step` on. Once a step was captured in
  /// a CUDA graph the host waits, for only the GPU knows how often the graph ran.
  std::int64_t& steps()
    requires requires(O optimizer) { optimizer.beta1; }
  {
    tell_steps();
    step_ = told_ = counter_.all();
    return step_;
  }
  /// Of later steps, of a graph's replays too.
  void set_learning_rate(float rate) { counter_.set_learning_rate(rate); }

  /// A step that is captured takes this learning rate in every replay.
  void step(const CudaDenseParameters& parameters, float learning_rate) {
    set_learning_rate(learning_rate);
    step(parameters);
  }
  /// With the learning rate that was set last: one that is captured takes what is set before a
  /// replay.
  void step(const CudaDenseParameters& parameters) {
    const std::int64_t count = parameters.size();
    make_states(count);
    tell_steps();
    const op::StepValues<O>* const now = counter_.advance(optimizer_, 0);
    step_ = told_ = counter_.called();
    backend_.launch("update_parameters", gpu::ceil_divide(count, gpu::dense_threads),
                    gpu::dense_threads, gpu::update_parameters<O>,
                    optimizer_.at(counter_.learning_rate(), step_), now, parameters.values().data(),
                    static_cast<const float*>(parameters.gradients().data()), states_.data(), count,
                    weight_decay_);
  }

 private:
  /// What was written to steps().
  void tell_steps() {
    if (step_ != told_) counter_.set(step_);
    told_ = step_;
  }
  void make_states(std::int64_t count) {
    if (states_.size() == O::element_states * count) return;
    std::vector<float> first;
    for (int s = 0; s < O::element_states; ++s)
      first.insert(first.end(), static_cast<std::size_t>(count), optimizer_.initial_state(s));
    states_ = backend_.buffer<float>(std::ssize(first));
    backend_.copy(states_.data(), first.data(), states_.bytes());
    backend_.synchronize();
  }

  Cuda backend_;
  O optimizer_;
  float weight_decay_;
  gpu::DeviceBuffer<float> states_;
  std::int64_t step_ = 0, told_ = 0;  ///< told_: as counter_ knows it
  StepCounter<O, Cuda> counter_{backend_, 0.0f};
};

/// BinaryCrossEntropyWithLogits on a GPU: gradient [batch, 1] becomes (sigmoid(x) - y) / normalizer
/// (0: the batch), and the loss is added to a double in device memory, so that the host need not
/// wait for it. A label outside [0, 1] makes the loss NaN.
struct CudaBinaryCrossEntropy {
  std::int64_t normalizer = 0;

  /// `labels`: device memory. An empty gradient: the loss alone.
  void forward_backward(const Cuda& backend, MatrixView<const float> logits,
                        std::span<const float> labels, MatrixView<float> gradient,
                        double* loss) const {
    require(
        normalizer >= 0,
        "CudaBinaryCrossEntropy: normalizer is {}; give the global batch, or 0 for the rows given",
        normalizer);
    require(logits.columns == 1, "CudaBinaryCrossEntropy: logits have {} columns, need 1",
            logits.columns);
    require(static_cast<std::int64_t>(labels.size()) == logits.rows,
            "CudaBinaryCrossEntropy: {} labels for {} logits", labels.size(), logits.rows);
    require(gradient.data == nullptr || (gradient.rows == logits.rows && gradient.columns == 1),
            "CudaBinaryCrossEntropy: gradient is {} x {}, needs {} x 1", gradient.rows,
            gradient.columns, logits.rows);
    if (logits.rows == 0) return;
    const double scale = 1.0 / static_cast<double>(normalizer > 0 ? normalizer : logits.rows);
    const std::int64_t blocks = gpu::ceil_divide(logits.rows, gpu::dense_threads);
    auto* const block_losses = backend.scratch_for<double>(gpu::ScratchSlot::entries, blocks);
    backend.launch("binary_cross_entropy", blocks, gpu::dense_threads, gpu::binary_cross_entropy<>,
                   logits, labels.data(), gradient, scale, block_losses);
    backend.launch("add_losses", 1, gpu::dense_threads, gpu::add_losses<>, block_losses,
                   static_cast<int>(blocks), scale, loss);
  }
};

}  // namespace tessera::inline v0
