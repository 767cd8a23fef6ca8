// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <support/temporary_folder.hpp>
#include <support/text_of.hpp>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

/// What a run of train_dlrm left behind.
struct Outcome {
  int status = -1;
  std::string out, err;
  nlohmann::json json;
};

/// Probabilities that --predictions wrote.
inline std::vector<float> predictions_in(const std::filesystem::path& file) {
  const std::string text = text_of(file);
  REQUIRE(text.size() > 10);
  const std::size_t begin = 10 + static_cast<unsigned char>(text[8]) +
                            256 * static_cast<std::size_t>(static_cast<unsigned char>(text[9]));
  std::vector<float> values((text.size() - begin) / sizeof(float));
  std::memcpy(values.data(), text.data() + begin, values.size() * sizeof(float));
  return values;
}

/// The program stands beside the test. Where it was not built the whole test binary ends as skipped
/// (exit code 77).
inline std::string train_dlrm_path(const std::string& name = "train_dlrm") {
  const auto path = std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
  if (!std::filesystem::exists(path)) {
    std::printf("skipped: there is no %s\n", path.c_str());
    std::exit(77);
  }
  return path.string();
}

/// The folder of this repository, above the program. Without it the test ends as skipped.
inline std::filesystem::path source_folder() {
  std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe");
  while (folder = folder.parent_path(), folder.has_relative_path())
    if (std::filesystem::exists(folder / "docs" / "your_own_data.md")) return folder;
  std::printf("skipped: there is no docs/your_own_data.md above the test\n");
  std::exit(77);
}

/// Runs train_dlrm, or a program of another name, with these arguments (as a shell reads them) and
/// --json; `launcher` is a command before it, as mpirun.
inline Outcome train_dlrm(const std::string& arguments, bool with_json = true,
                          const std::string& launcher = "",
                          const std::string& program = "train_dlrm") {
  const TemporaryFolder folder;
  const auto file = [&](const char* name) { return (folder.path / name).string(); };
  std::string command = launcher + " '" + train_dlrm_path(program) + "' " + arguments + " >'" +
                        file("out") + "' 2>'" + file("err") + "'";
  if (with_json) command += " --json '" + file("json") + "'";
  const int status = std::system(command.c_str());
  Outcome outcome;
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.out = text_of(file("out"));
  outcome.err = text_of(file("err"));
  if (with_json && outcome.status == 0) outcome.json = nlohmann::json::parse(text_of(file("json")));
  return outcome;
}

/// The results of a run that must succeed.
inline nlohmann::json results(const std::string& arguments,
                              const std::string& program = "train_dlrm") {
  const Outcome outcome = train_dlrm(arguments, true, "", program);
  INFO(arguments, "\n", outcome.err);
  REQUIRE(outcome.status == 0);
  CHECK(outcome.err == "");
  return outcome.json;
}

/// One line on stderr that holds `what`, and the status of bad options, or of what they name.
inline Outcome check_fails(const std::string& arguments, const std::string& what, int status = 2,
                           const std::string& launcher = "",
                           const std::string& program = "train_dlrm") {
  const Outcome outcome = train_dlrm(arguments, false, launcher, program);
  CAPTURE(arguments);
  CAPTURE(outcome.err);
  CHECK(outcome.status == status);
  CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
  CHECK(outcome.err.starts_with(program + ": "));
  CHECK(outcome.err.find(what) != std::string::npos);
  return outcome;
}

/// Checks that the options of a program's --help are all among `tried`, and counts them.
inline int options_among(const std::string& tried, const std::string& program) {
  std::istringstream help(train_dlrm("--help", false, "", program).out);
  int options = 0;
  for (std::string line; std::getline(help, line);) {
    if (!line.starts_with("  --")) continue;
    const std::string name = line.substr(2, line.find_first_of(" ,", 2) - 2);
    CAPTURE(name);
    ++options;
    CHECK(tried.find(name + ' ') != std::string::npos);
  }
  return options;
}
