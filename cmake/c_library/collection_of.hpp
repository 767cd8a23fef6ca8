// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The collection behind tessera.h for the memory of one backend, whose operations the including file brings.
#pragma once

#include "collections.hpp"

#include <tessera/checkpoint/contents.hpp>
#include <tessera/codec/codec_choice.hpp>
#include <tessera/collection/layout_collection.hpp>
#include <tessera/ids/sequence_view.hpp>
#include <tessera/optimizer/clip.hpp>
#include <tessera/settings/optimizers_by_name.hpp>
#include <tessera/settings/policies.hpp>
#include <tessera/tables/initializers.hpp>
#include <tessera/tables/widths.hpp>

#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera_c {

template <class Backend, class Widths>
class CollectionOf : public Collection {
  using Tables = tessera::LayoutCollection<
      Widths, tessera::detail::NamedOptimizers, Backend, tessera::AnyCommunicator,
      tessera::InitializeWith<tessera::detail::UniformWithin>,
      tessera::EncodeWithOneOf<tessera::Fp32, tessera::Bf16, tessera::Fp16, tessera::Int8>>;

 public:
  /// `batches`: moves the backend's memory.
  CollectionOf(const tessera_layout& of, const tessera_communicator& ranks,
               tessera::AnyCommunicator& batches, const Backend& backend,
               const tessera_collection_options& given)
      : Collection(of, ranks, given.threads),
        tables_(batches, backend, of.layout, options_of(of, given)) {}

  std::unique_ptr<Step> make_step() override { return std::make_unique<StepOf>(*this); }
  const tessera::Layout& layout() const override { return tables_.layout(); }
  std::int64_t columns() const override { return tables_.columns(); }
  double apply(float most_norm, std::span<float> dense) override {
    return most_norm == 0 ? tables_.apply()
                          : tables_.apply(tessera::ClipByGlobalNorm{most_norm}, dense);
  }
  void set_learning_rate(float rate) override { tables_.set_learning_rate(rate); }
  void set_learning_rate(std::string_view table, float rate) override {
    tables_.set_learning_rate(table, rate);
  }
  std::int64_t steps() const override { return tables_.steps(); }
  std::span<const std::uint64_t> bad_ids() const override { return tables_.bad_ids(); }
  std::vector<bool> states(int table) const override {
    std::vector<bool> one_column;
    for (const auto& state : tables_.tables().states(table)) one_column.push_back(state.per_row);
    return one_column;
  }
  void get(std::string_view table, int state, tessera::MatrixView<float> whole) const override {
    state < 0 ? tables_.tables().get(table, whole)
              : tables_.tables().get_state(table, state, whole);
  }
  void set(std::string_view table, int state, tessera::MatrixView<const float> whole) override {
    state < 0 ? tables_.tables().set(table, whole)
              : tables_.tables().set_state(table, state, whole);
  }
  void reset_rows(int table, std::span<const std::int64_t> rows) override {
    tables_.reset_rows(table, rows);
  }
  void add_to(tessera::CheckpointContents& contents) override { contents.add(tables_); }

 private:
  /// One type of ids of a step: its memory, and what was looked up.
  template <class Id>
  struct Part {
    typename Tables::template StepState<Id> step{};
    typename Tables::template Found<Id> found{};
  };

  class StepOf final : public Step {
   public:
    explicit StepOf(CollectionOf& of) : of_(of) {}

    void route(const tessera::KeyedJagged<std::int32_t>& ids) override { begin(ids, narrow_); }
    void route(const tessera::KeyedJagged<std::int64_t>& ids) override { begin(ids, wide_); }
    void look_up(tessera::MatrixView<float> output) override {
      visit(*this, [&](auto& part) { part.found = of_.tables_.forward_routed(part.step, output); });
    }
    void evaluate(const tessera::KeyedJagged<std::int32_t>& ids,
                  tessera::MatrixView<float> output) override {
      evaluate(ids, output, narrow_);
    }
    void evaluate(const tessera::KeyedJagged<std::int64_t>& ids,
                  tessera::MatrixView<float> output) override {
      evaluate(ids, output, wide_);
    }
    void write_sequence(int feature, float* output, std::int64_t stride, std::int64_t& count,
                        std::int64_t& width, std::string_view call) const override {
      visit(*this, [&](const auto& part) {
        const auto view = part.found.sequence(feature);
        count = view.ids(), width = view.width();
        if (output != nullptr)
          view.materialize(matrix(output, count, width, stride, call, "output"));
      });
    }
    void update(const Gradients& gradients, std::string_view call) override {
      visit(*this, [&](auto& part) {
        const auto sequences = of_sequences(part.found, gradients, call);
        if (gradients.weights.data() == nullptr)
          of_.tables_.backward(part.found, gradients.pooled, sequences);
        else
          of_.tables_.backward(part.found, gradients.pooled, gradients.weights, sequences);
      });
    }
    void accumulate(const Gradients& gradients, std::string_view call) override {
      visit(*this, [&](auto& part) {
        of_.tables_.accumulate(part.found, gradients.pooled,
                               of_sequences(part.found, gradients, call));
      });
    }

   private:
    template <class Id>
    void note(const tessera::KeyedJagged<Id>& batch) {
      is_wide_ = sizeof(Id) == 8;
      samples = batch.batch;
      ids = std::ssize(batch.ids);
    }
    template <class Id>
    void begin(const tessera::KeyedJagged<Id>& batch, Part<Id>& part) {
      note(batch);
      of_.tables_.route(part.step, batch);
    }
    template <class Id>
    void evaluate(const tessera::KeyedJagged<Id>& batch, tessera::MatrixView<float> output,
                  Part<Id>& part) {
      note(batch);
      of_.tables_.evaluate(part.step, batch, output);
      part.found = {output, &part.step, part.step.progress.turn()};
    }
    /// Calls f with the part of the step that the last batch is in.
    template <class Self, class F>
    static void visit(Self& self, F&& f) {
      if (self.is_wide_)
        f(self.wide_);
      else
        f(self.narrow_);
    }
    /// Gradients of sequences as the collection takes them, checked against what was looked up.
    template <class Found>
    static std::vector<tessera::SequenceGradient> of_sequences(const Found& found,
                                                               const Gradients& given,
                                                               std::string_view call) {
      std::vector<tessera::SequenceGradient> sequences;
      for (const tessera_sequence_gradient& one : given.sequences) {
        const auto view = found.sequence(one.feature);
        sequences.push_back(view.per_id(matrix(one.values, view.ids(), view.width(), one.stride,
                                               call, "a sequence's gradient")));
      }
      return sequences;
    }

    CollectionOf& of_;  // which the step's pointer owns, too
    Part<std::int32_t> narrow_;
    Part<std::int64_t> wide_;
    bool is_wide_ = false;
  };

  static typename Tables::Options options_of(const tessera_layout& of,
                                             const tessera_collection_options& given) {
    return {
        .learning_rate = given.learning_rate,
        .seed = given.seed,
        .optimizer = tessera::detail::named_optimizers(given.optimizer, given.precision, of.layout),
        .initialize = {given.initial_bound},
        .bad_ids = static_cast<tessera::BadIds>(given.bad_ids),
        .forward_codec = given.codec,
        .backward_codec = given.gradient_codec,
        .deduplicate = given.deduplicate != 0,
        .gradient_blocks = given.gradient_blocks};
  }

  Tables tables_;
};

}  // namespace tessera_c
