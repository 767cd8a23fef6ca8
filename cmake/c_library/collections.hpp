// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A collection and its steps without their types: what the functions of tessera.h call. collection_of.hpp
// is what stands behind it, once for each kind of memory.
#pragma once

#include "handles.hpp"

#include <tessera/comm/any_communicator.hpp>
#include <tessera/core/jagged.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/sharding/layout.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera { inline namespace v0 {
class CheckpointContents;
}}

namespace tessera_c {

/// Gradients as a step takes them: `pooled` and `weights`, empty if they are not asked for, are checked.
struct Gradients {
  tessera::MatrixView<const float> pooled;
  std::span<const tessera_sequence_gradient> sequences{};
  std::span<float> weights{};
};

/// A batch in flight.
class Step {
 public:
  virtual ~Step() = default;
  virtual void route(const tessera::KeyedJagged<std::int32_t>& ids) = 0;
  virtual void route(const tessera::KeyedJagged<std::int64_t>& ids) = 0;
  virtual void look_up(tessera::MatrixView<float> output) = 0;
  virtual void evaluate(const tessera::KeyedJagged<std::int32_t>& ids,
                        tessera::MatrixView<float> output) = 0;
  virtual void evaluate(const tessera::KeyedJagged<std::int64_t>& ids,
                        tessera::MatrixView<float> output) = 0;
  /// Writes the shape of a sequence's vectors and, if `output` is not null, these.
  virtual void write_sequence(int feature, float* output, std::int64_t stride, std::int64_t& ids,
                              std::int64_t& width, std::string_view call) const = 0;
  virtual void update(const Gradients& gradients, std::string_view call) = 0;
  virtual void accumulate(const Gradients& gradients, std::string_view call) = 0;

  std::int64_t samples = 0, ids = 0;  ///< of the batch that was routed last
};

/// What a collection's pointer, its steps and vocabularies share: they may be destroyed in any order.
class Collection {
 public:
  Collection(const tessera_layout& of, const tessera_communicator& ranks, int host_threads)
      : names(of.names),
        communicator_owner(ranks.owner),
        communicator(ranks.any),
        threads(host_threads) {}
  virtual ~Collection() = default;

  virtual std::unique_ptr<Step> make_step() = 0;
  virtual const tessera::Layout& layout() const = 0;
  virtual std::int64_t columns() const = 0;
  virtual double apply(float most_norm, std::span<float> dense) = 0;
  virtual void set_learning_rate(float rate) = 0;
  virtual void set_learning_rate(std::string_view table, float rate) = 0;
  virtual std::int64_t steps() const = 0;
  virtual std::span<const std::uint64_t> bad_ids() const = 0;
  /// Returns, of each state that a table has, whether it has one column.
  virtual std::vector<bool> states(int table) const = 0;
  /// Copies this rank's part of a table (`state` -1) or of a state to or from host memory.
  virtual void get(std::string_view table, int state, tessera::MatrixView<float> whole) const = 0;
  virtual void set(std::string_view table, int state, tessera::MatrixView<const float> whole) = 0;
  virtual void reset_rows(int table, std::span<const std::int64_t> rows) = 0;
  virtual void add_to(tessera::CheckpointContents& contents) = 0;

  /// Makes this collection's GPU the thread's, if it has one. Returns which one was before.
  virtual int enter() const { return -1; }
  virtual void leave(int /*before*/) const {}
  /// Throws InvalidArgument unless a batch's memory is that of the tables.
  virtual void require_memory(const void* /*memory*/, std::string_view /*call*/,
                              std::string_view /*what*/) const {}

  std::shared_ptr<std::deque<std::string>> names;  ///< of the layout
  std::shared_ptr<void> communicator_owner;
  std::shared_ptr<tessera::AnyCommunicator> communicator;  ///< of host memory
  int threads;                                             ///< of the host
};

std::shared_ptr<Collection> make_host_collection(const tessera_layout& layout,
                                                 const tessera_communicator& ranks,
                                                 const tessera_collection_options& options);
/// `devices`: of each rank. Throws Unsupported in a library that was built without CUDA.
std::shared_ptr<Collection> make_cuda_collection(const tessera_layout& layout,
                                                 const tessera_communicator& ranks,
                                                 const tessera_collection_options& options,
                                                 std::span<const std::int32_t> devices);

/// A collection during a call.
class InUse {
 public:
  explicit InUse(Collection& of) : of_(of), before_(of.enter()) {}
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;
  ~InUse() { of_.leave(before_); }
  Collection* operator->() const { return &of_; }
  Collection& operator*() const { return of_; }

 private:
  Collection& of_;
  int before_;
};

}  // namespace tessera_c

struct tessera_collection : tessera_c::Handle {
  std::shared_ptr<tessera_c::Collection> state{};
};

struct tessera_step : tessera_c::Handle {
  std::shared_ptr<tessera_c::Collection> collection{};
  std::unique_ptr<tessera_c::Step> state{};
};
