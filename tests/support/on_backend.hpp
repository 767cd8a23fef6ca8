// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// What a test's body needs in order to run on any backend: memory where the backend reads it, ranks
// whose memory it is, and what backends may do differently. <gpu/array.hpp> adds what is CUDA's.
#pragma once

#include <tessera/tessera.hpp>

#include <doctest/doctest.h>
#include <support/message_of.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <vector>

namespace on_backend {

using namespace tessera;  // NOLINT: a header of tests

/// Whether `forward` itself throws what is wrong with ids and offsets. Where the host cannot read
/// them it does so only if the step waits for sizes anyway (docs/gpu/README.md, "When the host
/// waits"); else `bad_ids` or a later `forward` throws it.
template <class Backend>
inline constexpr bool reports_at_once = Backend::host_readable;

/// An array in a backend's memory.
template <class T, class Backend>
class Array {
 public:
  Array(const Backend& backend, std::span<const T> values) : backend_(backend) {
    buffer_.resize(backend, values.size());
    backend.copy(buffer_.data(), values.data(), values.size_bytes());
    backend.synchronize();
  }
  std::span<T> span() const { return buffer_.span(); }
  T* data() const { return buffer_.data(); }
  std::vector<T> read() const {
    std::vector<T> values(buffer_.size());
    backend_.copy(values.data(), buffer_.data(), values.size() * sizeof(T));
    backend_.synchronize();
    return values;
  }

 private:
  Backend backend_;
  Buffer<T, Backend> buffer_;
};

template <class T, class Backend>
std::vector<T> read(const Backend& backend, const T* from, std::size_t count) {
  std::vector<T> values(count);
  backend.copy(values.data(), from, count * sizeof(T));
  backend.synchronize();
  return values;
}

/// A batch whose spans are copied as they are, right or wrong, to where the backend reads them.
template <IdType Id, class Backend>
class BatchOn {
 public:
  BatchOn(const Backend& backend, const KeyedJagged<Id>& batch)
      : ids_(backend, batch.ids),
        offsets_(backend, batch.offsets),
        weights_(backend, batch.weights),
        keyed_{batch.features,  batch.batch,     ids_.span(),
               offsets_.span(), weights_.span(), batch.bounds} {}
  const KeyedJagged<Id>& keyed() const { return keyed_; }

 private:
  Array<Id, Backend> ids_;
  Array<std::int64_t, Backend> offsets_;
  Array<float, Backend> weights_;
  KeyedJagged<Id> keyed_;
};

/// How communicators of one process move a backend's memory.
template <class Backend>
struct MemoryOf {
  using type = detail::HostTransfer;
  static type of(const Backend&) { return {}; }
};

/// The communicator of a backend's thread ranks.
template <class Backend>
struct ThreadRanks {
  using type = BasicThreadCommunicator<typename MemoryOf<Backend>::type>;
  static type make(ThreadCommunicator& host, const Backend& backend) {
    return type(host.group(), host.rank(), MemoryOf<Backend>::of(backend));
  }
};

/// Runs f(communicator, backend) on each of `ranks` threads.
template <class Backend, class F>
void on_thread_ranks(int ranks, F&& f, ThreadGroupOptions options = {}) {
  const auto rank = [&](ThreadCommunicator& host) {
    const Backend backend;
    auto communicator = ThreadRanks<Backend>::make(host, backend);
    f(communicator, backend);
  };
  run_ranks(ranks, rank, options);
}

/// A rank that is alone, and its backend.
template <class Backend>
struct Alone {
  using Comm = BasicSelfCommunicator<typename MemoryOf<Backend>::type>;
  Backend backend;
  Comm communicator{MemoryOf<Backend>::of(backend)};
};

template <class F>
void check_message(F&& f, const std::string& part) {
  const std::string text = message_of(f);
  CAPTURE(text);
  CHECK(text.find(part) != std::string::npos);
}

/// Looks a batch up; what is wrong with its ids is thrown by now.
template <class Embeddings, class Id>
void look_up(Embeddings& embeddings, const KeyedJagged<Id>& batch) {
  embeddings.forward(batch);
  if constexpr (!reports_at_once<std::remove_cvref_t<decltype(embeddings.backend())>>)
    embeddings.bad_ids();
}

}  // namespace on_backend
