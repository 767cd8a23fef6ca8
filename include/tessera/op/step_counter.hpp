// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/optimizer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/op/kernel.hpp>

#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <memory>
#include <type_traits>

namespace tessera { inline namespace v0 { namespace op {

/// What an update reads of its step, in the backend's memory: so a step that was recorded once
/// (a CUDA graph) has new values in every replay.
template <Optimizer O>
struct StepValues {
  typename O::Step step;
  std::uint64_t rounding_seed;
};

/// The steps counted by the backend, in its own memory.
template <Optimizer O>
struct StepClock {
  std::int64_t steps;
  float learning_rate;
  StepValues<O> now;
};

/// Sets the clock's steps, unless below 0, and its rate, unless NaN.
template <Optimizer O>
struct SetClock {
  struct Parameters {
    StepClock<O>* clock = nullptr;
    std::int64_t steps = -1;
    float learning_rate = std::numeric_limits<float>::quiet_NaN();
  };
};

/// Counts a step and computes its values; `seed`: of all steps' stochastic rounding.
template <Optimizer O>
struct AdvanceClock {
  struct Parameters {
    StepClock<O>* clock = nullptr;
    O optimizer;
    std::uint64_t seed = 0;
  };
};

}}}  // namespace tessera::v0::op

namespace tessera { inline namespace v0 { namespace detail {

/// Returns the rate. Throws InvalidArgument unless it is finite and not negative.
float checked_rate(float learning_rate);

/// Whether a backend records steps and replays them, with an optimizer whose `at` runs there too.
template <class Backend, class O>
concept CountsSteps = requires(const Backend& backend) {
  { backend.recording() } -> std::same_as<bool>;
  requires O::device_steps;
};

/// The number of steps, and the learning rate of the next, of one optimizer. On a backend that
/// replays recorded steps both are in its memory and every replay counts; elsewhere on the host.
/// Operations are named by std::decay_t<O>: see Updater.
template <Optimizer O, class Backend>
class StepCounter {
 public:
  static constexpr bool on_backend = CountsSteps<Backend, O>;

  StepCounter(const Backend& backend, float learning_rate)
      : backend_(backend), learning_rate_(learning_rate) {
    if constexpr (on_backend) {
      clock_ = {static_cast<Clock*>(backend_.allocate(sizeof(Clock))), Free{backend_}};
      op::run<op::SetClock<std::decay_t<O>>>(backend_, {clock_.get(), 0, learning_rate});
    }
  }

  /// Returns the number of steps that were called, those of replays left out. Never waits.
  std::int64_t called() const { return steps_; }
  /// Returns the number of all. Waits for the backend once a step was recorded, as only its memory
  /// knows of replays.
  std::int64_t all() const {
    if constexpr (on_backend)
      if (recorded_) {
        std::int64_t steps = 0;
        backend_.copy(&steps, &clock_->steps, sizeof(steps));
        backend_.synchronize();
        return steps;
      }
    return steps_;
  }
  void set(std::int64_t steps) {
    steps_ = steps;
    if constexpr (on_backend)
      op::run<op::SetClock<std::decay_t<O>>>(backend_, {clock_.get(), steps});
  }
  float learning_rate() const { return learning_rate_; }
  /// Sets the rate of later steps, replayed ones too. While a step is recorded this is recorded,
  /// too, and sets the rate in every replay.
  void set_learning_rate(float rate) {
    learning_rate_ = rate;
    if constexpr (on_backend) {
      const bool recording = backend_.recording();
      if (rate != in_memory_ || recording)
        op::run<op::SetClock<std::decay_t<O>>>(backend_, {clock_.get(), -1, rate});
      // after a recording a replay may change it at any time
      in_memory_ = recording ? std::numeric_limits<float>::quiet_NaN() : rate;
    }
  }

  /// Begins a step. Returns where its values are, or null: then the host's count is `called()`.
  const op::StepValues<O>* advance([[maybe_unused]] const O& optimizer,
                                   [[maybe_unused]] std::uint64_t seed) {
    if constexpr (on_backend) {
      if (backend_.recording())
        recorded_ = true;
      else
        ++steps_;
      op::run<op::AdvanceClock<std::decay_t<O>>>(backend_, {clock_.get(), optimizer, seed});
      return &clock_->now;
    } else {
      ++steps_;
      return nullptr;
    }
  }

 private:
  using Clock = op::StepClock<O>;
  struct Free {
    Backend backend{};
    void operator()(Clock* clock) const noexcept { backend.deallocate(clock, sizeof(Clock)); }
  };
  struct None {};

  Backend backend_;
  float learning_rate_, in_memory_ = learning_rate_;
  std::int64_t steps_ = 0;
  bool recorded_ = false;
  std::conditional_t<on_backend, std::unique_ptr<Clock, Free>, None> clock_;
};

#ifdef TESSERA_INLINE
TESSERA_INLINE float checked_rate(float learning_rate) {
  require(std::isfinite(learning_rate) && learning_rate >= 0,
          "the learning rate is {}; it must be finite, and 0 or more", learning_rate);
  return learning_rate;
}
#endif

}}}  // namespace tessera::v0::detail
