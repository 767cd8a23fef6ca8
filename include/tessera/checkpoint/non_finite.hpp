// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/checkpoint/contents.hpp>
#include <tessera/checkpoint/row_writer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// Names of the tensors that have NaN or infinite numbers in this rank's memory, in their order;
/// optimizer states of tables are not looked at. Reads all of them.
inline std::vector<std::string> non_finite_tensors(const CheckpointContents& contents) {
  constexpr std::int64_t at_once = 4096;
  contents.flush();
  const auto& tensors = contents.tensors();
  std::vector<bool> found(tensors.size()), passed(tensors.size());
  for (const auto& [weights, end] : contents.tables())
    for (int state = weights + 1; state < end; ++state)
      passed[static_cast<std::size_t>(state)] = true;
  LiveRows read;
  for (const CheckpointRows& rows : contents.rows()) {
    std::vector<std::int64_t> row_bytes;
    for (const CheckpointRows::Part& part : rows.parts)
      row_bytes.push_back(part.columns * static_cast<std::int64_t>(tensor_type_size(
                                             tensors[static_cast<std::size_t>(part.tensor)].type)));
    for (std::int64_t first = 0; first < rows.rows; first += at_once) {
      const std::int64_t count = std::min(at_once, rows.rows - first);
      const std::vector<RowBlock>& blocks = read(rows, row_bytes, first, count);
      for (std::size_t p = 0; p < blocks.size(); ++p) {
        const auto t = static_cast<std::size_t>(rows.parts[p].tensor);
        for (std::int64_t r = 0; r < count && !passed[t] && !found[t]; ++r)
          found[t] = any_nonfinite(blocks[p].data + r * blocks[p].stride, tensors[t].type,
                                   rows.parts[p].columns);
      }
    }
  }
  std::vector<std::string> names;
  for (std::size_t t = 0; t < tensors.size(); ++t)
    if (found[t]) names.push_back(tensors[t].name);
  return names;
}

}}}  // namespace tessera::v0::detail
