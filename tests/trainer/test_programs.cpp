// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// What all programs have in common: --help shows every option that the source declares, --version,
// one line for what is wrong, an exit code of 1 where nothing can be printed.
#include "../../examples/tessera_plan/cluster_file.hpp"

#include <trainer/command.hpp>

#include <tessera/version.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace {

struct Program {
  std::string name;
  std::vector<std::string> commands;  ///< each has a --help of its own
  std::size_t options;                ///< at least
  std::string folder = "examples";
};

/// Those that were built: a program whose libraries are missing is not.
std::vector<Program> programs() {
  std::vector<Program> all{{"convert_dataset", {"to-binary", "to-csv", "to-tsv"}, 6},
                           {"evaluate_model", {"accuracy", "latency", "predict"}, 14},
                           {"export_onnx", {}, 2},
                           {"serve_model", {}, 18},
                           {"tessera_plan", {}, 20},
                           {"train_dlrm", {}, 65},
                           {"train_sequence", {}, 30},
                           {"bench_sharding", {}, 0, "bench"}};
  const auto folder = std::filesystem::path(train_dlrm_path()).parent_path();
  std::erase_if(all, [&](const Program& program) {
    const bool missing = !std::filesystem::exists(folder / program.name);
    if (missing) MESSAGE(program.name << " was not built: without it");
    return missing;
  });
  return all;
}

Outcome run(const std::string& program, const std::string& arguments) {
  return train_dlrm(arguments, false, "timeout 60", program);
}

/// The names of options that a program's sources declare.
std::set<std::string> declared(const Program& program) {
  const std::filesystem::path folder = source_folder() / program.folder;
  std::string source = text_of(folder / (program.name + ".cpp"));
  if (std::filesystem::exists(folder / program.name))
    for (const auto& entry : std::filesystem::directory_iterator(folder / program.name))
      if (entry.path().extension() == ".cpp") source += text_of(entry.path());
  const std::regex option(
      "\\b(?:add|flag|add_option|add_flag|add_option_function<std::string>|set_config|layers|"
      "memory|"
      "seconds|stages)\\(\\s*\"(--[a-z0-9-]+)");
  std::set<std::string> names;
  for (std::sregex_iterator at(source.begin(), source.end(), option), end; at != end; ++at)
    names.insert((*at)[1].str());
  return names;
}

}  // namespace

TEST_CASE("every option stands in --help of its program, or of one of its commands") {
  for (const Program& program : programs()) {
    CAPTURE(program.name);
    const Outcome help = run(program.name, "--help");
    CHECK(help.status == 0);
    CHECK(help.err == "");
    CHECK(help.out.find(program.name + " ") != std::string::npos);
    std::string all = help.out;
    for (const std::string& command : program.commands) {
      CAPTURE(command);
      const Outcome own = run(program.name, command + " --help");
      CHECK(own.status == 0);
      CHECK(own.out.find("Usage: " + program.name + " " + command) != std::string::npos);
      all += own.out;
    }
    const std::set<std::string> options = declared(program);
    CHECK(options.size() >= program.options);
    for (const std::string& option : options) {
      CAPTURE(option);
      CHECK(std::regex_search(all, std::regex(option + "(?![a-z0-9-])")));
    }
  }
}

TEST_CASE("versions, wrong options, and output that cannot be written") {
  const std::string version = fmt::format("{}.{}.{}\n", TESSERA_VERSION_MAJOR,
                                          TESSERA_VERSION_MINOR, TESSERA_VERSION_PATCH);
  for (const Program& program : programs()) {
    CAPTURE(program.name);
    const Outcome outcome = run(program.name, "--version");
    CHECK(outcome.status == 0);
    CHECK(outcome.out == program.name + " " + version);
    CHECK(outcome.err == "");
    const Outcome wrong = run(program.name, "--no-such-option");
    CHECK(wrong.status == 2);
    CHECK(wrong.err.starts_with(program.name + ": "));
    CHECK(wrong.err.ends_with(" (see --help)\n"));
    CHECK(std::count(wrong.err.begin(), wrong.err.end(), '\n') == 1);
    for (const char* option : {"--help", "--version"})
      CHECK(WEXITSTATUS(std::system(
                ("'" + train_dlrm_path(program.name) + "' " + option + " >/dev/full 2>/dev/null")
                    .c_str())) == 1);
  }
}

TEST_CASE("bench_sharding measures nothing that it can't keep, and refuses what would do nothing") {
  if (std::filesystem::path bin = train_dlrm_path();
      !std::filesystem::exists(bin.replace_filename("bench_sharding")))
    return;
  const TemporaryFolder folder;
  const std::string path = folder.path.string();
  std::ofstream(folder.path / "file") << "{}";
  const auto says = [&](const std::string& variables, const std::string& options,
                        const std::string& what) {
    const Outcome outcome = train_dlrm(options, false, variables + " timeout 60", "bench_sharding");
    CAPTURE(options);
    CHECK(outcome.status == 1);
    CHECK(outcome.out == "");
    CHECK(outcome.err.find(what) != std::string::npos);
  };
  // a folder in a file is never there, whoever asks
  const std::string none = "TESSERA_MACHINE='" + path + "/file/machine.json'";
  for (const std::string& options : {std::string(), "--calibrate --out " + path, "--files " + path})
    says(none, options, "cannot write '" + path + "/file/machine.json' (");
  says("HOME= XDG_CACHE_HOME= TESSERA_MACHINE=", "--calibrate", "no place for this machine's");
  says(none, "--calibrate --machine m.json", "leave one out");
  says(none, "--files " + path + " --out " + path, "--out is the folder of --calibrate's files");
  says(none, "--honesty --out " + path, "--out is the folder of --calibrate's files");
  says(none, "--files ''", "--files: a path must follow");
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path), {}) == 1);
}

TEST_CASE("what was measured of files leaves a machine's other constants as they were") {
  const TemporaryFolder folder;
  const std::filesystem::path machine = folder.path / "machine.json";
  std::ofstream(machine) << R"({"measured": {"processor": "x", "cores": 3, "date": "2026-11-23"},)"
                            R"( "flops": 7e9, "links": {}})";
  ::setenv("TESSERA_MACHINE", machine.c_str(), 1);
  const plan::Constants kept = plan::cached_constants().value();
  tessera::Cluster measured = kept.cluster;
  measured.file_bandwidth = 1e9, measured.file_queue_depth = 4, measured.directory_seconds = 1e-8;
  CHECK(plan::write_files(measured) == machine.string());
  const plan::Constants now = plan::cached_constants().value();
  ::unsetenv("TESSERA_MACHINE");
  CHECK(plan::to_cpp(now.cluster) == plan::to_cpp(measured));
  CHECK(now.source == kept.source);  // whose constants they are, and which are not in the file
  CHECK(now.missing == kept.missing);
  CHECK(now.files_measured);
  CHECK(text_of(machine).find("links") != std::string::npos);
  std::filesystem::create_directory(folder.path / "taken");
  CHECK_THROWS_AS(plan::replace_file((folder.path / "taken").string(), "text"), tessera::Error);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path), {}) == 2);
}

TEST_CASE("scripts show their help without what they need") {
  const auto says = [](const std::string& command, const char* what) {
    CAPTURE(command);
    const TemporaryFolder folder;
    const std::string out = (folder.path / "out").string();
    CHECK(std::system(("cd '" + folder.path.string() + "' && " + command + " >'" + out + "' 2>&1")
                          .c_str()) == 0);
    CHECK(text_of(out).find(what) != std::string::npos);
  };
  const std::string examples = (source_folder() / "examples").string();
  // a folder without PyTorch goes before all others
  const TemporaryFolder none;
  std::ofstream(none.path / "torch.py") << "raise ImportError\n";
  says("PYTHONPATH='" + none.path.string() + "' python3 '" + examples + "/load_in_torch.py' --help",
       "--save FILE");
  says("python3 '" + examples + "/read_checkpoint.py' --help", "--tensor");
  // nothing is configured, built or installed
  says(
      "bash -c 'cmake() { exit 9; }; apt-get() { exit 9; }; export -f cmake apt-get; timeout 10 "
      "bash \"" +
          examples + "/quickstart.sh\" --ranks 2 --help'",
      "Options go to the trainer");
}
