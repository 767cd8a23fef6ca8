// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/vocabulary_policy.hpp>
#include <tessera/core/random.hpp>
#include <tessera/laws/faults.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace tessera { inline namespace v0 { namespace laws {

/// Checks a vocabulary's policy (docs/concepts/vocabulary.md#policies) on keys of many counts and
/// ages. Needs no test framework; returns what it found wrong, repeated faults counted.
template <class P>
  requires AdmissionPolicy<P> || EvictionPolicy<P>
std::vector<std::string> vocabulary_policy_laws(const P& policy) {
  detail::Faults faults;
  const P copy = policy;
  bool admits_some = false;
  for (std::uint64_t draw = 0; draw < 500; ++draw) {
    std::uint32_t worth = 0;
    SeenKey seen{.key = static_cast<std::int64_t>(random_word(draw, 1)),
                 .count = 1,
                 .step = 0,
                 .now = 0,
                 .seed = random_word(draw, 2)};
    for (; seen.count < 1u << 20; seen.count += 1 + seen.count / 2) {
      seen.step = seen.now + 1;
      for (const std::uint32_t age : {0u, 1u, 5u, 100u, 100'000u}) {
        seen.now = seen.step + age;
        if constexpr (AdmissionPolicy<P>) {
          const bool answer = policy.admits(seen);
          faults.expect(policy.admits(seen) == answer && copy.admits(seen) == answer,
                        "admits: of the same key another answer, or of a copy");
          admits_some = admits_some || (age == 0 && answer);
        }
        if constexpr (EvictionPolicy<P>) {
          const std::uint32_t score = policy.score(seen);
          faults.expect(policy.score(seen) == score && copy.score(seen) == score,
                        "score: of the same key another answer, or of a copy");
          faults.expect(age > 0 || score > 0,
                        "score: 0 for a key of this batch, which would lose its row at once");
          if constexpr (requires { P::scores_never_fall; })
            faults.expect(!P::scores_never_fall || score >= worth,
                          "score: falls from {} to {}, but scores_never_fall", worth, score);
          worth = score;
        }
      }
    }
  }
  if constexpr (AdmissionPolicy<P>)
    faults.expect(admits_some, "admits: no key, however often it is seen");
  return faults.take();
}

}}}  // namespace tessera::v0::laws
