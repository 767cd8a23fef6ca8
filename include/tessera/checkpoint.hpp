// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// What goes to disk and comes back: tables, states, vocabularies, dense parameters.
#include <tessera/checkpoint/async_save.hpp>
#include <tessera/checkpoint/cold_rows.hpp>
#include <tessera/checkpoint/contents.hpp>
#include <tessera/checkpoint/folder.hpp>
#include <tessera/checkpoint/increments.hpp>
#include <tessera/checkpoint/load.hpp>
#include <tessera/checkpoint/non_finite.hpp>
#include <tessera/checkpoint/npy.hpp>
#include <tessera/checkpoint/reader.hpp>
#include <tessera/checkpoint/save.hpp>
#include <tessera/checkpoint/snapshot.hpp>
#include <tessera/checkpoint/vocabulary.hpp>
#include <tessera/checkpoint/warm_start.hpp>
#include <tessera/io/safetensors.hpp>
