// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// Which rows of a collection updates have changed since somebody began to ask: what increments of
/// checkpoints live on. The bits are in the backend's memory, where updates set them in the order
/// of their work; only `changed` waits for that.
class RowMarks {
 public:
  virtual ~RowMarks() = default;
  /// Forgets all changes.
  virtual void clear() = 0;
  /// Returns which of an arena's rows [begin, end) have changed, counted from `begin`, ascending.
  virtual std::vector<std::int64_t> changed(int arena, std::int64_t begin,
                                            std::int64_t end) const = 0;
};

}}}  // namespace tessera::v0::detail
