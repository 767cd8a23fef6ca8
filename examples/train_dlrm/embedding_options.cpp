// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Apart from embeddings.cpp, which takes long to compile and need not know the command line.
#include "embeddings.hpp"
#include "options.hpp"
#include "plans.hpp"

namespace dlrm {

EmbeddingOptions::EmbeddingOptions(const Options& options, tessera::AnyCommunicator& second)
    : initial_bound(options.initial_bound),
      seed(options.seed),
      threads(options.threads_per_rank),
      routing(options.overlap ? &second : nullptr),
      precision(options.table_precision),
      codec(options.codec),
      gradient_codec(options.gradient_codec),
      deduplicate(options.deduplicate),
      table_files(options.table_files),
      memory(options.memory_before_files()),
      file_queue_depth(options.table_files.empty() ? 0 : dlrm::file_queue_depth()),
      optimizer(options.optimizer),
      learning_rate(options.learning_rate),
      rate_shares(options.rate_shares),
      report(options.timed()),
      equal_batches(options.graph) {}

}  // namespace dlrm
