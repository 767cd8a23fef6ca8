// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "description.hpp"

#include "interaction.hpp"
#include "model_shape.hpp"

#include <cstddef>

namespace dlrm {

tessera::ModelDescription description_of(const Options& options, const DataShape& data,
                                         const DataInputs& inputs) {
  const ModelShape shape = model_shape(options, data);
  tessera::ModelDescription model{.interaction = options.interaction,
                                  .vector_width = shape.vector_width,
                                  .bottom_mlp = options.bottom_mlp,
                                  .top_mlp = options.top_mlp,
                                  .dense_precision = options.dense_precision,
                                  .numeric = inputs.numeric,
                                  .tables = inputs.tables};
  if (options.interaction == "cross") {
    model.cross_layers = options.cross_layers;
    model.cross_rank = options.cross_rank;
  }
  if (shape.bottom) {
    model.bottom_mlp.insert(model.bottom_mlp.begin(), shape.numbers);
    model.bottom_mlp.push_back(shape.vector_width);
  } else {
    model.bottom_mlp.clear();
  }
  model.top_mlp.insert(model.top_mlp.begin(),
                       make_interaction(options, shape, tessera::Host())->columns());
  model.top_mlp.push_back(1);
  model.wide = shape.wide > 0;  // those tables are the same once more
  for (std::size_t t = 0; t < shape.data_tables; ++t) {
    model.tables[t].rows = shape.tables[t].rows;
    model.tables[t].width = shape.tables[t].width;
  }
  for (const DataShape::Feature& feature : shape.deep())
    model.features.push_back({feature.name, shape.tables[feature.table].name, feature.pooling,
                              feature.list, feature.separator});
  return model;
}

}  // namespace dlrm
