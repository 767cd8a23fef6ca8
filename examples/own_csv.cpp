// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Trains on a CSV file with texts in its columns: docs/first_day/own_csv.md.
//   own_csv [FILE]      without a file, one that it makes up
#include <tessera/dense.hpp>
#include <tessera/io/text.hpp>
#include <tessera/tessera.hpp>
#include <tessera/vocabulary.hpp>
#include <tessera_data/click_batch.hpp>
#include <tessera_data/metrics.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <fstream>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ts = tessera;

// [tables]
// Row 0 of each is shared by texts that have no row of their own. A film has several genres: their
// vectors are averaged.
using Plan =
    ts::Plan<ts::TableWise<ts::Table<"user", 1000, 8>, ts::Table<"genre", 50, 8, ts::Mean>>>;
using Embeddings =
    ts::EmbeddingCollection<Plan, ts::RowWiseAdagrad, ts::Host, ts::SelfCommunicator>;
// [tables end]

// [reader]
/// A file of lines CLICKED,PRICE,USER,GENRE|GENRE|... after a line of titles. No quotes: fields
/// hold no commas.
class CsvReader {
 public:
  explicit CsvReader(const std::string& path) : path_(path), file_(path) {
    std::string titles;
    if (!std::getline(file_, titles)) throw ts::DataError(fmt::format("cannot read '{}'", path));
  }

  /// Up to `samples` lines: labels, numbers, and keys feature by feature, as KeyedJagged has them.
  /// False at the end of the file.
  bool read(int samples, ts::ClickBatch<std::int64_t>& batch) {
    batch.labels.clear(), batch.dense.clear(), batch.ids.clear(), batch.offsets.assign(1, 0);
    std::vector<std::int64_t> genres, ends;
    std::string line;
    while (std::ssize(batch.labels) < samples && std::getline(file_, line)) {
      ++line_;
      std::string_view rest = line;
      batch.labels.push_back(number(next(rest, ',')));
      batch.dense.push_back(number(next(rest, ',')));
      batch.ids.push_back(ts::vocabulary_key(next(rest, ',')));  // one user: a bag of one
      batch.offsets.push_back(std::ssize(batch.ids));
      while (!rest.empty()) genres.push_back(ts::vocabulary_key(next(rest, '|')));
      ends.push_back(std::ssize(genres));  // no genre: an empty bag, whose vector is zero
    }
    for (const std::int64_t end : ends) batch.offsets.push_back(std::ssize(batch.ids) + end);
    batch.ids.insert(batch.ids.end(), genres.begin(), genres.end());
    batch.size = std::ssize(batch.labels), batch.features = 2, batch.dense_columns = 1;
    return batch.size > 0;
  }

 private:
  static std::string_view next(std::string_view& rest, char end) {
    const std::size_t at = std::min(rest.find(end), rest.size());
    const std::string_view field = rest.substr(0, at);
    rest.remove_prefix(std::min(at + 1, rest.size()));
    return field;
  }
  float number(std::string_view field) const {
    float value = 0;
    if (ts::parse_number(field, value) != ts::NumberText::number)
      throw ts::DataError(fmt::format("file '{}', line {}: '{}' is not a number, or too large",
                                      path_, line_ + 1, field.substr(0, 80)));
    return value;
  }

  std::string path_;
  std::ifstream file_;
  std::int64_t line_ = 0;  ///< after the titles
};
// [reader end]

/// One pass over the file; returns the AUC from the 61st batch on, each sample scored before it is
/// trained on.
double train(const std::string& path) {
  constexpr int kSamples = 64, kColumns = 17;  // price, user, genres
  // [model]
  ts::SelfCommunicator ranks;
  // as the plan's: feature i has table i
  ts::Vocabulary vocabulary(ranks, {.tables = {{.rows = 1000}, {.rows = 50}}});
  Embeddings embeddings(ranks, ts::Host(), {.learning_rate = 0.1f, .seed = 1});
  ts::Mlp<ts::Host, kColumns, 16, 1> mlp;
  ts::DenseParameters parameters(1, mlp);
  ts::DenseOptimizer dense(ts::Adagrad{});
  // [model end]
  CsvReader reader(path);
  ts::ClickBatch<std::int64_t> batch;
  std::vector<std::int64_t> rows;
  ts::Matrix<float> inputs(kSamples, kColumns), gradients(kSamples, kColumns), y(kSamples, 1),
      dy(kSamples, 1);
  ts::Auc auc;
  for (int step = 0; reader.read(kSamples, batch); ++step) {
    const std::int64_t n = batch.size;
    // [step]
    ts::KeyedJagged<std::int64_t> ids = batch.keyed();  // of keys so far
    rows.resize(batch.ids.size());
    // rows that now belong to another text begin anew
    for (const auto& [table, row] : vocabulary.learn(ids, std::span(rows)))
      embeddings.reset_rows(static_cast<int>(table), std::span(&row, 1));
    ids.ids = rows;

    // The price is in column 0 of the MLP's input; the vectors are looked up straight into the
    // columns after it.
    const auto x = inputs.first_rows(n), dx = gradients.first_rows(n);
    const auto logits = y.first_rows(n), d_logits = dy.first_rows(n);
    for (int s = 0; s < n; ++s) x(s, 0) = batch.dense[s];
    const auto pooled = embeddings.forward(ids, x.column_range(1, 16));
    mlp.forward(x, logits);
    if (step >= 60) auc.add(std::span(logits.data, n), batch.labels);
    ts::BinaryCrossEntropyWithLogits{}.forward_backward(logits, batch.labels, d_logits);
    mlp.backward(d_logits, dx);
    dense.step(parameters, 0.05f);
    embeddings.backward(pooled, dx.column_range(1, 16));
    // [step end]
  }
  return auc.value();
}

/// A file of 6400 lines: some users click more often, and all like dramas and low prices.
void make_up(const std::filesystem::path& path) {
  constexpr std::string_view kGenres[] = {"drama", "comedy", "crime", "western", "music"};
  std::ofstream file(path);
  std::mt19937 random(1);
  file << "clicked,price,user,genres\n";
  for (int i = 0; i < 6400; ++i) {
    const unsigned user = random() % 40, price = random() % 100, first = random() % 5,
                   second = random() % 5;
    const unsigned percent =
        5 + (user % 4 == 0 ? 35 : 0) + (first == 0 || second == 0 ? 35 : 0) + (price < 30 ? 15 : 0);
    const bool clicked = random() % 100 < percent;
    file << clicked << ',' << 0.01 * price << ",user-" << user << ',' << kGenres[first] << '|'
         << kGenres[second] << '\n';
  }
}

int main(int argc, char** argv) try {
  if (argc > 1) return fmt::print("AUC {:.3f}\n", train(argv[1])), 0;
  const std::filesystem::path path = std::filesystem::temp_directory_path() /
                                     fmt::format("tessera_{}.csv", std::random_device()());
  make_up(path);
  const double auc = train(path.string());
  std::filesystem::remove(path);
  fmt::print("AUC {:.3f}\n", auc);
  return auc > 0.65 ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "own_csv: {}\n", error.what());
  return 2;
}
