// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "options.hpp"
#include "shape.hpp"

#include <tessera_serving/model_description.hpp>

#include <map>
#include <string>
#include <vector>

namespace dlrm {

/// How the fields of the data become what the model takes. Tables have no width yet.
struct DataInputs {
  std::vector<tessera::NumberInput> numeric;
  std::vector<tessera::TableInput> tables;
  std::map<std::string, tessera::KeyList> lists;  ///< of tables whose keys the data listed
};

/// What a checkpoint says of the model of these options.
tessera::ModelDescription description_of(const Options& options, const DataShape& shape,
                                         const DataInputs& inputs);

}  // namespace dlrm
