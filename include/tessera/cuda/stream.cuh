// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/error.cuh>

#include <utility>

namespace tessera { inline namespace v0 { namespace gpu {

/// Owns a stream that does not wait for the default stream. Move-only.
class Stream {
 public:
  Stream() {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creating a stream");
  }
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~Stream() {
    if (stream_ != nullptr) report(cudaStreamDestroy(stream_), "destroying a stream");
  }

  cudaStream_t get() const noexcept { return stream_; }
  /// Waits for all work; throws what the work met.
  void synchronize() const { check(cudaStreamSynchronize(stream_), "waiting for a stream"); }

 private:
  cudaStream_t stream_ = nullptr;
};

/// Owns an event: a point in a stream's work for which other streams wait. Move-only.
class Event {
 public:
  Event() { check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "creating an event"); }
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~Event() {
    if (event_ != nullptr) report(cudaEventDestroy(event_), "destroying an event");
  }

  void record(cudaStream_t stream) { check(cudaEventRecord(event_, stream), "recording an event"); }
  /// Lets the host wait for what was recorded, if anything was.
  void synchronize() const { check(cudaEventSynchronize(event_), "waiting for an event"); }
  /// Lets later work of `stream` start after what was recorded.
  void block(cudaStream_t stream) const {
    check(cudaStreamWaitEvent(stream, event_, 0), "making a stream wait for an event");
  }

 private:
  cudaEvent_t event_ = nullptr;
};

/// An event that keeps its time. Move-only.
class TimedEvent {
 public:
  TimedEvent() { check(cudaEventCreate(&event_), "creating an event"); }
  TimedEvent(TimedEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  TimedEvent& operator=(TimedEvent&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~TimedEvent() {
    if (event_ != nullptr) report(cudaEventDestroy(event_), "destroying an event");
  }

  void record(cudaStream_t stream) const {
    check(cudaEventRecord(event_, stream), "recording an event");
  }
  void synchronize() const { check(cudaEventSynchronize(event_), "waiting for an event"); }
  /// Returns the milliseconds from this event to a later one, for which the host waits.
  float until(const TimedEvent& later) const {
    later.synchronize();
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, event_, later.event_), "reading a time");
    return milliseconds;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}}}  // namespace tessera::v0::gpu
