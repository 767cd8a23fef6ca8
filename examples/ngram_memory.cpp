// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A byte-level language model with a memory of n-grams, whose tables are cut over ranks:
// docs/ngram_tables.md.
#include <tessera/dense.hpp>
#include <tessera/ngram.hpp>
#include <tessera/tessera.hpp>
#include <tessera_data/compressed_file.hpp>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ts = tessera;

namespace {

// The network sees the last 8 bytes, 16 numbers each. A batch has 8 windows of 128 bytes, whatever
// the ranks; gradients are summed in 4 blocks of it, for the same bits on 1, 2 and 4 ranks.
constexpr int kBack = 8, kWidth = 16, kWindows = 8, kLength = 128, kBlocks = 4;
constexpr int kPositions = kLength * kWindows, kNoByte = 256;
constexpr const char* kText = "/usr/share/dictd/jargon.dict.dz";

// [layout]
using Memory = ts::NgramHash<ts::Orders<3, 4, 6>, ts::Heads<2>>;  // 6 tables
constexpr std::int64_t kRows = 1 << 17;                           // of each
constexpr int kColumns = (kBack + Memory::tables()) * kWidth;
using Embeddings = ts::LayoutCollection<ts::Widths<kWidth>, ts::RowWiseAdagrad, ts::Host,
                                        ts::ThreadCommunicator, ts::InitializeWith<ts::Normal>>;

struct Options {
  std::string text = kText, tier = "memory", folder = "ngram_memory.tables";
  int ranks = 2, steps = 1000;
};

/// A table of bytes, which kBack features read, and those of the memory: rows cut over the ranks.
ts::Layout layout_of(const Options& options, int ranks, bool with_memory) {
  static const std::array<std::string_view, kBack + Memory::tables()> kNames{
      "0", "-1", "-2", "-3", "-4", "-5", "-6", "-7", "3a", "3b", "4a", "4b", "6a", "6b"};
  std::vector<ts::TableSpec> tables{{.name = "byte", .rows = kNoByte + 1, .width = kWidth}};
  std::vector<ts::FeatureSpec> features;
  for (int f = 0; f < (with_memory ? std::ssize(kNames) : kBack); ++f) {
    if (f >= kBack) tables.push_back({.name = kNames[f], .rows = kRows, .width = kWidth});
    features.push_back({kNames[f], f < kBack ? "byte" : kNames[f], ts::Pooling::none});
  }
  const ts::Tier tier = options.tier == "file"   ? ts::Tier::file
                        : options.tier == "host" ? ts::Tier::host
                                                 : ts::Tier::device;
  std::vector<ts::Shard> shards{{.rectangle = {0, kNoByte + 1, 0, kWidth}}};
  for (int t = 1; t < std::ssize(tables); ++t)
    for (int r = 0; r < ranks; ++r) {
      const auto cut = [&](int i) { return ts::even_cut(kRows, ranks, i); };
      shards.push_back({t, {cut(r), cut(r + 1), 0, kWidth}, r, tier});
    }
  return ts::make_layout(ts::Topology{ranks}, tables, features, shards);
}
// [layout end]

/// Windows of a text: the byte before each position, and the one to be told.
struct Batch {
  std::vector<std::int32_t> ids, tokens;
  std::vector<int> next;

  Batch(std::string_view text, std::span<const std::int64_t> windows, const Memory* memory) {
    std::vector<std::int64_t> documents{0};
    for (const std::int64_t begin : windows) {
      for (std::int64_t p = begin; p < begin + kLength; ++p) {
        tokens.push_back(static_cast<unsigned char>(text[p]));
        next.push_back(static_cast<unsigned char>(text[p + 1]));
      }
      documents.push_back(std::ssize(tokens));
    }
    for (int j = 0; j < kBack; ++j)
      for (std::int64_t p = 0; p < std::ssize(tokens); ++p)
        ids.push_back(p % kLength < j ? kNoByte : tokens[p - j]);
    if (memory == nullptr) return;
    // [hash]
    const std::size_t first = ids.size();  // those of other features come before
    ids.resize(first + Memory::tables() * tokens.size());
    memory->batch(ts::Host(), tokens, documents, std::span(ids).subspan(first));
    // [hash end]
  }
};

/// Returns the sum of -ln p(next), and the gradients of the batch's mean of it.
double softmax_loss(ts::MatrixView<const float> logits, std::span<const int> next,
                    ts::MatrixView<float> gradients) {
  double loss = 0;
  for (std::int64_t i = 0; i < logits.rows; ++i) {
    const float* const y = logits.row(i);
    float* const dy = gradients.row(i);
    const float most = *std::max_element(y, y + logits.columns);
    float sum = 0;
    for (int c = 0; c < logits.columns; ++c) sum += dy[c] = std::exp(y[c] - most);
    for (int c = 0; c < logits.columns; ++c)
      dy[c] = (dy[c] / sum - (c == next[i] ? 1.0f : 0.0f)) / kPositions;
    loss += std::log(sum) + most - y[next[i]];
  }
  return loss;
}

/// Returns the numbers of all ranks, one rank's after another's. Collective.
template <class T>
std::vector<T> of_all(ts::ThreadCommunicator& ranks, const std::vector<T>& own) {
  std::vector<T> all(own.size() * ranks.size());
  ranks.all_gather(own, std::span(all), std::vector<std::size_t>(ranks.size(), own.size()));
  return all;
}

class Model {
 public:
  Model(ts::ThreadCommunicator& ranks, const Options& options, bool with_memory)
      : ranks_(ranks),
        features_(with_memory ? kBack + Memory::tables() : kBack),
        embeddings_(ranks, ts::Host(), layout_of(options, ranks.size(), with_memory),
                    {.learning_rate = 0.15f,
                     .seed = 1,
                     .initialize = {.standard_deviation = 0.1f},
                     .gradient_blocks = kBlocks,
                     .files = {.folder = options.folder, .cache_bytes = 8 << 20}}),
        parameters_(2, network_),
        x_(kPositions / ranks.size(), kColumns),
        dx_(x_.rows(), kColumns),
        y_(x_.rows(), 256),
        dy_(x_.rows(), 256) {}

  /// Returns the mean of -log2 p(next) over the global batch, of which this rank has its windows;
  /// `train`: and learns. Collective.
  double run(const Batch& batch, bool train) {
    const ts::KeyedJagged<std::int32_t> ids{features_, x_.rows(), batch.ids, {}, {}};
    if (!train) return forward(embeddings_.evaluate(ids), batch, {});
    // [step]
    const auto found = embeddings_.forward(ids);
    std::vector<float> sums(parameters_.size() * (kBlocks / ranks_.size()));
    const double loss = forward(found, batch, sums);
    std::vector<ts::SequenceGradient> gradients;
    for (int f = 0; f < features_; ++f)
      gradients.push_back(found.sequence(f).per_id(dx_.view().column_range(f * kWidth, kWidth)));
    embeddings_.backward(found, gradients);
    // [step end]
    const std::vector<float> all = of_all(ranks_, sums);
    std::ranges::fill(parameters_.gradients(), 0.0f);
    for (std::size_t i = 0; i < all.size(); ++i)
      parameters_.gradients()[i % parameters_.size()] += all[i];
    adam_.step(parameters_, 0.003f);
    return loss;
  }

  /// Returns a number of all bits of the model. Collective.
  std::uint64_t bits() {
    std::vector<std::uint64_t> own(1);
    for (const auto& shard : embeddings_.tables().local_shards())
      for (std::int64_t r = 0; r < shard.weights.rows; ++r)
        for (std::int64_t c = 0; c < shard.weights.columns; ++c)
          own[0] += ts::random_word(shard.table, shard.rectangle.row_begin + r, c,
                                    std::bit_cast<std::uint32_t>(shard.weights(r, c)));
    std::uint64_t bits = 0;
    for (const std::uint64_t each : of_all(ranks_, own)) bits += each;
    for (const float value : parameters_.values())
      bits = ts::mix64(bits ^ std::bit_cast<std::uint32_t>(value));
    return bits;
  }

 private:
  /// Runs the network block by block; `sums`: its gradients of each, and those of x_, if any.
  double forward(const auto& found, const Batch& batch, std::span<float> sums) {
    for (int f = 0; f < features_; ++f)
      found.sequence(f).materialize(x_.view().column_range(f * kWidth, kWidth));
    const int own = kBlocks / ranks_.size(), rows = kPositions / kBlocks;
    std::vector<double> losses(own);
    for (int b = 0; b < own; ++b) {
      const auto block = [&](auto& matrix) { return matrix.view().row_range(b * rows, rows); };
      network_.forward(block(x_), block(y_));
      losses[b] =
          softmax_loss(block(y_), std::span(batch.next).subspan(b * rows, rows), block(dy_));
      if (sums.empty()) continue;
      network_.backward(block(dy_), block(dx_));
      std::ranges::copy(parameters_.gradients(), sums.begin() + b * parameters_.size());
    }
    double loss = 0;
    for (const double each : of_all(ranks_, losses)) loss += each;
    return loss / kPositions / std::log(2.0);
  }

  ts::ThreadCommunicator& ranks_;
  int features_;
  Embeddings embeddings_;
  ts::Mlp<ts::Host, kColumns, 256, 256> network_;
  ts::DenseParameters<> parameters_;
  ts::DenseOptimizer<ts::Adam> adam_;
  ts::Matrix<float> x_, dx_, y_, dy_;  // columns of a memory that is not there stay 0
};

/// Trains on the first nine tenths of the text. Returns the bits per byte of the last.
double train(ts::ThreadCommunicator& ranks, const Options& options, std::string_view text,
             bool with_memory) {
  const Memory hash(3, kRows, {.vocabulary = 256});
  const Memory* const memory = with_memory ? &hash : nullptr;
  Model model(ranks, options, with_memory);
  const auto say = [&](const std::string& what) {
    if (ranks.rank() == 0) fmt::print("{} memory, {}\n", with_memory ? "with" : "without", what);
  };
  const std::int64_t size = std::ssize(text), end = size / 10 * 9, own = kWindows / ranks.size();
  std::vector<std::int64_t> windows(own);  // of this rank, of a batch
  const std::int64_t first = ranks.rank() * own;
  const auto start = std::chrono::steady_clock::now();
  double sum = 0;
  for (int step = 1; step <= options.steps; ++step) {
    for (std::int64_t w = 0; w < own; ++w)
      windows[w] = static_cast<std::int64_t>(ts::random_word(4, step, first + w) % (end - kLength));
    sum += model.run(Batch(text, windows, memory), true);
    if (step % 100 == 0)
      say(fmt::format("step {}: {:.4f} bits per byte", step, std::exchange(sum, 0.0) / 100));
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const std::int64_t batches = std::min<std::int64_t>(128, (size - end - 1) / kPositions);
  double held_out = 0;
  for (std::int64_t b = 0; b < batches; ++b) {
    for (std::int64_t w = 0; w < own; ++w) windows[w] = end + (b * kWindows + first + w) * kLength;
    held_out += model.run(Batch(text, windows, memory), false) / static_cast<double>(batches);
  }
  const std::uint64_t bits = model.bits();
  say(fmt::format("held out: {:.6f} bits per byte, bits of the model {:016x}, {:.1f} s", held_out,
                  bits, seconds.count()));
  return held_out;
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  CLI::App app("A language model of bytes, with and without a memory of n-grams.");
  app.option_defaults()->always_capture_default();
  app.add_option("--text", options.text, "text, or text in gzip or zstd");
  app.add_option("--ranks", options.ranks, "thread ranks")->check(CLI::IsMember({1, 2, 4}));
  app.add_option("--tier", options.tier, "where the memory's rows stay")
      ->check(CLI::IsMember({"memory", "host", "file"}));
  app.add_option("--folder", options.folder, "of rows in files");
  app.add_option("--steps", options.steps)->check(CLI::Range(0, 1'000'000));
  CLI11_PARSE(app, argc, argv);
  ts::require<ts::DataError>(
      options.text != kText || std::filesystem::exists(kText),
      "{0} is not there; install or unpack the Debian package dict-jargon (the Jargon File, in the "
      "public domain: apt-get download dict-jargon; dpkg -x dict-jargon_*.deb DIR; --text DIR{0}), "
      "or give another --text FILE",
      kText);
  std::string text;
  std::array<char, 1 << 16> chunk;
  for (auto source = ts::open_bytes(options.text);;) {
    const std::size_t bytes = source(chunk);
    if (bytes == 0) break;
    text.append(chunk.data(), bytes);
  }
  ts::require<ts::DataError>(text.size() > 11 * kPositions,
                             "--text {}: {} bytes; give more than {}", options.text, text.size(),
                             11 * kPositions);
  return ts::run_thread_ranks(options.ranks, [&](ts::ThreadCommunicator& ranks) {
    const double with = train(ranks, options, text, true),
                 without = train(ranks, options, text, false);
    if (ranks.rank() == 0)
      fmt::print("{:.1f} % fewer bits per byte with memory\n", 100 * (1 - with / without));
  });
} catch (const std::exception& error) {
  fmt::print(stderr, "ngram_memory: {}\n", error.what());
  return 1;
}
