// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "model.hpp"

template class tessera::CompiledOnce<model::Tables>;
