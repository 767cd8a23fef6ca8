// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Declares what docs/first_day/libtorch.md uses of libtorch, so that its listing can be checked where libtorch is not.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace torch {

struct Tensor {
  const Tensor& requires_grad_(bool requires_grad = true) const;
  void backward() const;
  const Tensor& grad() const;
  Tensor contiguous() const;
  template <class T>
  T* data_ptr() const;
};

Tensor from_blob(void* data, std::initializer_list<std::int64_t> sizes,
                 std::initializer_list<std::int64_t> strides);

}  // namespace torch
