// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "backends.hpp"

#include "model.hpp"

#include <tessera/comm/self_communicator.hpp>
#include <tessera/core/error.hpp>
#include <tessera/dense/mlp.hpp>

#include <utility>

namespace dlrm {
namespace {

using namespace tessera;

class HostBackend final : public RankBackend {
 public:
  explicit HostBackend(const RankLinks& links) : links_(links) {}
  AnyCommunicator main() override { return any(links_.main); }
  AnyCommunicator gradients() override { return any(links_.gradients); }
  AnyCommunicator routing() override { return any(links_.routing); }
  std::unique_ptr<RankModel> make_model(Communicators& communicators, const Options& options,
                                        const ModelShape& shape, std::int64_t max_batch) override {
    const Host host({.threads = options.threads_per_rank});
    ModelParts<Host> parts{
        .backend = host,
        .gradients = host,
        .interaction = make_interaction(options, shape, host),
        .embeddings = make_embeddings(communicators.main,
                                      model_layout(options, communicators.main.size(), shape),
                                      EmbeddingOptions(options, communicators.routing)),
        .graph = {}};
    return std::make_unique<Model<Host>>(communicators, options, shape, max_batch,
                                         std::move(parts));
  }

 private:
  AnyCommunicator any(ThreadCommunicator* threads) {
    return threads != nullptr ? AnyCommunicator(*threads) : AnyCommunicator(self_);
  }

  RankLinks links_;
  SelfCommunicator self_;
};

std::unique_ptr<RankBackend> make_host_backend(const RankLinks& links) {
  return std::make_unique<HostBackend>(links);
}

}  // namespace

std::map<std::string, RankBackendFactory*>& backends() {
  static std::map<std::string, RankBackendFactory*> all{{"host", &make_host_backend}};
  return all;
}

RankBackendFactory& backend_of(const Options& options) {
  const auto found = backends().find(options.backend);
  require(found != backends().end(),
          "--backend {}: this program was built without it; configure with -DTESSERA_CUDA=ON where "
          "there is nvcc, and build again",
          options.backend);
  require(options.backend != "host" || detail::supported(dense_precision(options)),
          "--dense {}: on this processor oneDNN cannot (it needs AVX-512); leave it out",
          options.dense_precision);
  return *found->second;
}

}  // namespace dlrm
