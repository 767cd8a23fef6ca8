// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "run_lab.hpp"

#include "../../examples/support/options.hpp"
#include "cases.hpp"
#include "ids.hpp"
#include "results.hpp"
#include "settings.hpp"
#include "turns.hpp"

#include <tessera/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

namespace lab {
namespace {

using namespace tessera;

/// Whole turns of the batches, so that bytes of a step are means over all of them.
int whole_turns(int steps, std::size_t batches) {
  const int count = static_cast<int>(batches);
  return (steps + count - 1) / count * count;
}

void run(Settings& settings) {
  std::error_code error;
  std::filesystem::create_directories(settings.out, error);
  require<DataError>(!error && std::filesystem::is_directory(settings.out),
                     "--out: cannot make the folder '{}'{}{}", settings.out, error ? ": " : "",
                     error ? error.message() : "");
  const plan::Model& model = settings.model;
  const Layout uncut = uncut_layout(Topology{1}, model.tables, model.features);
  require(uncut.fault.ok(), "{}: {}", settings.model_file, describe(uncut.fault));
  Batches batches = settings.ids.empty()
                        ? draw_batches(uncut.features, uncut.tables, uncut.feature_table,
                                       settings.batch, settings.batches, model.workload.skew,
                                       model.workload.sorted_ids, settings.seed)
                        : batches_of(plan::read_ids(settings.ids, "--ids", uncut.features,
                                                    uncut.tables, uncut.feature_table),
                                     settings.batch, settings.batches, settings.ids);
  count_rows(batches, uncut);
  const auto old = settings.compare.empty() ? std::map<std::string, std::vector<double>>{}
                                            : read_old_rounds(settings.compare, batches);
  settings.steps = whole_turns(settings.steps, batches.views.size());
  const std::vector<Case> cases = cases_of(settings, batches);
  const Rounds rounds = measure_in_turn(settings, cases, batches);
  const Report report = report_of(settings, cases, rounds, old);
  fmt::print("{}", text_of(report, settings, batches));
  const auto write = [&](const char* name, const std::string& text) {
    support::ResultFile(settings.out + "/" + name, "--out").write(text);
  };
  support::write_each(
      {[&] {
         write("results.json",
               json_of(report, settings, batches)
                       .dump(1, ' ', false, nlohmann::json::error_handler_t::replace) +
                   "\n");
       },
       [&] { write("results.csv", csv_of(report)); },
       [&] { write("index.html", page_of(report, settings, batches)); }});
  fmt::print("wrote {}/index.html, results.json, results.csv\n", settings.out);
  const auto failed = std::count_if(report.results.begin(), report.results.end(),
                                    [](const Result& r) { return !r.error.empty(); });
  require(failed == 0, "{} of {} cases failed", failed, report.results.size());
}

}  // namespace

int run_lab(int argc, const char* const* argv, const std::vector<NamedPolicy>& policies,
            const std::string& program) {
  return support::run_program(program.c_str(), "give a smaller --batch, or fewer --batches", [&] {
    if (auto settings = read_settings(argc, argv, policies, program)) run(*settings);
    return 0;
  });
}

}  // namespace lab
