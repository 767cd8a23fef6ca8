// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// The learning rate of every step: a value made of stages. Steps count from 0; the first update
/// uses step 0.
///
///     const auto rates = Schedule::chain({{8'000, Schedule::warmup(24.0, 8'000)}, {40'000, Schedule::constant(24.0)}},
///                                        Schedule::polynomial({.rate = 24.0, .decay_steps = 24'000, .power = 2}));
///     embeddings.set_learning_rate(rates.at(step));
///
/// Below s is the step and t = s + 1. Formulas are evaluated in double. They are those of NVIDIA's
/// DLRM recipe (polynomial) and of torch.optim.lr_scheduler. Every function throws InvalidArgument
/// on rates that are negative or non-finite, and on lengths that cannot be.
class Schedule {
 public:
  struct Polynomial {
    double rate = 0;
    /// the rate grows in a straight line to `rate`, which it has from here
    std::int64_t warmup_steps = 0;
    std::int64_t decay_start_step = 0;  ///< until here; at least warmup_steps
    std::int64_t decay_steps = 1;       ///< and falls during these to end_rate, which it keeps
    double power = 1;
    double end_rate = 0;
  };
  /// A schedule for `steps` steps, whose own steps count from the stage's first.
  struct Stage;

  static Schedule constant(double rate) {
    return Schedule({.kind = Kind::constant, .rate = checked(rate)});
  }

  /// Returns rate min(1, t / steps).
  static Schedule warmup(double rate, std::int64_t steps) {
    require(steps >= 0, "Schedule: a warm-up of {} steps", steps);
    return Schedule({.kind = Kind::warmup, .rate = checked(rate), .length = steps});
  }

  /// Returns warm-up, rate, then max(rate ((end - t) / decay_steps)^power, end_rate) with end =
  /// decay_start_step + decay_steps, then end_rate.
  static Schedule polynomial(const Polynomial& p) {
    require(p.warmup_steps >= 0 && p.decay_start_step >= p.warmup_steps && p.decay_steps >= 1,
            "Schedule: a polynomial needs 0 <= warmup_steps <= decay_start_step and decay_steps >= "
            "1, got {}, {} and {}",
            p.warmup_steps, p.decay_start_step, p.decay_steps);
    require(std::isfinite(p.power) && p.power >= 0, "Schedule: the power of a polynomial is {}",
            p.power);
    return Schedule({.kind = Kind::polynomial,
                     .rate = checked(p.rate),
                     .end_rate = checked(p.end_rate),
                     .length = p.decay_steps,
                     .shape = p.power,
                     .warmup = p.warmup_steps,
                     .decay_start = p.decay_start_step});
  }

  /// Returns end_rate + (rate - end_rate) (1 + cos(pi min(1, s / decay_steps))) / 2.
  static Schedule cosine(double rate, std::int64_t decay_steps, double end_rate = 0) {
    require(decay_steps >= 1, "Schedule: a cosine over {} steps", decay_steps);
    return Schedule({.kind = Kind::cosine,
                     .rate = checked(rate),
                     .end_rate = checked(end_rate),
                     .length = decay_steps});
  }

  /// Returns rate min(t / warmup_steps, sqrt(warmup_steps / t)).
  static Schedule inverse_sqrt(double rate, std::int64_t warmup_steps) {
    require(warmup_steps >= 1, "Schedule: an inverse square root with a warm-up of {} steps",
            warmup_steps);
    return Schedule({.kind = Kind::inverse_sqrt, .rate = checked(rate), .length = warmup_steps});
  }

  /// Returns rate factor^floor(s / every).
  static Schedule step_decay(double rate, std::int64_t every, double factor) {
    require(every >= 1, "Schedule: a decay every {} steps", every);
    return Schedule(
        {.kind = Kind::every, .rate = checked(rate), .length = every, .shape = checked(factor)});
  }

  /// Returns rate factor^k, k being how many of the milestones are <= s. Milestones ascend.
  static Schedule step_decay(double rate, std::vector<std::int64_t> milestones, double factor) {
    require(std::is_sorted(milestones.begin(), milestones.end()),
            "Schedule: milestones must ascend");
    Schedule schedule({.kind = Kind::milestones, .rate = checked(rate), .shape = checked(factor)});
    schedule.pieces_.front().milestones = std::move(milestones);
    return schedule;
  }

  /// Returns stages one after another, then `last` for ever. A stage may be a chain itself.
  static Schedule chain(const std::vector<Stage>& stages, const Schedule& last);

  /// Returns the schedule that a text names, as on command lines: stages with commas between, each
  /// but the last with its length in steps.
  ///
  ///     constant | hold:STEPS | warmup:STEPS | poly:STEPS[:POWER[:END]] | cosine:STEPS[:END] | inverse-sqrt:WARMUP | step:EVERY:FACTOR
  ///
  /// END is a share of `rate`. `constant`, `inverse-sqrt` and `step` have no length, so they come
  /// last. Without such a last stage, the rate stays what the last one ends with. Throws
  /// InvalidArgument naming the stage at fault.
  static Schedule parse(std::string_view text, double rate);

  /// Returns the rate of an update.
  double rate(std::int64_t step) const {
    require(step >= 0, "Schedule: the step is {}", step);
    for (const Piece& piece : pieces_) {
      if (step < piece.steps) return rate_of(piece, piece.begin + step);
      step -= piece.steps;
    }
    return 0;  // not reached: the last piece is endless
  }
  /// Returns the same, as optimizers take it.
  float at(std::int64_t step) const { return static_cast<float>(rate(step)); }

 private:
  enum class Kind : std::uint8_t {
    constant,
    warmup,
    polynomial,
    cosine,
    inverse_sqrt,
    every,
    milestones
  };
  static constexpr std::int64_t endless = INT64_MAX;

  struct Piece {
    Kind kind = Kind::constant;
    double rate = 0, end_rate = 0;
    std::int64_t length = 0;  ///< of the warm-up, the decay, or from one decay to the next
    double shape = 1;         ///< power or factor
    std::int64_t warmup = 0, decay_start = 0;
    std::vector<std::int64_t> milestones{};
    std::int64_t begin = 0;        ///< the piece's own first step
    std::int64_t steps = endless;  ///< how long it holds
  };

  explicit Schedule(Piece piece) : pieces_{std::move(piece)} {}
  Schedule() = default;

  static double checked(double rate) {
    require(std::isfinite(rate) && rate >= 0,
            "Schedule: a rate or factor is {}: must be finite and not negative", rate);
    return rate;
  }

  static double rate_of(const Piece& p, std::int64_t step) {
    const double s = static_cast<double>(step), t = s + 1, length = static_cast<double>(p.length);
    switch (p.kind) {
      case Kind::constant:
        return p.rate;
      case Kind::warmup:
        return t >= length ? p.rate : p.rate * t / length;
      case Kind::polynomial: {
        const double start = static_cast<double>(p.decay_start), end = start + length;
        if (t <= static_cast<double>(p.warmup)) return p.rate * t / static_cast<double>(p.warmup);
        if (t <= start) return p.rate;
        return t <= end ? std::max(p.rate * std::pow((end - t) / length, p.shape), p.end_rate)
                        : p.end_rate;
      }
      case Kind::cosine:
        return p.end_rate + (p.rate - p.end_rate) *
                                (1 + std::cos(std::numbers::pi * std::min(1.0, s / length))) / 2;
      case Kind::inverse_sqrt:
        return p.rate * std::min(t / length, std::sqrt(length / t));
      case Kind::every:
        return p.rate * std::pow(p.shape, static_cast<double>(step / p.length));
      case Kind::milestones: {
        const auto passed =
            std::upper_bound(p.milestones.begin(), p.milestones.end(), step) - p.milestones.begin();
        return p.rate * std::pow(p.shape, static_cast<double>(passed));
      }
    }
    return 0;
  }

  /// Adds the first `steps` steps of another schedule.
  void append(const Schedule& other, std::int64_t steps) {
    for (const Piece& piece : other.pieces_) {
      if (steps == 0) return;
      pieces_.push_back(piece);
      pieces_.back().steps = std::min(piece.steps, steps);
      if (steps != endless) steps -= pieces_.back().steps;
    }
  }

  std::vector<Piece> pieces_;
};

struct Schedule::Stage {
  std::int64_t steps;
  Schedule schedule;
};

inline Schedule Schedule::chain(const std::vector<Stage>& stages, const Schedule& last) {
  Schedule result;
  for (const Stage& stage : stages) {
    require(stage.steps >= 0 && stage.steps < endless, "Schedule: a stage of {} steps",
            stage.steps);
    result.append(stage.schedule, stage.steps);
  }
  result.append(last, endless);
  return result;
}

namespace detail {

inline std::vector<std::string_view> split_text(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

/// One stage of a schedule's text: a kind and its numbers.
class ScheduleText {
 public:
  ScheduleText(std::string_view whole, std::string_view stage)
      : whole_(whole), stage_(stage), fields_(split_text(stage, ':')) {}

  /// Returns whether the stage is of this kind. Throws if it is, with another number of numbers
  /// than these.
  bool is(std::string_view kind, std::size_t least, std::size_t most) const {
    if (fields_.front() != kind) return false;
    if (const std::size_t n = fields_.size() - 1; n < least || n > most)
      fail(formatted("it has {} numbers", n));
    return true;
  }
  template <class T>
  T number(std::size_t field, T otherwise = {}) const {
    if (field >= fields_.size()) return otherwise;
    const char* const end = fields_[field].data() + fields_[field].size();
    const auto read = std::from_chars(fields_[field].data(), end, otherwise);
    if (read.ec != std::errc() || read.ptr != end)
      fail(formatted("'{}' is not a number, or does not fit", fields_[field]));
    return otherwise;
  }
  std::int64_t steps() const {
    const std::int64_t steps = number<std::int64_t>(1);
    if (steps < 1 || steps == INT64_MAX) fail("it takes one step at least");
    return steps;
  }
  [[noreturn]] void fail(std::string_view what) const {
    throw InvalidArgument(
        formatted("schedule '{}', stage '{}': {}; stages are constant, hold:STEPS, warmup:STEPS, "
                  "poly:STEPS[:POWER[:END]], "
                  "cosine:STEPS[:END], inverse-sqrt:WARMUP and step:EVERY:FACTOR",
                  whole_, stage_, what));
  }

 private:
  std::string_view whole_, stage_;
  std::vector<std::string_view> fields_;
};

}  // namespace detail

inline Schedule Schedule::parse(std::string_view text, double rate) {
  std::vector<Stage> stages;
  double end = checked(rate);  // what the stages so far end with
  const auto add = [&](std::int64_t steps, const Schedule& schedule, double ends_with) {
    stages.push_back({steps, schedule});
    end = ends_with;
  };
  const std::vector<std::string_view> parts = detail::split_text(text, ',');
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const detail::ScheduleText stage(text, parts[i]);
    if (stage.is("hold", 1, 1)) {
      add(stage.steps(), constant(end), end);
    } else if (stage.is("warmup", 1, 1)) {
      add(stage.steps(), warmup(rate, stage.steps()), rate);
    } else if (stage.is("poly", 1, 3)) {
      const double last = rate * stage.number<double>(3);
      add(stage.steps(),
          polynomial({.rate = rate,
                      .decay_steps = stage.steps(),
                      .power = stage.number(2, 1.0),
                      .end_rate = last}),
          last);
    } else if (stage.is("cosine", 1, 2)) {
      const double last = rate * stage.number<double>(2);
      add(stage.steps(), cosine(rate, stage.steps(), last), last);
    } else {
      const bool last = i + 1 == parts.size();
      if (last && stage.is("constant", 0, 0)) return chain(stages, constant(rate));
      if (last && stage.is("inverse-sqrt", 1, 1))
        return chain(stages, inverse_sqrt(rate, stage.steps()));
      if (last && stage.is("step", 2, 2))
        return chain(stages, step_decay(rate, stage.steps(), stage.number<double>(2)));
      stage.fail("unknown, or endless and not the last");
    }
  }
  return chain(stages, constant(end));
}

}}  // namespace tessera::v0
