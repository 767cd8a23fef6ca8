// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The trainer's model on a GPU. Ranks are threads that share it, or have one each
// (optional_nccl.cu); each has a stream, and others to sum gradients and to route ahead on.
#include "../support/outbox.cuh"
#include "../support/step_graph.cuh"
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
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace dlrm {

using namespace tessera;

using support::CountedMemory;
using support::Outbox;
using support::StepGraph;

/// On a GPU: they are copied there. `in_place`: those of training have their places and sizes for as
/// long as batches allow; lists have bounds, which grow where a batch of some rank has more.
template <>
class BatchMemory<Cuda> {
 public:
  using Batch = ClickBatch<std::int32_t>;

  BatchMemory(const Cuda& backend, const ModelShape& shape, std::int64_t max_batch, bool in_place)
      : host_(Host(), shape, max_batch),
        labels_(backend, max_batch, in_place),
        numbers_(backend, max_batch * shape.numbers, in_place),
        ids_(backend, max_batch * std::ssize(shape.features), in_place),
        offsets_(backend, shape.has_lists() ? max_batch * std::ssize(shape.features) + 1 : 0,
                 in_place) {}

  MatrixView<const float> numbers(const Batch& batch) {
    return {numbers_.send(batch.dense).data(), batch.size, batch.dense_columns};
  }
  std::span<const float> labels(const Batch& batch) { return labels_.send(batch.labels); }
  KeyedJagged<std::int32_t> ids(
      const Batch& batch, const std::function<void(std::span<std::int64_t>)>& agree = nullptr) {
    KeyedJagged<std::int32_t> ids = host_.ids(batch);
    std::swap(bounds_[0], bounds_[1]);
    bounds_[0].clear();
    for (std::int64_t f = 0; !ids.one_hot() && f < ids.features; ++f)
      bounds_[0].push_back(ids.end(f) - ids.begin(f));
    if (agree) {
      rooms_.resize(bounds_[0].size());
      for (std::size_t f = 0; f < rooms_.size(); ++f)
        if (bounds_[0][f] > rooms_[f]) rooms_[f] = bounds_[0][f] + bounds_[0][f] / 4 + 16;
      agree(rooms_);
      bounds_[0] = rooms_;
    }
    ids.bounds = bounds_[0];
    ids.ids = ids_.send(ids.ids, std::reduce(bounds_[0].begin(), bounds_[0].end()));
    ids.offsets = offsets_.send(ids.offsets);
    return ids;
  }

 private:
  BatchMemory<Host> host_;
  Outbox<float> labels_, numbers_;
  Outbox<std::int32_t> ids_;
  Outbox<std::int64_t> offsets_;
  std::vector<std::int64_t> rooms_;      ///< of each feature in training
  std::vector<std::int64_t> bounds_[2];  ///< ids of each feature: what the GPU need not be asked
};

namespace {

/// One stream of a rank, and a communicator that moves device memory in its order.
class Lane {
 public:
  Lane(ThreadCommunicator* threads, DeviceRanks* device) : device_(device) {
    if (threads != nullptr && device == nullptr)
      ranks_.emplace(threads->group(), threads->rank(), CudaTransfer(backend_));
  }
  const Cuda& backend() const { return backend_; }
  const CountedMemory& memory() const { return memory_; }
  /// Another handle of the same stream, for who works beside the communicator's thread.
  Cuda handle() const { return Cuda({.stream = stream_.get()}); }
  AnyCommunicator communicator() {
    if (device_ != nullptr) return device_->on(stream_.get());
    return ranks_ ? AnyCommunicator(*ranks_) : AnyCommunicator(self_);
  }

 private:
  CountedMemory memory_;
  gpu::Stream stream_;
  Cuda backend_{{.stream = stream_.get(), .memory = memory_}};
  DeviceRanks* device_;
  BasicSelfCommunicator<CudaTransfer> self_{CudaTransfer(backend_)};
  std::optional<BasicThreadCommunicator<CudaTransfer>> ranks_;
};

class CudaBackend final : public RankBackend {
 public:
  explicit CudaBackend(const RankLinks& links)
      : main_(links.main, links.device.get()),
        gradients_(links.gradients, links.device.get()),
        routing_(links.routing, links.device.get()),
        device_(links.device) {}
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
            EmbeddingOptions(options, communicators.routing), backend, routing_.backend()),
        .graph = options.graph ? StepGraph<Cuda>(backend, main_.memory()) : StepGraph<Cuda>()};
    return std::make_unique<Model<Cuda>>(communicators, options, shape, max_batch,
                                         std::move(parts));
  }

 private:
  Lane main_, gradients_, routing_;
  std::shared_ptr<DeviceRanks> device_;  // ends before the streams
};

std::unique_ptr<RankBackend> make_cuda_backend(const RankLinks& links) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  require<Error>(error == cudaSuccess && count > 0,
                 "--backend cuda: there is no GPU that CUDA can use here ({})",
                 error == cudaSuccess ? "no device" : cudaGetErrorString(error));
  return std::make_unique<CudaBackend>(links);
}

[[maybe_unused]] const bool added = backends().emplace("cuda", &make_cuda_backend).second;

}  // namespace
}  // namespace dlrm
