// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Dense layers on the host, their parameters, optimizer and loss. CMake target tessera::dense.
#include <tessera/concepts/dense_layer.hpp>
#include <tessera/core/element.hpp>
#include <tessera/dense/loss.hpp>
#include <tessera/dense/mlp.hpp>
#include <tessera/dense/normal.hpp>
#include <tessera/dense/optimizer.hpp>
#include <tessera/dense/parameters.hpp>
#include <tessera/tables/matrix.hpp>
