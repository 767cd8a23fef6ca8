// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "description.hpp"

#include "interaction.hpp"

#include <cstdint>

namespace dlrm {

tessera::ModelDescription describe(const Options& options, const DataShape& shape,
                                   const DataInputs& inputs) {
  const std::int64_t width = options.embedding_width;
  tessera::ModelDescription model{.interaction = options.interaction,
                                  .vector_width = width,
                                  .bottom_mlp = options.bottom_mlp,
                                  .top_mlp = options.top_mlp,
                                  .dense_precision = options.dense_precision,
                                  .numeric = inputs.numeric,
                                  .tables = inputs.tables};
  if (options.interaction == "cross") {
    model.cross_layers = options.cross_layers;
    model.cross_rank = options.cross_rank;
  }
  model.bottom_mlp.insert(model.bottom_mlp.begin(), shape.numbers);
  model.bottom_mlp.push_back(width);
  const int vectors = static_cast<int>(shape.features.size()) + 1;
  model.top_mlp.insert(model.top_mlp.begin(), make_interaction(options, vectors)->columns());
  model.top_mlp.push_back(1);
  for (std::size_t t = 0; t < shape.tables.size(); ++t) {
    model.tables[t].rows = shape.tables[t].rows;
    model.tables[t].width = options.embedding_width;
  }
  for (const DataShape::Feature& feature : shape.features)
    model.features.push_back(
        {feature.name, shape.tables[feature.table].name, feature.pooling, feature.list});
  return model;
}

}  // namespace dlrm
