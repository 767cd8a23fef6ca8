// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tests of NgramHash on NgramBackend, which the including file names. The rows marked golden are
// from ngram_reference.py; other references are a second implementation below, by division.

#include <tessera/ngram.hpp>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <support/on_backend.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace {

using namespace tessera;
using on_backend::Array;

/// Returns what a hash says on the backend, [tables, tokens].
template <class Id, class Hash, class Token>
std::vector<Id> rows_of(const Hash& hash, const std::vector<Token>& tokens,
                        const std::vector<std::int64_t>& documents) {
  const NgramBackend backend;
  const Array<Token, NgramBackend> given(backend, tokens);
  const Array<std::int64_t, NgramBackend> borders(backend, documents);
  const Array<Id, NgramBackend> ids(backend, std::vector<Id>(hash.tables() * tokens.size(), -77));
  const KeyedJagged<Id> batch = hash.batch(backend, given.span(), borders.span(), ids.span());
  CHECK(batch.features == hash.tables());
  CHECK(batch.batch == std::ssize(tokens));
  CHECK(batch.ids.data() == ids.data());
  CHECK(batch.one_hot());
  batch.validate_sizes();
  return ids.read();
}

__extension__ using Wide = unsigned __int128;

/// NgramHash's documentation, in numbers that do not overflow.
struct Reference {
  std::uint64_t seed;
  std::int64_t padding = -1;

  static Wide word(Wide x) { return x % (Wide{1} << 64); }
  static Wide mix(Wide x) {
    x = word(x + 0x9e3779b97f4a7c15u);
    x = word((x ^ (x / (Wide{1} << 30))) * 0xbf58476d1ce4e5b9u);
    x = word((x ^ (x / (Wide{1} << 27))) * 0x94d049bb133111ebu);
    return x ^ (x / (Wide{1} << 31));
  }
  std::int64_t row(int order, int head, std::int64_t rows, const std::vector<std::int64_t>& tokens,
                   std::int64_t begin, std::int64_t at) const {
    Wide x = 0;
    for (int j = 0; j < order; ++j) {
      if (at - j < begin) continue;
      const std::int64_t token = tokens[static_cast<std::size_t>(at - j)];
      if (token == padding) continue;
      Wide multiplier = mix(seed);
      for (const int counter : {order, head, j}) multiplier = mix(multiplier ^ Wide(counter));
      if (multiplier % 2 == 0) ++multiplier;
      x ^= word(Wide(token + 1) * multiplier);
    }
    return static_cast<std::int64_t>(mix(x) % Wide(rows));
  }
};

std::vector<std::int64_t> random_tokens(unsigned seed, std::size_t count, unsigned vocabulary) {
  std::mt19937 random(seed);
  std::vector<std::int64_t> tokens(count);
  for (std::int64_t& token : tokens) token = static_cast<std::int64_t>(random() % vocabulary);
  return tokens;
}

/// Returns the rows of one table.
template <class Id>
std::vector<Id> table(const std::vector<Id>& rows, int t, std::size_t tokens) {
  const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(tokens) * t;
  return {begin, begin + static_cast<std::ptrdiff_t>(tokens)};
}

}  // namespace

TEST_CASE("n-grams: the rows that Python computes") {
  // golden bytes
  const std::vector<std::int64_t> bytes{
      920416, 543284, 497607, 131799, 965006, 282486, 961047, 284068, 580733, 901961,
      961047, 285062, 539913, 336275, 893867, 131253, 569554, 250159, 90073,  125205,
      442902, 383864, 90073,  957936, 300954, 37981,  266147, 958545, 568288, 521417,
      102071, 285371, 5200,   154369, 924855, 712562, 178565, 554429, 88832,  526146,
      958940, 401557, 364616, 257705, 223925, 305997, 644247, 418389};
  const std::string text = "the cat sat.";
  const NgramHash<Orders<2, 3>, Heads<2>> hash(1, 1'000'003, {.vocabulary = 256});
  const std::vector<std::int32_t> narrow(text.begin(), text.end());
  const std::vector<std::int64_t> wide(text.begin(), text.end()), documents{0, 4, 4, 12};
  CHECK(rows_of<std::int64_t>(hash, narrow, documents) == bytes);
  CHECK(rows_of<std::int64_t>(hash, wide, documents) == bytes);
  CHECK(rows_of<std::int32_t>(hash, wide, documents) ==
        std::vector<std::int32_t>(bytes.begin(), bytes.end()));
  // golden large
  const std::vector<std::int64_t> large{
      47364143, 949883303, 2065550767, 47364143, 949883303, 949883303, 2065550767, 2065550767,
      46,       85,        90,         58,       91,        5,         58,         49};
  const std::vector<std::int64_t> rows{std::int64_t{1} << 31, 97};
  const NgramHash<Orders<1, 5>, Heads<1>> uneven(~std::uint64_t{0}, rows, {.padding = 7});
  constexpr std::int32_t kLast = std::numeric_limits<std::int32_t>::max();
  CHECK(rows_of<std::int64_t>(uneven, std::vector<std::int32_t>{kLast, 0, 7, kLast, 0, 0, 7, 7},
                              {0, 7, 8}) == large);
}

TEST_CASE("n-grams: many documents, uneven tables, padding: the formula by division") {
  std::vector<std::int64_t> rows;
  for (int t = 0; t < 15; ++t) rows.push_back(t == 7 ? 1 : 1000 + 7919 * t * t);
  const NgramHash<Orders<4, 1, 3>, Heads<5>> hash(42, rows, {.vocabulary = 50, .padding = 3});
  std::vector<std::int64_t> documents{0};
  for (const int length : {1, 0, 2, 3, 0, 0, 900, 4, 1, 1})
    documents.push_back(documents.back() + length);
  const auto count = static_cast<std::size_t>(documents.back());
  const std::vector<std::int64_t> tokens = random_tokens(5, count, 50);
  const std::vector<std::int64_t> found = rows_of<std::int64_t>(hash, tokens, documents);
  const Reference reference{42, 3};
  const int orders[] = {4, 1, 3};
  for (int t = 0; t < 15; ++t) {
    CHECK(hash.order(t) == orders[t / 5]);
    CHECK(hash.rows(t) == rows[static_cast<std::size_t>(t)]);
    std::vector<std::int64_t> expected;
    for (std::size_t d = 0; d + 1 < documents.size(); ++d)
      for (std::int64_t at = documents[d]; at < documents[d + 1]; ++at)
        expected.push_back(
            reference.row(orders[t / 5], t % 5, hash.rows(t), tokens, documents[d], at));
    CHECK(table(found, t, count) == expected);
  }
  // what the host says of the same tokens, on threads
  std::vector<std::int64_t> ids(found.size());
  hash.batch(Host({.threads = 3}), tokens, documents, std::span(ids));
  CHECK(ids == found);
}

TEST_CASE("n-grams: a document's rows are its own, wherever it is") {
  const NgramHash<Orders<2, 3>, Heads<2>> hash(3, 100'003);
  const std::vector<std::int64_t> document = random_tokens(1, 20, 4);
  const std::vector<std::int64_t> alone = rows_of<std::int64_t>(hash, document, {});
  CHECK(alone == rows_of<std::int64_t>(hash, document, {0, 20}));
  for (const unsigned before : {1u, 2u, 300u}) {
    std::vector<std::int64_t> all = random_tokens(2, before, 4);
    all.insert(all.end(), document.begin(), document.end());
    all.push_back(1);
    const std::int64_t begin = before, end = begin + 20;
    const auto apart = rows_of<std::int64_t>(hash, all, {0, begin, end, end + 1}),
               joined = rows_of<std::int64_t>(hash, all, {0, end + 1});
    for (int t = 0; t < hash.tables(); ++t) {
      const auto own = table(alone, t, 20), moved = table(apart, t, all.size()),
                 one = table(joined, t, all.size());
      for (std::size_t p = 0; p < 20; ++p) {
        CHECK(moved[before + p] == own[p]);
        // as part of a longer document: the same from the first whole n-gram on, others before
        CHECK((one[before + p] == own[p]) == (static_cast<int>(p) >= hash.order(t) - 1));
      }
    }
  }
}

TEST_CASE("n-grams: each token of the n-gram counts, where it is, and no other") {
  const NgramHash<Orders<2, 4>, Heads<3>> hash(9, 1'000'000'007);
  const std::vector<std::int64_t> tokens{5, 6, 7, 8, 9, 10};
  const auto before = rows_of<std::int64_t>(hash, tokens, {});
  for (std::size_t changed = 0; changed < tokens.size(); ++changed) {
    std::vector<std::int64_t> others = tokens;
    others[changed] = 77;
    const auto after = rows_of<std::int64_t>(hash, others, {});
    for (int t = 0; t < hash.tables(); ++t)
      for (std::size_t p = 0; p < tokens.size(); ++p)
        CHECK((table(before, t, 6)[p] != table(after, t, 6)[p]) ==
              (p >= changed && p < changed + static_cast<std::size_t>(hash.order(t))));
  }
  const auto last = [&](std::vector<std::int64_t> of) {
    const auto rows = rows_of<std::int64_t>(hash, of, {});
    return rows[of.size() - 1];
  };
  CHECK(last({1, 2}) != last({2, 1}));
  CHECK(last({0, 0}) != last({0}));  // token 0 is not the lack of one
  CHECK(last({4, 4}) != last({5, 5}));
}

TEST_CASE("n-grams: rows are used evenly, and tables collide elsewhere") {
  for (const std::int64_t rows : {1021, 1024}) {
    const NgramHash<Orders<2, 3>, Heads<4>> hash(11, rows);
    // every pair of bytes once, as a document
    std::vector<std::int64_t> tokens, documents{0};
    for (std::int64_t pair = 0; pair < 65'536; ++pair) {
      tokens.push_back(pair / 256), tokens.push_back(pair % 256);
      documents.push_back(std::ssize(tokens));
    }
    const auto found = rows_of<std::int64_t>(hash, tokens, documents);
    const auto of_pair = [&](int t, std::int64_t pair) {
      return found[static_cast<std::size_t>(t * std::ssize(tokens) + 2 * pair + 1)];
    };
    for (int t = 0; t < hash.tables(); ++t) {
      std::vector<double> used(static_cast<std::size_t>(rows));
      for (std::int64_t pair = 0; pair < 65'536; ++pair)
        ++used[static_cast<std::size_t>(of_pair(t, pair))];
      const double expected = 65'536.0 / static_cast<double>(rows);
      double chi_square = 0;
      for (const double n : used) chi_square += (n - expected) * (n - expected) / expected;
      // of as many degrees of freedom as rows, less one: its deviation is 45
      CHECK(chi_square > static_cast<double>(rows) - 5 * 45);
      CHECK(chi_square < static_cast<double>(rows) + 5 * 45);
      for (int other = 0; other < t; ++other) {
        std::vector<char> together(static_cast<std::size_t>(rows * rows));
        std::int64_t equal = 0;
        for (std::int64_t pair = 0; pair < 65'536; ++pair) {
          together[static_cast<std::size_t>(of_pair(t, pair) * rows + of_pair(other, pair))] = 1;
          equal += of_pair(t, pair) == of_pair(other, pair);
        }
        // 65,536 draws of a million: 63,500 or so are distinct, and 64 equal
        CHECK(std::count(together.begin(), together.end(), 1) > 63'000);
        CHECK(equal < 64 + 6 * 8);
      }
    }
  }
}

TEST_CASE("n-grams: tokens that differ in high bits alone have other rows of a power of two") {
  const NgramHash<Orders<2>, Heads<2>> hash(4, 1024);
  std::vector<std::int64_t> tokens, others;
  for (std::int64_t p = 0; p < 1000; ++p) {
    tokens.push_back(p * 7 % 1000);
    others.push_back(tokens.back() + 1024 * (p % 40 + 1));
  }
  const auto a = rows_of<std::int64_t>(hash, tokens, {}),
             b = rows_of<std::int64_t>(hash, others, {});
  int equal = 0;
  for (std::size_t i = 0; i < a.size(); ++i) equal += a[i] == b[i];
  CHECK(equal < 15);  // of 2,000; 2 by chance
}

TEST_CASE("n-grams: other seeds are other hashes, and no tokens are no ids") {
  const NgramHash<Orders<3>, Heads<1>> one(1, 1'000'003), other(2, 1'000'003);
  const std::vector<std::int64_t> tokens = random_tokens(3, 100, 1000);
  const auto a = rows_of<std::int64_t>(one, tokens, {}),
             b = rows_of<std::int64_t>(other, tokens, {});
  int equal = 0;
  for (std::size_t p = 0; p < 100; ++p) equal += a[p] == b[p];
  CHECK(equal <= 1);
  CHECK(rows_of<std::int32_t>(one, std::vector<std::int32_t>{}, {}).empty());
  CHECK(rows_of<std::int32_t>(one, std::vector<std::int32_t>{}, {0, 0}).empty());
}

TEST_CASE("n-grams: what cannot be is refused, with the reason") {
  using Hash = NgramHash<Orders<2, 3>, Heads<2>>;
  CHECK(message_of<InvalidArgument>([] { Hash(1, 0); }) ==
        "NgramHash: 0 rows for the table of order 2, head 0; give 1 or more");
  CHECK(message_of<InvalidArgument>([] { Hash(1, std::vector<std::int64_t>{5, 5, 5, -2}); }) ==
        "NgramHash: -2 rows for the table of order 3, head 1; give 1 or more");
  CHECK(
      message_of<InvalidArgument>([] { Hash(1, std::vector<std::int64_t>{5, 5, 5}); }) ==
      "NgramHash: 3 numbers of rows for 2 orders x 2 heads; give 4, or one number for all tables");
  CHECK(message_of<InvalidArgument>([] { Hash(1, 5, {.vocabulary = -1}); }) ==
        "NgramHash: a vocabulary of -1 tokens; give their number, or 0 for any");
  for (const std::int64_t padding : {-2, 256})
    CHECK(
        message_of<InvalidArgument>([&] { Hash(1, 5, {.vocabulary = 256, .padding = padding}); }) ==
        fmt::format("NgramHash: the padding token {} is outside the vocabulary of 256 tokens; "
                    "give one of them, or -1 for none",
                    padding));
  const auto refused = [](const Hash& hash, const std::vector<std::int64_t>& tokens,
                          const std::vector<std::int64_t>& documents) {
    return message_of<InvalidArgument>([&] { rows_of<std::int32_t>(hash, tokens, documents); });
  };
  CHECK(refused(Hash(1, (std::int64_t{1} << 31) + 1), {1}, {}) ==
        "NgramHash: 2147483649 rows of the table of order 2, head 0, do not fit into ids of 32 "
        "bits; give ids of 64");
  CHECK(refused(Hash(1, std::int64_t{1} << 31), {1}, {}).empty());
  const NgramBackend backend;
  const Array<std::int32_t, NgramBackend> tokens(backend, std::vector<std::int32_t>{1, 2, 3}),
      ids(backend, std::vector<std::int32_t>(11));
  CHECK(message_of<InvalidArgument>([&] {
          Hash(1, 5).batch(backend, tokens.span(), {}, ids.span());
        }) == "NgramHash: room for 11 ids; 3 tokens and 4 tables need 12");
  if constexpr (NgramBackend::host_readable) {
    const Hash hash(1, 5, {.vocabulary = 256});
    CHECK(refused(hash, {3, -1, 3}, {}) ==
          "NgramHash: token -1 at position 1 is outside the vocabulary: tokens are 0..255");
    CHECK(refused(hash, {3, 1, 256}, {}) ==
          "NgramHash: token 256 at position 2 is outside the vocabulary: tokens are 0..255");
    CHECK(refused(Hash(1, 5), {-5}, {}) ==
          "NgramHash: token -5 at position 0 is outside the vocabulary: tokens are "
          "0..9223372036854775806");
    CHECK(refused(hash, {1, 2, 3}, {0, 2}) ==
          "NgramHash: documents go from 0 to 2; they must go from 0 to 3, the number of tokens");
    CHECK(refused(hash, {1, 2, 3}, {1, 3}) ==
          "NgramHash: documents go from 1 to 3; they must go from 0 to 3, the number of tokens");
    CHECK(refused(hash, {1, 2, 3}, {0, 2, 1, 3}) ==
          "NgramHash: document 1 begins at 2 and ends before, at 1");
    CHECK(refused(hash, {1}, {0}) ==
          "NgramHash: documents go from 0 to 0; they must go from 0 to 1, the number of tokens");
  } else {
    // what the host cannot read: no row for the n-grams of a bad token, and nothing read outside
    const Hash hash(1, 5, {.vocabulary = 256});
    for (const std::int64_t bad :
         {std::int64_t{-1}, std::int64_t{256}, std::numeric_limits<std::int64_t>::min()}) {
      const auto rows =
          rows_of<std::int32_t>(hash, std::vector<std::int64_t>{3, 4, bad, 5, 6, 7}, {});
      for (int t = 0; t < hash.tables(); ++t)
        for (std::int64_t p = 0; p < 6; ++p) {
          const std::int32_t row = rows[static_cast<std::size_t>(t * 6 + p)];
          CHECK((row == -1) == (p >= 2 && p < 2 + hash.order(t)));
          CHECK(row < 5);
        }
    }
    for (const std::vector<std::int64_t>& documents :
         std::vector<std::vector<std::int64_t>>{{0}, {-9, -4}, {90, 80}, {0, 900, -900, 3}})
      for (const std::int32_t row :
           rows_of<std::int32_t>(hash, std::vector<std::int64_t>{1, 2, 3}, documents))
        CHECK((row >= 0 && row < 5));
  }
}
