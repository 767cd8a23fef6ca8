// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/communicator.hpp>
#include <tessera/concepts/optimizer.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/random.hpp>
#include <tessera/op/initialize.hpp>
#include <tessera/op/update.hpp>
#include <tessera/optimizer/clip.hpp>
#include <tessera/sharding/layout.hpp>
#include <tessera/tables/rank_layout.hpp>
#include <tessera/tables/training_groups.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
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

/// Throws InvalidArgument on every rank unless all have the same facts; `rule` says why they must.
/// Collective: 16 bytes per pair of ranks if they agree.
template <class Comm>
void require_agreement(
    Comm& communicator, const std::vector<SharedFact>& facts,
    std::string_view rule = "every rank must construct the same plan with the same options") {
  if (communicator.size() == 1) return;
  std::vector<std::uint64_t> keys;
  std::uint64_t key = 0;
  for (const SharedFact& fact : facts)
    key =
        random_word(key, keys.emplace_back(random_word(name_key(fact.name), name_key(fact.value))));
  const std::array<std::uint64_t, 2> own{facts.size(), key};
  const std::vector<std::uint64_t> all = gather_equal<std::uint64_t>(communicator, own);
  std::size_t common = facts.size();
  bool equal = true;
  for (std::size_t r = 0; r < all.size(); r += 2) {
    equal = equal && all[r] == all[0] && all[r + 1] == all[1];
    common = std::min<std::size_t>(common, all[r]);
  }
  if (equal) return;
  const std::vector<std::uint64_t> all_keys =
      gather_equal<std::uint64_t>(communicator, std::span<const std::uint64_t>(keys).first(common));
  for (std::size_t i = 0; i < common; ++i) {
    std::vector<int> different;
    for (int r = 1; r < communicator.size(); ++r)
      if (all_keys[static_cast<std::size_t>(r) * common + i] != all_keys[i]) different.push_back(r);
    require(different.empty(),
            "EmbeddingCollection: {} not have the {} of rank 0 (here, on rank {}: {}); {}",
            rank_names(different) + (different.size() == 1 ? " does" : " do"), facts[i].name,
            communicator.rank(), facts[i].value, rule);
  }
  throw InvalidArgument("EmbeddingCollection: ranks construct different plans");
}

void require_number(float x, std::string_view of);

/// Describes an optimizer and its constants, by what two steps of it do to a row. Throws
/// InvalidArgument if that is no number.
template <Optimizer O>
std::string describe_optimizer(const O& optimizer) {
  std::string text = fmt::format("{} of {} bytes + {} states ", O::element_states,
                                 sizeof(StateElement<O>), O::row_states);
  for (int i = 0; i < O::element_states + O::row_states; ++i)
    text += fmt::format("{} ", std::string_view(O::state_names[i]));
  std::array<float, O::element_states + 1> element{};
  std::array<float, O::row_states + 1> row{};
  for (int i = 0; i < O::element_states; ++i) element[i] = optimizer.initial_state(i);
  for (int i = 0; i < O::row_states; ++i) row[i] = optimizer.initial_state(O::element_states + i);
  for (const float state : element) require_number(state, "a first state");
  for (const float state : row) require_number(state, "a first state");
  float weight = 1;
  for (const int step : {1, 2}) {
    const float gradient = 0.25f * static_cast<float>(step);
    const typename O::Step functor = optimizer.at(0.5f, step);
    const typename O::Step::Row of_row =
        op::shared_by_row<O>(functor, row.data(), {0.75f * gradient * gradient, weight * weight});
    weight = functor.element(weight, gradient, element.data(), of_row);
    require_number(weight, "a weight of 1 and small gradients");
    text += fmt::format("{}{}", step == 1 ? "takes 1 to " : ", ", weight);
  }
  return text;
}

template <class F>
std::string describe_initializer(const F& initializer) {
  std::string text;
  for (const std::int64_t row : {0, 1, 7})
    text += fmt::format(
        "{} ",
        initializer(ElementKey{.seed = 1, .table = 2, .table_rows = 100, .row = row, .column = 3}));
  return text;
}

void add_layout(std::vector<SharedFact>& facts, const Layout& layout);

template <class Options>
void add_training(std::vector<SharedFact>& facts, const Layout& layout, const Options& options) {
  using Trained = std::remove_cvref_t<decltype(options.optimizer)>;
  if constexpr (Optimizer<Trained>) {
    facts.push_back({"optimizer", describe_optimizer(options.optimizer)});
    facts.push_back({"learning rate", fmt::format("{}", options.learning_rate)});
  } else {
    using Groups = GroupsOf<Trained>;
    for (std::size_t t = 0; t < layout.tables.size(); ++t)
      facts.push_back({fmt::format("training group of table '{}'", layout.tables[t].name),
                       fmt::format("{}", options.optimizer.group_of_table[t])});
    for_each_training_group<Trained>([&](auto i) {
      if (!Groups::trains[static_cast<std::size_t>(i())]) return;
      facts.push_back({fmt::format("optimizer of training group {}", i()),
                       describe_optimizer(Groups::template get<i()>(options.optimizer))});
      facts.push_back({fmt::format("learning rate of training group {}", i()),
                       fmt::format("{}", Groups::template rate<i()>(options.optimizer,
                                                                    options.learning_rate))});
    });
    for_each_training_group<Trained>([&](auto i) {
      using Group = typename Groups::template group<i()>;
      if constexpr (StoragePolicy<Group>)
        facts.push_back({fmt::format("element type of training group {}", i()),
                         element_name<typename Group::element>()});
      if (const auto own = Groups::template own_guard<i()>(options.optimizer))
        facts.push_back({fmt::format("option non_finite of training group {}", i()),
                         std::string(to_string(*own))});
      if constexpr (InitializerPolicy<Group>)
        facts.push_back({fmt::format("initializer of training group {}", i()),
                         describe_initializer(std::get<i()>(options.optimizer.groups).initialize)});
    });
  }
}

/// Returns all of it that a collection has: its layout, policies and options.
template <class Settings, class Options>
std::vector<SharedFact> shared_facts(const Layout& layout, const Options& options) {
  std::vector<SharedFact> facts;
  add_layout(facts, layout);
  facts.push_back({"element type of the tables", element_name<typename Settings::element>()});
  add_training(facts, layout, options);
  facts.push_back({"seed", fmt::format("{}", options.seed)});
  facts.push_back({"initializer", describe_initializer(options.initialize)});
  facts.push_back({"option bad_ids", std::string(to_string(options.bad_ids))});
  facts.push_back({"option non_finite", std::string(to_string(options.non_finite))});
  facts.push_back(
      {"codecs",
       fmt::format("{}, {}", typename Settings::forward_codecs(options.forward_codec).name(),
                   typename Settings::backward_codecs(options.backward_codec).name())});
  facts.push_back({"option deduplicate", fmt::format("{}", options.deduplicate)});
  facts.push_back({"option check_stages", fmt::format("{}", options.check_stages)});
  facts.push_back({"option equal_batches", fmt::format("{}", options.equal_batches)});
  facts.push_back({"option gradient_blocks", fmt::format("{}", options.gradient_blocks)});
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
    return given.max == 0 ? std::string(given.clip)
                          : fmt::format("{}{{{}}}", given.clip, given.max);
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

/// Throws on every rank, before a stage, unless all ranks are at the same stage of the same step.
/// For debugging: one exchange per stage.
template <class Comm>
void require_same_stage(Comm& communicator, std::string_view stage, std::int64_t steps,
                        double learning_rate) {
  if (communicator.size() == 1) return;
  struct Where {
    std::int64_t steps = 0;
    double learning_rate = 0;
    char stage[32] = {};
  };
  Where own{steps, learning_rate, {}};
  stage.copy(own.stage, sizeof(own.stage) - 1);
  const std::vector<Where> all = gather_equal<Where>(communicator, std::span<const Where>(&own, 1));
  for (int r = 1; r < communicator.size(); ++r) {
    const Where& other = all[static_cast<std::size_t>(r)];
    if (other.steps == all[0].steps && other.learning_rate == all[0].learning_rate &&
        std::string_view(other.stage) == all[0].stage)
      continue;
    const auto text = [](const Where& w) {
      return fmt::format("'{}' of step {} with {}", w.stage, w.steps + 1,
                         describe_rates(w.learning_rate));
    };
    throw CommunicatorError(r, stage,
                            fmt::format("rank 0 is at {}, but rank {} at {}; every rank must run "
                                        "the same stages in the same order",
                                        text(all[0]), r, text(other)));
  }
}

#ifdef TESSERA_INLINE
TESSERA_INLINE std::string describe_rates(double rates) {
  return rates < 0 ? fmt::format("learning rates of number {}", -rates)
                   : fmt::format("learning rate {}", static_cast<float>(rates));
}

TESSERA_INLINE std::string differing_groups(double own, double other) {
  const auto bits = [](double rates) { return static_cast<std::uint64_t>(-1 - rates); };
  std::string text;
  for (int g = 0; g < 7; ++g)
    if (((bits(own) ^ bits(other)) >> (4 * g) & 15) != 0)
      text += fmt::format("{}{}{}", text.empty() ? "group " : ", ", g, g == 6 ? " or later" : "");
  return text.empty() ? "one group" : text;
}

TESSERA_INLINE void require_same_rate(std::string_view call, int rank, double own, int other_rank,
                                      double other) {
  if (own == other || std::isnan(own) || std::isnan(other)) return;
  throw InvalidArgument(
      own < 0
          ? fmt::format("{}: rank {} has other learning rates of its training groups than rank {} "
                        "({}); every rank must set the same rates before the same step",
                        call, other_rank, rank, differing_groups(own, other))
          : fmt::format("{}: rank {} has learning rate {}, but rank {} has {}; every rank must set "
                        "the same rate before the same step",
                        call, other_rank, static_cast<float>(other), rank,
                        static_cast<float>(own)));
}

TESSERA_INLINE std::string rank_names(std::span<const int> ranks) {
  std::string names = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i)
    names += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i]);
  return names;
}

TESSERA_INLINE void require_number(float x, std::string_view of) {
  require(std::isfinite(x),
          "EmbeddingCollection: the optimizer makes {} of {}; check its constants", x, of);
}

TESSERA_INLINE void add_layout(std::vector<SharedFact>& facts, const Layout& layout) {
  facts.push_back({"number of ranks and ranks per node",
                   fmt::format("{}, {}", layout.ranks(), layout.topology.ranks_per_node)});
  facts.push_back({"number of tables", fmt::format("{}", layout.tables.size())});
  facts.push_back({"number of features", fmt::format("{}", layout.features.size())});
  std::vector<std::string> cuts(layout.tables.size());
  for (const Shard& shard : layout.shards) {
    const Rectangle& r = shard.rectangle;
    cuts[shard.table] += fmt::format(
        "[{},{})x[{},{}) on {}; ", r.row_begin, r.row_end, r.column_begin, r.column_end,
        shard.rank == every_rank ? std::string("every rank") : fmt::format("rank {}", shard.rank));
  }
  for (std::size_t t = 0; t < layout.tables.size(); ++t) {
    const TableSpec& table = layout.tables[t];
    facts.push_back({fmt::format("name of table {}", t), std::string(table.name)});
    facts.push_back({fmt::format("rows and width of table '{}'", table.name),
                     fmt::format("{} x {}", table.rows, table.width)});
    facts.push_back({fmt::format("cut of table '{}'", table.name), cuts[t].substr(0, 200)});
  }
  for (std::size_t f = 0; f < layout.features.size(); ++f) {
    const FeatureSpec& feature = layout.features[f];
    facts.push_back(
        {fmt::format("feature {}", f),
         fmt::format("'{}' of table '{}', {}{}", feature.name, feature.table,
                     to_string(feature.pooling), feature.weighted ? ", weighted" : "")});
  }
}
#endif

}  // namespace detail

}}  // namespace tessera::v0
