// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/codec/codec_choice.hpp>
#include <tessera/codec/codecs.hpp>
#include <tessera/core/element.hpp>
#include <tessera/tables/initializers.hpp>
#include <tessera/tables/training_groups.hpp>

#include <concepts>
#include <tuple>
#include <type_traits>

namespace tessera { inline namespace v0 {

// Further template arguments of EmbeddingCollection, in any order: Storage<T>, InitializeWith<F>,
// EncodeWith<Forward, Backward> or EncodeWithOneOf<Codecs...>, OutputType<T>, ReportSteps. They
// decide what is compiled; what a step can look up is an option.

/// Element type of the tables: float, Half or BFloat16. Arithmetic is in float; 16-bit tables are
/// stored with stochastic rounding.
///
///     using E = EmbeddingCollection<MyPlan, Adagrad, Host, Comm, Storage<BFloat16>>;
template <Element T>
struct Storage {
  using element = T;
};

/// First values of the tables. Without this policy: the optimizer's `initializer` if it has one,
/// else UniformByRows.
///
///     using E = EmbeddingCollection<MyPlan, Sgd, Host, Comm, InitializeWith<Normal>>;
///     const E::Options options{.initialize = {.standard_deviation = 0.1f}};
template <Initializer F>
struct InitializeWith {
  using initializer = F;
};

/// How vectors travel between ranks: pooled vectors under the first codec, their gradients under
/// the second. What a rank looks up whole in its own tables does not travel and is not encoded.
/// Without this policy floats travel unchanged.
///
///     using E = EmbeddingCollection<MyPlan, Sgd, Host, Comm, EncodeWith<Int8, Bf16>>;
template <class Forward, class Backward = Forward>
struct EncodeWith {
  using forward_codecs = detail::CodecChoice<detail::ExplainedCodec<Forward>>;
  using backward_codecs = detail::CodecChoice<detail::ExplainedCodec<Backward>>;
};
/// The same, each direction's codec being chosen when the collection is constructed:
/// Options::forward_codec and backward_codec, by name. For programs whose users decide: only the
/// few functions that encode are compiled for every codec.
///
///     using E = EmbeddingCollection<MyPlan, Sgd, Host, Comm, EncodeWithOneOf<Fp32, Bf16>>;
///     const E::Options options{.forward_codec = "bf16", .backward_codec = "fp32"};
template <class... Choices>
struct EncodeWithOneOf {
  using forward_codecs = detail::CodecChoice<detail::ExplainedCodec<Choices>...>;
  using backward_codecs = detail::CodecChoice<detail::ExplainedCodec<Choices>...>;
};

/// Element type of pooled vectors and of their gradients: float, Half or BFloat16. Everything is
/// summed in float; each element is rounded once, to nearest even, when all of it is there.
/// Sequences stay floats.
///
///     using E = EmbeddingCollection<MyPlan, Sgd, Host, Comm, OutputType<BFloat16>>;
template <Element T>
struct OutputType {
  using output = T;
};

/// The collection tells what each step took: `step_report()`, a StepReport. `report_steps(false)`
/// turns that off for a while. Without this policy no code for it is compiled.
///
///     using E = EmbeddingCollection<MyPlan, Sgd, Host, Comm, ReportSteps>;
///     E embeddings(communicator, host, {});
///     const double seconds = embeddings.step_report()[ReportedStage::lookup].seconds;
struct ReportSteps {
  static constexpr bool reports_steps = true;
};

namespace detail {

/// Returns InitializeWith's, else the one that the optimizer asks for, else UniformByRows.
template <class Given, class O>
auto initializer_of() {
  if constexpr (!std::is_void_v<Given>) {
    return std::type_identity<Given>{};
  } else if constexpr (requires { typename O::initializer; }) {
    static_assert(Initializer<typename O::initializer>,
                  "Optimizer: initializer must be a trivially copyable functor from ElementKey to "
                  "float (docs/concepts/optimizer.md)");
    return std::type_identity<typename O::initializer>{};
  } else {
    return std::type_identity<UniformByRows>{};
  }
}

/// First values of each training group's tables: the group's own; `given` where it is what the
/// group begins with; else what its optimizer asks for.
template <class Given, class Trained, class F>
struct Initializers {
  const F& given;
  const Trained& training;

  template <int I>
  auto of() const {
    if constexpr (!std::is_void_v<typename GroupsOf<Trained>::template initializer<I>>)
      return std::get<I>(training.groups).initialize;
    else
      return of_all<I>();
  }

 private:
  template <int I>
  auto of_all() const {
    using Own =
        typename decltype(initializer_of<
                          Given, typename GroupsOf<Trained>::template optimizer<I>>())::type;
    if constexpr (std::is_same_v<Own, F>)
      return given;
    else
      return Own{};
  }
};

template <class P>
concept CodecPolicy = requires {
  typename P::forward_codecs;
  typename P::backward_codecs;
};

template <class P>
concept OutputPolicy = requires { typename P::output; };

template <class P>
concept ReportPolicy = requires {
  { P::reports_steps } -> std::convertible_to<bool>;
};

/// What a list of policies chooses.
template <class... Policies>
struct CollectionPolicies {
  using element = float;
  using initializer = void;  // the optimizer's: initializer_of
  using forward_codecs = CodecChoice<Fp32>;
  using backward_codecs = CodecChoice<Fp32>;
  using output = float;
  static constexpr bool reports_steps = false;
};
template <class First, class... Rest>
struct CollectionPolicies<First, Rest...> : CollectionPolicies<Rest...> {
  static_assert(
      StoragePolicy<First> || InitializerPolicy<First> || CodecPolicy<First> ||
          OutputPolicy<First> || ReportPolicy<First>,
      "EmbeddingCollection: a policy is Storage<T>, InitializeWith<F>, EncodeWith<F, B>, "
      "EncodeWithOneOf<C...>, OutputType<T> or ReportSteps; bad ids, non-finite gradients and "
      "duplicates are Options (docs/concepts/collection.md)");
};
template <StoragePolicy First, class... Rest>
struct CollectionPolicies<First, Rest...> : CollectionPolicies<Rest...> {
  using element = typename First::element;
};
template <InitializerPolicy First, class... Rest>
struct CollectionPolicies<First, Rest...> : CollectionPolicies<Rest...> {
  using initializer = typename First::initializer;
};
template <CodecPolicy First, class... Rest>
struct CollectionPolicies<First, Rest...> : CollectionPolicies<Rest...> {
  using forward_codecs = typename First::forward_codecs;
  using backward_codecs = typename First::backward_codecs;
};
template <OutputPolicy First, class... Rest>
struct CollectionPolicies<First, Rest...> : CollectionPolicies<Rest...> {
  using output = typename First::output;
};
template <ReportPolicy First, class... Rest>
struct CollectionPolicies<First, Rest...> : CollectionPolicies<Rest...> {
  static constexpr bool reports_steps = First::reports_steps;
};

/// The same, if no two policies are about the same thing.
template <class... Policies>
struct CheckedPolicies : CollectionPolicies<Policies...> {
  static_assert((0 + ... + StoragePolicy<Policies>) <= 1,
                "EmbeddingCollection: two policies Storage<T>; give one");
  static_assert((0 + ... + InitializerPolicy<Policies>) <= 1,
                "EmbeddingCollection: two policies InitializeWith<F>; give one");
  static_assert((0 + ... + CodecPolicy<Policies>) <= 1,
                "EmbeddingCollection: two policies for codecs; give one of EncodeWith<F, B>, "
                "EncodeWithOneOf<C...>");
  static_assert((0 + ... + OutputPolicy<Policies>) <= 1,
                "EmbeddingCollection: two policies OutputType<T>; give one");
};

}  // namespace detail
}}  // namespace tessera::v0
