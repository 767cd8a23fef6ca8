// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// What your own policy, optimizer, codec, communicator, interaction or layer must do, as checks
// that need no test framework.
#include <tessera/laws/codec_laws.hpp>
#include <tessera/laws/communicator_laws.hpp>
#include <tessera/laws/dense_layer_laws.hpp>
#include <tessera/laws/interaction_laws.hpp>
#include <tessera/laws/optimizer_laws.hpp>
#include <tessera/laws/sequence_layer_laws.hpp>
#include <tessera/laws/sharding_policy_laws.hpp>
#include <tessera/laws/vocabulary_policy_laws.hpp>
