// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/codec/codecs.hpp>
#include <tessera/cuda/codec.cuh>
#include <tessera/cuda/convert_rows.cuh>
#include <tessera/cuda/distinct_ids.cuh>
#include <tessera/cuda/exchange.cuh>
#include <tessera/cuda/initialize.cuh>
#include <tessera/cuda/route.cuh>
#include <tessera/tables/initializers.hpp>

#include <doctest/doctest.h>
#include <gpu/device.hpp>
#include <support/mirrored_codec.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <vector>

namespace {

using namespace tessera;

/// What Fp32's jobs move, a number at a time, in their order.
void move_plainly(const std::vector<op::EncodeJob>& jobs) {
  for (const op::EncodeJob& job : jobs)
    for (std::int64_t row = 0; row < job.rows; ++row)
      for (int c = 0; c < job.width; ++c) {
        const std::int64_t sample = job.samples != nullptr ? job.samples[row] : row;
        reinterpret_cast<float*>(job.target)[row * job.width + c] =
            job.source[sample * job.source_stride + c];
      }
}
void move_plainly(const std::vector<op::DecodeJob>& jobs) {
  for (const op::DecodeJob& job : jobs)
    for (std::int64_t row = 0; row < job.rows; ++row)
      for (int c = 0; c < job.width; ++c) {
        const std::int64_t sample = job.samples != nullptr ? job.samples[row] : row;
        const float source = reinterpret_cast<const float*>(job.source)[row * job.width + c];
        float& target = job.target[sample * job.target_stride + c];
        target = job.add ? target + source : source;
      }
}

/// Random jobs from a matrix to packed rows, which begin anywhere.
std::vector<op::EncodeJob> gathers(Random& random, const float* source, float* target,
                                   const std::int32_t* samples, int width) {
  std::vector<op::EncodeJob> jobs;
  for (int job = 0; job < 15; ++job)
    jobs.push_back({source + random_below(random, 8) * 4, 101 + 3 * (width % 4),
                    reinterpret_cast<std::byte*>(target + (20 * width + 4) * job +
                                                 (job % 2 == 0 ? 0 : random_below(random, 4))),
                    20, width, job % 3 != 0 ? samples : nullptr});
  jobs.push_back({source, 101, reinterpret_cast<std::byte*>(target), 0, width, nullptr});
  return jobs;
}
/// Random jobs from packed rows to a matrix; `overlap`: they add to columns of one place, else to
/// columns side by side.
std::vector<op::DecodeJob> scatters(Random& random, const float* source, float* target,
                                    const std::int32_t* samples, int width, bool overlap) {
  std::vector<op::DecodeJob> jobs;
  for (int part = 0; part < 5; ++part)
    for (int rank = 0; rank < 3; ++rank)
      jobs.push_back({reinterpret_cast<const std::byte*>(source + random_below(random, 8) *
                                                                      (part % 2 == 0 ? 4 : 1)),
                      target + part * width + (overlap ? rank : 0), 6 * width + 2, 20, width,
                      rank != 0 ? samples : nullptr, rank > 0});
  jobs.push_back({reinterpret_cast<const std::byte*>(source), target, 6 * width + 2, 0, width,
                  nullptr, false});
  return jobs;
}

void check_moves(int width, bool overlap) {
  INFO("width ", width, ", overlapping columns ", overlap);
  Random random(static_cast<unsigned>(width));
  const std::vector<float> source = random_elements<float>(random, 110 * 60),
                           packed_before = random_elements<float>(random, (20 * width + 4) * 15),
                           before = random_elements<float>(random, (6 * width + 2) * 40);
  std::vector<std::int32_t> samples;
  for (int i = 0; i < 20; ++i) samples.push_back(i * 2 - i % 2);
  std::vector<float> packed_expected = packed_before, expected = before;
  Random same = random;
  move_plainly(gathers(random, source.data(), packed_expected.data(), samples.data(), width));
  move_plainly(scatters(random, source.data(), expected.data(), samples.data(), width, overlap));
  in_every_order([&] {
    const Cuda backend;
    const OnGpu<float> device_source(backend, source), packed(backend, packed_before),
        target(backend, before);
    const OnGpu<std::int32_t> device_samples(backend, samples);
    Random again = same;
    op::run<op::EncodeRows<Fp32>>(backend, {gathers(again, device_source.data(), packed.data(),
                                                    device_samples.data(), width)});
    op::run<op::DecodeRows<Fp32>>(backend, {scatters(again, device_source.data(), target.data(),
                                                     device_samples.data(), width, overlap)});
    CHECK((packed.read() == packed_expected));
    CHECK((target.read() == expected));
  });
}

/// Two jobs each way, of all rows and of some; the second adds to the columns of the first. Rows of
/// every kind: subnormal, huge, constant, with a NaN, with an infinity, of zeros.
template <class C>
void check_codec(int width, std::int64_t source_stride, std::int64_t skipped) {
  INFO("codec ", std::string(C::name), ", width ", width, ", stride ", source_stride, ", from ",
       skipped);
  constexpr std::int64_t rows = 37, picked = 9;
  Random random(static_cast<unsigned>(width));
  std::vector<float> source = random_elements<float>(random, skipped + rows * source_stride);
  const auto at = [&](std::int64_t row, int column) -> float& {
    return source[static_cast<std::size_t>(skipped + row * source_stride + column)];
  };
  for (int c = 0; c < width; ++c) {
    at(1, c) *= 1e-39f;
    at(2, c) *= 1e37f;
    at(3, c) = -0.3f;
    at(4, c) = 0;
    at(5, c) *= 3e-6f;
  }
  at(6, width - 1) = std::nanf("");
  at(7, width / 2) = -HUGE_VALF;
  std::vector<std::int32_t> samples;
  for (int i = 0; i < picked; ++i) samples.push_back(4 * i + i % 2);

  const std::size_t bytes = C::bytes(width);
  std::vector<std::uint32_t> encoded((rows + picked) * bytes / 4 + 1, 77);
  std::byte* const codes = reinterpret_cast<std::byte*>(encoded.data());
  for (std::int64_t i = 0; i < rows + picked; ++i)
    C::encode(&at(i < rows ? i : samples[static_cast<std::size_t>(i - rows)], 0), width,
              codes + static_cast<std::size_t>(i) * bytes);
  const std::int64_t stride = width + 3;
  const std::vector<float> before(static_cast<std::size_t>(rows * stride), 0.75f);
  std::vector<float> decoded = before;
  for (std::int64_t i = 0; i < rows + picked; ++i) {
    std::vector<float> row(static_cast<std::size_t>(width));
    C::decode(codes + static_cast<std::size_t>(i) * bytes, width, row.data());
    float* const to =
        decoded.data() + (i < rows ? i : samples[static_cast<std::size_t>(i - rows)]) * stride;
    for (int c = 0; c < width; ++c)
      to[c] =
          i < rows ? row[static_cast<std::size_t>(c)] : to[c] + row[static_cast<std::size_t>(c)];
  }
  const auto same_bits = [](float a, float b) {
    return std::memcmp(&a, &b, sizeof(a)) == 0 || (std::isnan(a) && std::isnan(b));
  };
  in_every_order([&] {
    const Cuda backend;
    const OnGpu<float> device_source(backend, source), target(backend, before);
    const OnGpu<std::int32_t> device_samples(backend, samples);
    const OnGpu<std::uint32_t> device_encoded(backend,
                                              std::vector<std::uint32_t>(encoded.size(), 77));
    std::byte* const device_codes = reinterpret_cast<std::byte*>(device_encoded.data());
    const float* const from = device_source.data() + skipped;
    const typename op::EncodeRows<C>::Job encode[] = {
        {from, source_stride, device_codes, rows, width, nullptr},
        {from, source_stride, device_codes + rows * static_cast<std::int64_t>(bytes), picked, width,
         device_samples.data()}};
    op::run<op::EncodeRows<C>>(backend, {encode});
    CHECK((device_encoded.read() == encoded));
    const typename op::DecodeRows<C>::Job decode[] = {
        {device_codes, target.data(), stride, rows, width, nullptr, false},
        {device_codes + rows * static_cast<std::int64_t>(bytes), target.data(), stride, picked,
         width, device_samples.data(), true}};
    op::run<op::DecodeRows<C>>(backend, {decode});
    const std::vector<float> found = target.read();
    CHECK(std::equal(found.begin(), found.end(), decoded.begin(), decoded.end(), same_bits));
  });
}

}  // namespace

TEST_CASE_TEMPLATE("codecs: the bytes and the numbers of the codec's own functions", C, Fp32, Bf16,
                   Fp16, Int8, Mirrored) {
  for (const int width : {1, 4, 6, 13, 33, 260}) {
    check_codec<C>(width, width + 3, 1);
    check_codec<C>(width, (width + 3) / 4 * 4, 0);
  }
}

TEST_CASE_TEMPLATE(
    "distinct ids: each array for itself, ascending; negative ids are not among them", Id,
    std::int32_t, std::int64_t) {
  for (const std::int64_t most :
       {std::int64_t{1}, std::int64_t{300},
        sizeof(Id) == 4 ? std::int64_t{2'000'000'000} : std::int64_t{1} << 40}) {
    INFO("ids below ", most);
    Random random(static_cast<unsigned>(most));
    std::vector<std::vector<Id>> arrays;
    for (const std::int64_t count : {40, 0, 700, 1, 300}) {
      auto& ids = arrays.emplace_back();
      for (std::int64_t i = 0; i < count; ++i)
        ids.push_back(random_below(random, 9) == 0
                          ? Id{-3}
                          : static_cast<Id>(most - 1 - random_below(random, 200) * (most / 200)));
    }
    in_every_order([&] {
      const Cuda backend;
      std::vector<OnGpu<Id>> ids, distinct;
      std::vector<OnGpu<std::int32_t>> index;
      std::vector<typename op::DistinctIds<Id>::Job> jobs;
      for (const std::vector<Id>& array : arrays) {
        ids.emplace_back(backend, array);
        distinct.emplace_back(backend, array);
        index.emplace_back(backend, std::vector<std::int32_t>(array.size()));
        jobs.push_back({ids.back().data(), std::ssize(array), distinct.back().data(),
                        index.back().data(), -1, most});
      }
      op::run<op::DistinctIds<Id>>(backend, {jobs});
      for (std::size_t a = 0; a < arrays.size(); ++a) {
        std::set<Id> expected(arrays[a].begin(), arrays[a].end());
        expected.erase(Id{-3});
        std::vector<Id> found = distinct[a].read();
        REQUIRE(jobs[a].found == std::ssize(expected));
        found.resize(expected.size());
        CHECK(std::equal(found.begin(), found.end(), expected.begin(), expected.end()));
        const std::vector<std::int32_t> places = index[a].read();
        bool all = true;
        for (std::size_t i = 0; i < places.size(); ++i)
          all = all &&
                (arrays[a][i] < 0 ? places[i] == -1
                                  : found.at(static_cast<std::size_t>(places[i])) == arrays[a][i]);
        CHECK(all);
      }
    });
  }
}

TEST_CASE("move: gathers, scatters and adds in the order of the jobs") {
  for (const int width : {1, 3, 4, 16, 33}) {
    check_moves(width, false);
    check_moves(width, true);
  }
}

TEST_CASE("move: jobs that add to the same columns are in different rounds, others are together") {
  std::vector<float> matrix(400);
  std::vector<op::DecodeJob> jobs;
  for (int rank = 0; rank < 3; ++rank)
    for (int part = 0; part < 4; ++part)
      jobs.push_back({reinterpret_cast<const std::byte*>(matrix.data()), matrix.data() + part * 5,
                      20, 4, 5, nullptr, true});
  const auto rounds = gpu::detail::rounds_of(jobs);
  REQUIRE(rounds.size() == 3);
  for (const auto& round : rounds) CHECK(round.size() == 4);
  jobs[1].width = 6;  // reaches into its neighbour
  CHECK(gpu::detail::rounds_of(jobs).size() == 12);
  for (op::DecodeJob& job : jobs) job.add = false;
  CHECK(gpu::detail::rounds_of(jobs).size() == 1);
}

TEST_CASE("zero: the columns asked for, and no others; of any alignment, also whole rows") {
  for (const int stride : {20, 19})
    for (const int first : {0, 2, 4})
      for (const int width : {1, 4, 8, 11, 12}) {
        CAPTURE(stride);
        CAPTURE(first);
        CAPTURE(width);
        const std::vector<float> before(static_cast<std::size_t>(101 * stride), 1.0f);
        in_every_order([&] {
          const Cuda backend;
          const OnGpu<float> matrix(backend, before);
          op::run<op::ZeroRows>(backend, {matrix.data() + first, stride, 100, width});
          const std::vector<float> after = matrix.read();
          bool right = true;
          for (int row = 0; row < 101; ++row)
            for (int column = 0; column < stride; ++column)
              right &= after[static_cast<std::size_t>(row * stride + column)] ==
                       (row < 100 && column >= first && column < first + width ? 0.0f : 1.0f);
          CHECK(right);
        });
      }
}

TEST_CASE("convert: to 16 bits and back, any width, stride and alignment, nothing else written") {
  for (const int width : {1, 7, 8, 9, 24, 43})
    for (const int padding : {0, 1, 8 - width % 8})
      for (const int first : {0, 1}) {
        CAPTURE(width);
        CAPTURE(padding);
        CAPTURE(first);
        constexpr std::int64_t rows = 61;
        const std::int64_t stride = width + padding;
        Random random(static_cast<unsigned>(width));
        const auto count = first + rows * stride;
        const auto narrow_of = [](float x) { return from_float<BFloat16>(x / 3); };
        std::vector<float> wide = random_elements<float>(random, count);
        for (float& x : wide) x /= 3;
        std::vector<BFloat16> narrow(wide.size(), narrow_of(9));
        std::vector<float> again(wide.size(), 9.0f);
        std::vector<float> narrow_expected(wide.size(), to_float(narrow_of(9))),
            again_expected = again;
        for (std::int64_t row = 0; row < rows; ++row)
          for (int column = 0; column < width; ++column) {
            const auto i = static_cast<std::size_t>(first + row * stride + column);
            narrow_expected[i] = again_expected[i] = to_float(from_float<BFloat16>(wide[i]));
          }
        in_every_order([&] {
          const Cuda backend;
          const OnGpu<float> from(backend, wide), back(backend, again);
          const OnGpu<BFloat16> to(backend, narrow);
          const MatrixView<BFloat16> middle(to.data() + first, rows, width, stride);
          op::run<op::ConvertRows<float, BFloat16>>(
              backend, {{from.data() + first, rows, width, stride}, middle});
          op::run<op::ConvertRows<BFloat16, float>>(
              backend, {middle, {back.data() + first, rows, width, stride}});
          std::vector<float> found;
          for (const BFloat16 x : to.read()) found.push_back(to_float(x));
          CHECK((found == narrow_expected));
          CHECK((back.read() == again_expected));
        });
      }
}

TEST_CASE("places of pieces: those of a division, small numbers and large") {
  bool right = true;
  for (const std::int64_t per_row :
       {std::int64_t{1}, std::int64_t{3}, std::int64_t{7}, std::int64_t{32}, std::int64_t{641},
        std::int64_t{65'536}, std::int64_t{0x55555555}, (std::int64_t{1} << 31) - 1}) {
    const gpu::RowPieces pieces(per_row);
    const auto check_near = [&](std::int64_t near) {
      for (std::int64_t i = std::max(near - 2, std::int64_t{0}); i < near + 3; ++i) {
        const auto place = pieces.place(i);
        right &= place.row == i / per_row && place.piece == i % per_row;
      }
    };
    check_near(0);
    for (const int power : {31, 32, 40, 62}) check_near(std::int64_t{1} << power);
    for (int multiple = 1; multiple < 20; ++multiple)
      check_near(((std::int64_t{1} << 31) / per_row + 5 - multiple) * per_row);
    Random random(static_cast<unsigned>(per_row));
    for (int i = 0; i < 1000; ++i) check_near(random_below(random, std::int64_t{1} << 31));
    for (int i = 0; i < 1000; ++i)
      check_near(random_below(random, std::int64_t{1} << 31) << 31 | i * 2'003'003);
  }
  CHECK(right);
}

TEST_CASE_TEMPLATE(
    "initialize: the values of the initializer, which know the table's rows and columns", T, float,
    BFloat16) {
  const ElementKey first{.seed = 3, .table = 9, .table_rows = 1000, .row = 40, .column = 16};
  const Uniform uniform{-2.0f, 3.0f};
  in_every_order([&] {
    const Cuda backend;
    const OnGpu<T> values(backend, std::vector<T>(37 * 5));
    op::run<op::Initialize<T, Uniform>>(backend, {values.data(), 37, 5, first, uniform});
    const std::vector<T> got = values.read();
    for (int row = 0; row < 37; ++row)
      for (int column = 0; column < 5; ++column) {
        ElementKey key = first;
        key.row += row;
        key.column += column;
        CHECK(to_float(got[static_cast<std::size_t>(row * 5 + column)]) ==
              doctest::Approx(to_float(from_float<T>(uniform(key)))));
      }
  });
}

namespace {

/// Bags cut at the rows of 11 blocks, which are more than one pass serves; plainly, and by the
/// operation: sizes first, then everything that a block may ask for.
/// `counted`: the call that packs goes on from the counts of the one before.
template <class Id>
void check_split(bool one_id_each, bool counted) {
  CAPTURE(one_id_each);
  CAPTURE(counted);
  constexpr std::int64_t rows = 1000, bag_count = 700;
  constexpr std::size_t block_count = 11;
  using Pack = op::PackBags<Id>;
  struct Expected {
    std::vector<Id> ids;
    std::vector<float> weights, scale;
    std::vector<std::int64_t> positions;
    std::vector<std::int32_t> samples;
    std::vector<std::uint32_t> lengths;
  };
  Random random(11);
  std::vector<Id> ids;
  std::vector<std::int64_t> offsets{0};
  for (std::int64_t bag = 0; bag < bag_count; ++bag) {
    for (std::int64_t i = one_id_each ? 1 : random_below(random, 7); i > 0; --i)
      ids.push_back(
          static_cast<Id>(random_below(random, 40) == 0 ? -1 : random_below(random, rows)));
    offsets.push_back(std::ssize(ids));
  }
  const std::vector<float> weights = random_elements<float>(random, std::ssize(ids)),
                           scale = random_elements<float>(random, bag_count);
  // the third block is empty, and rows from 900 on belong to nobody
  const std::vector<std::int64_t> cuts{0, 90, 180, 180, 300, 301, 420, 500, 600, 700, 800, 900};
  std::vector<Expected> expected(block_count);
  for (std::size_t b = 0; b < block_count; ++b)
    for (std::int64_t bag = 0; bag < bag_count; ++bag) {
      std::uint32_t length = 0;
      for (std::int64_t i = offsets[static_cast<std::size_t>(bag)];
           i < offsets[static_cast<std::size_t>(bag) + 1]; ++i) {
        const Id id = ids[static_cast<std::size_t>(i)];
        if (id < cuts[b] || id >= cuts[b + 1]) continue;
        expected[b].ids.push_back(id);
        expected[b].weights.push_back(weights[static_cast<std::size_t>(i)]);
        expected[b].positions.push_back(i);
        ++length;
      }
      if (length == 0) continue;
      expected[b].samples.push_back(static_cast<std::int32_t>(bag));
      expected[b].lengths.push_back(length);
      expected[b].scale.push_back(scale[static_cast<std::size_t>(bag)]);
    }
  in_every_order([&] {
    const Cuda backend;
    const OnGpu<Id> device_ids(backend, ids), out_ids(backend, ids);
    const OnGpu<std::int64_t> device_offsets(backend, offsets),
        positions(backend, std::vector<std::int64_t>(ids.size()));
    const OnGpu<float> device_weights(backend, weights), device_scale(backend, scale),
        out_weights(backend, weights), out_scale(backend, std::vector<float>(ids.size()));
    const OnGpu<std::int32_t> samples(backend, std::vector<std::int32_t>(ids.size()));
    const OnGpu<std::uint32_t> lengths(backend, std::vector<std::uint32_t>(ids.size()));
    std::vector<typename Pack::Block> blocks(block_count);
    for (std::size_t b = 0; b < block_count; ++b)
      blocks[b].row_begin = cuts[b], blocks[b].row_end = cuts[b + 1];
    op::Bags<Id> bags;
    bags.ids = device_ids.data(), bags.offsets = one_id_each ? nullptr : device_offsets.data();
    bags.weights = device_weights.data(), bags.bags = bag_count;
    bags.entry_bound = std::ssize(ids);
    const std::vector<typename Pack::Job> jobs{{bags, blocks}};
    op::run<Pack>(backend, {.jobs = jobs, .count_only = true});
    // what other operations do with their scratch memory meanwhile
    for (const auto slot : {gpu::ScratchSlot::entries, gpu::ScratchSlot::places})
      backend.fill_zero(backend.scratch(slot, 4096), 4096);
    std::int64_t entry = 0, bag = 0;
    for (std::size_t b = 0; b < block_count; ++b) {
      REQUIRE(blocks[b].entries == std::ssize(expected[b].ids));
      REQUIRE(blocks[b].bags == std::ssize(expected[b].samples));
      blocks[b].ids = out_ids.data() + entry, blocks[b].weights = out_weights.data() + entry;
      blocks[b].positions = positions.data() + entry;
      blocks[b].samples = samples.data() + bag, blocks[b].lengths = lengths.data() + bag;
      entry += blocks[b].entries, bag += blocks[b].bags;
    }
    op::run<Pack>(backend, {.jobs = jobs, .counted = counted});
    bags.weights = nullptr, bags.bag_scale = device_scale.data();
    const std::vector<typename Pack::Job> scaled{{bags, blocks}};
    bag = 0;
    for (typename Pack::Block& block : blocks) {
      block.weights = nullptr, block.bag_scale = out_scale.data() + bag;
      bag += block.bags;
    }
    op::run<Pack>(backend, {.jobs = scaled});
    Expected all;
    for (const Expected& e : expected) {
      all.ids.insert(all.ids.end(), e.ids.begin(), e.ids.end());
      all.weights.insert(all.weights.end(), e.weights.begin(), e.weights.end());
      all.scale.insert(all.scale.end(), e.scale.begin(), e.scale.end());
      all.positions.insert(all.positions.end(), e.positions.begin(), e.positions.end());
      all.samples.insert(all.samples.end(), e.samples.begin(), e.samples.end());
      all.lengths.insert(all.lengths.end(), e.lengths.begin(), e.lengths.end());
    }
    const auto same = [](auto got, const auto& want) {
      got.resize(want.size());
      return got == want;
    };
    CHECK(same(out_ids.read(), all.ids));
    CHECK(same(out_weights.read(), all.weights));
    CHECK(same(out_scale.read(), all.scale));
    CHECK(same(positions.read(), all.positions));
    CHECK(same(samples.read(), all.samples));
    CHECK(same(lengths.read(), all.lengths));
  });
}

}  // namespace

TEST_CASE_TEMPLATE("pack: bags split by many blocks of rows, as counted plainly", Id, std::int32_t,
                   std::int64_t) {
  for (const bool counted : {false, true}) {
    check_split<Id>(false, counted);
    check_split<Id>(true, counted);
  }
}
