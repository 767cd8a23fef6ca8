// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "description.hpp"
#include "options.hpp"
#include "shape.hpp"

#include <tessera/core/jagged.hpp>
#include <tessera_data/click_batch.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace dlrm {

struct Batch : tessera::ClickBatch<std::int32_t> {
  std::vector<std::int64_t> keys;  ///< what a vocabulary maps to rows; parallel to ids
  tessera::KeyedJagged<std::int64_t> keyed_keys() const {
    return {.features = features, .batch = size, .ids = keys, .offsets = offsets, .weights = {}};
  }
};

/// Clicks for training and for the test. Shared by
/// all ranks, which only read.
class Clicks {
 public:
  virtual ~Clicks() = default;
  virtual const DataShape& shape() const = 0;
  /// How fields become numbers and rows, in the order of `shape`.
  virtual const DataInputs& inputs() const = 0;
  virtual std::int64_t train_samples() const = 0;
  virtual std::int64_t test_samples() const = 0;
  /// One line that says what it is.
  virtual std::string description() const = 0;

  /// Samples [first, first + count) of an epoch, in the order of that epoch.
  virtual void train_batch(int epoch, std::int64_t first, std::int64_t count,
                           Batch& batch) const = 0;
  virtual void test_batch(std::int64_t first, std::int64_t count, Batch& batch) const = 0;
  /// What no model can surpass on the test samples, where that is known: the AUC of the
  /// probabilities that the labels were drawn from.
  virtual double best_auc() const = 0;
  /// Tells training data apart that have as many samples. The same on every machine; of a folder
  /// larger than memory, of some samples.
  virtual std::uint64_t checksum() const = 0;
  /// What the order of an epoch depends on besides the seed, if anything.
  virtual std::string order() const { return {}; }
  /// Reads test samples [first, first + count) of what is else read only when a batch asks for it.
  /// Throws tessera::DataError for a fault.
  virtual void check_test(std::int64_t /*first*/, std::int64_t /*count*/) const {}
};

/// The clicks that the options ask for. Throws tessera::DataError for a file that cannot be read.
std::unique_ptr<Clicks> make_clicks(const Options& options);

}  // namespace dlrm
