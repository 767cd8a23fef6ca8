// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/exchange.cuh>
#include <tessera/cuda/initialize.cuh>
#include <tessera/table/initializers.hpp>

#include <doctest/doctest.h>
#include <gpu/device.hpp>

namespace {

using namespace tessera;

/// Runs the jobs in their order, a number at a time.
void move_plainly(const std::vector<MoveRows::Job>& jobs) {
  for (const MoveRows::Job& job : jobs)
    for (std::int64_t row = 0; row < job.rows; ++row)
      for (int c = 0; c < job.width; ++c) {
        const std::int64_t sample = job.samples != nullptr ? job.samples[row] : row;
        const float source = job.source[(job.scatter ? row : sample) * job.source_stride + c];
        float& target = job.target[(job.scatter ? sample : row) * job.target_stride + c];
        target = job.add ? target + source : source;
      }
}

/// Random jobs between a source and a target matrix; `same_columns`: they add to columns of one place, else to columns side by side.
std::vector<MoveRows::Job> random_jobs(Random& random, const float* source, float* target, const std::int32_t* samples, int width,
                                       bool overlap) {
  std::vector<MoveRows::Job> jobs;
  for (int part = 0; part < 5; ++part)
    for (int rank = 0; rank < 3; ++rank) {
      const bool scatter = rank != 1, with_samples = rank != 0;
      const std::int64_t column = part * width + (overlap ? rank : 0);
      jobs.push_back({source + random_below(random, 8) * 4, 101 + 3 * (width % 4), target + column, 6 * width + 2, 20, width,
                      with_samples ? samples : nullptr, scatter, rank > 0});
    }
  jobs.push_back({source, 101, target, 6 * width + 2, 0, width, nullptr, true, false});
  return jobs;
}

void check_moves(int width, bool overlap) {
  INFO("width ", width, ", overlapping columns ", overlap);
  Random random(static_cast<unsigned>(width));
  const std::vector<float> source = random_elements<float>(random, 110 * 60), before = random_elements<float>(random, (6 * width + 2) * 40);
  std::vector<std::int32_t> samples;
  for (int i = 0; i < 20; ++i) samples.push_back(i * 2 - i % 2);
  std::vector<float> expected = before;
  Random same = random;
  move_plainly(random_jobs(random, source.data(), expected.data(), samples.data(), width, overlap));
  in_every_order([&] {
    const Cuda backend;
    const OnDevice<float> device_source(backend, source), target(backend, before);
    const OnDevice<std::int32_t> device_samples(backend, samples);
    Random again = same;
    run<MoveRows>(backend, {random_jobs(again, device_source.data(), target.data(), device_samples.data(), width, overlap)});
    CHECK((target.read() == expected));
  });
}

}  // namespace

TEST_CASE("move: gathers, scatters and adds in the order of the jobs") {
  for (const int width : {1, 3, 4, 16, 33}) {
    check_moves(width, false);
    check_moves(width, true);
  }
}

TEST_CASE("move: jobs that add to the same columns are in different rounds, others are together") {
  std::vector<float> matrix(400);
  std::vector<MoveRows::Job> jobs;
  for (int rank = 0; rank < 3; ++rank)
    for (int part = 0; part < 4; ++part) jobs.push_back({matrix.data(), 10, matrix.data() + part * 5, 20, 4, 5, nullptr, true, true});
  const auto rounds = gpu::rounds_of(jobs);
  REQUIRE(rounds.size() == 3);
  for (const auto& round : rounds) CHECK(round.size() == 4);
  jobs[1].width = 6;  // reaches into its neighbour
  CHECK(gpu::rounds_of(jobs).size() == 12);
}

TEST_CASE("zero: the columns asked for, and no others") {
  const std::vector<float> before(7 * 20, 1.0f);
  in_every_order([&] {
    const Cuda backend;
    const OnDevice<float> matrix(backend, before);
    run<ZeroRows>(backend, {matrix.data() + 2, 20, 6, 11});
    const std::vector<float> after = matrix.read();
    for (int row = 0; row < 7; ++row)
      for (int column = 0; column < 20; ++column)
        CHECK(after[static_cast<std::size_t>(row * 20 + column)] == (row < 6 && column >= 2 && column < 13 ? 0.0f : 1.0f));
  });
}

TEST_CASE_TEMPLATE("initialize: the values of the initializer, which know the table's rows and columns", T, float, BFloat16) {
  const ElementKey first{.seed = 3, .table = 9, .table_rows = 1000, .row = 40, .column = 16};
  const Uniform uniform{-2.0f, 3.0f};
  in_every_order([&] {
    const Cuda backend;
    const OnDevice<T> values(backend, std::vector<T>(37 * 5));
    run<Initialize<T, Uniform>>(backend, {values.data(), 37, 5, first, uniform});
    const std::vector<T> got = values.read();
    for (int row = 0; row < 37; ++row)
      for (int column = 0; column < 5; ++column) {
        ElementKey key = first;
        key.row += row;
        key.column += column;
        CHECK(to_float(got[static_cast<std::size_t>(row * 5 + column)]) == doctest::Approx(to_float(from_float<T>(uniform(key)))));
      }
  });
}
