// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The lines of the input are train_dlrm's arguments. No command line may do more harm than an error
// that says what is wrong, and what is accepted is within the limits that the trainer relies on.
#include "../../examples/support/files.cpp"
#include "../../examples/support/report.cpp"
#include "../../examples/train_dlrm/model_shape.cpp"
#include "../../examples/train_dlrm/options.cpp"
#include "../../examples/train_dlrm/recipes.cpp"
#include "../../examples/train_dlrm/table_optimizers.cpp"

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::string> arguments{"train_dlrm"};
  std::string_view text(reinterpret_cast<const char*>(data), size);
  while (!text.empty() && arguments.size() < 64) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string argument(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    // Help and configurations are long, and written to the terminal.
    if (argument != "--help" && argument != "-h" && argument != "--version" &&
        argument != "--print-config")
      arguments.push_back(argument);
  }
  std::vector<const char*> argv;
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  try {
    const auto options = dlrm::parse_options(static_cast<int>(argv.size()), argv.data());
    if (!options) return 0;
    const auto& o = *options;
    const bool good =
        o.samples >= 2 && o.max_rows >= 3 && o.max_rows <= 2147483647 && o.min_count >= 1 &&
        o.ranks >= 1 && o.ranks <= 256 && o.threads_per_rank >= 1 && o.batch_size >= 1 &&
        o.epochs >= 1 && std::isfinite(o.learning_rate) && std::isfinite(o.dense_learning_rate) &&
        o.test_fraction >= 0 && o.test_fraction <= 0.9 && o.power >= 0 && o.initial_bound >= 0;
    if (!good) std::abort();
    for (const auto* layers : {&o.bottom_mlp, &o.top_mlp})
      for (const std::int64_t size_of_layer : *layers)
        if (size_of_layer < 1 || size_of_layer > 1 << 20) std::abort();
  } catch (const CLI::Error&) {
  } catch (const tessera::InvalidArgument&) {
  }
  return 0;
}
