// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "handles.hpp"

#include <tessera/codec/codec_choice.hpp>
#include <tessera/collection/layout_collection.hpp>
#include <tessera/host/kernels.hpp>
#include <tessera/settings/optimizers_by_name.hpp>
#include <tessera/settings/policies.hpp>
#include <tessera/tables/initializers.hpp>
#include <tessera/tables/widths.hpp>

#include <cstdint>
#include <deque>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

namespace tessera_c {

// Narrow rows gain by kernels of their own; common optimizers get them.
using Widths = tessera::WidthsFor<tessera::Widths<8, 16, 32, 64>, tessera::Sgd, tessera::Adagrad,
                                  tessera::RowWiseAdagrad, tessera::Adam>;
using Tables = tessera::LayoutCollection<
    Widths, tessera::detail::NamedOptimizers, tessera::Host, tessera::AnyCommunicator,
    tessera::InitializeWith<tessera::detail::UniformWithin>,
    tessera::EncodeWithOneOf<tessera::Fp32, tessera::Bf16, tessera::Fp16, tessera::Int8>>;

/// One type of ids of a step: its memory, and what was looked up.
template <class Id>
struct StepOf {
  Tables::StepState<Id> step{};
  Tables::Found<Id> found{};
};

/// What a collection's pointer, its steps and vocabularies share: they may be destroyed in any order.
struct Collection {
  Collection(const tessera_layout& layout, const tessera_communicator& ranks, int threads,
             Tables::Options options)
      : names(layout.names),
        communicator_owner(ranks.owner),
        communicator(ranks.any),
        tables(*communicator, tessera::Host({.threads = threads}), layout.layout,
               std::move(options)) {}

  std::shared_ptr<std::deque<std::string>> names;  ///< of the layout
  std::shared_ptr<void> communicator_owner;
  std::shared_ptr<tessera::AnyCommunicator> communicator;
  Tables tables;
};

}  // namespace tessera_c

struct tessera_collection : tessera_c::Handle {
  std::shared_ptr<tessera_c::Collection> state{};
};

struct tessera_step : tessera_c::Handle {
  std::shared_ptr<tessera_c::Collection> collection{};
  tessera_c::StepOf<std::int32_t> narrow{};
  tessera_c::StepOf<std::int64_t> wide{};
  bool is_wide = false;
  std::int64_t samples = 0, ids = 0;

  /// Calls f(the part of the step for such ids) for a batch that begins.
  template <class Id, class F>
  void begin(const tessera::KeyedJagged<Id>& batch, F&& f) {
    is_wide = sizeof(Id) == 8;
    samples = batch.batch;
    ids = std::ssize(batch.ids);
    if constexpr (sizeof(Id) == 8)
      f(wide);
    else
      f(narrow);
  }
  /// Calls f with the part of the step that the last batch is in.
  template <class F>
  void visit(F&& f) {
    if (is_wide)
      f(wide);
    else
      f(narrow);
  }
};
