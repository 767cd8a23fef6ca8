// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/matrix_view.hpp>
#include <tessera/op/codec.hpp>
#include <tessera/stage/wire_order.hpp>
#include <tessera/tables/buffer.hpp>

#include <cstddef>
#include <vector>

namespace tessera::inline v0 {

/// The vectors of a step between owners and requesters, and their gradients on the way back.
/// Written by VectorExchange; the lookup pools into `at_owner`.
template <class Backend>
class VectorsInFlight {
 public:
  /// Set before `lookup`, and by `split` for gradients.
  const WireOrder& order() const { return order_; }
  /// The vectors of a piece that this rank serves and that travels; after `exchange_gradients` their
  /// gradients.
  MatrixView<float> at_owner(const Piece& piece) const {
    return {owner_.data() + piece.first_float, piece.rows, piece.columns().width};
  }

 private:
  template <class, class, class, class>
  friend class VectorExchange;

  WireOrder order_;
  Buffer<float, Backend> owner_;
  // the same on the wire, where a codec has another form; and the other end of it
  Buffer<std::byte, Backend> owner_wire_, requester_wire_;
  std::vector<op::EncodeJob> encodes_;
  std::vector<op::DecodeJob> decodes_;
};

}  // namespace tessera::inline v0
