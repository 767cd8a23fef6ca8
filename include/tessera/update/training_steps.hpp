// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/random.hpp>
#include <tessera/op/step_counter.hpp>
#include <tessera/tables/arena_kernels.hpp>
#include <tessera/tables/training_groups.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>

namespace tessera { inline namespace v0 { namespace detail {

/// What an optimizer step asks of TrainingSteps.
class AnyTrainingSteps {
 public:
  /// Returns what StepCounter's does.
  virtual std::int64_t called() const = 0;
  /// Returns what ranks compare: the rate; of several groups a negative number made of all their
  /// rates, with four bits that tell of each of the first six groups, and of the others together.
  virtual double rates() const = 0;
  /// Returns the next step, which is not begun; valid until the next call.
  virtual const AnyUpdateStep& next() = 0;
  /// Begins it. `seed`: of stochastic rounding.
  virtual void advance(std::uint64_t seed) = 0;

 protected:
  ~AnyTrainingSteps() = default;
};

/// Steps and learning rates of all training groups of a collection.
template <class Trained, class Backend>
class TrainingSteps final : public AnyTrainingSteps {
  using Groups = GroupsOf<Trained>;
  static constexpr std::size_t count = Groups::count;

 public:
  /// Takes groups. `rate`: of groups that name none. `training` must stay.
  TrainingSteps(const Backend& backend, const Trained& training, float rate)
      : TrainingSteps(backend, training, rate, std::make_integer_sequence<int, Groups::count>{}) {}

  std::int64_t called() const override {
    return of_one([](const auto& counter) { return counter.called(); });
  }
  /// Returns what StepCounter's does.
  std::int64_t all() const {
    return of_one([](const auto& counter) { return counter.all(); });
  }
  void set(std::int64_t steps) {
    for_each([&](auto i) { std::get<i()>(counters_).set(steps); });
  }
  float learning_rate(int group) const { return rates_[static_cast<std::size_t>(group)]; }
  void set_learning_rate(int group, float rate) {
    for_each([&](auto i) {
      if (i() != static_cast<std::size_t>(group)) return;
      rates_[i()] = rate;
      if (advances_[i()]) std::get<i()>(counters_).set_learning_rate(rate);
    });
  }
  void set_learning_rate(float rate) {
    for (int group = 0; group < Groups::count; ++group) set_learning_rate(group, rate);
  }
  double rates() const override {
    if constexpr (count == 1) {
      return rates_[0];
    } else {
      std::uint64_t all = 0, each = 0;
      for_each([&](auto i) {
        if (!advances_[i()]) return;
        const std::uint64_t word = random_word(i(), std::bit_cast<std::uint32_t>(rates_[i()]));
        all = random_word(all, word);
        each ^= (word >> 60) << 4 * std::min<std::size_t>(i(), 6);
      });
      return -1 - static_cast<double>((all >> 40) << 28 | each);  // below 2^53
    }
  }

  const AnyUpdateStep& next() override {
    now_ = {};
    now_.number = called() + 1;
    for_each([&](auto i) {
      std::get<i()>(now_.functors) =
          Groups::template get<static_cast<int>(i())>(training_).at(rates_[i()], now_.number);
    });
    return now_;
  }
  void advance(std::uint64_t seed) override {
    for_each([&](auto i) {
      if (advances_[i()])
        std::get<i()>(now_.on_backend) = std::get<i()>(counters_).advance(
            Groups::template get<static_cast<int>(i())>(training_), seed);
    });
  }

 private:
  template <int... I>
  TrainingSteps(const Backend& backend, const Trained& training, float rate,
                std::integer_sequence<int, I...>)
      : training_(training),
        advances_(groups_with_tables(training)),
        rates_{Groups::template rate<I>(training, rate)...},
        counters_{StepCounter<typename Groups::template optimizer<I>, Backend>(
            backend, Groups::template rate<I>(training, rate))...} {}

  /// Returns those that train and have a table; one at least.
  static std::array<bool, count> groups_with_tables([[maybe_unused]] const Trained& training) {
    std::array<bool, count> some{};
    if constexpr (!Optimizer<Trained>)
      for (const int group : training.group_of_table)
        some[static_cast<std::size_t>(group)] = Groups::trains[static_cast<std::size_t>(group)];
    // steps are counted if all tables are frozen, too
    if (std::none_of(some.begin(), some.end(), [](bool any) { return any; })) some[0] = true;
    return some;
  }

  /// Returns f(the counter of a group that advances).
  template <class F>
  std::int64_t of_one(F&& f) const {
    std::int64_t found = 0;
    bool done = false;
    for_each([&](auto i) {
      if (!advances_[i()] || done) return;
      found = f(std::get<i()>(counters_));
      done = true;
    });
    return found;
  }

  /// Calls f(index), as a constant.
  template <class F>
  static void for_each(F&& f) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (f(std::integral_constant<std::size_t, I>{}), ...);
    }(std::make_index_sequence<count>{});
  }

  const Trained& training_;
  UpdateStep<Trained> now_;
  std::array<bool, count> advances_;
  std::array<float, count> rates_;
  typename Groups::template counters<Backend> counters_;
};

}  // namespace detail

}}  // namespace tessera::v0
