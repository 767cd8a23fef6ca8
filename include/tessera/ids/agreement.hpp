// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/communicator.hpp>
#include <tessera/concepts/optimizer.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/random.hpp>
#include <tessera/op/describe_optimizer.hpp>
#include <tessera/op/initialize.hpp>
#include <tessera/op/inputs.hpp>
#include <tessera/optimizer/clip.hpp>
#include <tessera/sharding/layout.hpp>
#include <tessera/tables/rank_layout.hpp>
#include <tessera/tables/training_groups.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

// Whether ranks mean the same. Ranks that construct different plans would go on with wrong rows, or
// wait for each other: a few words, compared once, say so at the start, and name what differs and
// on which ranks.

namespace detail {

/// Describes rates. `rates`: as in Step.
std::string describe_rates(double rates);

/// Returns which training groups' rates differ, of two numbers of TrainingSteps::rates.
std::string differing_groups(double own, double other);

/// Throws InvalidArgument if another rank has other rates. NaN: a rank does not tell them.
void require_same_rate(std::string_view call, int rank, double own, int other_rank, double other);

/// Returns every rank's `own`, in rank order, by whichever exchange there is.
template <class T, class Comm>
std::vector<T> gather_equal(Comm& communicator, std::span<const T> own) {
  const std::size_t ranks = static_cast<std::size_t>(communicator.size());
  const std::vector<std::size_t> counts(ranks, own.size());
  std::vector<T> all(ranks * own.size());
  if constexpr (HasAllGather<Comm>) {
    communicator.all_gather(own, std::span<T>(all), counts);
  } else {
    std::vector<T> copies;
    for (std::size_t r = 0; r < ranks; ++r) copies.insert(copies.end(), own.begin(), own.end());
    communicator.all_to_all(std::span<const T>(copies), counts, std::span<T>(all), counts);
  }
  return all;
}

/// Returns "rank 1" or "ranks 1, 3".
std::string rank_names(std::span<const int> ranks);

/// Something that ranks must have in common.
struct SharedFact {
  std::string name;
  std::string value;
};

/// Facts as keys of 8 bytes each.
struct FactKeys {
  std::vector<std::uint64_t> of_facts;
  std::array<std::uint64_t, 2> own;  ///< how many facts, and a key of all of them

  explicit FactKeys(const std::vector<SharedFact>& facts);
  /// Returns how many facts all ranks have, or nothing if they are the same. `all`: `own` of each.
  std::optional<std::size_t> common(std::span<const std::uint64_t> all) const;
};

/// Throws InvalidArgument with the first of the facts that differ. `all`: the first keys of_facts of
/// each rank, as many of each.
[[noreturn]] void throw_disagreement(const std::vector<SharedFact>& facts,
                                     std::span<const std::uint64_t> all, int rank, int ranks,
                                     std::string_view rule);

/// Throws InvalidArgument on every rank unless all have the same facts; `rule` says why they must.
/// Collective: 16 bytes per pair of ranks if they agree.
template <class Comm>
void require_agreement(
    Comm& communicator, const std::vector<SharedFact>& facts,
    std::string_view rule = "every rank must construct the same plan with the same options") {
  if (communicator.size() == 1) return;
  const FactKeys keys(facts);
  const auto common = keys.common(gather_equal<std::uint64_t>(communicator, keys.own));
  if (!common) return;
  throw_disagreement(
      facts, gather_equal<std::uint64_t>(communicator, std::span(keys.of_facts).first(*common)),
      communicator.rank(), communicator.size(), rule);
}

template <class F>
std::string describe_initializer(const F& initializer) {
  std::string text;
  for (const std::int64_t row : {0, 1, 7})
    text += formatted(
        "{} ",
        initializer(ElementKey{.seed = 1, .table = 2, .table_rows = 100, .row = row, .column = 3}));
  return text;
}

void add_fact(std::vector<SharedFact>& facts, std::string_view name, std::string value);

void add_layout(std::vector<SharedFact>& facts, const Layout& layout);

/// The options that every collection has.
struct SharedOptions {
  std::uint64_t seed;
  BadIds bad_ids;
  NonFinite non_finite;
  bool deduplicate, check_stages, equal_batches;
  int gradient_blocks;
};
void add_options(std::vector<SharedFact>& facts, const SharedOptions& options);

template <class Options>
void add_training(std::vector<SharedFact>& facts, const Layout& layout, const Options& options) {
  using Trained = std::remove_cvref_t<decltype(options.optimizer)>;
  if constexpr (Optimizer<Trained>) {
    add_fact(facts, "optimizer", describe_optimizer(options.optimizer));
    add_fact(facts, "learning rate", formatted("{}", options.learning_rate));
  } else {
    using Groups = GroupsOf<Trained>;
    for (std::size_t t = 0; t < layout.tables.size(); ++t)
      add_fact(facts, formatted("training group of table '{}'", layout.tables[t].name),
               formatted("{}", options.optimizer.group_of_table[t]));
    for_each_training_group<Trained>([&](auto i) {
      if (!Groups::trains[static_cast<std::size_t>(i())]) return;
      add_fact(facts, formatted("optimizer of training group {}", i()),
               describe_optimizer(Groups::template get<i()>(options.optimizer)));
      add_fact(
          facts, formatted("learning rate of training group {}", i()),
          formatted("{}", Groups::template rate<i()>(options.optimizer, options.learning_rate)));
    });
    for_each_training_group<Trained>([&](auto i) {
      using Group = typename Groups::template group<i()>;
      if constexpr (StoragePolicy<Group>)
        add_fact(facts, formatted("element type of training group {}", i()),
                 element_name<typename Group::element>());
      if (const auto own = Groups::template own_guard<i()>(options.optimizer))
        add_fact(facts, formatted("option non_finite of training group {}", i()),
                 std::string(to_string(*own)));
      if constexpr (InitializerPolicy<Group>)
        add_fact(facts, formatted("initializer of training group {}", i()),
                 describe_initializer(std::get<i()>(options.optimizer.groups).initialize));
    });
  }
}

/// Returns all of it that a collection has: its layout, policies and options.
template <class Settings, class Options>
std::vector<SharedFact> shared_facts(const Layout& layout, const Options& options) {
  std::vector<SharedFact> facts;
  add_layout(facts, layout);
  add_fact(facts, "element type of the tables", element_name<typename Settings::element>());
  add_training(facts, layout, options);
  add_options(facts, {.seed = options.seed,
                      .bad_ids = options.bad_ids,
                      .non_finite = options.non_finite,
                      .deduplicate = options.deduplicate,
                      .check_stages = options.check_stages,
                      .equal_batches = options.equal_batches,
                      .gradient_blocks = options.gradient_blocks});
  add_fact(facts, "initializer", describe_initializer(options.initialize));
  add_fact(facts, "codecs",
           formatted("{}, {}", typename Settings::forward_codecs(options.forward_codec).name(),
                     typename Settings::backward_codecs(options.backward_codec).name()));
  return facts;
}

/// Throws unless the communicator has the exchanges that layout and options need, and as many
/// ranks.
template <class Comm>
void require_offered(const Layout& layout, const RankLayout& routing, int ranks, bool rejects) {
  require(layout.ranks() == ranks,
          "EmbeddingCollection: the layout is for {} ranks, the communicator has {}",
          layout.ranks(), ranks);
  const bool replicates = std::any_of(routing.arenas().begin(), routing.arenas().end(),
                                      [](const ArenaPlan& arena) { return arena.replicated; });
  require(layout.ranks() == 1 ||
              ((HasAllToAll<Comm> || !routing.exchanges()) && (HasAllGather<Comm> || !replicates)),
          "EmbeddingCollection: the communicator lacks {}, which this layout needs",
          HasAllToAll<Comm> || !routing.exchanges() ? "all_gather" : "all_to_all");
  require(layout.ranks() == 1 || HasAllReduce<Comm> || !rejects,
          "EmbeddingCollection: the communicator lacks all_reduce, which the option "
          "NonFinite::reject needs");
}

/// Throws InvalidArgument on every rank unless all give `apply` the same rates and the same
/// clipping. Collective: 32 bytes per pair of ranks.
template <class Clip, class Comm>
void require_same_apply(Comm& communicator, double rates, const Clip& clip) {
  if (communicator.size() == 1) return;
  struct Given {
    double rates = 0;
    float max = 0;
    char clip[20] = {};
  };
  Given own{rates, 0, {}};
  Clip::name.copy(own.clip, sizeof(own.clip) - 1);
  if constexpr (requires { clip.max; }) own.max = clip.max;
  const std::vector<Given> all = gather_equal<Given>(communicator, std::span<const Given>(&own, 1));
  const auto text = [](const Given& given) {
    return given.max == 0 ? std::string(given.clip) : formatted("{}{{{}}}", given.clip, given.max);
  };
  for (int r = 0; r < communicator.size(); ++r) {
    const Given& other = all[static_cast<std::size_t>(r)];
    require_same_rate("apply", communicator.rank(), rates, r, other.rates);
    require(other.max == own.max && std::string_view(other.clip) == own.clip,
            "apply: rank {} clips gradients by {}, but rank {} by {}; every rank must give the "
            "same clipping",
            r, text(other), communicator.rank(), text(own));
  }
}

/// The stage that a rank is at.
struct RankStage {
  std::int64_t steps = 0;
  double learning_rate = 0;
  char stage[32] = {};
};

/// Throws CommunicatorError unless all ranks are at the stage of rank 0.
void require_one_stage(std::span<const RankStage> ranks, std::string_view stage);

/// Throws on every rank, before a stage, unless all ranks are at the same stage of the same step.
/// For debugging: one exchange per stage.
template <class Comm>
void require_same_stage(Comm& communicator, std::string_view stage, std::int64_t steps,
                        double learning_rate) {
  if (communicator.size() == 1) return;
  RankStage own{steps, learning_rate, {}};
  stage.copy(own.stage, sizeof(own.stage) - 1);
  require_one_stage(gather_equal<RankStage>(communicator, std::span<const RankStage>(&own, 1)),
                    stage);
}

#ifdef TESSERA_INLINE
TESSERA_INLINE std::string describe_rates(double rates) {
  return rates < 0 ? formatted("learning rates of number {}", -rates)
                   : formatted("learning rate {}", static_cast<float>(rates));
}

TESSERA_INLINE std::string differing_groups(double own, double other) {
  const auto bits = [](double rates) { return static_cast<std::uint64_t>(-1 - rates); };
  std::string text;
  for (int g = 0; g < 7; ++g)
    if (((bits(own) ^ bits(other)) >> (4 * g) & 15) != 0)
      text += formatted("{}{}{}", text.empty() ? "group " : ", ", g, g == 6 ? " or later" : "");
  return text.empty() ? "one group" : text;
}

TESSERA_INLINE void require_same_rate(std::string_view call, int rank, double own, int other_rank,
                                      double other) {
  if (own == other || std::isnan(own) || std::isnan(other)) return;
  throw InvalidArgument(
      own < 0
          ? formatted("{}: rank {} has other learning rates of its training groups than rank {} "
                      "({}); every rank must set the same rates before the same step",
                      call, other_rank, rank, differing_groups(own, other))
          : formatted("{}: rank {} has learning rate {}, but rank {} has {}; every rank must set "
                      "the same rate before the same step",
                      call, other_rank, static_cast<float>(other), rank, static_cast<float>(own)));
}

TESSERA_INLINE void require_one_stage(std::span<const RankStage> ranks, std::string_view stage) {
  const auto text = [](const RankStage& rank) {
    return formatted("'{}' of step {} with {}", rank.stage, rank.steps + 1,
                     describe_rates(rank.learning_rate));
  };
  for (std::size_t r = 1; r < ranks.size(); ++r)
    if (ranks[r].steps != ranks[0].steps || ranks[r].learning_rate != ranks[0].learning_rate ||
        std::string_view(ranks[r].stage) != ranks[0].stage)
      throw CommunicatorError(static_cast<int>(r), stage,
                              formatted("rank 0 is at {}, but rank {} at {}; every rank must run "
                                        "the same stages in the same order",
                                        text(ranks[0]), r, text(ranks[r])));
}

TESSERA_INLINE std::string rank_names(std::span<const int> ranks) {
  std::string names = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i)
    names += formatted("{}{}", i == 0 ? "" : ", ", ranks[i]);
  return names;
}

TESSERA_INLINE FactKeys::FactKeys(const std::vector<SharedFact>& facts) {
  std::uint64_t key = 0;
  for (const SharedFact& fact : facts)
    key = random_word(
        key, of_facts.emplace_back(random_word(name_key(fact.name), name_key(fact.value))));
  own = {facts.size(), key};
}

TESSERA_INLINE std::optional<std::size_t> FactKeys::common(
    std::span<const std::uint64_t> all) const {
  std::size_t least = of_facts.size();
  bool equal = true;
  for (std::size_t r = 0; r < all.size(); r += 2) {
    equal = equal && all[r] == all[0] && all[r + 1] == all[1];
    least = std::min<std::size_t>(least, all[r]);
  }
  return equal ? std::nullopt : std::optional(least);
}

TESSERA_INLINE void throw_disagreement(const std::vector<SharedFact>& facts,
                                       std::span<const std::uint64_t> all, int rank, int ranks,
                                       std::string_view rule) {
  const std::size_t common = all.size() / static_cast<std::size_t>(ranks);
  for (std::size_t i = 0; i < common; ++i) {
    std::vector<int> different;
    for (int r = 1; r < ranks; ++r)
      if (all[static_cast<std::size_t>(r) * common + i] != all[i]) different.push_back(r);
    require(different.empty(),
            "EmbeddingCollection: {} not have the {} of rank 0 (here, on rank {}: {}); {}",
            rank_names(different) + (different.size() == 1 ? " does" : " do"), facts[i].name, rank,
            facts[i].value, rule);
  }
  throw InvalidArgument("EmbeddingCollection: ranks construct different plans");
}

TESSERA_INLINE void add_fact(std::vector<SharedFact>& facts, std::string_view name,
                             std::string value) {
  facts.push_back({std::string(name), std::move(value)});
}

TESSERA_INLINE void add_options(std::vector<SharedFact>& facts, const SharedOptions& options) {
  add_fact(facts, "seed", formatted("{}", options.seed));
  add_fact(facts, "option bad_ids", std::string(to_string(options.bad_ids)));
  add_fact(facts, "option non_finite", std::string(to_string(options.non_finite)));
  add_fact(facts, "option deduplicate", formatted("{}", options.deduplicate));
  add_fact(facts, "option check_stages", formatted("{}", options.check_stages));
  add_fact(facts, "option equal_batches", formatted("{}", options.equal_batches));
  add_fact(facts, "option gradient_blocks", formatted("{}", options.gradient_blocks));
}

TESSERA_INLINE void add_layout(std::vector<SharedFact>& facts, const Layout& layout) {
  facts.push_back({"number of ranks and ranks per node",
                   formatted("{}, {}", layout.ranks(), layout.topology.ranks_per_node)});
  facts.push_back({"number of tables", formatted("{}", layout.tables.size())});
  facts.push_back({"number of features", formatted("{}", layout.features.size())});
  std::vector<std::string> cuts(layout.tables.size());
  for (const Shard& shard : layout.shards) {
    const Rectangle& r = shard.rectangle;
    cuts[shard.table] += formatted(
        "[{},{})x[{},{}) on {}; ", r.row_begin, r.row_end, r.column_begin, r.column_end,
        shard.rank == every_rank ? std::string("every rank") : formatted("rank {}", shard.rank));
  }
  for (std::size_t t = 0; t < layout.tables.size(); ++t) {
    const TableSpec& table = layout.tables[t];
    facts.push_back({formatted("name of table {}", t), std::string(table.name)});
    facts.push_back({formatted("rows and width of table '{}'", table.name),
                     formatted("{} x {}", table.rows, table.width)});
    facts.push_back({formatted("cut of table '{}'", table.name), cuts[t].substr(0, 200)});
  }
  for (std::size_t f = 0; f < layout.features.size(); ++f) {
    const FeatureSpec& feature = layout.features[f];
    facts.push_back({formatted("feature {}", f),
                     formatted("'{}' of table '{}', {}{}", feature.name, feature.table,
                               to_string(feature.pooling), feature.weighted ? ", weighted" : "")});
  }
}
#endif

}  // namespace detail

}}  // namespace tessera::v0
