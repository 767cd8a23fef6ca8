// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/optimizer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/math.hpp>
#include <tessera/dense/parameters.hpp>
#include <tessera/host/backend.hpp>
#include <tessera/host/lanes.hpp>
#include <tessera/host/parallel.hpp>
#include <tessera/op/describe_optimizer.hpp>
#include <tessera/op/kernel.hpp>
#include <tessera/op/step_counter.hpp>
#include <tessera/optimizer/optimizers.hpp>
#include <tessera/tables/buffer.hpp>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

namespace tessera { inline namespace v0 {

namespace op {

/// An optimizer's formula for each of `count` parameters; the gradient is gradients[i] +
/// weight_decay * values[i].
template <Optimizer O>
struct UpdateParameters {
  struct Parameters {
    float* values = nullptr;
    const float* gradients = nullptr;
    float* states = nullptr;  ///< [element_states, count]
    std::int64_t count = 0;
    float weight_decay = 0;
    typename O::Step step;
    /// null, or in the backend's memory and in place of `step`: a recorded step has new values in
    /// every replay
    const StepValues<O>* now = nullptr;
  };
};

template <Optimizer O>
struct Kernel<UpdateParameters<O>, Host> {
  using Parameters = typename UpdateParameters<O>::Parameters;

  static void run(const Host& backend, const Parameters& p) {
    constexpr std::int64_t block = 4096;  // floats: what a thread takes at a time
    const std::int64_t blocks = (p.count + block - 1) / block;
    const int threads = static_cast<int>(std::min<std::int64_t>(backend.threads(), blocks));
    if (threads <= 1) return update(p, 0, p.count);
    detail::parallel_for(threads, threads, [&](std::int64_t t, int) {
      update(p, blocks * t / threads * block,
             std::min(p.count, blocks * (t + 1) / threads * block));
    });
  }

 private:
  static void update(const Parameters& p, std::int64_t begin, std::int64_t end) {
    std::int64_t i = begin;
    if constexpr (requires(Lanes x, Lanes* s, typename O::Step::Row row) {
                    { p.step.element(x, x, s, row) } -> std::same_as<Lanes>;
                  })
      for (; i + Lanes::count <= end; i += Lanes::count) update_at<Lanes>(p, i);
    for (; i < end; ++i) update_at<float>(p, i);
  }

  template <class V>
  [[gnu::always_inline]] static void update_at(const Parameters& p, std::int64_t i) {
    const typename O::Step::Row row = p.step.row(nullptr, 0.0f);
    V weight, gradient, state[std::max(1, O::element_states)];
    std::memcpy(&weight, p.values + i, sizeof(V));
    std::memcpy(&gradient, p.gradients + i, sizeof(V));
    // if constexpr: g++ 12 at -O0 warns of the loop over no states.
    if constexpr (O::element_states > 0)
      for (int s = 0; s < O::element_states; ++s)
        std::memcpy(&state[s], p.states + s * p.count + i, sizeof(V));
    using math::multiply_add;
    gradient = multiply_add(p.weight_decay, weight, gradient);
    weight = p.step.element(weight, gradient, state, row);
    std::memcpy(p.values + i, &weight, sizeof(V));
    if constexpr (O::element_states > 0)
      for (int s = 0; s < O::element_states; ++s)
        std::memcpy(p.states + s * p.count + i, &state[s], sizeof(V));
  }
};

}  // namespace op

/// Updates all dense parameters of a model by the formula of an optimizer without states per row:
/// Sgd, Adagrad, Adam, ... `weight_decay` is added to the gradient as weight_decay * w, as PyTorch
/// does. It, constants, rates and steps that can make no step are an InvalidArgument.
///
///     DenseOptimizer optimizer(host, Adam(), 1e-5f);  // a formula, and weight decay
///     optimizer.step(parameters, 0.001f);
template <Optimizer O, class Backend = Host>
class DenseOptimizer {
  static_assert(O::row_states == 0 && !O::needs_mean_square,
                "DenseOptimizer: dense parameters have no rows; use Sgd, Adagrad or Adam");
  static_assert(std::is_same_v<detail::StateElement<O>, float>,
                "DenseOptimizer: states of dense parameters are floats, not NarrowStates");

 public:
  explicit DenseOptimizer(const Backend& backend, O optimizer = {}, float weight_decay = 0)
      : backend_(backend), optimizer_(optimizer), weight_decay_(weight_decay) {
    require(std::isfinite(weight_decay) && weight_decay >= 0,
            "DenseOptimizer: the weight decay is {}; it must be finite, and 0 or more",
            weight_decay);
    detail::describe_optimizer(optimizer);  // throws for constants that make no step
  }
  explicit DenseOptimizer(O optimizer = {}, float weight_decay = 0)
      : DenseOptimizer(Backend(), optimizer, weight_decay) {}

  /// Returns what a checkpoint must hold beside the parameters, in the backend's memory. The spans
  /// stay valid as long as the optimizer does.
  std::vector<detail::DenseState> states(const DenseParameters<Backend>& parameters) {
    make_states(parameters.size());
    std::vector<detail::DenseState> states;
    const auto count = static_cast<std::size_t>(parameters.size());
    for (const std::string_view name : O::state_names)
      states.push_back({name, states_.span().subspan(states.size() * count, count)});
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
  /// Sets the rate of later steps, of a graph's replays too.
  void set_learning_rate(float rate) { counter_.set_learning_rate(detail::checked_rate(rate)); }

  /// Makes a step. One that is captured takes this learning rate in every replay.
  void step(DenseParameters<Backend>& parameters, float learning_rate) {
    set_learning_rate(learning_rate);
    step(parameters);
  }
  /// Steps with the learning rate that was set last: one that is captured takes what is set before
  /// a replay.
  void step(DenseParameters<Backend>& parameters) {
    make_states(parameters.size());
    tell_steps();
    const op::StepValues<O>* const now = counter_.advance(optimizer_, 0);
    step_ = told_ = counter_.called();
    op::run<op::UpdateParameters<O>>(backend_,
                                     {.values = parameters.values().data(),
                                      .gradients = parameters.gradients().data(),
                                      .states = states_.data(),
                                      .count = parameters.size(),
                                      .weight_decay = weight_decay_,
                                      .step = optimizer_.at(counter_.learning_rate(), step_),
                                      .now = now});
  }

 private:
  /// Tells what was written to steps().
  void tell_steps() {
    require(step_ >= 0, "DenseOptimizer: {} steps; give 0 or more", step_);
    if (step_ != told_) counter_.set(step_);
    told_ = step_;
  }
  void make_states(std::int64_t count) {
    if (count == count_) return;
    count_ = count;
    std::vector<float> first;
    for (int s = 0; s < O::element_states; ++s)
      first.insert(first.end(), static_cast<std::size_t>(count), optimizer_.initial_state(s));
    states_.resize(backend_, first.size());
    backend_.copy(states_.data(), first.data(), first.size() * sizeof(float));
    backend_.synchronize();
  }

  Backend backend_;
  O optimizer_;
  float weight_decay_;
  Buffer<float, Backend> states_;
  std::int64_t count_ = 0;            ///< of parameters that states_ is of
  std::int64_t step_ = 0, told_ = 0;  ///< told_: as counter_ knows it
  detail::StepCounter<O, Backend> counter_{backend_, 0.0f};
};

}}  // namespace tessera::v0
