// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "files.hpp"
#include "report.hpp"

#include <tessera/core/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <initializer_list>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace support {

/// One of a list of names or numbers, which --help shows.
template <class Values>
CLI::Option* choose(CLI::Option* option, const Values& values, std::string standard = "") {
  std::vector<std::string> texts;
  for (const auto& value : values) texts.push_back(fmt::format("{}", value));
  if (standard.empty()) standard = option->get_default_str();
  return option->check(CLI::IsMember(texts))
      ->option_text(fmt::format("{} [{}]", fmt::join(texts, "|"), standard));
}

/// The text as a number of type T, exactly or rounded; no value where it is none, or does not fit.
template <class T>
std::optional<T> number_of(const std::string& text) {
  T value{};
  if (!CLI::detail::lexical_cast(text, value)) return {};
  // CLI11 takes -1, and what is too large, for the largest number
  if constexpr (std::is_unsigned_v<T>) {
    errno = 0;
    std::strtoull(text.c_str(), nullptr, 0);
    if (errno == ERANGE || text.find('-') != std::string::npos) return {};
  }
  if constexpr (std::is_floating_point_v<T>) {  // as 1e-60, which would become 0
    const std::string_view mantissa = std::string_view(text).substr(0, text.find_first_of("eEpP"));
    if (value == 0 && mantissa.find_first_of("123456789") != std::string_view::npos) return {};
  }
  return value;
}

/// A number in [least, most], what --help calls it, and its default.
template <class T>
CLI::Option* limit(CLI::Option* option, T least, T most, const char* name,
                   std::string standard = "") {
  const auto check = [least, most](const std::string& text) -> std::string {
    const std::optional<T> value = number_of<T>(text);
    if (value && *value >= least && *value <= most) return {};
    return fmt::format("{} is not a number from {} to {}", text, least, most);
  };
  if (standard.empty()) standard = option->get_default_str();
  return option->check(check)->option_text(fmt::format("{} [{}]", name, standard));
}

/// An empty value is a script's variable that is not set, not a wish for the default.
inline void refuse_empty_values(CLI::App& app) {
  for (CLI::Option* option : app.get_options())
    if (option->get_expected_max() > 0)
      option->check([](const std::string& text) {
        return std::string(text.empty() ? "the value is empty" : "");
      });
}

/// Throws CLI::ValidationError for what `fault_of_paths` finds.
inline void check_paths(std::initializer_list<NamedPath> inputs,
                        std::initializer_list<NamedPath> outputs) {
  const std::string fault = fault_of_paths(inputs, outputs);
  tessera::require<CLI::ValidationError>(fault.empty(), "{}", fault);
}

/// Adds --version and parses. False: help or the version was printed. Throws CLI::Error.
inline bool parse(CLI::App& app, int argc, const char* const* argv) {
  app.set_version_flag("--version", version_of(app.get_name()), "Print the version and end")
      ->group("Options");
  if (argc > 1 && argv[1][0] != '-') {
    std::string names;
    bool known = false;
    for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
      known |= command->get_name() == argv[1];
      names += (names.empty() ? "" : ", ") + command->get_name();
    }
    tessera::require<CLI::ValidationError>(known || names.empty(), "there is no '{}': {}", argv[1],
                                           names);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return false;
  } catch (const CLI::CallForVersion& version) {
    fmt::print("{}\n", version.what());
    return false;
  }
  return true;
}

/// main() of a program: returns what `body` does, or makes one line and an exit code of what it
/// throws: 2 for a wrong command line, else 1, also if standard output cannot be written.
/// `without_memory` is what to do then.
template <class Body>
int run_program(const char* name, const char* without_memory, Body body) try {
  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond ulimit -f is an error like a full disk
  open_standard_streams();
  const int code = body();
  check_output();
  return code;
} catch (const CLI::Error& error) {
  return fail(name, std::string(error.what()) + " (see --help)", 2);
} catch (const std::bad_alloc&) {
  return fail(name, std::string("out of memory: ") + without_memory, 1);
} catch (const std::exception& error) {
  return fail(name, error.what(), 1);
}

}  // namespace support
