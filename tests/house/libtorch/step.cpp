// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The listing of docs/first_day/libtorch.md. house.libtorch compiles it with the declarations in torch/torch.h.
#include <tessera/tessera.hpp>

#include <torch/torch.h>

namespace ts = tessera;

using Model = ts::Plan<ts::RowWise<ts::Table<"user", 50'000, 16>, ts::Table<"item", 9'000, 16>>>;
using Embeddings =
    ts::EmbeddingCollection<Model, ts::RowWiseAdagrad, ts::Host, ts::ThreadCommunicator>;

// [step]
// `loss_of` makes a torch::Tensor of one number from the vectors.
void step(Embeddings& embeddings, const ts::KeyedJagged<int>& ids, const auto& loss_of) {
  const auto pooled = embeddings.forward(ids);
  const auto [data, rows, columns, stride] = pooled.values;
  const torch::Tensor x =
      torch::from_blob(const_cast<float*>(data), {rows, columns}, {stride, 1});  // no copy
  x.requires_grad_();
  loss_of(x).backward();
  const torch::Tensor dx = x.grad().contiguous();  // no copy where it is contiguous
  embeddings.backward(pooled, ts::MatrixView<const float>(dx.data_ptr<float>(), rows, columns));
}
// [step end]

void check(Embeddings& embeddings, const ts::KeyedJagged<int>& ids) {
  step(embeddings, ids, [](const torch::Tensor& x) { return x; });
}
