// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/matrix_view.hpp>
#include <tessera/core/pod_vector.hpp>
#include <tessera/ids/distinct_feature.hpp>
#include <tessera/ids/sequence_view.hpp>
#include <tessera/op/distinct_ids.hpp>
#include <tessera/op/inputs.hpp>
#include <tessera/op/lookup.hpp>
#include <tessera/op/max_pooling.hpp>
#include <tessera/op/sequence_rows.hpp>
#include <tessera/op/update.hpp>
#include <tessera/sharding/policies.hpp>
#include <tessera/tables/arena_kernels.hpp>
#include <tessera/tables/buffer.hpp>
#include <tessera/tables/rank_layout.hpp>
#include <tessera/tables/table_store.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// Rows that come to the rank that asked, unpooled. Each distinct id of this rank's batch travels
/// once, as a batch of its own with one id per bag; its row comes back, and is pooled here, in the
/// order of the bag's ids, or stays single (sequences). Backward merges the gradients of each
/// distinct id here, and one row per id travels. Treats sequences and max pooling, whose tables may
/// be this rank's own, too, and with duplicate removal all features that travel. Where a sequence's
/// vectors are asked for and all its rows are at hand, an id reads its own row, and the distinct
/// ids are found on the way back.
template <IdType Id, class Backend>
class DistinctRows {
 public:
  /// Clears: no feature is treated.
  void clear() {
    features_.clear();
    assembled_by_ = nullptr;
  }

  /// What `find` treats, and how. `blocks`: samples are cut into so many, each of which counts as a
  /// batch of its own. `fixed`: as many rows as the inputs' bounds, for one block if the host
  /// cannot read ids; no rank waits. `local`: the inputs have RankLayout::local_features() alone.
  struct Wanted {
    bool duplicates = false;
    BadIds bad_ids = BadIds::throw_error;
    std::int64_t blocks = 1;
    bool fixed = false, local = false;
    SequenceOutputs vectors{};  ///< asked for
  };
  using Job = typename op::DistinctIds<Id>::Job;

  /// Finds distinct ids. `inputs` stay in use until the end of the step, as does `layout`.
  template <class Batch>
  void find(const Backend& backend, const Layout& layout, const RankLayout& routing,
            const Batch& inputs, const Wanted& wanted) {
    jobs_.clear();
    list_jobs(backend, layout, routing, inputs, 0, wanted, jobs_);
    op::run<op::DistinctIds<Id>>(backend, {jobs_, wanted.fixed});
    take_found(backend, jobs_);
    make_room(backend);
  }

  // ---- `find` in steps, for part `part` of inputs that hold the samples of several ranks ----

  /// Appends to `jobs` what finds the distinct ids.
  template <class Batch>
  void list_jobs(const Backend& backend, const Layout& layout, const RankLayout& routing,
                 const Batch& inputs, std::size_t part, const Wanted& wanted,
                 PodVector<Job>& jobs) {
    layout_ = &layout;
    features_.assign(layout.features.size(), {});
    std::size_t entries = 0, offsets = 0;
    for (std::size_t f = 0; f < features_.size(); ++f) {
      const int index = static_cast<int>(f);
      const bool given = !wanted.local || routing.is_local(index);
      describe(f, routing, given ? inputs.part(index, part) : op::Bags<Id>{}, wanted);
      const Feature& feature = features_[f];
      if (feature.active) entries += feature.count();
      if (feature.has_offsets) offsets += static_cast<std::size_t>(feature.bags.bags) + 1;
    }
    for (const SequenceVectors& asked : wanted.vectors) {
      set_target(asked);
      read_in_place(asked.feature, routing);
    }
    later_jobs_.clear();
    // not null, as places are counted from before it
    std::int32_t* index = index_.resize(backend, entries + 1).data();
    std::int64_t* next_offsets = offsets_.resize(backend, offsets).data();
    Id* distinct = ids_.resize(backend, entries).data();
    for (Feature& feature : features_) {
      if (!feature.active) continue;
      feature.index = index;
      feature.offsets = next_offsets;
      if (feature.has_offsets) next_offsets += feature.bags.bags + 1;
      if (!feature.later) add_jobs(backend, feature, distinct, wanted.blocks, jobs);
      if (feature.later && feature.needs_gradients)
        add_jobs(backend, feature, distinct, wanted.blocks, later_jobs_);
      distinct += feature.count();
      index += feature.count();
    }
  }

  /// Takes what was found. `jobs`: those that `list_jobs` appended, done. The ids that they found
  /// become batches of their own.
  void take_found(const Backend& backend, std::span<const Job> jobs) {
    const auto cut = [](const Feature& feature) { return feature.blocks > 1; };
    packed_ids_.resize(backend, std::ranges::any_of(features_, cut) ? ids_.size() : 0);
    next_packed_ = packed_ids_.data();
    for (Feature& feature : features_)
      if (!feature.later) take(backend, feature, jobs);
    set_offsets(backend);
  }

  /// What is found of a feature: this rank's samples, their ids, and the distinct ones among them.
  struct Found {
    std::int64_t samples = 0, ids = 0, rows = 0;
    bool operator==(const Found&) const = default;
  };
  Found found(int feature) const {
    const Feature& of = features_[feature];
    return {of.bags.bags, static_cast<std::int64_t>(of.count()), of.ids.bags};
  }
  /// Returns the place of each id among the distinct ones.
  std::int32_t* index(int feature) const { return features_[feature].index; }
  /// Returns offsets from 0: of sequences, and of `local` inputs.
  std::int64_t* offsets(int feature) const { return features_[feature].offsets; }

  /// Takes what another rank has found of a feature whose ids are not here.
  void set_found(int feature, const Found& found, std::int32_t* index, std::int64_t* offsets) {
    Feature& of = features_[feature];
    of.bags = {};
    of.bags.offsets = offsets;
    of.bags.bags = found.samples;
    of.bags.entry_bound = found.ids;
    of.ids.bags = of.ids.entry_bound = found.rows;
    of.index = index;
    of.offsets = offsets;
  }

  /// Sets where the vectors of a sequence go. Throws InvalidArgument for other features and shapes.
  void set_target(const SequenceVectors& asked) {
    const int f = asked.feature;
    require(f >= 0 && f < std::ssize(features_) && features_[f].is_sequence(),
            "forward: vectors of feature {} are asked for, which is no sequence; those are {}", f,
            names());
    Feature& feature = features_[f];
    const auto count = static_cast<std::int64_t>(feature.count());
    const std::string_view name = layout_->features[f].name;
    require(!feature.asked, "forward: vectors of sequence '{}' are asked for twice", name);
    require(asked.values.rows == count && asked.values.columns == feature.width,
            "forward: the vectors of sequence '{}' go to [{}, {}], must be [{}, {}]: one per id",
            name, asked.values.rows, asked.values.columns, count, feature.width);
    if (!asked.values.sound())
      check_view(formatted("forward: where vectors of sequence '{}' go", name), asked.values);
    feature.asked = true;
    feature.target = asked.values;
  }

  /// Makes room for the rows of what was found.
  void make_room(const Backend& backend) {
    std::size_t floats = 0;
    for (Feature& feature : features_) {
      if (!feature.active) continue;
      const std::int64_t first_entry = feature.fixed ? 0 : feature.bags.first_entry;
      feature.indices =
          op::Bags<std::int32_t>{.ids = feature.index - first_entry,
                                 .offsets = feature.fixed ? feature.offsets : feature.bags.offsets,
                                 .weights = feature.bags.weights,  // refused for `fixed`
                                 .bag_scale = feature.bags.bag_scale,
                                 .bags = feature.bags.bags,
                                 .entry_bound = feature.bags.entry_bound,
                                 .first_entry = first_entry};
      feature.first = floats;
      const auto size = static_cast<std::size_t>(feature.rows() * feature.width);
      floats += (size + 15) / 16 * 16;  // rows of every feature begin as tables do, at 64 bytes
    }
    rows_.resize(backend, floats);
    gradients_.resize(backend, floats);
    for (const Feature& feature : features_) {
      if (!feature.active) continue;
      // a step of fixed sizes adds the rows of blocks, and sends what is left over
      const std::int64_t from = feature.fixed ? 0 : feature.ids.bags, count = feature.rows() - from;
      const auto bytes = static_cast<std::size_t>(count * feature.width) * sizeof(float);
      if (bytes == 0) continue;
      backend.fill_zero(rows_.data() + feature.first + from * feature.width, bytes);
      if (feature.fixed) backend.fill_zero(gradients_.data() + feature.first, bytes);
    }
  }

  bool active(int feature) const { return !features_.empty() && features_[feature].active; }
  /// Return whether any feature is active; whether any is that has columns of the output.
  bool any_active() const {
    return std::ranges::any_of(features_, [](const Feature& f) { return f.active; });
  }
  bool pools() const {
    return std::ranges::any_of(features_,
                               [](const Feature& f) { return f.active && !f.is_sequence(); });
  }
  /// Returns the first column of an active feature in the output.
  std::int64_t column(int feature) const { return features_[feature].column; }
  /// Returns the distinct ids of an active feature: one per bag.
  const op::Bags<Id>& ids(int feature) const { return features_[feature].ids; }
  /// Returns the batch's bags of an active feature, with the places of their ids among the distinct
  /// ones for ids.
  const op::Bags<std::int32_t>& indices(int feature) const { return features_[feature].indices; }
  /// Returns the rows of an active feature's distinct ids, and their merged gradients: [ids,
  /// width].
  MatrixView<float> rows(int feature) const {
    const Feature& of = features_[feature];
    return of.later ? of.target : view(rows_, of);
  }
  MatrixView<const float> gradients(int feature) const { return features_[feature].gradient; }

  /// Returns the vectors of a sequence feature (index into Layout::features), once they are
  /// assembled.
  SequenceView<Backend> sequence(int f) const {
    require(assembled_by_ != nullptr,
            "sequence: this step has no vectors; look a batch up first, by a collection that has a "
            "sequence feature");
    require(f >= 0 && f < std::ssize(features_) && features_[f].is_sequence(),
            "sequence: feature {} is no sequence; those are {}", f, names());
    const Feature& feature = features_[f];
    return {*assembled_by_,
            f,
            {rows_.data() + feature.first, feature.rows(), feature.width},
            {feature.index, feature.count()},
            {feature.offsets, static_cast<std::size_t>(feature.bags.bags) + 1},
            !feature.asked,
            feature.weights()};
  }
  SequenceView<Backend> sequence(std::string_view name) const {
    std::size_t f = 0;
    while (f < features_.size() && layout_->features[f].name != name) ++f;
    require(f < features_.size() || features_.empty(),
            "sequence: no feature has the name '{}'; sequences are {}", name, names());
    return sequence(static_cast<int>(f));
  }

  /// Pools the rows into the features' columns of `output`; writes vectors that were asked for.
  void pool(const Backend& backend, MatrixView<float> output,
            const WholeRowKernels<Backend>& kernels) {
    if (!features_.empty()) assembled_by_ = &backend;
    for (const Feature& feature : features_) {
      if (feature.asked && !feature.later)
        op::run<op::GatherIndexed>(backend,
                                   {{rows_.data() + feature.first, feature.rows(), feature.width},
                                    feature.index,
                                    feature.target,
                                    feature.weights()});
      if (!feature.active || feature.is_sequence() || feature.bags.bags == 0) continue;
      const float* const rows = rows_.data() + feature.first;
      if (feature.pooling == Pooling::max) {
        op::run<op::PoolMax>(backend, {feature.indices, rows, feature.width,
                                       output.data + feature.column, output.stride});
        continue;
      }
      kernels.look_up(backend, rows, feature.width,
                      {feature.indices, output.data + feature.column, output.stride});
    }
  }

  /// Throws InvalidArgument unless each sequence feature whose gradients are used has one, of the
  /// shape of this batch.
  void check(std::string_view call, SequenceGradients gradients) const {
    std::vector<bool> given(features_.size());
    for (const SequenceGradient& gradient : gradients) {
      const int f = gradient.feature;
      require(f >= 0 && f < std::ssize(features_) && features_[f].is_sequence(),
              "{}: a gradient is given for feature {}, which is no sequence; those are {}", call, f,
              names());
      const Feature& feature = features_[f];
      const MatrixView<const float>& values = gradient.values;
      const std::string_view name = layout_->features[f].name;
      require(!given[f], "{}: sequence '{}' is given two gradients", call, name);
      require(!gradient.per_row || !feature.weighted,
              "{}: sequence '{}' is weighted, and given a gradient per row; give per_id", call,
              name);
      given[f] = true;
      const auto needed =
          gradient.per_row ? feature.rows() : static_cast<std::int64_t>(feature.count());
      require(values.rows == needed && values.columns == feature.width,
              "{}: the gradient of sequence '{}' is [{}, {}], must be [{}, {}]: one per {}", call,
              name, values.rows, values.columns, needed, feature.width,
              gradient.per_row ? "row" : "id");
      if (!values.sound())
        check_view(formatted("{}: the gradient of sequence '{}'", call, name), values);
    }
    for (std::size_t f = 0; f < features_.size(); ++f)
      require(
          given[f] || !features_[f].is_sequence() || !features_[f].needs_gradients,
          "{}: sequence '{}' has no gradient; give per_id or per_row of its view, on every rank",
          call, layout_->features[f].name);
  }

  /// Merges gradients by distinct id, in the order of the batch: those of the output, and those of
  /// sequences, which passed `check`. Whether `ids` of some features are others now: distinct ones
  /// that were left for the way back.
  bool merge(const Backend& backend, MatrixView<const float> gradient, SequenceGradients sequences,
             const WholeRowKernels<Backend>& kernels) {
    const bool found = find_later(backend);
    for (Feature& feature : features_) {
      if (!feature.active) continue;
      feature.gradient = view(gradients_, feature);
      if (!feature.needs_gradients || feature.ids.bags == 0 || feature.is_sequence()) continue;
      const float* const from = gradient.data + feature.column;
      if (feature.pooling == Pooling::max) {
        const float* const of_ids = max_gradients(backend, feature, gradient);
        merge_ids(backend, kernels, feature, {feature.each_weighted(), of_ids, feature.width});
      } else {
        merge_ids(backend, kernels, feature, {feature.indices, from, gradient.stride});
      }
    }
    for (const SequenceGradient& given : sequences) {
      Feature& feature = features_[given.feature];
      if (!feature.needs_gradients || feature.ids.bags == 0) continue;
      feature.given = given.values;
      if (given.per_row)
        feature.gradient = given.values.row_range(0, feature.ids.bags);
      else
        merge_ids(backend, kernels, feature,
                  {feature.each_weighted(), given.values.data, given.values.stride});
    }
    return found;
  }

  /// Returns the gradients of the weighted vectors that `feature` adds, as many as entries: of the
  /// output, of each id of max pooling, or those that were given for a sequence, and must still be
  /// there.
  op::GradientGroup<std::int32_t> entry_gradients(const Backend& backend, int feature,
                                                  MatrixView<const float> gradient) {
    const Feature& of = features_[feature];
    if (of.pooling == Pooling::max)
      return {of.each(), max_gradients(backend, of, gradient), of.width};
    if (of.is_sequence()) return {of.each(), of.given.data, of.given.stride};
    return {of.indices, gradient.data + of.column, gradient.stride};
  }

 private:
  using Feature = DistinctFeature<Id>;

  void describe(std::size_t f, const RankLayout& routing, const op::Bags<Id>& bags,
                const Wanted& wanted) {
    Feature& feature = features_[f];
    const FeatureSpec& spec = layout_->features[f];
    const TableSpec& table = layout_->tables[layout_->feature_table[f]];
    const int index = static_cast<int>(f);
    feature.bags = bags;
    feature.pooling = spec.pooling;
    feature.active = keeps_rows(spec.pooling) || (wanted.duplicates && routing.travels(index));
    feature.fixed = feature.active && wanted.fixed;
    feature.weighted = feature.active && spec.weighted;
    require(!feature.weighted || !(feature.fixed || wanted.local),
            "forward: feature '{}' is weighted; if rows come to the rank that asks (sequences, "
            "max pooling, option deduplicate) weights go with neither Options::equal_batches on a "
            "GPU nor model-parallel input",
            spec.name);
    feature.zero_row = feature.is_sequence() && (feature.fixed || may_vanish(wanted.bad_ids));
    feature.has_offsets =
        feature.is_sequence() || (feature.active && (wanted.local || wanted.fixed));
    feature.needs_gradients = routing.gradients(index);
    feature.width = table.width;
    feature.table_rows = table.rows;
    feature.column = layout_->feature_column[f];
    require(feature.count() < std::numeric_limits<std::int32_t>::max(),
            "forward: feature '{}' has {} ids on this rank; where rows come to the rank that asks "
            "(sequences, max pooling, option deduplicate) at most 2^31 - 2",
            spec.name, feature.count());
  }

  /// Reads vectors that are asked for where all their rows are, if these are at hand.
  void read_in_place(int f, const RankLayout& routing) {
    Feature& feature = features_[f];
    const auto count = static_cast<std::int64_t>(feature.count());
    feature.later = !feature.zero_row && !feature.weighted && routing.at_hand(f);
    if (!feature.later || count == 0) return;
    feature.ids.ids = feature.bags.ids + feature.bags.first_entry;
    feature.ids.bags = feature.ids.entry_bound = count;
  }

  bool find_later(const Backend& backend) {
    if (later_jobs_.empty()) return false;
    op::run<op::DistinctIds<Id>>(backend, {later_jobs_});
    std::span<const Job> jobs = later_jobs_;
    for (Feature& feature : features_)
      if (feature.later) take(backend, feature, jobs);
    later_jobs_.clear();
    return true;
  }

  /// Takes a feature's jobs from the first ones.
  void take(const Backend& backend, Feature& feature, std::span<const Job>& jobs) {
    const auto count = static_cast<std::size_t>(feature.blocks);
    if (count != 0) join_blocks(backend, feature, jobs.first(count), next_packed_);
    jobs = jobs.subspan(count);
  }

  /// Returns whether ids may be -1: the host throws before.
  static constexpr bool may_vanish(BadIds policy) {
    return policy == BadIds::zero_vector ||
           (policy == BadIds::throw_error && !Backend::host_readable);
  }

  /// Names of sequences, listed only if an error is thrown.
  struct Names {
    const DistinctRows& rows;
    operator std::string() const {
      std::vector<std::string_view> found;
      for (std::size_t f = 0; f < rows.features_.size(); ++f)
        if (rows.features_[f].is_sequence()) found.push_back(rows.layout_->features[f].name);
      return nearest_names("", found);
    }
  };
  Names names() const { return {*this}; }

  /// Adds a job per block of samples; its distinct ids have as much room as it has ids.
  void add_jobs(const Backend& backend, Feature& feature, Id* distinct, std::int64_t blocks,
                PodVector<Job>& jobs) {
    if (feature.count() == 0) return;
    const std::vector<std::int64_t> cuts = sample_cuts<Id>(backend, feature.bags, blocks);
    feature.blocks = static_cast<int>(blocks);
    for (std::int64_t b = 0; b < blocks; ++b)
      jobs.push_back({feature.bags.ids + feature.bags.first_entry + cuts[b], cuts[b + 1] - cuts[b],
                      distinct + cuts[b], feature.index + cuts[b], 0, feature.table_rows,
                      feature.fixed ? feature.bags.offsets : nullptr, feature.bags.bags});
  }

  /// Makes one list of ids, block after block, and one index into it.
  void join_blocks(const Backend& backend, Feature& feature, std::span<const Job> blocks,
                   Id*& packed) const {
    const bool several = blocks.size() > 1;
    std::int64_t found = 0;
    for (const auto& block : blocks) found += block.found;
    feature.ids.ids = several ? packed : blocks.front().distinct;
    feature.ids.bags = feature.ids.entry_bound = found;
    std::int64_t before = 0;
    for (const auto& block : blocks) {
      if (several && block.found != 0)
        backend.copy(packed + before, block.distinct,
                     static_cast<std::size_t>(block.found) * sizeof(Id));
      if (before != 0 || feature.zero_row)
        op::run<op::PlaceIndices>(backend,
                                  {block.index, block.count, static_cast<std::int32_t>(before),
                                   feature.zero_row ? static_cast<std::int32_t>(found) : -1});
      before += block.found;
    }
    if (several) packed += found;
  }

  void set_offsets(const Backend& backend) const {
    PodVector<op::OffsetsFromFirst::Job> jobs;
    for (const Feature& feature : features_)
      if (feature.has_offsets)
        jobs.push_back({feature.bags.offsets, feature.bags.bags, feature.offsets,
                        static_cast<std::int64_t>(feature.count())});
    if (!jobs.empty()) op::run<op::OffsetsFromFirst>(backend, {jobs});
  }

  MatrixView<float> view(const Buffer<float, Backend>& memory, const Feature& feature) const {
    return {memory.data() + feature.first, feature.ids.bags, feature.width};
  }

  /// Returns the gradient of each id of max pooling, times no weight: [ids, width].
  const float* max_gradients(const Backend& backend, const Feature& feature,
                             MatrixView<const float> gradient) {
    float* const to =
        id_gradients_.resize(backend, feature.count() * static_cast<std::size_t>(feature.width))
            .data();
    op::run<op::PoolMaxBackward>(backend,
                                 {feature.indices, rows_.data() + feature.first, feature.width,
                                  gradient.data + feature.column, gradient.stride, to});
    return to;
  }

  /// Merges into the feature's place of gradients_. Every distinct id occurs: row i is that of id
  /// i. So it is if no id points at the row of zeros, which is the last.
  void merge_ids(const Backend& backend, const WholeRowKernels<Backend>& kernels,
                 const Feature& feature, const op::GradientGroup<std::int32_t>& group) {
    op::MergedGradients merged{
        0, merged_rows_.resize(backend, static_cast<std::size_t>(feature.rows())).data(),
        gradients_.data() + feature.first};
    kernels.merge(backend, {.arena_rows = feature.rows(),
                            .width = feature.width,
                            .groups = {&group, 1},
                            .merged = &merged,
                            .padded = true});
  }

  const Layout* layout_ = nullptr;
  const Backend* assembled_by_ = nullptr;
  std::vector<Feature> features_;  // of the layout
  PodVector<Job> jobs_, later_jobs_;
  Buffer<Id, Backend> ids_, packed_ids_;
  Id* next_packed_ = nullptr;
  Buffer<std::int32_t, Backend> index_;
  Buffer<std::int64_t, Backend> offsets_;
  Buffer<float, Backend> rows_, gradients_, id_gradients_;
  Buffer<std::int64_t, Backend> merged_rows_;
};

}}}  // namespace tessera::v0::detail
