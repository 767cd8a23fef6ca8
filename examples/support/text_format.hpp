// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera_data/csv_reader.hpp>

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace support {

/// What options say of a text file's fields: `separator` and `quote` as CsvReaderOptions has them.
struct TextFormat {
  std::string separator;  ///< empty: not given
  char quote = '"';
  std::vector<std::string> columns, empty_words;
};

/// Options --separator, --quote, --columns and --empty-words. `standard`: the separator that is
/// taken without the option. Returns the options.
inline std::vector<CLI::Option*> add_text_format(CLI::App& app, TextFormat& format,
                                                 const std::string& standard) {
  const auto separator = [](const std::string& text) {
    const std::string found = tessera::separator_named(text);
    if (found.empty())
      throw CLI::ValidationError(
          "--separator: give tab, blanks, or 1 to 8 bytes, no quote and no end of a line");
    return found;
  };
  const auto quote = [](const std::string& text) {
    try {
      return tessera::quote_named(text);
    } catch (const tessera::InvalidArgument& error) {
      throw CLI::ValidationError(std::string("--quote: ") + error.what());
    }
  };
  return {app.add_option_function<std::string>(
                 "--separator",
                 [=, &format](const std::string& text) { format.separator = separator(text); },
                 "Between fields: a text of 1 to 8 bytes, 'tab', or 'blanks', any number of spaces "
                 "and tabs")
              ->option_text("TEXT [" + standard + "]"),
          app.add_option_function<std::string>(
                 "--quote", [=, &format](const std::string& text) { format.quote = quote(text); },
                 "Around fields that hold separators; 'none': quotes are characters like others")
              ->option_text("CHARACTER [\"]"),
          app.add_option("--columns", format.columns,
                         "Names of all columns, for a file that has no line of names")
              ->delimiter(',')
              ->option_text("NAME,..."),
          app.add_option("--empty-words", format.empty_words, "Fields that count as empty, as NA")
              ->delimiter(',')
              ->option_text("WORD,...")};
}

}  // namespace support
