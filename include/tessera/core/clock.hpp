// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Durations and clocks. <chrono> has calendars and text of dates, too: 3,700 lines in each program.
#include <condition_variable>
