// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Stages that are left out, repeated, or given another collection's step, on any backend: bodies of
// test_bad_input.cpp and gpu/twin_cases.hpp.
#pragma once

#include <support/small_model.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace stages {

using namespace tessera;      // NOLINT: a header of tests
using namespace on_backend;   // NOLINT
using namespace small_model;  // NOLINT

/// A collection on two ranks or one, a step, and what its stages are given.
template <class Backend, class... Policies>
struct Staged {
  using E = EmbeddingsOn<Backend, CountingOn<Backend>, Policies...>;

  Staged(CountingOn<Backend>& c, const Backend& backend, typename E::Options options = {})
      : embeddings(c, backend, layout(c.size(), true), options),
        batch(c.rank(), 0, 6, embeddings.columns()),
        given(backend, batch, embeddings.columns()),
        output(backend, std::vector<float>(batch.gradient.size())),
        out(output.data(), 6, embeddings.columns()) {}

  static constexpr std::array<std::string_view, 8> names{
      "route",  "lookup",          "exchange", "assemble", "split", "exchange_gradients",
      "update", "weight_gradients"};
  void call(std::size_t stage) {
    switch (stage) {
      case 0:
        return embeddings.route(step, given.keyed());
      case 1:
        return embeddings.lookup(step, out);
      case 2:
        return embeddings.exchange(step);
      case 3:
        return embeddings.assemble(step, out);
      case 4:
        return static_cast<void>(embeddings.split(step, given.gradient));
      case 5:
        return embeddings.exchange_gradients(step);
      case 6:
        return embeddings.update(step, given.gradient);
      default:
        return embeddings.weight_gradients(step, given.gradient, given.of_weights.span());
    }
  }
  /// The stages before `stage`, from the first.
  void advance_to(std::size_t stage) {
    for (std::size_t s = 0; s < stage; ++s) call(s);
  }

  E embeddings;
  Batch batch;
  Given<Backend> given;
  Array<float, Backend> output;
  MatrixView<float> out;
  typename E::template StepState<std::int64_t> step;
};

inline void expect(const std::string& text, const std::string& part) {
  require<Error>(text.find(part) != std::string::npos, "'{}' is not in: {}", part, text);
}

/// After every stage each other one but its successor is called; the tables stay as they were, and
/// the step can go on.
template <class Backend>
void every_wrong_order_is_refused() {
  for (const int ranks : {1, 2})
    on_ranks<Backend>(ranks, [](CountingOn<Backend>& c, const Backend& backend) {
      Staged<Backend> staged(c, backend);
      const std::vector<float> before = shards_of(staged.embeddings);
      for (std::size_t passed = 0; passed <= 6; ++passed) {
        if (passed > 0) staged.call(passed - 1);
        for (std::size_t next = 1; next < staged.names.size(); ++next) {
          if (next == passed || (next == 7 && passed == 6)) continue;
          const std::string text = message_of([&] { staged.call(next); });
          expect(text, std::string(staged.names[next]) + ": ");
          expect(text, passed == 0 ? "this step has no batch"
                                   : "the next stage of this step is " +
                                         std::string(staged.names[passed]) + ";");
        }
      }
      require<Error>(same_bits(shards_of(staged.embeddings), before),
                     "a stage that was refused changed a table");
      staged.call(7);
      staged.call(6);
      const std::vector<float> after = shards_of(staged.embeddings);
      require<Error>(!same_bits(after, before) && staged.embeddings.steps() == 1,
                     "the update did nothing");
      for (std::size_t next = 1; next < staged.names.size(); ++next)
        expect(message_of([&] { staged.call(next); }),
               "this step has no batch, or its update has ended it");
      require<Error>(
          same_bits(shards_of(staged.embeddings), after) && staged.embeddings.steps() == 1,
          "an update was applied twice");
    });
}

template <class Backend>
void the_step_of_another_collection() {
  on_ranks<Backend>(2, [](CountingOn<Backend>& c, const Backend& backend) {
    Staged<Backend> staged(c, backend);
    typename Staged<Backend>::E other(
        c, backend, make_layout({2}, {{"t", 3, 16}}, {}, {{0, {0, 3, 0, 16}, 1}}), {});
    const std::vector<float> before = shards_of(other);
    const MatrixView<float> out(staged.output.data(), 6, 16);
    const MatrixView<const float> gradient(staged.output.data(), 6, 16);
    for (std::size_t passed = 1; passed <= 6; ++passed) {
      staged.call(passed - 1);
      const auto refused = [&](auto&& call) {
        expect(message_of(call), "was routed by another collection");
      };
      refused([&] { other.lookup(staged.step, out); });
      refused([&] { other.exchange(staged.step); });
      refused([&] { other.assemble(staged.step, out); });
      refused([&] { other.forward_routed(staged.step, out); });
      refused([&] { other.split(staged.step, gradient); });
      refused([&] { other.exchange_gradients(staged.step); });
      refused(
          [&] { other.weight_gradients(staged.step, gradient, staged.given.of_weights.span()); });
      refused([&] { other.update(staged.step, gradient); });
      refused([&] { other.end(staged.step); });
    }
    require<Error>(same_bits(shards_of(other), before) && other.steps() == 0,
                   "another collection's step changed a table");
    staged.call(6);
  });
}

/// What stages are given must have the batch's shape, each time.
template <class Backend>
void gradients_of_other_shapes() {
  on_ranks<Backend>(1, [](CountingOn<Backend>& c, const Backend& backend) {
    Staged<Backend> staged(c, backend);
    staged.advance_to(6);
    const std::vector<float> before = shards_of(staged.embeddings);
    const MatrixView<const float> shorter(staged.given.of_gradient.data(), 5,
                                          staged.embeddings.columns());
    expect(message_of([&] { staged.embeddings.update(staged.step, shorter); }),
           "update: gradient is [5, ");
    expect(message_of([&] {
             staged.embeddings.weight_gradients(staged.step, shorter,
                                                staged.given.of_weights.span());
           }),
           "weight_gradients: gradient is [5, ");
    expect(message_of(
               [&] { staged.embeddings.weight_gradients(staged.step, staged.given.gradient, {}); }),
           "room for 0 weight gradients");
    require<Error>(same_bits(shards_of(staged.embeddings), before), "a table changed");
    staged.call(6);
  });
}

/// The guard holds through the stages, too, and a rejected step takes other gradients.
template <class Backend>
void rejected_through_the_stages() {
  for (const int ranks : {1, 2})
    on_ranks<Backend>(ranks, [](CountingOn<Backend>& c, const Backend& backend) {
      Staged<Backend> staged(c, backend, {.non_finite = NonFinite::reject});
      auto& e = staged.embeddings;
      const std::vector<float> before = shards_of(e);
      Batch bad = staged.batch;
      if (c.rank() == c.size() - 1) bad.gradient[5] = std::numeric_limits<float>::quiet_NaN();
      const Given<Backend> of_bad(backend, bad, e.columns());
      staged.advance_to(4);
      require<Error>(!e.split(staged.step, of_bad.gradient), "a NaN was accepted");
      e.exchange_gradients(staged.step);
      e.weight_gradients(staged.step, of_bad.gradient, of_bad.of_weights.span());
      for (const float x : of_bad.of_weights.read())
        require<Error>(x == 0, "a rejected step has weight gradients");
      e.update(staged.step, of_bad.gradient);
      require<Error>(same_bits(shards_of(e), before) && e.steps() == 0 && e.rejected_steps() == 1,
                     "a rejected step changed something");
      expect(message_of([&] { e.lookup(staged.step, staged.out); }),
             "the next stage of this step is split");
      require<Error>(e.split(staged.step, staged.given.gradient), "good gradients were rejected");
      e.exchange_gradients(staged.step);
      e.update(staged.step, staged.given.gradient);
      require<Error>(!same_bits(shards_of(e), before) && e.steps() == 1 && e.rejected_steps() == 1,
                     "the update did nothing");
      require<Error>(e.forwards_without_backward() == 0, "{} without backward",
                     e.forwards_without_backward());
    });
}

/// The stages one by one, weight gradients among them, are `forward` and `backward`.
template <class Backend>
void stages_are_forward_and_backward() {
  on_ranks<Backend>(2, [](CountingOn<Backend>& c, const Backend& backend) {
    Staged<Backend> by_stages(c, backend), at_once(c, backend);
    by_stages.advance_to(6);
    by_stages.call(7);
    by_stages.call(6);
    const auto pooled = at_once.embeddings.forward(at_once.given.keyed(), at_once.out);
    at_once.embeddings.backward(pooled, at_once.given.gradient, at_once.given.of_weights.span());
    require<Error>(same_bits(by_stages.output.read(), at_once.output.read()), "outputs differ");
    require<Error>(same_bits(by_stages.given.of_weights.read(), at_once.given.of_weights.read()),
                   "weight gradients differ");
    require<Error>(same_bits(shards_of(by_stages.embeddings), shards_of(at_once.embeddings)),
                   "tables differ");
  });
}

template <class Backend>
void a_forgotten_backward() {
  on_ranks<Backend>(2, [](CountingOn<Backend>& c, const Backend& backend) {
    Staged<Backend> counted(c, backend);
    auto& e = counted.embeddings;
    const auto lost = [&] { return e.forwards_without_backward(); };
    auto pooled = e.forward(counted.given.keyed());
    e.evaluate(counted.given.keyed());  // beside the batch that waits
    require<Error>(lost() == 0, "an evaluation was counted");
    e.backward(pooled, counted.given.gradient);
    e.forward(counted.given.keyed());
    require<Error>(lost() == 0, "counted too early");
    pooled = e.forward(counted.given.keyed());
    require<Error>(lost() == 1, "{} forgotten", lost());
    e.backward(pooled, counted.given.gradient);
    counted.advance_to(4);
    e.end(counted.step);
    counted.advance_to(6);
    require<Error>(lost() == 1, "a step that was ended counts");
    counted.call(0);
    require<Error>(lost() == 2, "a step without update does not count");

    typename Staged<Backend>::E::Options options;
    options.check_stages = true;
    Staged<Backend> strict(c, backend, options);
    pooled = strict.embeddings.forward(strict.given.keyed());
    strict.embeddings.evaluate(strict.given.keyed());
    expect(message_of([&] { strict.embeddings.forward(strict.given.keyed()); }),
           "the batch before had no update; call backward once");
    strict.embeddings.backward(pooled, strict.given.gradient);
    strict.embeddings.forward(strict.given.keyed());
  });
}

/// What `evaluate` looks up is what `forward` would.
template <class Backend>
void evaluation_is_forward_without_a_trace() {
  on_ranks<Backend>(2, [](CountingOn<Backend>& c, const Backend& backend) {
    Staged<Backend> staged(c, backend);
    auto& e = staged.embeddings;
    const std::vector<float> before = shards_of(e);
    const std::size_t floats = staged.batch.gradient.size();
    const std::vector<float> evaluated =
        read(backend, e.evaluate(staged.given.keyed()).data, floats);
    e.evaluate(staged.step, staged.given.keyed(), staged.out);
    require<Error>(same_bits(staged.output.read(), evaluated), "with a step of one's own");
    require<Error>(
        same_bits(read(backend, e.forward(staged.given.keyed()).values.data, floats), evaluated),
        "forward differs");
    require<Error>(same_bits(shards_of(e), before) && e.steps() == 0,
                   "evaluation changed something");
  });
}

/// An update that is too large for its backend is refused before any arena is changed, and one
/// rank's is not applied in part.
template <class Backend>
void an_update_that_is_too_large_changes_nothing() {
  on_ranks<Backend>(1, [](CountingOn<Backend>& c, const Backend& backend) {
    using E = EmbeddingsOn<Backend, CountingOn<Backend>>;
    E e(c, backend,
        make_layout({1}, {{"a", 9, 16}, {"b", 9, 8}}, {},
                    {{0, {0, 9, 0, 16}, 0}, {1, {0, 9, 0, 8}, 0}}),
        {});
    const Array<std::int64_t, Backend> ids(backend, std::vector<std::int64_t>{1, 2, 3, 4});
    const Array<float, Backend> gradient(backend, std::vector<float>(48, 1.0f)),
        output(backend, std::vector<float>(48));
    const MatrixView<const float> of_output(gradient.data(), 2, 24);
    const std::vector<float> before = shards_of(e);
    for (const std::size_t slot : {0, 1}) {
      typename E::template StepState<std::int64_t> step;
      e.route(step, KeyedJagged<std::int64_t>{2, 2, ids.span(), {}, {}});
      e.forward_routed(step, {output.data(), 2, 24});
      e.split(step, of_output);
      e.exchange_gradients(step);
      // As if so many ids had come, for which no test has memory.
      auto& received = const_cast<op::Bags<std::int64_t>&>(step.routed.received()[slot]);
      received.bags = received.entry_bound = (std::int64_t{1} << 32) + 5;
      expect(message_of([&] { e.update(step, of_output); }), "update: 4294967301 ids in ");
      require<Error>(same_bits(shards_of(e), before) && e.steps() == 0, "a table changed");
    }
  });
}

}  // namespace stages
