// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/math.hpp>
#include <tessera/core/table_spec.hpp>
#include <tessera/op/bags.hpp>
#include <tessera/op/kernel.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tessera { inline namespace v0 {

/// What happens to ids outside [0, rows). All but the first count them, per table.
enum class BadIds : std::uint8_t {
  /// BadId is thrown, which names feature, sample, id and rows, before anything is looked up or
  /// sent. Where the host cannot see ids and has nothing to wait for, the error comes later, and
  /// until then bad ids are treated as by zero_vector.
  throw_error,
  /// Left out, and no gradient: a bag of such alone is a zero vector, as is their place in a
  /// sequence. The id still counts in the divisor of a mean.
  zero_vector,
  /// Negative ids become 0, too large ones the last row.
  clamp,
  /// The id modulo rows, never negative.
  wrap
};

constexpr std::string_view to_string(BadIds policy) {
  constexpr std::array<std::string_view, 4> names{"throw_error", "zero_vector", "clamp", "wrap"};
  return names[static_cast<std::size_t>(policy)];
}

namespace op {

/// Returns whether a pooling multiplies sums by pooling_scale.
TESSERA_HOST_DEVICE constexpr bool scales_sums(Pooling pooling) {
  return pooling == Pooling::mean || pooling == Pooling::sqrtn;
}

/// Returns what the sum of a bag of `ids` ids is multiplied by under `mean` and `sqrtn`.
TESSERA_HOST_DEVICE inline float pooling_scale(Pooling pooling, std::int64_t ids) {
  if (ids == 0) return 0;
  const float count = static_cast<float>(ids);
  return 1.0f / (pooling == Pooling::sqrtn ? math::square_root(count) : count);
}

/// The first fault of a batch, in memory of the backend. All zeros: none. It stays until the host
/// has cleared it.
struct InputFault {
  enum Kind : std::int32_t {
    none,
    bad_id,
    offsets_backwards,
    first_offset,
    last_offset,
    over_bound
  };
  unsigned long long found = 0;  ///< of the operation: orders faults
  std::int32_t kind = none;
  std::int32_t feature = 0;  ///< index into the jobs
  std::int64_t sample = 0;
  std::int64_t value = 0;       ///< the id, or the offset, or how many ids the feature has
  std::int64_t before = 0;      ///< the offset before it
  std::uint32_t backwards = 0;  ///< of the operation: whether the batch's offsets go backwards
};

/// Makes the ids of a whole batch (KeyedJagged) fit for use without telling the host, for backends
/// whose memory the host cannot read: copies ids and offsets, replaces bad ids under the policy
/// (throw_error and zero_vector: by -1), clamps offsets to [0, ids] (all are 0 if some go
/// backwards: ids that two features claim cannot be fit for both tables), and works out the
/// coefficients of poolings that scale. The first fault is noted: offsets that are wrong, features
/// with more ids than their bound, and under throw_error bad ids.
template <IdType Id>
struct AdmitIds {
  /// A feature of the batch; the k-th job is that of bags [k*batch, (k+1)*batch).
  struct Job {
    std::int64_t rows = 0;
    std::int32_t table = 0;
    Pooling pooling = Pooling::sum;  ///< of bags of other than one id
    bool weighted = false;
    std::int64_t bound = -1;  ///< most ids that the feature may have; -1: any number

    /// Return whether scale is wanted, and whether scaled_weights are.
    TESSERA_HOST_DEVICE constexpr bool scales() const { return scales_sums(pooling); }
    TESSERA_HOST_DEVICE constexpr bool scales_weights() const { return scales() && weighted; }
  };
  struct Parameters {
    const Id* ids = nullptr;
    std::int64_t count = 0;                 ///< of ids
    bool room = false;                      ///< the last offset may be less than `count`
    const std::int64_t* offsets = nullptr;  ///< null: one-hot
    const float* weights = nullptr;
    std::int64_t batch = 0;
    std::span<const Job> jobs;
    BadIds policy = BadIds::throw_error;
    Id* admitted = nullptr;                    ///< [ids]
    std::int64_t* admitted_offsets = nullptr;  ///< as offsets
    /// [jobs*batch] pooling_scale of the bag, of jobs that want it; or null
    float* scale = nullptr;
    float* scaled_weights = nullptr;           ///< [ids] of jobs that want them; or null
    unsigned long long* bad_counts = nullptr;  ///< per table, added to
    InputFault* fault = nullptr;
  };
};

/// Copies chosen elements of an array to host memory and waits for them: values[i] =
/// array[indices[i]].
struct ReadNumbers {
  struct Parameters {
    const std::int64_t* array = nullptr;
    std::span<const std::int64_t> indices;  ///< host memory, as values
    std::span<std::int64_t> values;
  };
};

}  // namespace op

}}  // namespace tessera::v0
