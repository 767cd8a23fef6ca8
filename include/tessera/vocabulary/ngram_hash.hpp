// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/config.hpp>

#include <tessera/core/error.hpp>
#include <tessera/core/jagged.hpp>
#include <tessera/core/random.hpp>
#include <tessera/host/backend.hpp>
#include <tessera/host/parallel.hpp>
#include <tessera/op/jagged.hpp>
#include <tessera/op/kernel.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace tessera { inline namespace v0 {

/// Lengths of n-grams, in tokens: `Orders<2, 3>`.
template <int... N>
struct Orders {};

/// How many tables there are of each order; each hashes in a way of its own.
template <int K>
struct Heads {};

namespace detail {

/// Options of NgramHash.
struct NgramOptions {
  std::int64_t vocabulary = 0;  ///< tokens are 0 .. vocabulary - 1; 0: any that are not negative
  /// A token that counts as none, such as the one that fills sequences up; -1: there is no such.
  std::int64_t padding = -1;
};

}  // namespace detail

/// Hashes n-grams of tokens to rows of tables: of every position, the n tokens that end with it.
/// There is a table for each order and head; table t is of the order `t / K`, head `t % K`.
///
/// The arithmetic, in words of 64 bits whose overflow is dropped: token j of an n-gram, counted
/// from its last, 0, backwards, is t_j; before the first token of a document there is none.
///
///   multiplier(order, head, j) = random_word(seed, order, head, j) | 1
///   x = xor over j < order of (t_j + 1) * multiplier(order, head, j), or 0 for no token
///   row = mix64(x) mod rows
///
/// Multiplication and XOR as in Engram (Cheng et al. 2026, arXiv 2601.07372). mix64 behind it lets
/// `rows` be any number, and equal in all tables, whose multipliers differ.
///
///     const NgramHash<Orders<2, 3>, Heads<8>> hash(1, 1'000'003);  // 16 tables
///     const std::vector<std::int32_t> tokens{7, 3, 3, 7, 3};
///     const std::vector<std::int64_t> documents{0, 3, 5};  // of 3 and of 2 tokens
///     std::vector<std::int32_t> ids(hash.tables() * tokens.size());
///     const auto found = embeddings.forward(hash.batch(host, tokens, documents, std::span(ids)));
template <class, class>
class NgramHash;

namespace op {

/// Writes a row per table and position: `ids[t * count + p]`. A token outside the vocabulary makes
/// the rows of its n-grams -1. Offsets that are wrong give wrong rows; nothing outside is read.
template <class Hash, class Token, class Id>
struct HashNgrams {
  struct Parameters {
    Hash hash;
    const Token* tokens = nullptr;
    std::int64_t count = 0;  ///< of tokens
    Sequences documents;     ///< none: all tokens are one document
    Id* ids = nullptr;       ///< [tables, count]

    TESSERA_HOST_DEVICE std::int64_t document_begin(std::int64_t position) const {
      if (documents.count == 0) return 0;
      const std::int64_t begin = documents.offsets[documents.of(position)];
      return begin < 0 ? 0 : begin;
    }
  };
};

}  // namespace op

template <int... Order, int K>
class NgramHash<Orders<Order...>, Heads<K>> {
  static_assert(sizeof...(Order) > 0 && ((Order > 0) && ...),
                "NgramHash: give orders, which are 1 token or more: Orders<2, 3>");
  static_assert(K > 0, "NgramHash: give 1 head or more: Heads<8>");
  static constexpr int kOrders = static_cast<int>(sizeof...(Order)), kTables = kOrders * K;
  static constexpr int kLongest = std::max({Order...});
  static_assert(kTables * (8 * (kLongest + 1) + 4) <= 3968,
                "NgramHash: more than a kernel's arguments hold; give fewer orders or heads");

 public:
  using Options = detail::NgramOptions;

  /// Makes a hash for tables of `rows` rows each. Throws InvalidArgument unless there is 1 or more.
  NgramHash(std::uint64_t seed, std::int64_t rows, Options options = {}) : options_(options) {
    std::fill(rows_, rows_ + kTables, rows);
    prepare(seed);
  }
  /// Makes one for tables of different sizes, such as distinct primes: a number for each table.
  NgramHash(std::uint64_t seed, std::span<const std::int64_t> rows, Options options = {})
      : options_(options) {
    require(rows.size() == kTables,
            "NgramHash: {} numbers of rows for {} orders x {} heads; give {}, or one number for "
            "all tables",
            rows.size(), kOrders, K, kTables);
    std::ranges::copy(rows, rows_);
    prepare(seed);
  }

  TESSERA_HOST_DEVICE static constexpr int tables() { return kTables; }
  static constexpr int order(int table) {
    constexpr std::array<int, sizeof...(Order)> orders{Order...};
    return orders[static_cast<std::size_t>(table / K)];
  }
  std::int64_t rows(int table) const { return rows_[table]; }

  /// Hashes every position of `tokens`, for all tables. `documents`: where each begins, from 0, and
  /// the number of tokens at the end; empty: all tokens are one document. No n-gram reaches across
  /// their borders. Fills `ids` [tables, tokens] and returns it as a batch that has a feature for
  /// each table and a sample for each position. All memory is the backend's.
  ///
  /// Throws InvalidArgument for sizes that do not fit and rows that `Id` cannot hold; where the
  /// host can read them, for tokens outside the vocabulary and documents that go backwards or do
  /// not end at the last token, too. Elsewhere such a token's rows are -1, which a collection
  /// reports as bad ids.
  template <class Backend, IdType Id>
  KeyedJagged<Id> batch(const Backend& backend, std::span<const std::int32_t> tokens,
                        std::span<const std::int64_t> documents, std::span<Id> ids) const {
    return batch_of(backend, tokens, documents, ids);
  }
  template <class Backend, IdType Id>
  KeyedJagged<Id> batch(const Backend& backend, std::span<const std::int64_t> tokens,
                        std::span<const std::int64_t> documents, std::span<Id> ids) const {
    return batch_of(backend, tokens, documents, ids);
  }

  /// What a position's n-grams are made of: its token and those before it in its document, as the
  /// formula has them.
  struct Window {
    std::uint64_t terms[kLongest];
  };

  /// Returns the window of the position `at` in `tokens`, whose document begins at `begin`.
  template <IdType Token>
  TESSERA_HOST_DEVICE Window window(const Token* tokens, std::int64_t begin,
                                    std::int64_t at) const {
    Window window;
    for (int j = 0; j < kLongest; ++j) window.terms[j] = at - j >= begin ? term(tokens[at - j]) : 0;
    return window;
  }
  /// Returns a table's row for a window, or -1 if one of the n-gram's tokens is outside the
  /// vocabulary.
  TESSERA_HOST_DEVICE std::int64_t row(int table, const Window& window) const {
    std::uint64_t x = 0;
    bool bad = false;
    for (int j = 0; j < kLongest; ++j) {  // unrolled: terms are in registers
      if (j >= orders_[table]) continue;
      bad |= window.terms[j] == kBadTerm;
      x ^= window.terms[j] * multipliers_[table][j];
    }
    return bad ? -1
               : static_cast<std::int64_t>(mix64(x) % static_cast<std::uint64_t>(rows_[table]));
  }

 private:
  static constexpr std::uint64_t kBadTerm = ~std::uint64_t{0};

  TESSERA_HOST_DEVICE std::uint64_t term(std::int64_t token) const {
    if (token < 0 || token >= end_) return kBadTerm;
    return token == options_.padding ? 0 : static_cast<std::uint64_t>(token) + 1;
  }

  void prepare(std::uint64_t seed) {
    require(options_.vocabulary >= 0,
            "NgramHash: a vocabulary of {} tokens; give their number, or 0 for any",
            options_.vocabulary);
    if (options_.vocabulary > 0) end_ = options_.vocabulary;
    require(options_.padding >= -1 && options_.padding < end_,
            "NgramHash: the padding token {} is outside the vocabulary of {} tokens; give one of "
            "them, or -1 for none",
            options_.padding, end_);
    for (int t = 0; t < kTables; ++t) {
      require(rows_[t] >= 1,
              "NgramHash: {} rows for the table of order {}, head {}; give 1 or more", rows_[t],
              order(t), t % K);
      orders_[t] = order(t);
      for (int j = 0; j < kLongest; ++j)
        multipliers_[t][j] = random_word(seed, order(t), t % K, j) | 1;
    }
  }

  template <class Backend, class Token, class Id>
  KeyedJagged<Id> batch_of(const Backend& backend, std::span<const Token> tokens,
                           std::span<const std::int64_t> documents, std::span<Id> ids) const {
    const auto count = static_cast<std::int64_t>(tokens.size());
    require(ids.size() == tokens.size() * kTables,
            "NgramHash: room for {} ids; {} tokens and {} tables need {}", ids.size(), count,
            kTables, count * kTables);
    for (int t = 0; t < kTables; ++t)
      require(rows_[t] - 1 <= std::numeric_limits<Id>::max(),
              "NgramHash: {} rows of the table of order {}, head {}, do not fit into ids of {} "
              "bits; give ids of 64",
              rows_[t], order(t), t % K, 8 * sizeof(Id));
    if constexpr (Backend::host_readable) check(tokens, documents);
    const std::int64_t sequences =
        documents.empty() ? 0 : static_cast<std::int64_t>(documents.size()) - 1;
    if (count > 0)
      op::run<op::HashNgrams<NgramHash, Token, Id>>(
          backend, {*this, tokens.data(), count, {documents.data(), sequences}, ids.data()});
    return {kTables, count, ids, {}, {}};
  }

  template <class Token>
  void check(std::span<const Token> tokens, std::span<const std::int64_t> documents) const {
    const auto count = static_cast<std::int64_t>(tokens.size());
    for (std::int64_t p = 0; p < count; ++p)
      require(term(tokens[static_cast<std::size_t>(p)]) != kBadTerm,
              "NgramHash: token {} at position {} is outside the vocabulary: tokens are 0..{}",
              tokens[static_cast<std::size_t>(p)], p, end_ - 1);
    if (documents.empty()) return;
    require(
        documents.front() == 0 && documents.back() == count,
        "NgramHash: documents go from {} to {}; they must go from 0 to {}, the number of tokens",
        documents.front(), documents.back(), count);
    for (std::size_t d = 0; d + 1 < documents.size(); ++d)
      require(documents[d] <= documents[d + 1],
              "NgramHash: document {} begins at {} and ends before, at {}", d, documents[d],
              documents[d + 1]);
  }

  Options options_;
  std::int64_t end_ = std::numeric_limits<std::int64_t>::max();  ///< of the vocabulary
  int orders_[kTables]{};
  std::int64_t rows_[kTables]{};
  std::uint64_t multipliers_[kTables][kLongest]{};
};

template <class Hash, class Token, class Id>
struct op::Kernel<op::HashNgrams<Hash, Token, Id>, Host> {
  static void run(const Host& backend,
                  const typename op::HashNgrams<Hash, Token, Id>::Parameters& p) {
    constexpr std::int64_t chunk = 512;
    const int threads = detail::worthwhile_threads(
        backend.threads(), p.count * Hash::tables() * static_cast<std::int64_t>(sizeof(Id)));
    detail::parallel_for(threads, (p.count + chunk - 1) / chunk, [&](std::int64_t part, int) {
      const std::int64_t end = std::min(p.count, (part + 1) * chunk);
      for (std::int64_t at = part * chunk; at < end; ++at) {
        const auto window = p.hash.window(p.tokens, p.document_begin(at), at);
        for (int t = 0; t < Hash::tables(); ++t)
          p.ids[t * p.count + at] = static_cast<Id>(p.hash.row(t, window));
      }
    });
  }
};

}}  // namespace tessera::v0
