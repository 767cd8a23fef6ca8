// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "backends.hpp"

#include "model.hpp"

#include <tessera/core/error.hpp>
#include <tessera/dense/matmul.hpp>
#include <tessera/dense/mlp.hpp>
#include <tessera/host/gradients.hpp>
#include <tessera/host/kernels.hpp>
#include <tessera/sequence/sampled_softmax.hpp>

namespace sequence {

template <>
class Products<tessera::Host> {
 public:
  explicit Products(const tessera::Host&) {}
  void run(tessera::MatrixView<const float> a, tessera::MatrixView<const float> b,
           float* to) const {
    tessera::detail::for_each_worker(1, [&](int) {
      tessera::detail::gemm(false, true, a.rows, b.rows, b.columns, 1, a.data, a.stride, b.data,
                            b.stride, 0, to, b.rows);
    });
  }
};

namespace {

using namespace tessera;

std::unique_ptr<RankModel> make_host_model(ThreadCommunicator& ranks, const Options& options,
                                           std::int64_t items) {
  const Host backend({.threads = options.threads_per_rank});
  return std::make_unique<Model<Host, ThreadCommunicator>>(
      ranks, ranks, backend, options,
      make_parts(backend, ranks, options, items, make_block, make_items));
}

}  // namespace

std::map<std::string, ModelFactory*>& backends() {
  static std::map<std::string, ModelFactory*> all{{"host", &make_host_model}};
  return all;
}

ModelFactory& backend_of(const Options& options) {
  const auto found = backends().find(options.backend);
  require(found != backends().end(),
          "--backend {}: this program was built without it; configure with -DTESSERA_CUDA=ON where "
          "there is nvcc, and build again",
          options.backend);
  return *found->second;
}

}  // namespace sequence
