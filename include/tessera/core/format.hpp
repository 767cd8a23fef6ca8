// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// The library's door to fmt, versions 9 to 12: fmt::format by the header that is read fastest.
// From 11 on core.h has it no more.
#if __has_include(<fmt/base.h>)
#include <fmt/format.h>
#else
#include <fmt/core.h>
#endif
