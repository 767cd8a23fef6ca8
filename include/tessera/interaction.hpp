// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// What joins the vectors of a sample, on the host: dot products, cross layers, concatenation.
#include <tessera/concepts/interaction.hpp>
#include <tessera/interaction/concat.hpp>
#include <tessera/interaction/cross.hpp>
#include <tessera/interaction/dot.hpp>
#include <tessera/interaction/dot_any_shape.hpp>
