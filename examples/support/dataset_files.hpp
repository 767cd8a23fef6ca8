// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

namespace support {

/// What convert_dataset writes beside the files of NVIDIA's layout: the schema, the text that each
/// row stands for, how numbers were shifted and scaled; of Criteo's lines all that is known.
inline constexpr const char *kSchemaFile = "schema.yaml", *kTextsFile = "texts.csv",
                            *kNumbersFile = "numbers.csv", *kCriteoFile = "criteo.safetensors";
inline constexpr std::array kDatasetFiles{kSchemaFile, kTextsFile, kNumbersFile, kCriteoFile};

}  // namespace support
