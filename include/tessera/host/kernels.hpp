// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Every kernel of the backend Host, but those of the jagged kit (host/jagged.hpp). A program that runs
// operations on Host includes this.
#include <tessera/host/codec.hpp>
#include <tessera/host/convert_rows.hpp>
#include <tessera/host/copy_rows.hpp>
#include <tessera/host/distinct_ids.hpp>
#include <tessera/host/exchange.hpp>
#include <tessera/host/gradients.hpp>
#include <tessera/host/initialize.hpp>
#include <tessera/host/lookup.hpp>
#include <tessera/host/mark_rows.hpp>
#include <tessera/host/max_pooling.hpp>
#include <tessera/host/non_finite.hpp>
#include <tessera/host/row_statistics.hpp>
#include <tessera/host/sequence_rows.hpp>
#include <tessera/host/update.hpp>
#include <tessera/host/weight_gradients.hpp>
