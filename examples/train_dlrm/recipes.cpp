// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "recipes.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

namespace dlrm {
namespace {

struct Setting {
  std::string_view option, value;     ///< value empty: a flag
  std::string_view instead = option;  ///< what also takes its place
};

constexpr std::array<Setting, 12> kDlrm{
    {{"--model", "dlrm", "--interaction"},
     {"--embedding-width", "128"},
     {"--bottom-mlp", "512,256"},
     {"--top-mlp", "1024,1024,512,256"},
     {"--optimizer", "sgd"},
     {"--learning-rate", "24", "--optimizer"},
     {"--dense-optimizer", "sgd"},
     {"--dense-learning-rate", "24", "--dense-optimizer"},
     {"--batch-size", "65536"},
     {"--epochs", "1"},
     {"--schedule", "warmup:8000,hold:40000,poly:24000:2", "--constant-rates"},
     {"--initial-bound", "rows"}}};
constexpr std::array<Setting, 14> kDcnv2{
    {{"--model", "dcnv2"},
     {"--cross-layers", "3"},
     {"--cross-rank", "512"},
     {"--embedding-width", "128"},
     {"--bottom-mlp", "512,256"},
     {"--top-mlp", "1024,1024,512,256"},
     {"--optimizer", "adam"},
     {"--learning-rate", "0.0001", "--optimizer"},
     {"--dense-optimizer", "adam"},
     {"--dense-learning-rate", "0.0001", "--dense-optimizer"},
     {"--batch-size", "65536"},
     {"--epochs", "1"},
     {"--schedule", "warmup:100,hold:47900,poly:24000:2", "--constant-rates"},
     {"--initial-bound", "rows"}}};
constexpr std::array<Setting, 6> kWideDeep{{{"--model", "wide-deep"},
                                            {"--embedding-width", "32"},
                                            {"--top-mlp", "1024,512,256"},
                                            {"--wide-optimizer", "ftrl"},
                                            {"--optimizer", "adagrad"},
                                            {"--dense-optimizer", "adagrad"}}};

std::span<const Setting> recipe(std::string_view name) {
  if (name == "dlrm") return kDlrm;
  if (name == "dcnv2") return kDcnv2;
  if (name == "wide-deep") return kWideDeep;
  return {};  // the option's check says so
}

}  // namespace

std::vector<std::string> with_recipe(int argc, const char* const* argv) {
  const std::vector<std::string> given(argv, argv + argc);
  const auto find = [&](std::string_view option) {
    return std::ranges::find_if(given, [&](const std::string& word) {
      return word.starts_with(option) &&
             (word.size() == option.size() || word[option.size()] == '=');
    });
  };
  std::vector<std::string> words(given.begin(), given.begin() + std::min(argc, 1));
  if (const auto at = find("--recipe"); at != given.end()) {
    const std::size_t equals = at->find('=');
    const std::string name = equals != std::string::npos ? at->substr(equals + 1)
                             : at + 1 != given.end()     ? *(at + 1)
                                                         : "";
    for (const Setting& setting : recipe(name)) {
      if (find(setting.option) != given.end() || find(setting.instead) != given.end()) continue;
      words.emplace_back(setting.option);
      if (!setting.value.empty()) words.emplace_back(setting.value);
    }
  }
  words.insert(words.end(), given.begin() + std::min(argc, 1), given.end());
  return words;
}

}  // namespace dlrm
