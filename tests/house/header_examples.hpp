// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// What the examples in the comments of headers name (header_examples.py).
#pragma once

#include <tessera/planner/auto_plan.hpp>
#include <tessera/tessera.hpp>

#include <tessera/bridges/dlpack.hpp>
#include <tessera/checkpoint/async_save.hpp>
#include <tessera/checkpoint/load.hpp>
#include <tessera/checkpoint/save.hpp>
#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/bucketed_all_reduce.hpp>
#include <tessera/comm/ghost_communicator.hpp>
#include <tessera/dense/loss.hpp>
#include <tessera/dense/mlp.hpp>
#include <tessera/dense/optimizer.hpp>
#include <tessera/host/jagged.hpp>
#include <tessera/interaction/concat.hpp>
#include <tessera/interaction/cross.hpp>
#include <tessera/interaction/dot.hpp>
#include <tessera/measure/measure_plans.hpp>
#include <tessera/optimizer/schedule.hpp>
#include <tessera/sequence/jagged.hpp>
#include <tessera/sequence/sampled_softmax.hpp>
#include <tessera/vocabulary/cold_rows.hpp>
#include <tessera/vocabulary/ngram_hash.hpp>
#include <tessera/vocabulary/vocabulary.hpp>
#include <tessera_data/binary_dataset.hpp>
#include <tessera_data/criteo.hpp>
#include <tessera_data/feature_spec.hpp>
#include <tessera_data/metrics.hpp>
#include <tessera_data/synthetic.hpp>
#include <tessera_serving/frozen_lookup.hpp>
#include <tessera_serving/frozen_model.hpp>
#include <tessera_serving/frozen_tables.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace tessera { inline namespace v0 {

using Query = Table<"query", 20'000, 16>;
using User = Table<"user", 5'000, 16>;
using Country = Table<"country", 250, 16>;
using MyPlan = Plan<RowWise<Query>, ColumnWise<2, User>, Replicated<Country>>;
using OtherPlan = Plan<RowWise<Query>, RowWise<User>, Replicated<Country>>;
using Comm = ThreadCommunicator;
using Embeddings = EmbeddingCollection<MyPlan, RowWiseAdagrad, Host, Comm>;

extern const Host host, backend;
extern Comm communicator, second;
extern Embeddings embeddings;
extern const KeyedJagged<std::int32_t> ids, batch;
extern const decltype(embeddings.forward(ids)) pooled;
extern const MatrixView<const float> gradient, d_z;
extern const MatrixView<float> x, y, z, dx, dy, dz, logits, d_logits, bottom_output, d_bottom,
    d_pooled, pooled_rows, mean;
extern Mlp<Host> bottom, top;
extern DenseParameters<Host> parameters;
extern CheckpointContents contents;
extern dlpack::ManagedTensorVersioned* const tensor;
extern std::vector<float> scores, labels, values;
extern const std::vector<std::int64_t> offsets;
extern const std::vector<FrozenFeature> features;
extern const ModelColumns columns;
extern const KeyedJagged<std::int64_t> keys;
extern std::vector<std::int32_t> rows;
extern std::int64_t global_batch, targets, step;
extern std::size_t total;
void train_one_step();

}}  // namespace tessera::v0
