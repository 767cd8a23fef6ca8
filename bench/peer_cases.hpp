// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// What bench_peers and peers.py run of Tessera in the process of its peers, in turn with them, and
// what bounds it (limits.hpp).
#pragma once

#include <tessera/host/lookup.hpp>
#include <tessera/host/parallel.hpp>
#include <tessera/host/update.hpp>
#include <tessera/optimizer/optimizers.hpp>
#include <tessera/tessera.hpp>
#include <tessera_serving/pool_rows.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "dlrm.hpp"
#include "limits.hpp"

namespace tessera::bench {

/// A table that a peer works on, too, with its ids; the memory is the peer's and outlives the case.
struct PeerTable {
  /// Empty: lookups alone; int8, int4: in frozen rows; sequence: SequenceCase.
  const char* optimizer;
  std::int64_t width, threads, id_bytes, rows, batch, bag, batches;
  float* weights;         ///< [rows, width], or frozen rows
  const void* ids;        ///< [batches, batch * bag]
  const float* gradient;  ///< [batch, width]
  float* output;          ///< [batch, width], and room for a row more
};

/// Something of Tessera that is run in turn with a peer's, and what bounds it.
struct Case {
  virtual ~Case() = default;
  virtual void run(std::int64_t batch) = 0;
  virtual void limit(std::int64_t batch) = 0;
};

/// Sums of bags; the bound is a gather of their rows.
template <int Width, IdType Id>
class LookupCase : public Case {
 public:
  explicit LookupCase(const PeerTable& table)
      : table_(table), host_({.threads = static_cast<int>(table.threads)}) {
    for (std::int64_t b = 0; b <= table.batch; ++b) offsets_.push_back(b * table.bag);
    distance_ = best_distance([&](int d) { gather_rows(turn_++, d); });
  }
  void run(std::int64_t batch) override {
    const op::LookupGroup<Id> group{bags(batch), table_.output, Width};
    tessera::op::run<op::Lookup<float, Id, Width>>(
        host_, {.arena = table_.weights, .groups = {&group, 1}});
  }
  void limit(std::int64_t batch) override { gather_rows(batch, distance_); }

 protected:
  std::span<const Id> ids(std::int64_t batch) const {
    const std::int64_t entries = table_.batch * table_.bag;
    return {static_cast<const Id*>(table_.ids) + batch % table_.batches * entries,
            static_cast<std::size_t>(entries)};
  }
  op::Bags<Id> bags(std::int64_t batch) const {
    return {.ids = ids(batch).data(),
            .offsets = table_.bag == 1 ? nullptr : offsets_.data(),
            .bags = table_.batch};
  }

  PeerTable table_;
  Host host_;
  std::int64_t turn_ = 0;

 private:
  void gather_rows(std::int64_t batch, int distance) const {
    gather<Width * 4, Width>(host_.threads(), reinterpret_cast<const char*>(table_.weights),
                             ids(batch), table_.bag, table_.output, distance);
  }

  std::vector<std::int64_t> offsets_;
  int distance_ = 0;
};

/// Sums of bags of frozen rows, which lie at `weights`; the bound is a gather of their bytes.
template <int Width, IdType Id, class Row>
class FrozenCase : public Case {
 public:
  explicit FrozenCase(const PeerTable& table) : table_(table) {
    for (std::int64_t b = 0; b <= table.batch; ++b) offsets_.push_back(b * table.bag);
    distance_ = best_distance([&](int d) { gather_rows(turn_++, d); });
  }
  void run(std::int64_t batch) override {
    const op::Bags<Id> bags{.ids = ids(batch).data(),
                            .offsets = table_.bag == 1 ? nullptr : offsets_.data(),
                            .bags = table_.batch};
    const std::int64_t parts = table_.threads == 1 ? 1 : 4 * table_.threads;
    detail::parallel_for(static_cast<int>(table_.threads), parts, [&](std::int64_t part, int) {
      detail::pool_rows<Row, false>(
          detail::RowsInOrder{reinterpret_cast<const std::byte*>(table_.weights), kBytes}, Width,
          bags, bags.bags * part / parts, bags.bags * (part + 1) / parts, table_.output, Width);
    });
  }
  void limit(std::int64_t batch) override { gather_rows(batch, distance_); }

 private:
  static constexpr int kBytes = static_cast<int>(Row::bytes(Width));

  std::span<const Id> ids(std::int64_t batch) const {
    const std::int64_t entries = table_.batch * table_.bag;
    return {static_cast<const Id*>(table_.ids) + batch % table_.batches * entries,
            static_cast<std::size_t>(entries)};
  }
  void gather_rows(std::int64_t batch, int distance) {
    gather<kBytes, Width>(static_cast<int>(table_.threads),
                          reinterpret_cast<const char*>(table_.weights), ids(batch), table_.bag,
                          table_.output, distance);
  }

  PeerTable table_;
  std::int64_t turn_ = 0;
  std::vector<std::int64_t> offsets_;
  int distance_ = 0;
};

/// Lookup and update; the bound also reads the gradient once, and reads and writes each distinct
/// row and its state.
template <int Width, IdType Id, Optimizer O>
class StepCase : public LookupCase<Width, Id> {
  using Base = LookupCase<Width, Id>;

 public:
  explicit StepCase(const PeerTable& table)
      : Base(table),
        state_{
            .arena = table.weights, .rows = table.rows, .width = Width, .segments = {&segment_, 1}},
        segment_{.rows = table.rows} {
    written_[0] = reinterpret_cast<char*>(table.weights);
    for (std::size_t k = 0; k < O::element_states; ++k) {
      state_.element_state[k] =
          states_.emplace_back(std::make_unique<HugeArray<float>>(table.rows * Width))->data();
      written_[k + 1] = reinterpret_cast<char*>(state_.element_state[k]);
    }
    for (std::size_t k = 0; k < O::row_states; ++k)
      state_.row_state[k] = row_states_[k] =
          states_.emplace_back(std::make_unique<HugeArray<float>>(table.rows))->data();
    for (std::int64_t b = 0; b < table.batches; ++b)
      distinct_.push_back(distinct_ids(Base::ids(b), table.rows));
    distance_ = best_distance([&](int d) { write_rows(Base::turn_++, d); });
  }
  void run(std::int64_t batch) override {
    Base::run(batch);
    const op::GradientGroup<Id> group{Base::bags(batch), table_.gradient, Width};
    tessera::op::run<op::Update<float, Id, Width, O>>(
        host_, {.state = state_, .step = O{}.at(0.01f, 1), .groups = {&group, 1}});
  }
  void limit(std::int64_t batch) override {
    Base::limit(batch);
    kept_ = read_stream(host_.threads(),
                        {table_.gradient, static_cast<std::size_t>(table_.batch * Width)});
    write_rows(batch, distance_);
  }

 protected:
  using Base::table_, Base::host_;

 private:
  void write_rows(std::int64_t batch, int distance) const {
    const std::span<const Id> rows = distinct_[static_cast<std::size_t>(batch % table_.batches)];
    gather_modify_write<Width * 4, O::element_states + 1, O::row_states>(
        host_.threads(), written_, row_states_, rows, distance);
  }

  op::ArenaState<float, O> state_;
  op::ArenaSegment segment_;
  std::vector<std::unique_ptr<HugeArray<float>>> states_;
  std::array<char*, O::element_states + 1> written_{};
  std::array<float*, O::row_states> row_states_{};
  std::vector<std::vector<Id>> distinct_;
  int distance_ = 0;
  volatile float kept_ = 0;  // else nobody would need what is read
};

/// A training step of a sequence feature, from ids to updated rows, by a collection of its own: a
/// vector for each id, a gradient for each. Ids are a bag of `history` each; the table has bags of 1.
template <int Width, IdType Id>
class SequenceCase : public StepCase<Width, Id, Sgd> {
  using Base = StepCase<Width, Id, Sgd>;
  using Base::table_, Base::host_;
  using OneTable = Plan<Features<Feature<"history", "item", Sequence>>,
                        TableWise<Table<"item", dynamic_rows, Width>>>;

 public:
  static constexpr std::int64_t history = 512;

  explicit SequenceCase(const PeerTable& table)
      : Base(table),
        collection_(alone_, host_, {.learning_rate = 0.01f, .rows = {{"item", table.rows}}}) {
    collection_.tables().set("item", {table.weights, table.rows, Width});
    for (std::int64_t first = 0; first < table.batch; first += history) offsets_.push_back(first);
    offsets_.push_back(table.batch);
  }
  void run(std::int64_t batch) override {
    const auto found = collection_.forward(
        KeyedJagged<Id>{1, std::ssize(offsets_) - 1, Base::ids(batch), offsets_, {}},
        {{0, {table_.output, table_.batch, Width}}});
    const auto view = found.template sequence<"history">();
    collection_.backward(found, {view.per_id({table_.gradient, table_.batch, Width})});
  }

 private:
  SelfCommunicator alone_;
  EmbeddingCollection<OneTable, Sgd, Host, SelfCommunicator> collection_;
  std::vector<std::int64_t> offsets_;
};

/// A step of DLRM; the bound is the arithmetic of MLPs and interaction, in float.
template <int Width>
class DlrmCase : public Case {
 public:
  DlrmCase(std::int64_t batch, int threads, bool large_top,
           DensePrecision precision = DensePrecision::float32)
      : threads_(threads),
        communicator_(group_, 0),
        rank_(communicator_, threads, batch, large_top, precision) {
    operations_ = static_cast<double>(batch) * rank_.operations_per_sample();
  }
  void run(std::int64_t batch) override { rank_.step(static_cast<int>(batch), laps_); }
  void limit(std::int64_t) override { multiply_add(threads_, operations_); }
  const std::vector<ClickBatch<std::int32_t>>& batches() const { return rank_.batches(); }

 private:
  int threads_;
  ThreadGroup group_{1};
  ThreadCommunicator communicator_;
  DlrmRank<Width> rank_;
  Laps laps_;
  double operations_ = 0;
};

}  // namespace tessera::bench
