// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

namespace dlrm {

/// What ran from when to when, in seconds of std::chrono::steady_clock, as StageSpan.
struct Span {
  std::string_view name;
  double begin = 0, end = 0;
  bool beside = false;  ///< of the host, beside a backend's work
};

/// Spans of one rank's thread, and of the work that it gives to its backend, if they are wanted.
class Spans {
 public:
  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

  /// Times the work of a backend whose calls end before their work does.
  class WorkClock {
   public:
    virtual ~WorkClock() = default;
    /// Returns the span's number.
    virtual std::size_t begin(std::string_view name) = 0;
    virtual void end(std::size_t span) = 0;
    /// Moves all spans to the end of `to`. Waits for the work.
    virtual void take(std::vector<Span>& to) = 0;
  };

  /// `work`: null where calls end when their work does.
  explicit Spans(bool wanted, std::unique_ptr<WorkClock> work = nullptr)
      : wanted_(wanted), work_(std::move(work)) {}

  /// From now until it is destroyed.
  class Timing {
   public:
    Timing(Spans& spans, std::string_view name, WorkClock* work) : spans_(spans), work_(work) {
      if (!spans_.wanted_) return;
      if (work_ != nullptr)
        of_work_ = work_->begin(name);
      else
        span_ = {name, now(), 0, spans_.work_ != nullptr};
    }
    Timing(const Timing&) = delete;
    Timing& operator=(const Timing&) = delete;
    ~Timing() {
      if (!spans_.wanted_) return;
      if (work_ != nullptr) {
        work_->end(of_work_);
      } else {
        span_.end = now();
        spans_.spans_.push_back(span_);
      }
    }

   private:
    Spans& spans_;
    WorkClock* work_;
    Span span_;
    std::size_t of_work_ = 0;
  };
  /// Of what the host does itself.
  Timing time_host(std::string_view name) { return {*this, name, nullptr}; }
  /// Of what the backend is given.
  Timing time(std::string_view name) { return {*this, name, work_.get()}; }

  bool wanted() const { return wanted_; }
  void stop() { wanted_ = false; }
  /// Those since the last call. Waits for the backend's work.
  std::vector<Span> take() {
    std::vector<Span> all = std::exchange(spans_, {});
    if (work_) work_->take(all);
    return all;
  }

 private:
  bool wanted_;
  std::unique_ptr<WorkClock> work_;
  std::vector<Span> spans_;
};

/// By marks in the order of the backend's work.
template <class Backend>
class MarkedWork final : public Spans::WorkClock {
 public:
  explicit MarkedWork(const Backend& backend) : backend_(backend) {}

  std::size_t begin(std::string_view name) override {
    if (names_.size() == marks_.size()) marks_.emplace_back();
    names_.push_back(name);
    const std::size_t span = names_.size() - 1;
    backend_.mark(marks_[span].first);
    return span;
  }
  void end(std::size_t span) override { backend_.mark(marks_[span].second); }
  void take(std::vector<Span>& to) override {
    if (names_.empty()) return;
    const auto& last = marks_[names_.size() - 1].second;
    last.synchronize();
    const double now = Spans::now();
    const auto at = [&](const auto& mark) { return now - 1e-3 * mark.until(last); };
    for (std::size_t i = 0; i < names_.size(); ++i)
      to.push_back({names_[i], at(marks_[i].first), at(marks_[i].second)});
    names_.clear();
  }

 private:
  using Mark = typename Backend::TimeMark;
  Backend backend_;
  std::vector<std::string_view> names_;       // of spans since the last `take`
  std::vector<std::pair<Mark, Mark>> marks_;  // at least as many, used again
};

template <class Backend>
std::unique_ptr<Spans::WorkClock> work_clock(const Backend& backend) {
  if constexpr (requires { typename Backend::TimeMark; })
    return std::make_unique<MarkedWork<Backend>>(backend);
  else
    return nullptr;
}

}  // namespace dlrm
