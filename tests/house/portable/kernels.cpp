// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The host's kernels for portable.sh, which compiles them for other processors than this one: three
// optimizers, rows in float and in 16 bits, widths that fill vectors and one that does not, dense
// updates with and without states. Where it can run, each new row must be the formula's, in double.
#include <tessera/tessera.hpp>

#include <tessera/dense/optimizer.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

namespace ts = tessera;

using Wide = ts::Table<"wide", 50, 32>;
using Narrow = ts::Table<"narrow", 40, 16>;
using Odd = ts::Table<"odd", 30, 5>;
using Plan = ts::Plan<ts::TableWise<Wide>, ts::TableWise<Narrow>, ts::TableWise<Odd>>;
using Small = ts::Train<ts::Sgd, Odd>;
using Halves = ts::Train<ts::Sgd, Narrow>::with<ts::Storage<ts::BFloat16>>;
using Embeddings = ts::EmbeddingCollection<Plan, ts::Train<ts::RowWiseAdagrad, Wide>, Halves, Small,
                                           ts::Host, ts::SelfCommunicator>;

namespace {

constexpr int kBatch = 24, kColumns = 32 + 16 + 5;
int faults = 0;

void compare(const char* what, double found, double expected, double tolerance) {
  if (std::abs(found - expected) <= tolerance * (1 + std::abs(expected))) return;
  if (++faults < 10) std::printf("%s: %g, by the formula %g\n", what, found, expected);
}

ts::Matrix<float> table(const Embeddings& embeddings, const char* name, int rows, int width) {
  ts::Matrix<float> values(rows, width);
  embeddings.tables().get(name, values.view());
  return values;
}

void tables() {
  ts::SelfCommunicator self;
  Embeddings embeddings(self, ts::Host(), {.learning_rate = 0.25f, .seed = 3});
  std::vector<std::int32_t> ids;
  for (const int rows : {50, 40, 30})
    for (int s = 0; s < kBatch; ++s) ids.push_back(s * 7 % rows / 2);  // some twice
  const auto wide = table(embeddings, "wide", 50, 32), narrow = table(embeddings, "narrow", 40, 16),
             odd = table(embeddings, "odd", 30, 5);
  ts::Matrix<float> gradient(kBatch, kColumns);
  for (int s = 0; s < kBatch; ++s)
    for (int c = 0; c < kColumns; ++c)
      gradient.view()(s, c) = static_cast<float>((s * 31 + c * 17) % 23 - 11) / 16;
  const auto pooled = embeddings.forward(ts::KeyedJagged<std::int32_t>{3, kBatch, ids, {}, {}});
  int first = 0, feature = 0;
  const auto check = [&](const char* name, const ts::Matrix<float>& before, int rows, int width,
                         bool adagrad, double tolerance) {
    for (int s = 0; s < kBatch; ++s)
      for (int c = 0; c < width; ++c)
        compare(name, pooled.values(s, first + c),
                before.view()(ids[static_cast<std::size_t>(feature * kBatch + s)], c), 1e-6);
    const auto after = table(embeddings, name, rows, width);
    for (int row = 0; row < rows; ++row) {
      std::vector<double> sum(static_cast<std::size_t>(width));
      double squares = 0;
      for (int s = 0; s < kBatch; ++s)
        if (ids[static_cast<std::size_t>(feature * kBatch + s)] == row)
          for (int c = 0; c < width; ++c)
            sum[static_cast<std::size_t>(c)] += gradient.view()(s, first + c);
      for (const double g : sum) squares += g * g / width;
      const double rate = adagrad ? 0.25 / (std::sqrt(squares) + 1e-8) : 0.25;
      for (int c = 0; c < width; ++c)
        compare(name, after.view()(row, c),
                before.view()(row, c) - rate * sum[static_cast<std::size_t>(c)], tolerance);
    }
    first += width;
    ++feature;
  };
  embeddings.backward(pooled, gradient.view());
  check("wide", wide, 50, 32, true, 1e-5);
  check("narrow", narrow, 40, 16, false, 1.0 / 128);
  check("odd", odd, 30, 5, false, 1e-6);
}

/// One step of 37 parameters from 1 to 37 with gradients of 1: SGD moves each by the rate, and so
/// does Adagrad from a state of zero.
template <class O>
void dense(const char* name) {
  constexpr int n = 37;
  std::vector<float> values(n), gradients(n, 1.0f), states(n);
  for (int i = 0; i < n; ++i) values[static_cast<std::size_t>(i)] = static_cast<float>(i + 1);
  ts::op::run<ts::op::UpdateParameters<O>>(
      ts::Host(), {values.data(), gradients.data(), states.data(), n, 0.0f, O().at(0.5f, 1)});
  for (int i = 0; i < n; ++i) compare(name, values[static_cast<std::size_t>(i)], i + 0.5, 1e-6);
}

}  // namespace

int main() {
  tables();
  dense<ts::Sgd>("dense sgd");
  dense<ts::Adagrad>("dense adagrad");
  std::printf("%d columns a vector, %d faults\n", ts::Lanes::count, faults);
  return faults == 0 ? 0 : 1;
}
