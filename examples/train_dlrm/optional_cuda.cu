// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The trainer's model on a GPU. Ranks are threads that share it; each has a stream, and others to
// sum gradients and to route ahead on.
#include "backends.hpp"
#include "batch_memory.hpp"
#include "cuda_embeddings.hpp"
#include "interaction_of.hpp"
#include "model.hpp"
#include "plans.hpp"
#include "vector_ops.cuh"

#include <tessera/comm/rank_memory.cuh>
#include <tessera/dense/dense.cuh>
#include <tessera/interaction/concat.cuh>
#include <tessera/interaction/cross.cuh>
#include <tessera/interaction/dot.cuh>
#include <tessera/tessera.cuh>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace dlrm {

using namespace tessera;

/// How numbers of batches come to the GPU: through page-locked memory of two turns, so that the host
/// waits for a copy only where it is two ahead of it. Those of a turn stay there until the one after
/// the next.
template <class T>
class Outbox {
 public:
  /// `most` at a time, as far as it is known.
  Outbox(const Cuda& backend, std::int64_t most) : backend_(backend) {
    for (Turn& turn : turns_) turn.resize(backend_, static_cast<std::size_t>(most));
  }

  std::span<const T> send(std::span<const T> values) {
    std::swap(turns_[0], turns_[1]);
    Turn& turn = turns_[0];
    turn.copied.synchronize();
    turn.resize(backend_, values.size());
    std::copy(values.begin(), values.end(), turn.from.data());
    backend_.copy(turn.to.data(), turn.from.data(), values.size_bytes());
    turn.copied.record(backend_.stream());
    return turn.to.span();
  }

 private:
  struct Turn {
    void resize(const Cuda& backend, std::size_t count) {
      from.resize(backend, count);
      to.resize(backend, count);
    }
    Buffer<T, Cuda> from{Tier::host}, to{};
    gpu::Event copied{};
  };

  Cuda backend_;
  Turn turns_[2];
};

/// On a GPU: they are copied there.
template <>
class BatchMemory<Cuda> {
 public:
  using Batch = ClickBatch<std::int32_t>;

  BatchMemory(const Cuda& backend, const ModelShape& shape, std::int64_t max_batch)
      : host_(Host(), shape, max_batch),
        labels_(backend, max_batch),
        numbers_(backend, max_batch * shape.numbers),
        ids_(backend, max_batch * std::ssize(shape.features)),
        offsets_(backend, shape.has_lists() ? max_batch * std::ssize(shape.features) + 1 : 0) {}

  MatrixView<const float> numbers(const Batch& batch) {
    return {numbers_.send(batch.dense).data(), batch.size, batch.dense_columns};
  }
  std::span<const float> labels(const Batch& batch) { return labels_.send(batch.labels); }
  KeyedJagged<std::int32_t> ids(const Batch& batch) {
    KeyedJagged<std::int32_t> ids = host_.ids(batch);
    std::swap(bounds_[0], bounds_[1]);
    bounds_[0].clear();
    for (std::int64_t f = 0; !ids.one_hot() && f < ids.features; ++f)
      bounds_[0].push_back(ids.end(f) - ids.begin(f));
    ids.bounds = bounds_[0];
    ids.ids = ids_.send(ids.ids);
    ids.offsets = offsets_.send(ids.offsets);
    return ids;
  }

 private:
  BatchMemory<Host> host_;
  Outbox<float> labels_, numbers_;
  Outbox<std::int32_t> ids_;
  Outbox<std::int64_t> offsets_;
  std::vector<std::int64_t> bounds_[2];  ///< ids of each feature: what the GPU need not be asked
};

namespace {

/// One stream of a rank, and a communicator that moves device memory in its order.
class Lane {
 public:
  explicit Lane(ThreadCommunicator* threads) {
    if (threads != nullptr)
      ranks_.emplace(threads->group(), threads->rank(), CudaTransfer(backend_));
  }
  const Cuda& backend() const { return backend_; }
  /// Another handle of the same stream, for who works beside the communicator's thread.
  Cuda handle() const { return Cuda({.stream = stream_.get()}); }
  AnyCommunicator communicator() {
    return ranks_ ? AnyCommunicator(*ranks_) : AnyCommunicator(self_);
  }

 private:
  gpu::Stream stream_;
  Cuda backend_{{.stream = stream_.get()}};
  BasicSelfCommunicator<CudaTransfer> self_{CudaTransfer(backend_)};
  std::optional<BasicThreadCommunicator<CudaTransfer>> ranks_;
};

class CudaBackend final : public RankBackend {
 public:
  CudaBackend(ThreadCommunicator* main, ThreadCommunicator* gradients, ThreadCommunicator* routing)
      : main_(main), gradients_(gradients), routing_(routing) {}
  AnyCommunicator main() override { return main_.communicator(); }
  AnyCommunicator gradients() override { return gradients_.communicator(); }
  AnyCommunicator routing() override { return routing_.communicator(); }
  std::unique_ptr<RankModel> make_model(Communicators& communicators, const Options& options,
                                        const ModelShape& shape, std::int64_t max_batch) override {
    const Cuda& backend = main_.backend();
    ModelParts<Cuda> parts{
        .backend = backend,
        .gradients = gradients_.handle(),
        .interaction = interaction_of(options, shape, backend),
        .embeddings = make_cuda_embeddings(
            communicators.main, model_layout(options, communicators.main.size(), shape),
            EmbeddingOptions(options, communicators.routing), backend, routing_.backend())};
    return std::make_unique<Model<Cuda>>(communicators, options, shape, max_batch,
                                         std::move(parts));
  }

 private:
  Lane main_, gradients_, routing_;
};

std::unique_ptr<RankBackend> make_cuda_backend(ThreadCommunicator* main,
                                               ThreadCommunicator* gradients,
                                               ThreadCommunicator* routing) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  require<Error>(error == cudaSuccess && count > 0,
                 "--backend cuda: there is no GPU that CUDA can use here ({})",
                 error == cudaSuccess ? "no device" : cudaGetErrorString(error));
  return std::make_unique<CudaBackend>(main, gradients, routing);
}

[[maybe_unused]] const bool added = backends().emplace("cuda", &make_cuda_backend).second;

}  // namespace
}  // namespace dlrm
