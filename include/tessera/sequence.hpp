// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Layers over sequences, sampled softmax and the jagged kit, on the host. CMake target
// tessera::dense.
#include <tessera/concepts/sequence_layer.hpp>
#include <tessera/core/sequence_batch.hpp>
#include <tessera/host/jagged.hpp>
#include <tessera/sequence/attention_mask.hpp>
#include <tessera/sequence/hstu.hpp>
#include <tessera/sequence/hstu_parameters.hpp>
#include <tessera/sequence/jagged.hpp>
#include <tessera/sequence/sampled_softmax.hpp>
#include <tessera/sequence/softmax_options.hpp>
