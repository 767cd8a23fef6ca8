// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "data.hpp"
#include "options.hpp"

#include <tessera/checkpoint/contents.hpp>
#include <tessera/checkpoint/load.hpp>
#include <tessera_data/histories.hpp>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace sequence {

/// Adds what a server must know of the ranking model: its layers, and which row an item has.
void describe_model(tessera::CheckpointContents& contents, const Options& options,
                    const Data& data);

/// Adds which row an item has, for models that start from this one.
void name_items(tessera::CheckpointContents& contents, const Data& data);
/// Which rows of a checkpoint's table the items of these data have. Throws tessera::DataError if it
/// does not say so.
tessera::LoadOptions items_of(const std::filesystem::path& checkpoint, const Data& data);

/// The columns of the lines below. Throws tessera::DataError for an item with a tab, a quote or '|'
/// in its name, which tell apart fields and entries.
std::string prediction_header(const Data& data);
/// A line with a history, its labels where there are such, a candidate, what came of it, and the
/// model's logit: a sample as a server takes it.
void add_prediction(std::string& lines, const Data& data,
                    std::span<const tessera::HistoryEvent> history, std::int32_t candidate,
                    float label, float logit);

}  // namespace sequence
