// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "blocks.hpp"

#include "blocks_of.hpp"

#include <tessera/sequence/hstu.hpp>

namespace sequence {

bool is_compiled(int width, int heads) {
  bool found = false;
  AllShapes::for_each(
      [&](auto h, auto columns) { found = found || (h() == heads && h() * columns() == width); });
  return found;
}

std::unique_ptr<Block> make_block(const tessera::Host& backend, int width, int heads,
                                  std::int64_t max_length) {
  return make_block_of<AllShapes>(backend, width, heads, max_length);
}

}  // namespace sequence
