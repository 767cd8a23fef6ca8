// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/checkpoint/contents.hpp>
#include <tessera/checkpoint/manifest.hpp>
#include <tessera/core/error.hpp>
#include <tessera/io/text.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// Which differences between a checkpoint and a model a load accepts.
struct LoadOptions {
  /// Names in the model -> names in the checkpoint, of tensors ("C1.weight") or of tables ("C1":
  /// all its tensors).
  std::map<std::string, std::string> rename{};
  /// tensors and numbers that the checkpoint lacks keep the values they have
  bool allow_missing = false;
  bool allow_extra = false;  ///< what the model lacks is passed over
  /// of tensors with other extents, the rows and columns that both have are read
  bool allow_shapes = false;
  /// Where it is given, a table whose optimizer has other states than the checkpoint's keeps the
  /// state it has, which in a new collection is the first, and its name is put here.
  std::vector<std::string>* new_optimizers = nullptr;
  /// The same for some names of the checkpoint only; '*' matches any text: {"*.sum", "dense.*"}.
  std::vector<std::string> missing{}, extra{};
  /// Tensors and numbers of the model that keep the values they have, whatever the checkpoint
  /// holds; '*' matches any text.
  std::vector<std::string> keep{};
  /// Table of the model -> for each of its rows the checkpoint's row that it takes, -1: it keeps
  /// what it has. Such a table may have another number of rows than the checkpoint's.
  std::map<std::string, std::vector<std::int64_t>> rows{};
};

namespace detail {

constexpr bool convertible(TensorType a, TensorType b) {
  const auto floating = [](TensorType t) {
    return t == TensorType::f32 || t == TensorType::f16 || t == TensorType::bf16;
  };
  return a == b || (floating(a) && floating(b));
}

/// Returns whether a name is of a pattern's form, in which '*' matches any text.
constexpr bool matches(std::string_view pattern, std::string_view name) {
  std::size_t star = std::string_view::npos, after = 0, p = 0, n = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p, ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++after;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}
constexpr bool matches_any(std::span<const std::string> patterns, std::string_view name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return matches(pattern, name); });
}
static_assert(matches("*.sum", "C1.sum") && matches("C1.*", "C1.m") && matches("a*b*c", "aXbbYc") &&
              !matches("*.sum", "C1.sums") && !matches("C1.*", "C11.m") && matches("*", "") &&
              !matches("", "a"));

/// Returns what a tensor or number of the model is called in the checkpoint.
inline std::string name_in_checkpoint(const LoadOptions& options, const std::string& name) {
  if (const auto found = options.rename.find(name); found != options.rename.end())
    return found->second;
  const std::size_t dot = name.rfind('.');
  if (dot != std::string::npos)
    if (const auto found = options.rename.find(name.substr(0, dot)); found != options.rename.end())
      return found->second + name.substr(dot);
  return name;
}

/// What the model has, and what the checkpoint. An error shows the first differences.
class Comparison {
 public:
  Comparison(const CheckpointContents& contents, const Manifest& manifest,
             const LoadOptions& options) {
    std::set<std::string> used;
    const auto missing = [&](const std::string& name) {
      return options.allow_missing || matches_any(options.missing, name);
    };
    const auto extra = [&](const std::string& name) {
      return options.allow_extra || matches_any(options.extra, name);
    };
    check_rows(contents, options);
    std::set<std::string> anew;  // states, by their names in the checkpoint
    if (options.new_optimizers != nullptr) anew = find_new_optimizers(contents, manifest, options);
    for (std::size_t t = 0; t < contents.tensors().size(); ++t) {
      const TensorSpec& tensor = contents.tensors()[t];
      const std::string name = name_in_checkpoint(options, tensor.name);
      const StoredTensor* source = manifest.find(name);
      sources.push_back(nullptr);
      used.insert(name);
      if (anew.contains(name) || matches_any(options.keep, tensor.name)) continue;
      const std::vector<std::int64_t>* const rows = rows_of(contents, t, options);
      if (source == nullptr) {
        if (!missing(name)) add("the checkpoint has no '{}'", name);
      } else if (!contents.ragged(t)) {
        if (!convertible(source->type, tensor.type))
          add("'{}' is {} in the checkpoint, {} in the model", name, tensor_type_name(source->type),
              tensor_type_name(tensor.type));
        else if (rows != nullptr ? !takes(*rows, *source, tensor)
                                 : source->shape != tensor.shape &&
                                       !(options.allow_shapes && source->shape.size() == 2 &&
                                         tensor.shape.size() == 2))
          add("'{}' is {} in the checkpoint, {} in the model", name, shape_text(source->shape),
              shape_text(tensor.shape));
        else
          sources.back() = source;
      }
    }
    for (const auto& [name, number] : contents.numbers())
      if (!manifest.numbers.contains(name) && !missing(name) && !matches_any(options.keep, name))
        add("the checkpoint has no number '{}'", name);
    for (const StoredTensor& tensor : manifest.tensors)
      if (!used.contains(tensor.name) && !anew.contains(tensor.name) && !extra(tensor.name))
        add("the model has no '{}'", tensor.name);
    for (const auto& [name, value] : manifest.numbers)
      if (!contents.numbers().contains(name) && !extra(name))
        add("the model has no number '{}'", name);
    if (count_ > kShown) differences += formatted("\n  and {} more", count_ - kShown);
  }

  std::vector<const StoredTensor*> sources;  ///< by tensor of the model; null: none is read
  std::string differences;

  /// Returns what LoadOptions::rows says of a tensor; null: nothing.
  static const std::vector<std::int64_t>* rows_of(const CheckpointContents& contents,
                                                  std::size_t tensor, const LoadOptions& options) {
    if (options.rows.empty()) return nullptr;
    const auto after = contents.tables().upper_bound(static_cast<int>(tensor));
    if (after == contents.tables().begin() || static_cast<int>(tensor) >= std::prev(after)->second)
      return nullptr;
    const auto found = options.rows.find(contents.tensors()[tensor].group);
    return found == options.rows.end() ? nullptr : &found->second;
  }

 private:
  static constexpr std::size_t kShown = 20;

  /// Throws InvalidArgument unless each list of rows is of a table and as long as it.
  static void check_rows(const CheckpointContents& contents, const LoadOptions& options) {
    for (const auto& [table, rows] : options.rows) {
      const auto found = std::find_if(
          contents.tables().begin(), contents.tables().end(), [&, &name = table](const auto& own) {
            return contents.tensors()[static_cast<std::size_t>(own.first)].group == name;
          });
      require(found != contents.tables().end(), "LoadOptions: rows of '{}': there is no such table",
              table);
      const std::int64_t own = contents.tensors()[static_cast<std::size_t>(found->first)].shape[0];
      require(std::ssize(rows) == own, "LoadOptions: {} rows of table '{}', which has {}",
              rows.size(), table, own);
    }
  }
  /// Returns whether these rows can be taken of a stored tensor.
  static bool takes(const std::vector<std::int64_t>& rows, const StoredTensor& source,
                    const TensorSpec& tensor) {
    return source.shape.size() == 2 && source.columns() == tensor.shape.back() &&
           std::all_of(rows.begin(), rows.end(),
                       [&](std::int64_t row) { return row >= -1 && row < source.rows(); });
  }

  /// Returns the states, of both sides, of tables that the checkpoint has with other states.
  static std::set<std::string> find_new_optimizers(const CheckpointContents& contents,
                                                   const Manifest& manifest,
                                                   const LoadOptions& options) {
    std::set<std::string> anew;
    options.new_optimizers->clear();
    std::map<std::string, int> named;  // what the model has, a table's states and all else
    for (const TensorSpec& tensor : contents.tensors())
      named.emplace(name_in_checkpoint(options, tensor.name), static_cast<int>(named.size()));
    for (const auto& [first, end] : contents.tables()) {
      const auto tensor = [&](int t) -> const TensorSpec& {
        return contents.tensors()[static_cast<std::size_t>(t)];
      };
      const std::string weight = name_in_checkpoint(options, tensor(first).name);
      const std::string table = weight.substr(0, weight.rfind('.') + 1);
      if (manifest.find(weight) == nullptr || matches_any(options.keep, tensor(first).name))
        continue;
      std::set<std::string> stored, own;
      bool same = true;
      for (const StoredTensor& other : manifest.tensors) {
        const auto known = named.find(other.name);
        const bool of_table =
            known == named.end() || (known->second > first && known->second < end);
        if (of_table && other.name.starts_with(table) && other.name != weight &&
            other.name.find('.', table.size()) == std::string::npos)
          stored.insert(other.name);
      }
      for (int t = first + 1; t < end; ++t) {
        const std::string& name = *own.insert(name_in_checkpoint(options, tensor(t).name)).first;
        const StoredTensor* source = manifest.find(name);
        same = same && source != nullptr && source->shape.size() == tensor(t).shape.size() &&
               source->columns() == tensor(t).shape.back();
      }
      if (same && own == stored) continue;
      anew.insert(stored.begin(), stored.end());
      anew.insert(own.begin(), own.end());
      options.new_optimizers->push_back(tensor(first).group);
    }
    return anew;
  }

  template <class... Args>
  void add(FormatText<Args...> text, const Args&... args) {
    if (++count_ > kShown) return;
    differences += "\n  ";
    differences += formatted<Args...>(text, args...);
  }

  std::size_t count_ = 0;
};

}  // namespace detail

}}  // namespace tessera::v0
