// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "backends.hpp"

#include "model.hpp"

#include <tessera/comm/self_communicator.hpp>
#include <tessera/core/error.hpp>

namespace dlrm {
namespace {

using namespace tessera;

std::unique_ptr<RankModel> make_host_model(Communicators& communicators, const Options& options, const std::vector<std::int64_t>& rows,
                                           std::int64_t max_batch) {
  return std::make_unique<Model>(communicators, options, rows, max_batch);
}

void with_host_communicator(ThreadCommunicator* threads, const std::function<void(AnyCommunicator)>& rank) {
  SelfCommunicator self;
  rank(threads != nullptr ? AnyCommunicator(*threads) : AnyCommunicator(self));
}

}  // namespace

std::map<std::string, BackendParts>& backends() {
  static std::map<std::string, BackendParts> all{{"host", {&make_host_model, &with_host_communicator}}};
  return all;
}

const BackendParts& backend_of(const Options& options) {
  const auto found = backends().find(options.backend);
  require(found != backends().end(),
          "--backend {}: this program was built without it; configure with -DTESSERA_CUDA=ON where there is nvcc, and build again",
          options.backend);
  return found->second;
}

}  // namespace dlrm
