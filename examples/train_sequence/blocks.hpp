// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/matrix_view.hpp>
#include <tessera/core/sequence_batch.hpp>
#include <tessera/host/backend.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <span>

namespace sequence {

inline constexpr std::array<int, 3> kHeads{1, 2, 4};

/// Whether there are blocks of this width with so many heads.
bool is_compiled(int width, int heads);

/// An HSTU block whose number of heads is chosen at run time: a tessera::SequenceLayer, of the
/// memory of a backend.
class Block {
 public:
  virtual ~Block() = default;
  virtual std::int64_t width() const = 0;
  virtual std::int64_t parameter_count() const = 0;
  virtual void bind(std::span<float> values, std::span<float> gradients) = 0;
  virtual int initialize(std::uint64_t seed, int first_layer) = 0;
  virtual void forward(tessera::MatrixView<const float> x, const tessera::SequenceBatch& batch,
                       tessera::MatrixView<float> y) = 0;
  virtual void backward(tessera::MatrixView<const float> dy, tessera::MatrixView<float> dx) = 0;
};

/// On the host. Throws tessera::InvalidArgument for what is not compiled.
std::unique_ptr<Block> make_block(const tessera::Host& backend, int width, int heads,
                                  std::int64_t max_length);

}  // namespace sequence
