// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/host/backend.hpp>
#include <tessera/op/copy_rows.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tessera { inline namespace v0 {

template <>
struct op::Kernel<op::CopyRows, Host> {
  static void run(const Host&, const op::CopyRows::Parameters& p) {
    for (std::int64_t i = 0; i < p.count; ++i)
      std::memcpy(p.target.row(i), p.source.row(i), static_cast<std::size_t>(p.row_bytes));
  }
};

}}  // namespace tessera::v0
