// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include "../support/options.hpp"
#include "embeddings.hpp"
#include "metrics.hpp"
#include "model_shape.hpp"
#include "plans.hpp"
#include "recipes.hpp"
#include "table_optimizers.hpp"

#include <tessera/checkpoint/folder.hpp>
#include <tessera/core/error.hpp>
#include <tessera/optimizer/schedule.hpp>
#include <tessera_data/synthetic_models.hpp>
#include <tessera_serving/model_description.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <istream>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace dlrm {
namespace {

using namespace support;

constexpr std::array<std::string_view, 3> kEvictions{"none", "least-frequent", "oldest"};
constexpr std::array<std::string_view, 3> kDenseOptimizers{"sgd", "adagrad", "adam"};
constexpr std::array<std::string_view, 4> kDensePrecisions{"auto", "fp32", "tf32", "bf16"};
constexpr std::array<std::string_view, 4> kCommunicators{"threads", "mpi", "gloo", "nccl"};
constexpr std::array<std::string_view, 2> kBinds{"near", "off"}, kDenseSums{"nccl", "ordered"};
constexpr std::array<std::string_view, 2> kLoaders{"every-rank", "first-rank"};
constexpr std::array<std::string_view, 2> kBackends{"host", "cuda"};
constexpr std::array<std::string_view, 3> kModels{"dlrm", "dcnv2", "wide-deep"};
constexpr std::array<std::string_view, 3> kInteractions{"dot", "cross", "concat"};
constexpr std::array<std::string_view, 3> kModes{"train", "eval", "inference"};
constexpr std::array<std::string_view, 2> kAucs{"exact", "binned"};

/// What one backend takes and the other does not: all of it.
struct Refusal {
  std::string_view backend, what, why;
  bool (*given)(const Options&);
};
constexpr std::array<Refusal, 7> kRefusals{
    {{"cuda", "--communicator but threads and nccl",
      "its ranks are threads that share one GPU, or have one each, as processes have",
      [](const Options& o) { return o.communicator != "threads" && o.communicator != "nccl"; }},
     {"host", "--communicator nccl", "NCCL moves the memory of GPUs",
      [](const Options& o) { return o.communicator == "nccl"; }},
     {"cuda", "--table-files with --host-memory",
      "tables that do not fit --device-memory are either in files or in the host's memory",
      [](const Options& o) { return !o.table_files.empty() && o.host_memory != 0; }},
     {"cuda", "--cold-keys",
      "the vectors of keys without rows are kept where the host reads tables",
      [](const Options& o) { return o.cold_keys != 0; }},
     {"host", "--device-memory", "all its tables are in one memory, whose size is --host-memory",
      [](const Options& o) { return o.device_memory != 0; }},
     {"host", "--graph", "graphs are CUDA's", [](const Options& o) { return o.graph; }},
     {"host", "--dense tf32", "it has no such products; take fp32 or bf16",
      [](const Options& o) { return o.dense_precision == "tf32"; }}}};

/// What a step has that cannot be captured: with --graph it is called all the same.
struct Uncaptured {
  std::string_view what, why;
  bool (*given)(const Options&);
};
constexpr std::array<Uncaptured, 8> kUncaptured{
    {{"--ranks above 1 but --communicator nccl", "ranks that share one GPU meet on the host",
      [](const Options& o) { return o.ranks > 1 && o.communicator != "nccl"; }},
     {"--loader first-rank", "its thread has the line on which ranks agree what to capture",
      [](const Options& o) { return o.loader == "first-rank" && o.ranks != 1; }},
     {"--overlap", "the next batch is routed by a thread",
      [](const Options& o) { return o.overlap; }},
     {"--accumulate", "the host asks whether gradients are kept",
      [](const Options& o) { return o.accumulate > 1; }},
     {"--clip-norm", "the host asks for the norm",
      [](const Options& o) { return o.clip_norm != 0; }},
     {"--deduplicate", "the host asks how many ids differ",
      [](const Options& o) { return o.deduplicate; }},
     {"--device-memory", "the host brings rows to the GPU",
      [](const Options& o) { return o.device_memory != 0; }},
     {"--log, --report, --tensorboard, --metrics-port, --trace", "stages are timed one by one",
      [](const Options& o) { return o.timed(); }}}};

/// The lines of --help that say so.
std::string refusals() {
  std::string text = "What a backend does not take:\n";
  for (const Refusal& r : kRefusals)
    text += fmt::format("  {}: no {}: {}\n", r.backend, r.what, r.why);
  text += "When --graph captures no step, and all are called:\n";
  for (const Uncaptured& u : kUncaptured) text += fmt::format("  with {}: {}\n", u.what, u.why);
  return text;
}

/// the value of a flag
constexpr const char* kGiven = "given";

/// more than any machine has; beyond it OpenMP ends the process
constexpr int kMostThreads = 4096;

constexpr std::int64_t kMostNeurons = 1 << 20;

/// "512,256", the value of option `name`. Throws CLI::ValidationError.
std::vector<std::int64_t> sizes_of(const char* name, const std::string& text) {
  std::vector<std::int64_t> sizes;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    const std::optional<std::int64_t> size = number_of<std::int64_t>(word);
    tessera::require<CLI::ValidationError>(size && *size >= 1 && *size <= kMostNeurons,
                                           "{}: '{}' in '{}' is not a number from 1 to {}; give "
                                           "sizes with a comma between two, as in 512,256",
                                           name, word, text, kMostNeurons);
    sizes.push_back(*size);
    begin = end + 1;
  }
  return sizes;
}

template <class T>
std::string text_of(const T& value) {
  return fmt::format("{}", value);
}
std::string text_of(const std::vector<std::int64_t>& sizes) {
  return fmt::format("{}", fmt::join(sizes, ","));
}

/// What Parse says is wrong with a text; "": nothing.
template <auto Parse>
std::string error_of(const std::string& text) try {
  static_cast<void>(Parse(text));
  return {};
} catch (const tessera::InvalidArgument& error) {
  return error.what();
}
/// The same of a schedule.
std::string check_schedule(const std::string& text) try {
  static_cast<void>(tessera::Schedule::parse(text, 1));
  return {};
} catch (const tessera::InvalidArgument& error) {
  return error.what();
}

/// Refuses options that the input has no use for. A file of --config holds every option: only another
/// value than the default is meant.
void refuse_idle(const Options& options) {
  std::error_code ignored;
  const Options none;
  const bool synthetic = options.data.empty(),
             folder = std::filesystem::is_directory(options.data, ignored);
  const auto only = [](bool given, bool used, std::string_view option, std::string_view use) {
    tessera::require<CLI::ValidationError>(!given || used, "{} is for {}; leave it out", option,
                                           use);
  };
  only(options.samples != none.samples, synthetic, "--samples", "synthetic clicks");
  only(options.power != none.power, synthetic, "--power", "synthetic clicks");
  only(options.test_fraction != none.test_fraction, !folder, "--test-fraction",
       "files and synthetic clicks; a folder says itself what its samples are for");
  only(options.skip_bad_lines, !folder && !synthetic, "--skip-bad-lines", "files");
}

/// What is not given depends on the input: a file is small and seen several times, synthetic clicks
/// are endless and seen once.
void resolve(Options& options, const std::string& config, bool dense_rate_given) {
  refuse_idle(options);
  tessera::require<CLI::ValidationError>(
      !options.vocabulary || options.loader != "first-rank",
      "--loader first-rank hands out rows, which --vocabulary has yet to find");
  const bool file = !options.data.empty();
  if (options.max_rows == 0)
    options.max_rows = !file ? 10'000 : options.vocabulary ? 20'000 : 1'000'000;
  if (options.ranks == 0 && options.communicator == "threads") options.ranks = 4;
  tessera::require<CLI::ValidationError>(
      options.ranks * options.threads_per_rank <= kMostThreads,
      "--ranks {} with --threads-per-rank {} needs {} threads; {} is the most", options.ranks,
      options.threads_per_rank, options.ranks * options.threads_per_rank, kMostThreads);
  check_paths({{"--config", config},
               {"--data", options.data},
               {"--schema", options.schema},
               {"--plan-file", options.plan_file}},
              {{"--predictions", options.predictions},
               {"--log", options.log},
               {"--report", options.report},
               {"--trace", options.trace},
               {"--json", options.json}});
  std::error_code ignored;
  tessera::require<CLI::ValidationError>(
      options.schema.empty() || !std::filesystem::is_directory(options.data, ignored),
      "--schema is for files; '{}' is a folder, whose feature_spec.yaml says what it holds",
      options.data);
  if (options.gradient_codec.empty()) options.gradient_codec = options.codec;
  if (options.batch_size == 0) options.batch_size = file ? 256 : 2048;
  if (options.eval_batch_size == 0) options.eval_batch_size = options.batch_size;
  if (options.stop_at_auc > 0 && options.evals_per_epoch == 0) options.evals_per_epoch = 1;
  tessera::require<CLI::ValidationError>(
      options.mode == "train" || options.resume,
      "--mode {}: add --save DIR --resume, which name the checkpoint", options.mode);
  tessera::require<CLI::ValidationError>(options.mode == "train" || options.start_from.empty(),
                                         "--start-from is for trainings; leave it out of --mode {}",
                                         options.mode);
  if (options.validation_fraction > 0) {
    tessera::require<CLI::ValidationError>(
        !std::filesystem::is_directory(options.data, ignored),
        "--validation-fraction is for files and synthetic clicks; the folder '{}' says itself what "
        "its samples are for",
        options.data);
    if (options.epochs == 0) options.epochs = Options::kAutoEpochs;
  }
  if (options.epochs == Options::kAutoEpochs && options.mode == "train") {
    tessera::require<CLI::ValidationError>(
        options.validation_fraction > 0,
        "--epochs auto needs samples to test models on: add --validation-fraction 0.1");
    tessera::require<CLI::ValidationError>(
        !options.save.empty(), "--epochs auto keeps the best model in DIR/best: add --save DIR");
    if (options.evals_per_epoch == 0) options.evals_per_epoch = 1;
    if (options.schedule.empty()) options.constant_rates = true;
  }
  if (options.epochs == 0) options.epochs = file ? 3 : 1;
  if (options.virtual_ranks > 0) {
    const auto one_bit = [](int n) { return (n & (n - 1)) == 0; };
    tessera::require<CLI::ValidationError>(
        one_bit(options.virtual_ranks) && one_bit(options.ranks) &&
            options.ranks <= options.virtual_ranks,
        "--virtual-ranks {} with --ranks {}: both must be powers of two, and the ranks at most as "
        "many",
        options.virtual_ranks, options.ranks);
    tessera::require<CLI::ValidationError>(
        options.codec == "fp32" && options.gradient_codec == "fp32",
        "--virtual-ranks: what is encoded depends on the ranks; leave --codec and --gradient-codec "
        "at fp32");
    tessera::require<CLI::ValidationError>(
        options.loader == "every-rank",
        "--virtual-ranks: the first rank cuts batches by ranks; leave --loader {} out",
        options.loader);
  }
  if (!dense_rate_given) {
    if (options.dense_optimizer == "sgd") options.dense_learning_rate = 0.1f;
    if (options.dense_optimizer == "adagrad") options.dense_learning_rate = 0.01f;
    if (options.dense_optimizer == "adam") options.dense_learning_rate = 0.001f;
  }
}

/// Reads --config as any other file is read. CLI11 opens it, too, and takes what it cannot read for
/// its end.
class ConfigFile : public CLI::ConfigTOML {
 public:
  ConfigFile(const CLI::App& app, const std::string& text) : app_(app), text_(text) {}
  std::vector<CLI::ConfigItem> from_config(std::istream&) const override {
    std::istringstream text(text_.starts_with("\xef\xbb\xbf") ? text_.substr(3) : text_);
    // CLI11 takes what follows a '#' for a comment, in quotes, too.
    for (std::string line; std::getline(text, line);)
      if (const std::size_t mark = line.find('#'); mark != line.npos)
        for (const char quote : {'"', '\''})
          tessera::require<CLI::ValidationError>(
              std::count(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(mark), quote) %
                      2 ==
                  0,
              "--config: '{}': a value there cannot hold a '#'; give it on the command line", line);
    text.clear();
    text.seekg(0);
    std::vector<CLI::ConfigItem> items = CLI::ConfigTOML::from_config(text);
    for (const CLI::ConfigItem& item : items) {
      tessera::require<CLI::ValidationError>(
          item.name != "++", "--config: this program reads no sections, as [{}]; remove the line",
          item.parents.empty() ? "" : item.parents.back());
      tessera::require<CLI::ValidationError>(
          app_.get_option_no_throw("--" + item.fullname()) != nullptr,
          "--config: there is no option '{}'", item.fullname());
    }
    return items;
  }

 private:
  const CLI::App& app_;
  const std::string& text_;
};

/// Options, and the texts of their values.
using Texts = std::vector<std::pair<const CLI::Option*, std::function<std::string()>>>;

/// All options as a file for --config: those that are given, and the values of the others, as a
/// comment where the value follows from other options or is "none".
std::string config_of(const CLI::App& app, const Texts& texts) {
  constexpr std::array<std::string_view, 9> follow{
      "learning-rate", "wide-optimizer",    "wide-learning-rate", "cross-layers", "cross-rank",
      "interaction",   "interaction-width", "bottom-mlp",         "dense"};
  constexpr std::array<std::string_view, 6> no_values{"help",   "version",      "config",
                                                      "recipe", "print-config", "json"};
  std::string text, group;
  const auto excluded = [](const CLI::Option* option) {
    return std::ranges::any_of(option->get_excludes(),
                               [](const CLI::Option* other) { return other->count() > 0; });
  };
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_single_name();
    if (std::ranges::count(no_values, name) > 0) continue;
    if (option->get_group() != group) text += fmt::format("# {}\n", group = option->get_group());
    const bool flag = option->get_expected_max() == 0, given = option->count() > 0;
    const auto own = std::ranges::find(texts, option, [](const auto& pair) { return pair.first; });
    const std::string value = flag                 ? (given ? "true" : "false")
                              : given              ? option->results().back()
                              : own != texts.end() ? own->second()
                                                   : "";
    const bool comment =
        !given && (flag || value.empty() || value == "0" || !option->get_needs().empty() ||
                   excluded(option) || std::ranges::count(follow, name) > 0);
    tessera::require<CLI::ValidationError>(
        value.find_first_of("\n\r#") == std::string::npos &&
            (value.find('"') == std::string::npos || value.find('\'') == std::string::npos),
        "--print-config: the value of --{} holds a line break, a '#', or both kinds of quotes, "
        "which a file for --config cannot hold",
        name);
    const char quote = value.find('"') == std::string::npos ? '"' : '\'';
    text += flag ? fmt::format("{}{}={}\n", comment ? "# " : "", name, value)
                 : fmt::format("{}{}={}{}{}\n", comment ? "# " : "", name, quote, value, quote);
  }
  return text;
}

/// The rate of each optimizer as a share of --learning-rate, which is the first one's where it is
/// not given. The wide part has its own.
void set_rates(Options& options, bool rate_given, bool wide_rate_given) {
  const float standard = standard_rate(options.optimizer);
  if (!rate_given) options.learning_rate = standard;
  for (const float rate : standard_rates(options.optimizer))
    options.rate_shares.push_back(rate_given ? 1.0f : rate / standard);
  if (options.model != "wide-deep") return;
  const int wide = parse_optimizer(options.wide_optimizer).optimizer;
  const std::vector<OptimizerOfTables> deep = parse_optimizers(options.optimizer);
  const bool shared =
      std::ranges::any_of(deep, [wide](const auto& pair) { return pair.optimizer == wide; });
  tessera::require<CLI::ValidationError>(
      !shared || !wide_rate_given,
      "--wide-learning-rate: deep tables have --wide-optimizer {}, too, and so its rate; leave it "
      "out, or give them another --optimizer",
      options.wide_optimizer);
  tessera::require<CLI::ValidationError>(
      shared || options.learning_rate > 0,
      "--learning-rate 0 stops the wide part, too, whose rate follows it; give a small one");
  if (!wide_rate_given) options.wide_learning_rate = standard_rate(options.wide_optimizer);
  float& share = options.rate_shares[static_cast<std::size_t>(wide)];
  if (!shared) share = options.wide_learning_rate / options.learning_rate;
  options.wide_learning_rate = share * options.learning_rate;
  options.optimizer = fmt::format("{}:wide.*,{}", options.wide_optimizer, options.optimizer);
  const std::string fault = error_of<parse_optimizers>(options.optimizer);
  tessera::require<CLI::ValidationError>(fault.empty(), "--wide-optimizer and --optimizer: {}",
                                         fault);
}

/// Pairs for --optimizer that freeze tables, of a list of patterns, and their wide parts.
std::string frozen(const std::string& patterns, bool wide) {
  std::string pairs;
  for (std::size_t begin = 0; begin <= patterns.size();) {
    const std::size_t end = std::min(patterns.find(',', begin), patterns.size());
    const std::string pattern = patterns.substr(begin, end - begin);
    if (wide) pairs += fmt::format("frozen:{},", tessera::wide_table(pattern));
    pairs += fmt::format("frozen:{},", pattern);
    begin = end + 1;
  }
  return pairs;
}

std::vector<std::string_view> names_of_synthetic_models() {
  std::vector<std::string_view> names;
  for (const tessera::SyntheticModel& model : tessera::synthetic_models)
    names.push_back(model.name);
  return names;
}

/// "auto" or a number. Throws CLI::ValidationError.
int epochs_of(const std::string& text) {
  if (text == "auto") return Options::kAutoEpochs;
  const std::optional<int> epochs = number_of<int>(text);
  tessera::require<CLI::ValidationError>(epochs && *epochs >= 1 && *epochs <= 1'000'000,
                                         "--epochs: {} is not a number from 1 to 1000000, or auto",
                                         text);
  return *epochs;
}

/// "1/1000" or "0.001". Throws CLI::ValidationError.
double scale_of(const std::string& text) {
  const std::size_t slash = text.find('/');
  const std::optional<double> over = number_of<double>(text.substr(0, slash)),
                              under = slash == std::string::npos
                                          ? 1.0
                                          : number_of<double>(text.substr(slash + 1));
  tessera::require<CLI::ValidationError>(
      over && under && *over > 0 && *over <= *under && *under <= 1e12,
      "--scale: {} is no share of 1; give one above 0 and up to 1, as 1/1000", text);
  return *over / *under;
}

/// Its layers and optimizers, where others are not given.
void set_synthetic_model(Options& options, bool top_given, bool optimizer_given,
                         bool dense_optimizer_given) {
  if (options.synthetic_model.empty()) return;
  const auto& layers = tessera::synthetic_model(options.synthetic_model).mlp;
  if (!top_given) options.top_mlp.assign(layers.begin(), layers.end());
  if (!optimizer_given) options.optimizer = "adagrad";
  if (!dense_optimizer_given) options.dense_optimizer = "adagrad";
  options.interaction = "concat";
}

/// What the model is made of, where the options leave it open or contradict each other.
void set_model(Options& options) {
  const char* const of_model = options.model == "dcnv2"       ? "cross"
                               : options.model == "wide-deep" ? "concat"
                                                              : "dot";
  tessera::require<CLI::ValidationError>(
      options.interaction.empty() || options.model == "dlrm" || options.interaction == of_model,
      "--model {} has --interaction {}; leave --interaction {} out, or take --model dlrm",
      options.model, of_model, options.interaction);
  if (options.interaction.empty()) options.interaction = of_model;
}

/// Another one than the training's is no contradiction.
constexpr std::string_view kTestFraction = "--test-fraction",
                           kValidationFraction = "--validation-fraction";

/// Options that say what the model is and how data become its rows; of made-up data the seed, too.
constexpr std::array<std::string_view, 21> kModelOptions{"--embedding-width",
                                                         "--interaction-width",
                                                         "--model",
                                                         "--bottom-mlp",
                                                         "--top-mlp",
                                                         "--interaction",
                                                         "--cross-layers",
                                                         "--cross-rank",
                                                         "--max-rows",
                                                         "--min-count",
                                                         "--vocabulary",
                                                         "--eviction",
                                                         "--admit-probability",
                                                         "--time-to-live",
                                                         "--cold-keys",
                                                         "--samples",
                                                         "--power",
                                                         "--scale",
                                                         "--synthetic-model",
                                                         kTestFraction,
                                                         kValidationFraction};

std::optional<Options> parse_words(const std::vector<std::string>& words) {
  Options options;
  CLI::App app(
      "Trains a DLRM with sharded embeddings on click data, on ranks that are threads of this "
      "process or processes.",
      "train_dlrm");
  app.option_defaults()->always_capture_default();
  app.get_formatter()->column_width(44);
  app.footer(refusals());
  // Most options, in the order of --help: those whose values all ranks must share.
  std::vector<std::pair<std::string, std::function<std::string()>>> shared;
  Texts texts;
  const auto add = [&](const char* name, auto& value, const char* what) {
    shared.emplace_back(name, [&value] { return text_of(value); });
    CLI::Option* const option = app.add_option(name, value, what);
    texts.emplace_back(option, shared.back().second);
    return option;
  };
  const auto flag = [&](const char* name, bool& value, const char* what) {
    shared.emplace_back(name, [&value] { return std::string(value ? kGiven : "not given"); });
    return app.add_flag(name, value, what);
  };
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  constexpr float kMostRate = 1e30f;

  app.option_defaults()->group("Configuration");
  app.allow_config_extras(CLI::config_extras_mode::error);
  CLI::Option* config = app.set_config("--config", "",
                                       "Read options from a file, as --print-config writes it; the "
                                       "command line goes before it");
  std::string config_text;
  config->option_text("FILE")->check([&config_text](const std::string& path) -> std::string {
    try {
      config_text = read_file(path, "", std::size_t{1} << 20);
      return {};
    } catch (const tessera::DataError& error) {
      return error.what();
    }
  });
  app.config_formatter(std::make_shared<ConfigFile>(app, config_text));
  std::string recipe_name;
  choose(app.add_option("--recipe", recipe_name,
                        "A published model's options, but those that are given (docs/models.md)"),
         kRecipes, "none")
      ->excludes(config);
  bool print_config = false;
  app.add_flag("--print-config", print_config, "Print all options as a file for --config, and end");
  app.option_defaults()->group("Data");
  app.add_option("--data", options.data,
                 "Criteo click file (label, 13 integers, 26 hex categories, tabs between), or a "
                 "folder that convert_dataset or "
                 "NVIDIA's tools made")
      ->option_text("FILE|DIR [synthetic clicks]");
  CLI::Option* schema =
      add("--schema", options.schema,
          "YAML file that says what the columns of --data mean, a CSV, TSV, Parquet or Arrow file, "
          "also of gzip or zstd (docs/your_own_data.md)")
          ->option_text("FILE");
  schema->needs("--data");
  limit<std::int64_t>(add("--shuffle-window", options.shuffle_window,
                          "Samples of a --schema's file that are in memory, in a random order; a "
                          "larger file is read again every epoch"),
                      1, kMost, "N")
      ->needs(schema);
  limit(app.add_option("--parser-threads", options.parser_threads,
                       "That read a --schema's file ahead"),
        1, 256, "T")
      ->needs(schema);
  limit<std::int64_t>(
      add("--samples", options.samples, "Synthetic clicks, for training and test together"), 2,
      kMost, "N");
  limit(add("--power", options.power, "Exponent of the power law of synthetic ids; 0: uniform"),
        0.0, 16.0, "A");
  CLI::Option* synthetic =
      choose(add("--synthetic-model", options.synthetic_model,
                 "Merlin's model of that name in place of --model, its tables and optimizer "
                 "(docs/models.md)"),
             names_of_synthetic_models(), "none");
  shared.emplace_back("--scale", [&options] { return text_of(options.scale); });
  app.add_option_function<std::string>(
         "--scale", [&options](const std::string& text) { options.scale = scale_of(text); },
         "Of the rows of --synthetic-model, as 1/1000")
      ->option_text("S [1]")
      ->needs(synthetic);
  limit(add("--test-fraction", options.test_fraction,
            "Share of the samples, the last ones, that test the model"),
        0.0, 0.9, "F");
  limit(add("--validation-fraction", options.validation_fraction,
            "Share of the training samples, the last ones, on which models are tested during "
            "training, in place of the test samples"),
        0.0, 0.9, "F");
  limit<std::int64_t>(
      add("--max-rows", options.max_rows, "Cap of every table's rows; values beyond it share rows"),
      3, 2147483647, "N", "file 1000000, with --vocabulary 20000, synthetic 10000");
  limit<std::int64_t>(
      add("--min-count", options.min_count,
          "Category values of a file that training holds less often share one row of their table"),
      1, kMost, "N");
  CLI::Option* vocabulary = flag("--vocabulary", options.vocabulary,
                                 "Give rows to categories while training sees them, --min-count "
                                 "times each, instead of counting a file's beforehand");
  choose(add("--eviction", options.eviction,
             "Whose row a new category gets when a --vocabulary is full"),
         kEvictions)
      ->needs(vocabulary);
  limit<double>(add("--admit-probability", options.admit_probability,
                    "A --vocabulary gives a row to a category that has been seen --min-count times "
                    "with this probability in each batch that has it"),
                1e-6, 1, "P")
      ->needs(vocabulary);
  limit<std::int64_t>(
      add("--time-to-live", options.time_to_live,
          "Batches after which a category of a --vocabulary that did not come again "
          "loses its row; 0: never"),
      0, 2147483647, "N")
      ->needs(vocabulary);
  limit<std::int64_t>(add("--cold-keys", options.cold_keys,
                          "Categories that lost their rows of a --vocabulary and keep their "
                          "vectors in the host's memory, for when they come again; 0: none"),
                      0, kMost, "N")
      ->needs(vocabulary);
  flag("--skip-bad-lines", options.skip_bad_lines,
       "Count lines of a file that are no clicks, and go on");

  app.option_defaults()->group("Ranks");
  choose(add("--communicator", options.communicator,
             "What ranks are: threads of this process; processes of mpirun; gloo, without MPI, "
             "processes of torchrun, srun or mpirun; nccl, threads with a GPU each, or such "
             "processes"),
         kCommunicators);
  choose(add("--dense-sums", options.dense_sums,
             "In which order --communicator nccl adds up the ranks' gradients of the MLPs: "
             "NCCL's, or that of the ranks, whose model is that of threads to the bit"),
         kDenseSums);
  choose(
      app.add_option("--bind", options.bind,
                     "Which processors and memory a rank of --communicator nccl uses: those next "
                     "to its GPU, as far as this process may; off: as it was started"),
      kBinds);
  limit(app.add_option("--ranks", options.ranks, "Number of ranks"), 1, 256, "N",
        "threads 4, processes as many as are started, nccl as many as there are GPUs");
  limit(app.add_option("--threads-per-rank", options.threads_per_rank,
                       "OpenMP threads of each rank; with --backend cuda they make or read its "
                       "batches"),
        1, 256, "T");
  CLI::Option* timeout = limit(add("--timeout", options.timeout,
                                   "Seconds that a rank waits for the others before it gives up "
                                   "and names them; 0: for ever"),
                               0.0, 1e8, "SECONDS", "threads 0, others 600");
  CLI::Option* buckets =
      limit<std::int64_t>(add("--bucket-kib", options.bucket_kib,
                              "Gradients of the linear layers are summed over the ranks during "
                              "backward, in buckets of this size; 0: at "
                              "once, after it"),
                          0, 1 << 30, "N");
  choose(add("--loader", options.loader,
             "Who reads training batches: each rank its part, or the first for all, ahead of time"),
         kLoaders);
  flag("--overlap", options.overlap,
       "Send the next batch's ids to their owners, on a thread of each rank, during the linear "
       "layers of this one");
  choose(add("--backend", options.backend,
             "Where tables are and layers run; with cuda all ranks share one GPU"),
         kBackends);
  flag("--check-links", options.check_links,
       "First send the messages of this plan's step over the communicator that will carry them: "
       "prints GB/s beside what the planner assumes, and keeps them for later plans of this "
       "machine");
  flag("--graph", options.graph,
       "Of --backend cuda: capture a whole step after two that were called, and replay it; batches "
       "of other sizes are called");
  CLI::Option* named_plan =
      choose(add("--plan", options.plan, "How tables are cut over the ranks"), kPlans);
  limit<int>(add("--hot-rows", options.hot_rows,
                 "First rows of each table, which must be the most frequent, that --plan hot-rows "
                 "copies to every rank"),
             1, 1 << 30, "N");
  app.add_option("--plan-file", options.plan_file,
                 "The same as tessera_plan --out wrote it, for these tables and ranks")
      ->option_text("FILE")
      ->excludes(named_plan);
  const auto memory = [&](const char* name, std::int64_t& bytes, const char* what) {
    return add(name, bytes, what)
        ->transform(CLI::AsSizeValue(false))
        ->check(CLI::Range(std::int64_t{1}, kMost << 10))
        ->option_text("SIZE [no limit]");
  };
  memory("--device-memory", options.device_memory,
         "Of each rank for tables and their optimizer's state, with --backend cuda; those that do "
         "not fit stay in the host's memory, where the GPU reads them, or in --table-files: 8GiB");
  memory("--host-memory", options.host_memory,
         "Of each rank for tables and their optimizer's state: with --table-files for all of them, "
         "with --device-memory for those that stay there");
  add("--table-files", options.table_files,
      "Folder for the tables that do not fit --host-memory, with --backend cuda --device-memory: "
      "their rows are in files there, behind a cache in what the others leave of it")
      ->option_text("DIR");
  choose(add("--table-precision", options.table_precision,
             "What tables are stored in; rows of 16 bits are rounded stochastically"),
         kTablePrecisions);
  choose(add("--codec", options.codec, "How pooled vectors travel between ranks"), kCodecs);
  choose(add("--gradient-codec", options.gradient_codec, "How their gradients travel"), kCodecs,
         "as --codec");
  CLI::Option* deduplicate =
      flag("--deduplicate", options.deduplicate,
           "Send each distinct id of a rank's batch once, and pool what comes back there");
  limit(add("--virtual-ranks", options.virtual_ranks,
            "Cut batches into so many parts, whose sums are always added in one order: the same "
            "model, to the bit, under any plan and on 1, 2, 4 ... up to so many ranks"),
        1, 256, "V", "off")
      ->excludes(deduplicate)
      ->excludes(buckets);

  app.option_defaults()->group("Model");
  add("--embedding-width", options.embedding_width,
      "Columns of every table, 1 to 1024; or of each in the order of the data, as 8,16,16; or "
      "auto: "
      "6 rows^(1/4), to the nearest of 8, 16, 32, 64, 128. A schema's width goes before it")
      ->option_text(fmt::format("W|W,W...|auto [{}]", options.embedding_width))
      ->check(error_of<parse_widths>);
  const CLI::Option* interaction_width =
      limit(add("--interaction-width", options.interaction_width,
                "Columns of the bottom MLP's output, to which --interaction dot projects tables of "
                "other widths"),
            1, kMostWidth, "W", "the widest table's");
  choose(
      add("--model", options.model,
          "dlrm: a bottom MLP, an interaction, a top MLP; dcnv2: the same with cross layers; "
          "wide-deep: numbers and vectors go to the top MLP, whose result is added to the sum of "
          "a weight for each category"),
      kModels);
  const auto layers = [&](const char* name, std::vector<std::int64_t>& sizes, const char* what) {
    shared.emplace_back(name, [&sizes] { return text_of(sizes); });
    const auto set = [&sizes, name](const std::string& text) { sizes = sizes_of(name, text); };
    CLI::Option* const option = app.add_option_function<std::string>(name, set, what);
    texts.emplace_back(option, shared.back().second);
    return option->option_text(fmt::format("N,N... [{}]", text_of(sizes)));
  };
  const CLI::Option* bottom =
      layers("--bottom-mlp", options.bottom_mlp, "Hidden layers for the numbers");
  const CLI::Option* top =
      layers("--top-mlp", options.top_mlp, "Hidden layers after the interaction");
  choose(add("--dense,--dense-precision", options.dense_precision,
             "What dense layers multiply; sums, parameters and their gradients stay fp32. auto: "
             "fp32 on the host, tf32 with --backend cuda: floats rounded to 10 bits of mantissa, "
             "on the tensor cores. bf16, of the MLPs, needs AVX-512 or --backend cuda, where the "
             "interaction is in tf32 then"),
         kDensePrecisions);
  choose(add("--interaction", options.interaction,
             "What joins the vectors of a sample: dot products of all pairs (DLRM), cross layers "
             "(DCNv2), or nothing: concat"),
         kInteractions, "of --model: dot, cross, concat");
  const CLI::Option* cross[] = {
      limit(add("--cross-layers", options.cross_layers, "Of --interaction cross"), 1, 1000, "N"),
      limit<std::int64_t>(add("--cross-rank", options.cross_rank,
                              "Of its weights' two factors; 0: one full matrix"),
                          0, 1 << 20, "N")};

  for (const char* other : {"--data", "--model", "--interaction", "--embedding-width",
                            "--interaction-width", "--bottom-mlp", "--max-rows"})
    synthetic->excludes(app.get_option(other));

  app.option_defaults()->group("Training");
  CLI::Option* optimizer =
      add("--optimizer", options.optimizer,
          "Of the embeddings: sgd, momentum, lion, adagrad, rowwise-adagrad, the same with "
          "weight decay, -l2 or -decoupled, or with rates by how often a row occurs, -counted, "
          "adam, adamw, partial-rowwise-adam, adam-counted, which corrects each row by its own "
          "count, lamb, or ftrl, whose rate stays; with constants as "
          "in 'rowwise-adagrad-l2(weight_decay=1e-5)'; or pairs NAME:PATTERN, as in "
          "'ftrl(l1=0.1):C1*,frozen:C26,rowwise-adagrad:*', of which the first that matches a "
          "table's name counts; frozen: tables that never change")
          ->option_text("NAME[(KEY=VALUE,...)][:PATTERN],... [" + options.optimizer + "]")
          ->check(error_of<parse_optimizers>);
  add("--freeze", options.freeze,
      "Tables that never change, by name or PATTERN, as in 'user,item*': --optimizer is for the "
      "others")
      ->option_text("PATTERN,... [none]")
      ->check([](const std::string& text) {
        return text.empty() ? std::string()
                            : error_of<parse_optimizers>(frozen(text, false) + "sgd");
      });
  const CLI::Option* rate = limit(
      add("--learning-rate", options.learning_rate, "Of the embeddings"), 0.0f, kMostRate, "R",
      "of each optimizer: sgd 10, momentum 2, lion 0.003, adagrad, rowwise-adagrad and -l2 and "
      "-decoupled 0.04, -counted 10, or 0.04 if its `rate` is faster or slower, adam, adamw and "
      "partial-rowwise-adam, adam-counted 0.01, lamb 0.1, ftrl 0.1");
  const CLI::Option* wide[] = {
      add("--wide-optimizer", options.wide_optimizer, "Of the wide part's weights, as above")
          ->option_text("NAME[(KEY=VALUE,...)] [" + options.wide_optimizer + "]")
          ->check(error_of<parse_optimizer>),
      limit(add("--wide-learning-rate", options.wide_learning_rate, "Of the wide part"), 0.0f,
            kMostRate, "R", "its optimizer's, as above")};
  const CLI::Option* dense_optimizer = choose(
      add("--dense-optimizer", options.dense_optimizer, "Of the linear layers"), kDenseOptimizers);
  const CLI::Option* dense_rate =
      limit(add("--dense-learning-rate", options.dense_learning_rate, "Of the linear layers"), 0.0f,
            kMostRate, "R", "sgd 0.1, adagrad 0.01, adam 0.001");
  limit(add("--weight-decay", options.weight_decay, "Of the linear layers"), 0.0f, kMostRate, "R");
  shared.emplace_back("--clip-norm", [&options] { return text_of(options.clip_norm); });
  limit(
      app.add_option("--clip-norm", options.clip_norm,
                     "Scale a step's gradients, of tables and linear layers together, down to this "
                     "norm if theirs is larger"),
      1e-30f, 1e30f, "NORM");
  shared.emplace_back("--initial-bound", [&options] { return text_of(options.initial_bound); });
  app.add_option_function<std::string>(
         "--initial-bound",
         [&options](const std::string& text) {
           const std::optional<float> bound = text == "rows" ? -1.0f : number_of<float>(text);
           tessera::require<CLI::ValidationError>(
               bound && (text == "rows" || (*bound >= 0 && *bound <= kMostRate)),
               "--initial-bound: {} is neither a number from 0 to {} nor 'rows'", text,
               float{kMostRate});
           options.initial_bound = *bound;
         },
         "First embeddings are uniform in [-B, B); rows: B is 1/sqrt(rows) of each table")
      ->option_text(fmt::format("B|rows [{}]", options.initial_bound));
  CLI::Option* constant = flag("--constant-rates", options.constant_rates,
                               "Keep the learning rates; else they fall in a straight line to 0");
  const auto stages = [&](const char* name, std::string& value, const char* what) {
    return add(name, value, what)->check(check_schedule)->excludes(constant);
  };
  CLI::Option* schedule =
      stages("--schedule", options.schedule,
             "Stages of the learning rates, as warmup:8000,hold:40000,poly:24000:2; kinds are "
             "constant, hold:STEPS, warmup:STEPS, poly:STEPS[:POWER[:END]], cosine:STEPS[:END], "
             "inverse-sqrt:WARMUP, step:EVERY:FACTOR");
  schedule->option_text("STAGE,STAGE... [a straight line to 0]");
  stages("--dense-schedule", options.dense_schedule, "The same, of the linear layers alone")
      ->option_text("STAGE,STAGE... [as --schedule]");
  limit<std::int64_t>(add("--batch-size", options.batch_size, "Samples of a batch, over all ranks"),
                      1, 1 << 30, "B", "file 256, synthetic 2048");
  CLI::Option* accumulate = limit<std::int64_t>(
      add("--accumulate", options.accumulate,
          "Batches whose gradients are summed for one step: as a batch of so many times the size, "
          "in the memory of one"),
      1, 1 << 20, "K");
  buckets->excludes(accumulate);
  shared.emplace_back("--epochs", [&options] { return options.epochs_text(); });
  app.add_option_function<std::string>(
         "--epochs", [&options](const std::string& text) { options.epochs = epochs_of(text); },
         "Passes over the training samples; auto: until --validation-fraction's AUC has not risen "
         "in --patience tests, and the best model, kept in DIR/best, is tested")
      ->option_text("E [file 3, synthetic 1, with --validation-fraction auto]");
  limit(add("--patience", options.patience, "Tests without a better one that end --epochs auto"), 1,
        1'000, "N");
  limit<std::int64_t>(add("--max-steps", options.max_steps,
                          "End after so many steps; the rates stay those of all --epochs"),
                      1, kMost, "N", "all of --epochs");
  limit<std::uint64_t>(
      add("--seed", options.seed, "Of first values, orders of samples, and synthetic clicks"), 0,
      std::numeric_limits<std::uint64_t>::max(), "N");

  app.option_defaults()->group("Checkpoints");
  CLI::Option* save =
      add("--save", options.save, "Save the model to folders of this one, at the end at least");
  save->option_text("DIR");
  limit<std::int64_t>(add("--save-every", options.save_every, "Save every so many steps, too"), 1,
                      kMost, "N", "at the end only")
      ->needs(save);
  limit(add("--keep", options.keep, "Remove all but the last so many checkpoints"), 1, 1'000'000,
        "N", "all")
      ->needs(save);
  flag("--save-async", options.save_async, "Train on while whole checkpoints are written")
      ->needs(save);
  limit(add("--save-increments", options.save_increments,
            "After a whole checkpoint save so many times only the rows that changed"),
        0, 1'000'000, "N", "0")
      ->needs(save);
  flag("--resume", options.resume,
       "Go on from the last checkpoint in --save, under any plan and number of ranks; without one "
       "begin")
      ->needs(save);
  app.add_option("--start-from", options.start_from,
                 "Begin with the tables and layers of the last checkpoint there, or of that one, "
                 "as far as this model has them, under any data and options; what begins anew is "
                 "printed")
      ->option_text("DIR");

  app.option_defaults()->group("Evaluation");
  choose(add("--mode", options.mode,
             "eval: test the last checkpoint in --save; inference: measure its speed, too"),
         kModes);
  limit<std::int64_t>(add("--evals-per-epoch", options.evals_per_epoch,
                          "Test so often in each epoch; with --save the best model is kept in "
                          "DIR/best"),
                      1, kMost, "N", "at the end only");
  limit<std::int64_t>(add("--eval-batch-size", options.eval_batch_size,
                          "Samples that are tested at once, over all ranks"),
                      1, 1 << 30, "B", "as --batch-size");
  limit(add("--stop-at-auc", options.stop_at_auc, "End when a test reaches this AUC"), 0.0, 1.0,
        "X", "never");
  choose(add("--auc", options.auc,
             "exact: from all test samples, in memory; binned: from 8,000 thresholds"),
         kAucs);
  app.add_option("--predictions", options.predictions,
                 "Write the test samples' probabilities, in their order, as float32")
      ->option_text("FILE.npy");

  app.option_defaults()->group("Results");
  limit<std::int64_t>(add("--print-every", options.print_every,
                          "Print progress every so many "
                          "steps"),
                      1, kMost, "N", "now and then");
  CLI::Option* trace =
      add("--trace", options.trace,
          "Write when each rank did what in its first steps, for Perfetto or chrome://tracing");
  trace->option_text("FILE.json");
  limit<std::int64_t>(add("--trace-steps", options.trace_steps, "How many steps"), 1, 1'000'000,
                      "N")
      ->needs(trace);
  add("--log", options.log,
      "Write a line of JSON at each report of progress and each test; with --resume go on behind "
      "the lines there")
      ->option_text("FILE");
  add("--report", options.report,
      "Write a page with loss, AUC, rates, time by stage, the plan and the options at the end")
      ->option_text("FILE.html");
  add("--tensorboard", options.tensorboard,
      "Write the numbers of each report and test to a file in this folder, which TensorBoard shows "
      "as a run")
      ->option_text("DIR");
  limit(app.add_option("--metrics-port", options.metrics_port,
                       "Answer http://127.0.0.1:PORT/metrics with the last ones, for Prometheus; "
                       "0: any free port, which is printed"),
        0, 65535, "PORT", "none")
      ->check([](const std::string&) {
        return std::string(metrics_servers() ? ""
                                             : "this program was built without Boost; install "
                                               "libboost-dev and build again");
      });
  app.add_option("--json", options.json, "Write the results to this file")->option_text("FILE");
  flag("--feature-check", options.feature_check,
       "After training, test again with each category's ids exchanged between samples");

  refuse_empty_values(app);
  std::vector<const char*> pointers;
  for (const std::string& word : words) pointers.push_back(word.c_str());
  if (!parse(app, static_cast<int>(pointers.size()), pointers.data())) return std::nullopt;
  if (timeout->count() == 0 && options.communicator != "threads") options.timeout = 600;
  set_synthetic_model(options, top->count() > 0, optimizer->count() > 0,
                      dense_optimizer->count() > 0);
  resolve(options, config->count() > 0 ? config->results().back() : "", dense_rate->count() > 0);
  set_model(options);
  const std::string configuration = print_config ? config_of(app, texts) : std::string();
  set_rates(options, rate->count() > 0, wide[1]->count() > 0);
  if (!options.freeze.empty())
    options.optimizer = frozen(options.freeze, options.model == "wide-deep") + options.optimizer;
  const auto only_for = [](const CLI::Option* option, bool right, const char* what) {
    tessera::require<CLI::ValidationError>(right || option->count() == 0,
                                           "{} is for {}; add that or leave it out",
                                           option->get_name(), what);
  };
  for (const CLI::Option* option : wide)
    only_for(option, options.model == "wide-deep", "--model wide-deep");
  only_for(bottom, options.model != "wide-deep", "models with a bottom MLP, --model dlrm or dcnv2");
  only_for(interaction_width, options.model != "wide-deep",
           "models with a bottom MLP, --model dlrm or dcnv2");
  tessera::require<CLI::ValidationError>(
      options.dense_sums == "nccl" || options.communicator == "nccl",
      "--dense-sums {} is for --communicator nccl; add that or leave it out", options.dense_sums);
  tessera::require<CLI::ValidationError>(
      options.bind == "near" || options.communicator == "nccl",
      "--bind {} is for --communicator nccl; add that or leave it out", options.bind);
  tessera::require<CLI::ValidationError>(
      options.hot_rows == Options().hot_rows || options.plan == "hot-rows",
      "--hot-rows is for --plan hot-rows; add that or leave it out");
  for (const CLI::Option* option : cross)
    only_for(option, options.interaction == "cross", "--interaction cross");
  if (options.dense_precision == "auto")
    options.dense_precision = options.backend == "cuda" ? "tf32" : "fp32";
  for (const Refusal& refusal : kRefusals)
    tessera::require<CLI::ValidationError>(
        options.backend != refusal.backend || !refusal.given(options),
        "--backend {} takes no {}: {}", refusal.backend, refusal.what, refusal.why);
  for (const Uncaptured& uncaptured : kUncaptured)
    if (options.graph && uncaptured.given(options)) {
      options.graph = false;
      options.graph_refused = fmt::format("with {}: {}", uncaptured.what, uncaptured.why);
    }
  tessera::require<CLI::ValidationError>(
      options.cold_keys == 0 || options.model != "wide-deep",
      "--cold-keys keeps one vector of a category; --model wide-deep has two: leave it out");
  tessera::require<CLI::ValidationError>(
      options.cold_keys == 0 || !options.overlap || options.table_files.empty(),
      "--cold-keys moves rows in --table-files that --overlap has fetched: leave one of them out");
  tessera::require<CLI::ValidationError>(
      options.table_files.empty() || options.memory_before_files() != 0,
      "--table-files needs {}: how much of the tables is in memory at a time",
      options.backend == "cuda" ? "--device-memory" : "--host-memory");
  tessera::require<CLI::ValidationError>(
      options.plan_file.empty() || options.device_memory == 0 || !options.table_files.empty(),
      "--plan-file says which tables stay in the host's memory: leave --device-memory out");
  tessera::require<CLI::ValidationError>(
      options.host_memory == 0 || !options.table_files.empty() || options.device_memory != 0,
      "--host-memory needs --table-files (for the other rows), or --device-memory with "
      "--backend cuda");
  if (print_config) {
    std::fputs(configuration.c_str(), stdout);
    return std::nullopt;
  }
  if (!options.plan_file.empty()) options.plan = "file";
  for (const auto& [name, value] : shared) {
    options.shared.emplace_back(name, value());
    if (std::ranges::count(kModelOptions, name) > 0 || (name == "--seed" && options.data.empty()))
      options.model_options.push_back({name, value(), app.get_option(name)->count() > 0});
  }
  return options;
}

/// What is new data's own, if a model starts from the checkpoint of other data.
constexpr std::array<std::string_view, 6> kDataOptions{
    "--samples", "--power", "--scale", "--seed", kTestFraction, kValidationFraction};

/// The words, and the options of the checkpoint that is tested or resumed, or that this training
/// starts from, which it tells itself.
std::vector<std::string> with_checkpoint(std::vector<std::string> words, const Options& options) {
  auto latest = options.resume ? tessera::latest_checkpoint(options.save) : std::nullopt;
  const bool starts = !latest && !options.start_from.empty();
  if (starts) latest = checkpoint_to_start_from(options.start_from);
  if (!latest) return words;
  const tessera::detail::Manifest manifest = tessera::detail::read_manifest(*latest).first;
  const auto text = manifest.texts.find("options");
  if (text == manifest.texts.end()) return words;
  for (const ModelOption& saved : model_options_of(text->second)) {
    const auto now = std::ranges::find(options.model_options, saved.name, &ModelOption::name);
    if (now == options.model_options.end()) continue;
    if (starts && std::ranges::count(kDataOptions, saved.name) > 0) continue;
    tessera::require<CLI::ValidationError>(starts || !now->given || now->value == saved.value,
                                           "{} {}: '{}' was trained with {} {}; leave {} out",
                                           saved.name, now->value, latest->string(), saved.name,
                                           saved.value, saved.name);
    if (!saved.given || now->given) continue;
    words.push_back(saved.name);
    if (saved.value != kGiven) words.push_back(saved.value);
  }
  return words;
}

}  // namespace

std::filesystem::path checkpoint_to_start_from(const std::string& folder) {
  if (std::filesystem::exists(std::filesystem::path(folder) / tessera::detail::Manifest::kFile))
    return folder;
  const auto latest = tessera::latest_checkpoint(folder);
  tessera::require<tessera::DataError>(latest.has_value(),
                                       "--start-from: the folder '{}' holds no checkpoint", folder);
  return *latest;
}

std::string to_text(const std::vector<ModelOption>& options) {
  std::string text;
  for (const ModelOption& option : options)
    text += fmt::format("{}{} {}\n", option.given ? "+" : "", option.name, option.value);
  return text;
}

std::vector<ModelOption> model_options_of(const std::string& text) {
  std::vector<ModelOption> options;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const bool given = line.starts_with("+");
    const std::size_t space = std::min(line.find(' '), line.size());
    options.push_back(
        {line.substr(given, space - given), line.substr(std::min(space + 1, line.size())), given});
  }
  return options;
}

std::optional<Options> parse_options(int argc, const char* const* argv) {
  const std::vector<std::string> words = with_recipe(argc, argv);
  std::optional<Options> options = parse_words(words);
  if (options && (options->resume || !options->start_from.empty()))
    options = parse_words(with_checkpoint(words, *options));
  return options;
}

}  // namespace dlrm
