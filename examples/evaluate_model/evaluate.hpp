// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../support/text_format.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace evaluate {

/// A file of samples, and the model that scores them.
struct DataOptions {
  std::filesystem::path checkpoint{};  ///< or a folder of such
  std::filesystem::path data{};
  /// The column of labels in a file with a header; empty: Criteo's lines, or none where labels are
  /// not asked for.
  std::string label{};
  support::TextFormat format{};  ///< of a file with a header; without a separator, commas
  char list_separator = 0;       ///< 0: the model's
};

struct AccuracyOptions : DataOptions {
  double test_fraction = 1;  ///< the last lines
  std::vector<std::string> formats{};
};

/// What a format of the tables' rows does to a model.
struct Accuracy {
  std::string format;
  std::int64_t bytes = 0;         ///< of the tables
  double auc = 0, log_loss = 0;   ///< AUC: NaN where all labels are equal
  double largest_difference = 0;  ///< of a probability, from the first format's
};

/// Scores the data with every format; the first is what others are compared with. Throws DataError
/// that names the checkpoint, or the file, line and column.
std::vector<Accuracy> accuracy(const AccuracyOptions& options, std::int64_t& samples);

struct PredictOptions : DataOptions {
  std::string row_format = "fp32";
  std::vector<std::string> keep{};  ///< columns that go to the output, too
};

/// Scores all samples of a file with a header and no labels. Tells `sample` the values of the kept
/// columns and the probability of each, in their order. Throws DataError as `accuracy` does.
/// Returns how many there are.
std::int64_t predict(
    const PredictOptions& options,
    const std::function<void(std::span<const std::string> kept, float probability)>& sample);

struct LatencyOptions {
  std::filesystem::path checkpoint{};
  std::string format = "fp32";
  std::vector<std::int64_t> batch_sizes{};
  std::vector<int> threads{};
  std::vector<double> loads{};  ///< of the open loop, shares of the closed loop's throughput
  double seconds = 1;           ///< for each measurement
  std::vector<std::string> user_columns{};  ///< given once; a batch is candidates for them
  int entries = 5;                          ///< of a list, in each sample
  std::uint64_t seed = 1;
};

/// One measurement; microseconds from when a request was due to its scores.
struct Latency {
  double load = 0;  ///< 0: closed loop, each thread sends when it has its scores
  int threads = 0;
  std::int64_t batch = 0, requests = 0;
  double p50 = 0, p95 = 0, p99 = 0, largest = 0;
  double samples_per_second = 0;
};

/// Every batch size with every number of threads; `done` is told of each. Requests of the open loop
/// come at random times (exponential gaps) whether or not earlier ones are answered, and wait for a
/// thread: their waiting counts.
std::vector<Latency> latency(const LatencyOptions& options,
                             const std::function<void(const Latency&)>& done);

/// Plots and figures as one HTML file that needs no other.
std::string latency_page(const std::vector<Latency>& measured, const LatencyOptions& options);

}  // namespace evaluate
