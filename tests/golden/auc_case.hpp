// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compare.hpp"

#include <tessera_data/binned_auc.hpp>
#include <tessera_data/metrics.hpp>

#include <fmt/format.h>

#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace golden {

inline constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();
struct Expected {
  double value;
};
struct MetricCase {
  std::string name;
  std::optional<Expected> auc, binned_auc, log_loss, normalized_entropy;  ///< empty: not asked for
};

/// AUC, binned AUC, log loss and normalized entropy. The last two take logits here, in float: they
/// agree to float's precision.
inline int run_metrics(int argc, char** argv, int thresholds,
                       const std::vector<MetricCase>& cases) {
  if (argc < 2) return 2;
  const ts::SafetensorsReader file(argv[1]);
  Tally tally;
  for (const MetricCase& c : cases) {
    const std::vector<float> labels = floats(file, c.name + ".labels"),
                             scores = floats(file, c.name + ".scores");
    std::vector<float> logits;
    for (const float p : scores)
      logits.push_back(static_cast<float>(std::log(double{p}) - std::log1p(-double{p})));
    const auto check = [&](const char* what, const std::optional<Expected>& expected,
                           double tolerance, auto metric, const std::vector<float>& x) {
      if (expected)
        tally.run(c.name + " " + what, [&](Verdict& verdict) {
          metric.add(x, labels);
          const double found = metric.value();
          if (std::isnan(expected->value) ? !std::isnan(found)
                                          : !(std::abs(found - expected->value) <= tolerance))
            verdict.fail(fmt::format("{:.17g}, expected {:.17g}", found, expected->value));
        });
    };
    check("auc", c.auc, 1e-9, ts::Auc(), scores);
    check("binned_auc", c.binned_auc, 1e-9, ts::BinnedAuc(thresholds), scores);
    check("log_loss", c.log_loss, 1e-6, ts::LogLoss(), logits);
    check("normalized_entropy", c.normalized_entropy, 1e-6, ts::NormalizedEntropy(), logits);
  }
  return tally.finish();
}

}  // namespace golden
