// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/op/sequence_rows.hpp>

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

namespace tessera { inline namespace v0 {

/// The gradient of a sequence feature's vectors: SequenceView::per_id or per_row makes one.
struct SequenceGradient {
  int feature = 0;  ///< index into Layout::features
  MatrixView<const float> values;
  bool per_row = false;  ///< one for each of rows(), else one for each id
};

/// Where the vectors of a sequence feature are to be written: [ids, width], in the order of the
/// batch's ids.
struct SequenceVectors {
  int feature = 0;  ///< index into Layout::features
  MatrixView<float> values;
};

namespace detail {

/// Those of a batch's sequence features, in any order. Refers to the caller's.
template <class T>
class OfSequences {
 public:
  OfSequences() = default;
  OfSequences(std::initializer_list<T> list)  // NOLINT(google-explicit-constructor): an argument
      : all_(list.begin(), list.size()) {}
  OfSequences(const std::vector<T>& all)  // NOLINT(google-explicit-constructor): likewise
      : all_(all) {}

  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }
  bool empty() const { return all_.empty(); }

 private:
  std::span<const T> all_;
};

using SequenceGradients = detail::OfSequences<SequenceGradient>;

using SequenceOutputs = detail::OfSequences<SequenceVectors>;

}  // namespace detail

/// The vectors of a sequence feature: a row of the table for each id of this rank's samples,
/// packed. Equal ids share a row. All memory is the backend's and lives until the step's next
/// batch. Where `forward` was told where vectors go (SequenceVectors), they are there alone: rows,
/// index, materialize and per_row throw InvalidArgument.
template <class Backend>
class SequenceView {
 public:
  /// Makes a view. `packed`: rows and index are known.
  SequenceView(const Backend& backend, int feature, MatrixView<const float> rows,
               std::span<const std::int32_t> index, std::span<const std::int64_t> offsets,
               bool packed, const float* weights = nullptr)
      : backend_(&backend),
        feature_(feature),
        rows_(rows),
        index_(index),
        offsets_(offsets),
        packed_(packed),
        weights_(weights) {}

  /// Returns how many ids this rank's samples have.
  std::int64_t ids() const { return std::ssize(index_); }
  std::int64_t width() const { return rows_.columns; }
  /// Returns each row once: [distinct ids, width]. Where ids may be taken out (BadIds::zero_vector;
  /// on a GPU throw_error, too), a row of zeros follows them, which those ids share.
  MatrixView<const float> rows() const {
    require_packed("rows");
    return rows_;
  }
  /// Returns the row of each id, in the order of the batch: [ids].
  std::span<const std::int32_t> index() const {
    require_packed("index");
    return index_;
  }
  /// Returns offsets: sample s has ids [offsets[s], offsets[s + 1]): [batch + 1], from 0.
  std::span<const std::int64_t> offsets() const { return offsets_; }

  /// Returns the weight of each id, by which its row is to be multiplied; nothing for a feature
  /// without weights.
  std::span<const float> weights() const {
    return {weights_, weights_ == nullptr ? 0 : index_.size()};
  }

  /// Writes a vector for each id, its row times its weight: `out` [ids, width], any stride. Throws
  /// InvalidArgument for another shape.
  void materialize(MatrixView<float> out) const {
    require_packed("materialize");
    check("materialize: out", out.rows, out.columns, ids());
    op::run<op::GatherIndexed>(*backend_, {rows_, index_.data(), out, weights_});
  }

  /// Returns the gradient of each id's vector, for `backward`: [ids, width]. Those of one row are
  /// added in the order of the ids. Throws InvalidArgument for another shape.
  SequenceGradient per_id(MatrixView<const float> gradient) const {
    check("per_id: gradient", gradient.rows, gradient.columns, ids());
    return {feature_, gradient, false};
  }
  /// Returns the same of each row: the shape of rows(). What the row of zeros gets is not used.
  /// `backward` refuses it for a feature with weights.
  SequenceGradient per_row(MatrixView<const float> gradient) const {
    require_packed("per_row");
    check("per_row: gradient", gradient.rows, gradient.columns, rows_.rows);
    return {feature_, gradient, true};
  }

 private:
  void check(const char* what, std::int64_t rows, std::int64_t columns, std::int64_t needed) const {
    require(rows == needed && columns == width(), "{} is [{}, {}], must be [{}, {}]", what, rows,
            columns, needed, width());
  }
  void require_packed(const char* call) const {
    require(
        packed_,
        "{}: the vectors of this sequence are where `forward` was told to write them; leave the "
        "feature out there to get its rows",
        call);
  }

  const Backend* backend_;
  int feature_;
  MatrixView<const float> rows_;
  std::span<const std::int32_t> index_;
  std::span<const std::int64_t> offsets_;
  bool packed_;
  const float* weights_;
};

}}  // namespace tessera::v0
