// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The trainer's model on a GPU. Ranks are threads that share it; each has a stream, and others to
// sum gradients and to route ahead on.
#include "backends.hpp"
#include "batch_memory.hpp"
#include "cuda_embeddings.hpp"
#include "interaction.hpp"
#include "model.hpp"
#include "plans.hpp"

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

namespace dlrm {
namespace {

using namespace tessera;

std::unique_ptr<Interaction> make_interaction(const Options& options, const ModelShape& shape,
                                              const Cuda& backend) {
  const int width = shape.vector_width;
  if (options.interaction == "cross")
    return std::make_unique<CrossOf<CrossInteraction<Linear<Cuda>>>>(
        backend, shape.columns(),
        CrossOptions{.layers = options.cross_layers,
                     .rank = options.cross_rank,
                     .tf32 = tf32(options),
                     .precision = dense_precision(options)});
  require(options.interaction == "dot",
          "--backend cuda: its interactions are dot and cross; give --backend host for {}",
          options.interaction);
  std::unique_ptr<Interaction> found =
      tf32(options) ? make_dot<true>(backend, width) : make_dot<false>(backend, width);
  require(
      found != nullptr && shape.one_width(),
      "--backend cuda: a dot interaction takes one --embedding-width of 8, 16, 32, 64 or 128 for "
      "all tables; give --interaction cross, or --backend host");
  return found;
}

}  // namespace

/// How values of batches come to the GPU: through page-locked memory of two turns, so that the host
/// waits for a copy only where it is two ahead of it.
template <class T>
class Outbox {
 public:
  Outbox(const Cuda& backend, std::int64_t most)
      : backend_(backend),
        turns_{{backend, static_cast<std::size_t>(most)},
               {backend, static_cast<std::size_t>(most)}} {}

  void send(std::span<const T> values, T* to) {
    turn_ ^= 1;
    copied_[turn_].synchronize();
    T* const from = turns_[turn_].data();
    std::copy(values.begin(), values.end(), from);
    backend_.copy(to, from, values.size_bytes());
    copied_[turn_].record(backend_.stream());
  }

 private:
  Cuda backend_;
  detail::HostBuffer<T, Cuda> turns_[2];
  gpu::Event copied_[2];
  int turn_ = 0;
};

/// On a GPU: they are copied there.
template <>
class BatchMemory<Cuda> {
 public:
  using Batch = ClickBatch<std::int32_t>;

  BatchMemory(const Cuda& backend, const ModelShape&, std::int64_t max_batch)
      : labels_(backend, max_batch, 1),
        numbers_(backend, max_batch, 13),
        ids_{{backend, max_batch, kFeatures}, {backend, max_batch, kFeatures}},
        send_labels_(backend, max_batch),
        send_numbers_(backend, max_batch * 13),
        send_ids_(backend, max_batch * kFeatures) {}

  MatrixView<const float> numbers(const Batch& batch) {
    const MatrixView<float> to = numbers_.first_rows(batch.size);
    send_numbers_.send(batch.dense, to.data);
    return to;
  }
  std::span<const float> labels(const Batch& batch) {
    float* const to = labels_.view().data;
    send_labels_.send(batch.labels, to);
    return {to, batch.labels.size()};
  }
  KeyedJagged<std::int32_t> ids(const Batch& batch) {
    std::swap(ids_[0], ids_[1]);
    std::int32_t* const to = ids_[0].view().data;
    send_ids_.send(batch.ids, to);
    return {.features = kFeatures,
            .batch = batch.size,
            .ids = {to, batch.ids.size()},
            .offsets = {},
            .weights = {}};
  }

 private:
  Matrix<float, Cuda> labels_, numbers_;
  Matrix<std::int32_t, Cuda> ids_[2];
  Outbox<float> send_labels_, send_numbers_;
  Outbox<std::int32_t> send_ids_;
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
    require(shape.is_criteo(),
            "--backend cuda trains on 13 numbers and 26 categories of one id each; these data have "
            "{} and {}: use --backend host",
            shape.numbers, shape.features.size());
    const Cuda& backend = main_.backend();
    ModelParts<Cuda> parts{
        .backend = backend,
        .gradients = gradients_.handle(),
        .interaction = make_interaction(options, shape, backend),
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
