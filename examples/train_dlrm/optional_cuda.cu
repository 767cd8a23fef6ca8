// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The trainer's model on a GPU. Ranks are threads that share it; each has a stream, and others to
// sum gradients and to route ahead on.
#include "backends.hpp"
#include "cuda_embeddings.hpp"
#include "dense_contents.hpp"
#include "interaction.hpp"
#include "plans.hpp"

#include <tessera/comm/bucketed_all_reduce.hpp>
#include <tessera/comm/rank_memory.cuh>
#include <tessera/dense/dense.cuh>
#include <tessera/interaction/cross.cuh>
#include <tessera/interaction/dot.cuh>
#include <tessera/tessera.cuh>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

namespace dlrm {
namespace {

using namespace tessera;

template <int Width, bool Tf32>
class CudaDot final : public Interaction {
  using Products = CudaDotInteraction<kFeatures + 1, Width, 16, float, Tf32>;

 public:
  explicit CudaDot(const Cuda& backend) : backend_(backend) {}
  std::int64_t columns() const override { return Products::columns(); }
  void forward(MatrixView<const float> x, MatrixView<float> z) override {
    Products::forward(backend_, x, z);
  }
  void backward(MatrixView<const float> x, MatrixView<const float> dz,
                MatrixView<float> dx) override {
    Products::backward(backend_, x, dz, dx);
  }

 private:
  Cuda backend_;
};

/// Whether products of floats are on the tensor cores.
bool tf32(const Options& options) { return options.dense_precision != "fp32"; }

std::unique_ptr<Interaction> make_cuda_interaction(const Options& options, const ModelShape& shape,
                                                   const Cuda& backend) {
  const int width = shape.vector_width;
  if (options.interaction == "cross")
    return std::make_unique<CrossOf<CudaCross>>(
        backend, shape.columns(),
        CudaCrossOptions{
            .layers = options.cross_layers, .rank = options.cross_rank, .tf32 = tf32(options)});
  require(options.interaction == "dot",
          "--backend cuda: its interactions are dot and cross; give --backend host for {}",
          options.interaction);
  std::unique_ptr<Interaction> found;
  const auto try_width = [&]<int Width>(std::integral_constant<int, Width>) {
    if (width != Width) return;
    if (tf32(options))
      found = std::make_unique<CudaDot<Width, true>>(backend);
    else
      found = std::make_unique<CudaDot<Width, false>>(backend);
  };
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    (try_width(std::integral_constant<int, kWidths[I]>{}), ...);
  }(std::make_index_sequence<kWidths.size()>{});
  require(
      found != nullptr && shape.one_width(),
      "--backend cuda: a dot interaction takes one --embedding-width of 8, 16, 32, 64 or 128 for "
      "all tables; give --interaction cross, or --backend host");
  return found;
}

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
  HostBuffer<T, Cuda> turns_[2];
  gpu::Event copied_[2];
  int turn_ = 0;
};

/// Model on a GPU: the same layers, the same first values, the same step. In a step of one rank the
/// host waits for nothing.
class CudaModel final : public RankModel {
 public:
  CudaModel(Communicators& communicators, const Options& options, const ModelShape& shape,
            std::int64_t max_batch, const Cuda& backend, const Cuda& gradients, const Cuda& routing)
      : communicator_(communicators.main),
        backend_(backend),
        width_(shape.vector_width),
        columns_(shape.columns()),
        clip_norm_(options.clip_norm),
        accumulates_(options.accumulate > 1),
        spans_(options.timed()),
        virtual_(virtual_ranks(options, backend_, communicator_.rank(), communicator_.size())),
        interaction_(make_cuda_interaction(options, shape, backend)),
        bottom_(backend_, sizes(13, options.bottom_mlp, width_),
                {.last_relu = true, .precision = dense_precision(options), .tf32 = tf32(options)}),
        top_(backend_, sizes(interaction_->columns(), options.top_mlp, 1),
             {.precision = dense_precision(options), .tf32 = tf32(options)}),
        parameters_(backend_, options.seed, bottom_, *interaction_, top_),
        optimizer_(make_optimizer(options)),
        buckets_(options.bucket_kib == 0
                     ? nullptr
                     : std::make_unique<Buckets>(communicators.gradients, parameters_.gradients(),
                                                 options.bucket_kib * 1024, backend_, gradients)),
        embeddings_(make_cuda_embeddings(
            communicator_, model_layout(options, communicator_.size(), shape),
            EmbeddingOptions(options, communicators.routing), backend, routing)),
        vectors_(max_batch * columns_, backend_.stream()),
        vector_gradients_(vectors_.size(), backend_.stream()),
        products_(max_batch * interaction_->columns(), backend_.stream()),
        product_gradients_(products_.size(), backend_.stream()),
        logits_(max_batch, backend_.stream()),
        logit_gradients_(max_batch, backend_.stream()),
        labels_(max_batch, backend_.stream()),
        numbers_(max_batch * 13, backend_.stream()),
        ids_{{max_batch * kFeatures, backend_.stream()},
             {max_batch * kFeatures, backend_.stream()}},
        send_labels_(backend_, max_batch),
        send_numbers_(backend_, max_batch * 13),
        send_ids_(backend_, max_batch * kFeatures),
        loss_(virtual_ ? virtual_->count() : 1, backend_.stream()) {
    backend_.fill_zero(loss_.data(), loss_.bytes());
  }

  Embeddings& embeddings() override { return *embeddings_; }
  Spans& spans() override { return spans_; }
  std::int64_t dense_parameters() const override { return parameters_.size(); }

  void add_to(CheckpointContents& contents) override {
    embeddings_->add_to(contents);
    add_dense(contents, backend_, &bottom_, *interaction_, top_, parameters_, optimizer_);
  }

  bool gradients_finite() const override {
    std::vector<float> gradients(parameters_.gradients().size());
    backend_.copy(gradients.data(), parameters_.gradients().data(),
                  gradients.size() * sizeof(float));
    backend_.synchronize();
    return std::all_of(gradients.begin(), gradients.end(),
                       [](float g) { return std::isfinite(g); });
  }

  void start(const ClickBatch<std::int32_t>& batch) override {
    started_ = upload_ids(batch);
    embeddings_->start(*started_);
  }

  std::span<const float> forward(const ClickBatch<std::int32_t>& batch,
                                 std::int64_t global_batch) override {
    look_up(batch, nullptr, false);
    for_each_part(virtual_, global_batch, batch.size,
                  [&](int, std::int64_t first, std::int64_t n) { run_forward(first, n); });
    host_logits_.resize(static_cast<std::size_t>(batch.size));
    backend_.copy(host_logits_.data(), logits_.data(), host_logits_.size() * sizeof(float));
    backend_.synchronize();
    return host_logits_;
  }

  void train(const ClickBatch<std::int32_t>& batch, const OptimizerStep& step,
             const ClickBatch<std::int32_t>* next) override {
    look_up(batch, next, true);
    send_labels_.send(batch.labels, labels_.data());
    for_each_part(virtual_, step.batch, batch.size,
                  [&](int part, std::int64_t first, std::int64_t n) {
                    run_forward(first, n);
                    run_backward(step, part, first, n);
                    if (virtual_) virtual_->add(parameters_.gradients());
                  });
    const MatrixView<float> d_pooled =
        view(vector_gradients_, 0, batch.size, columns_).column_range(width_, columns_ - width_);
    const bool apart = accumulates_ || clip_norm_ != 0;  // rows wait for `apply`
    if (apart) embeddings_->accumulate(d_pooled);
    // the tree of virtual ranks is that of a batch
    if (virtual_ || !accumulates_) sum_over_ranks();
    if (accumulates_) {
      parameters_.accumulate(backend_);
      if (!step.ends) return;
      parameters_.take_accumulated(backend_);
      if (!virtual_) sum_over_ranks();
    }
    if (apart)
      embeddings_->apply(step.table_rate, clip_norm_, parameters_.gradients());
    else
      embeddings_->backward(d_pooled, step.table_rate);
    std::visit([&](auto& optimizer) { optimizer.step(parameters_, step.dense_rate); }, optimizer_);
  }

  double take_loss() override {
    std::vector<double> own(static_cast<std::size_t>(loss_.size()));
    backend_.copy(own.data(), loss_.data(), own.size() * sizeof(double));
    backend_.synchronize();
    backend_.fill_zero(loss_.data(), loss_.bytes());
    if (virtual_) return virtual_->sum(communicator_, own);
    communicator_.all_reduce(std::span<double>(own));
    return own[0];
  }

 private:
  using Buckets = BucketedAllReduce<AnyCommunicator>;
  using DenseOptimizer =
      std::variant<CudaDenseOptimizer<Sgd>, CudaDenseOptimizer<Adagrad>, CudaDenseOptimizer<Adam>>;

  static std::vector<std::int64_t> sizes(std::int64_t first, std::vector<std::int64_t> hidden,
                                         std::int64_t last) {
    hidden.insert(hidden.begin(), first);
    hidden.push_back(last);
    return hidden;
  }
  DenseOptimizer make_optimizer(const Options& options) const {
    if (options.dense_optimizer == "sgd")
      return CudaDenseOptimizer<Sgd>(backend_, {}, options.weight_decay);
    if (options.dense_optimizer == "adagrad")
      return CudaDenseOptimizer<Adagrad>(backend_, {.epsilon = 1e-8f}, options.weight_decay);
    return CudaDenseOptimizer<Adam>(backend_, {}, options.weight_decay);
  }
  /// Rows [first, first + n) of a matrix of so many columns.
  static MatrixView<float> view(const gpu::DeviceBuffer<float>& matrix, std::int64_t first,
                                std::int64_t n, std::int64_t columns) {
    return {matrix.data() + first * columns, n, columns};
  }
  MatrixView<float> vectors(std::int64_t first, std::int64_t n) const {
    return view(vectors_, first, n, columns_);
  }
  MatrixView<float> products(std::int64_t first, std::int64_t n) const {
    return view(products_, first, n, interaction_->columns());
  }

  /// Ids that are being routed stay as they are while the next ones come.
  KeyedJagged<std::int32_t> upload_ids(const ClickBatch<std::int32_t>& batch) {
    std::swap(ids_[0], ids_[1]);
    send_ids_.send(batch.ids, ids_[0].data());
    return {.features = kFeatures,
            .batch = batch.size,
            .ids = {ids_[0].data(), batch.ids.size()},
            .offsets = {},
            .weights = {}};
  }

  /// `next`: null, or the batch to route meanwhile. `train`: this one gets a backward.
  void look_up(const ClickBatch<std::int32_t>& batch, const ClickBatch<std::int32_t>* next,
               bool train) {
    send_numbers_.send(batch.dense, numbers_.data());
    const KeyedJagged<std::int32_t> ids =
        started_ ? *std::exchange(started_, std::nullopt) : upload_ids(batch);
    const MatrixView<float> pooled = vectors(0, batch.size).column_range(width_, columns_ - width_);
    train ? embeddings_->forward(ids, pooled) : embeddings_->evaluate(ids, pooled);
    if (next != nullptr) start(*next);
  }

  void run_forward(std::int64_t first, std::int64_t n) {
    bottom_.forward({numbers_.data() + first * 13, n, 13},
                    vectors(first, n).column_range(0, width_));
    interaction_->forward(vectors(first, n), products(first, n));
    top_.forward(products(first, n), view(logits_, first, n, 1));
  }

  void run_backward(const OptimizerStep& step, int part, std::int64_t first, std::int64_t n) {
    const MatrixView<float> d_logits = view(logit_gradients_, first, n, 1),
                            d_products =
                                view(product_gradients_, first, n, interaction_->columns()),
                            d_vectors = view(vector_gradients_, first, n, columns_);
    CudaBinaryCrossEntropy{step.samples}.forward_backward(
        backend_, view(logits_, first, n, 1), {labels_.data() + first, static_cast<std::size_t>(n)},
        d_logits, loss_.data() + part);
    const auto ready = [&](std::span<const float> gradients) {
      if (buckets_ && !gradients.empty()) buckets_->ready(gradients);
    };
    top_.backward(d_logits, d_products, ready);
    interaction_->backward(vectors(first, n), d_products, d_vectors);
    ready(interaction_->gradients());
    bottom_.backward(d_vectors.column_range(0, width_), {}, ready);
  }

  void sum_over_ranks() {
    if (virtual_)
      virtual_->all_reduce(communicator_, parameters_.gradients());
    else
      buckets_ ? buckets_->wait() : communicator_.all_reduce(parameters_.gradients());
  }

  AnyCommunicator& communicator_;
  Cuda backend_;
  std::int64_t width_, columns_;  ///< of the bottom MLP's output; of all vectors
  float clip_norm_;               ///< 0: none
  bool accumulates_;              ///< gradients of several batches
  Spans spans_;
  std::optional<VirtualRanks<Cuda>> virtual_;
  std::unique_ptr<Interaction> interaction_;
  CudaMlp bottom_, top_;
  CudaDenseParameters parameters_;
  DenseOptimizer optimizer_;
  std::unique_ptr<Buckets> buckets_;
  std::unique_ptr<Embeddings> embeddings_;
  gpu::DeviceBuffer<float> vectors_, vector_gradients_;    // [batch, 27*width]
  gpu::DeviceBuffer<float> products_, product_gradients_;  // [batch, columns of the interaction]
  gpu::DeviceBuffer<float> logits_, logit_gradients_, labels_, numbers_;
  gpu::DeviceBuffer<std::int32_t> ids_[2];
  Outbox<float> send_labels_, send_numbers_;
  Outbox<std::int32_t> send_ids_;
  std::optional<KeyedJagged<std::int32_t>> started_;
  gpu::DeviceBuffer<double> loss_;
  std::vector<float> host_logits_;
};

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
    return std::make_unique<CudaModel>(communicators, options, shape, max_batch, main_.backend(),
                                       gradients_.handle(), routing_.backend());
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
