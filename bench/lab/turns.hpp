// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cases.hpp"
#include "ids.hpp"
#include "settings.hpp"

#include <nlohmann/json.hpp>

#include <map>
#include <string>
#include <vector>

namespace lab {

/// What was recorded of each case: one object a round, or {"error": text}. Keys are names of cases.
using Rounds = std::map<std::string, std::vector<nlohmann::json>>;

/// Measures every case once a round, in random turn, each in a process of its own: its memory is its
/// own, and a case that dies takes no other with it. What is done stands in OUT/rounds.jsonl;
/// `settings.resume` goes on from there. Throws tessera::DataError for a file of other settings, and
/// for one that cannot be written.
Rounds measure_in_turn(const Settings& settings, const std::vector<Case>& cases,
                       const Batches& batches);

}  // namespace lab
