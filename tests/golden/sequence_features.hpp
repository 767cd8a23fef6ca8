// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compare.hpp"

#include <tessera/tessera.hpp>

#include <fmt/format.h>

#include <cstdint>
#include <list>
#include <string>
#include <vector>

namespace golden {

/// The sequence features of samples [begin, end) of a step, which a rank has looked up: compares
/// their vectors with the case's, and holds the gradients to feed back.
class SequenceFeatures {
 public:
  template <class Found>
  SequenceFeatures(const Found& found, const ts::Layout& layout, const ts::SafetensorsReader& file,
                   const std::string& prefix, std::int64_t begin, std::int64_t end,
                   Verdict& verdict) {
    for (const ts::FeatureSpec& feature : layout.features) {
      if (feature.pooling != ts::Pooling::none) continue;
      const auto view = found.sequence(feature.name);
      const std::string name = fmt::format("{}feature.{}.", prefix, feature.name);
      const std::vector<std::int64_t> offsets = integers(file, name + "offsets");
      const std::vector<float> expected = floats(file, name + "rows");
      const auto first = static_cast<std::size_t>(offsets[begin] * view.width()),
                 count = static_cast<std::size_t>((offsets[end] - offsets[begin]) * view.width());
      std::vector<float> rows(static_cast<std::size_t>(view.ids() * view.width()));
      view.materialize({rows.data(), view.ids(), view.width()});
      verdict.compare(name + "rows", rows, std::span(expected).subspan(first, count));
      const std::vector<float> given = floats(file, name + "grad_rows");
      const std::vector<float>& own =
          memory_.emplace_back(given.begin() + static_cast<std::ptrdiff_t>(first),
                               given.begin() + static_cast<std::ptrdiff_t>(first + count));
      gradients_.push_back(view.per_id({own.data(), view.ids(), view.width()}));
    }
  }
  SequenceFeatures(const SequenceFeatures&) = delete;
  SequenceFeatures& operator=(const SequenceFeatures&) = delete;

  const std::vector<ts::SequenceGradient>& gradients() const { return gradients_; }

 private:
  std::list<std::vector<float>> memory_;
  std::vector<ts::SequenceGradient> gradients_;
};

/// A tensor of the pooled features; empty where there are none.
inline std::vector<float> pooled_floats(const ts::SafetensorsReader& file, const ts::Layout& layout,
                                        const std::string& name) {
  return layout.columns() == 0 ? std::vector<float>() : floats(file, name);
}

}  // namespace golden
