// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A new model takes what an earlier one had: every number is that of the earlier model's row, or the
// one that it had before, and what was not taken is said.
#include <checkpoint/models.hpp>

#include <tessera/checkpoint/increments.hpp>
#include <tessera/checkpoint/warm_start.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

using namespace models;

namespace {

constexpr std::uint64_t kBefore = 5, kNow = 9;

Layout before(int ranks) {
  return make_layout({ranks},
                     {{"moved", 70, 12}, {"gone", 9, 3}, {"wider", 20, 4}, {"shrunk", 50, 6}}, {},
                     {{0, {0, 30, 0, 12}, 0},
                      {0, {30, 70, 0, 5}, ranks - 1},
                      {0, {30, 70, 5, 12}, 0},
                      {1, {0, 9, 0, 3}, every_rank},
                      {2, {0, 20, 0, 4}, 0},
                      {3, {0, 50, 0, 6}, ranks - 1}});
}

Layout now(int ranks) {
  return make_layout({ranks},
                     {{"new", 8, 3}, {"moved", 90, 12}, {"wider", 20, 8}, {"shrunk", 40, 6}}, {},
                     {{0, {0, 8, 0, 3}, every_rank},
                      {1, {0, 90, 0, 7}, ranks - 1},
                      {1, {0, 45, 7, 12}, 0},
                      {1, {45, 90, 7, 12}, ranks - 1},
                      {2, {0, 20, 0, 8}, 0},
                      {3, {0, 13, 0, 6}, 0},
                      {3, {13, 40, 0, 6}, ranks - 1}});
}

/// Row r of `moved` was row 69 - r; the rows behind have none.
std::vector<std::int64_t> moved_rows() {
  std::vector<std::int64_t> rows(90, -1);
  for (std::int64_t r = 0; r < 70; ++r) rows[static_cast<std::size_t>(r)] = 69 - r;
  return rows;
}

/// The row of the earlier model whose numbers a row has; -1: it has its own.
std::int64_t source(std::string_view table, std::int64_t row) {
  if (table == "moved") return row < 70 ? 69 - row : -1;
  return table == "shrunk" ? row : -1;
}

using Model = Trained<RowWiseAdagrad, float, ThreadCommunicator>;

/// Numbers that are not what they should be. `changed`: rows of `moved` that another salt filled.
std::int64_t wrong(Model& model, std::uint64_t changed_salt, const std::vector<bool>& changed,
                   bool states) {
  std::int64_t count = 0;
  visit(model.tables, [&](std::string_view table, int array, std::int64_t row, std::int64_t column,
                          auto& x) {
    using X = std::remove_reference_t<decltype(x)>;
    const std::int64_t from = array > 0 && !states ? -1 : source(table, row);
    const bool newer = table == "moved" && from >= 0 && changed[static_cast<std::size_t>(from)];
    const std::uint64_t salt = from < 0 ? kNow : newer ? changed_salt : kBefore;
    count += x != value<X>(salt, table, array, from < 0 ? row : from, column);
  });
  return count;
}

}  // namespace

TEST_CASE("tables that came, went, grew, shrank and moved; on any ranks") {
  for (const int saving : {1, 3})
    for (const int loading : {1, 2, 4}) {
      CAPTURE(saving);
      CAPTURE(loading);
      const TemporaryFolder folder;
      run_ranks(saving, [&](ThreadCommunicator& c) {
        Model model(c, before(saving), kBefore);
        save_checkpoint(c, folder.path, model.contents, 3);
      });
      run_ranks(loading, [&](ThreadCommunicator& c) {
        Model model(c, now(loading), kNow);
        std::vector<float> head(6, 2.0f);
        model.contents.add("head.weight", {2, 3}, std::span(head));
        const std::vector<std::string> lines =
            start_from(c, folder.path / detail::checkpoint_name(3), model.contents,
                       {.keep = {"epoch"}, .rows = {{"moved", moved_rows()}}});
        CHECK(wrong(model, 0, std::vector<bool>(70), true) == 0);
        CHECK(model.dense[5] == static_cast<float>(kBefore) + 5);
        CHECK(head[5] == 2.0f);
        CHECK(model.epoch == static_cast<std::int64_t>(kNow) + 8);
        CHECK(model.tables.steps() == static_cast<std::int64_t>(kBefore) + 7);
        CHECK(lines ==
              std::vector<std::string>{
                  "table new: is new",
                  "table moved: 70 of its 90 rows come from the checkpoint's 70",
                  "table wider: [20,4] F32 in the checkpoint, [20,8] F32 here: begins anew",
                  "table shrunk: 40 of its 40 rows come from the checkpoint's 50",
                  "head.weight: is new", "gone.weight: is left in the checkpoint",
                  "gone.sum: is left in the checkpoint"});
      });
    }
}

TEST_CASE("rows that an increment holds come from there") {
  const TemporaryFolder folder;
  constexpr std::uint64_t changed_salt = 77;
  std::vector<bool> changed(70);
  for (const std::size_t row : {0u, 7u, 33u, 69u}) changed[row] = true;
  run_ranks(2, [&](ThreadCommunicator& c) {
    Model model(c, before(2), kBefore);
    ChangedRows marks(model.contents);
    const CheckpointBase base = save_checkpoint(c, folder.path, model.contents, 3);
    marks.clear();
    std::vector<std::int64_t> rows;
    for (std::size_t row = 0; row < changed.size(); ++row)
      if (changed[row]) rows.push_back(static_cast<std::int64_t>(row));
    model.tables.reset_rows(0, rows);  // marks them
    visit(model.tables, [&](std::string_view table, int array, std::int64_t row,
                            std::int64_t column, auto& x) {
      if (table == "moved" && changed[static_cast<std::size_t>(row)])
        x = value<std::remove_reference_t<decltype(x)>>(changed_salt, table, array, row, column);
    });
    save_increment(c, folder.path, model.contents, marks, base, 4);
  });
  run_ranks(3, [&](ThreadCommunicator& c) {
    Model model(c, now(3), kNow);
    start_from(c, folder.path / detail::checkpoint_name(4), model.contents,
               {.rows = {{"moved", moved_rows()}}});
    CHECK(wrong(model, changed_salt, changed, true) == 0);
  });
}

TEST_CASE("another optimizer takes the weights alone") {
  const TemporaryFolder folder;
  run_ranks(1, [&](ThreadCommunicator& c) {
    Trained<Adam, float, ThreadCommunicator> model(c, before(1), kBefore);
    save_checkpoint(c, folder.path, model.contents, 3);
  });
  run_ranks(2, [&](ThreadCommunicator& c) {
    Model model(c, now(2), kNow);
    const std::vector<std::string> lines =
        start_from(c, folder.path / detail::checkpoint_name(3), model.contents,
                   {.extra = {"gone.*"}, .rows = {{"moved", moved_rows()}}});
    CHECK(wrong(model, 0, std::vector<bool>(70), false) == 0);
    REQUIRE(lines.size() == 6);
    CHECK(lines[4] == "table moved: takes its weights; its optimizer's state begins anew");
    CHECK(lines[5] == "table shrunk: takes its weights; its optimizer's state begins anew");
  });
}

TEST_CASE("a dense tensor that is called as a table's state would be is none") {
  using Items = Plan<TableWise<Table<"item", 8, 4>>>;
  const TemporaryFolder folder;
  SelfCommunicator self;
  const std::vector<std::int32_t> ids{3, 5};
  const std::vector<float> gradient(8, 1.0f);
  std::vector<float> bias(8, 42.0f), sums(8), then(8);
  const auto model = [&](auto with) {
    EmbeddingCollection<Items, RowWiseAdagrad, Host, SelfCommunicator> embeddings(self, Host(), {});
    CheckpointContents contents;
    contents.add(embeddings);
    contents.add("item.bias", {8}, std::span(bias));
    with(embeddings, contents);
    embeddings.tables().get_state("item", 0, {sums.data(), 8, 1});
  };
  model([&](auto& embeddings, auto& contents) {
    const auto pooled = embeddings.forward(KeyedJagged<std::int32_t>{1, 2, ids, {}, {}});
    embeddings.backward(pooled, MatrixView<const float>(gradient.data(), 2, 4));
    save_checkpoint(self, folder.path, contents, 1);
  });
  then = sums;
  CHECK(then[3] > 0);
  bias.assign(8, 0.0f);
  model([&](auto&, auto& contents) {
    CHECK(start_from(self, *latest_checkpoint(folder.path), contents).empty());
  });
  CHECK(sums == then);
  CHECK(bias == std::vector<float>(8, 42.0f));
}

TEST_CASE("rows that cannot be are refused, and the model stays as it was") {
  const TemporaryFolder folder;
  run_ranks(1, [&](ThreadCommunicator& c) {
    Model earlier(c, before(1), kBefore);
    save_checkpoint(c, folder.path, earlier.contents, 3);
    const std::filesystem::path saved = folder.path / detail::checkpoint_name(3);
    Model model(c, now(1), kNow);
    const auto refused = [&](const std::string& table, std::vector<std::int64_t> rows,
                             const char* text) {
      CHECK_THROWS_WITH(start_from(c, saved, model.contents, {.rows = {{table, std::move(rows)}}}),
                        doctest::Contains(text));
      CHECK(model.is<float>(kNow));
    };
    refused("absent", {}, "rows of 'absent': there is no such table");
    refused("moved", {1, 2, 3}, "3 rows of table 'moved', which has 90");
    std::vector<std::int64_t> rows = moved_rows();
    rows[89] = 70;
    refused("moved", rows, "'moved.weight' is [70,12] in the checkpoint, [90,12] in the model");
    rows[89] = -2;
    refused("moved", rows, "'moved.weight' is [70,12]");
    CHECK_THROWS_AS(start_from(c, folder.path / "none", model.contents), DataError);
    // load_checkpoint takes the same rows, and says what else differs
    CHECK_THROWS_WITH_AS(
        load_checkpoint(c, saved, model.contents, {.rows = {{"moved", moved_rows()}}}),
        doctest::Contains("the checkpoint has no 'new.weight'"), DataError);
    load_checkpoint(c, saved, model.contents,
                    {.allow_missing = true,
                     .allow_extra = true,
                     .keep = {"wider.*", "shrunk.*", "step", "seed", "epoch", "mlp.*"},
                     .rows = {{"moved", moved_rows()}}});
    CHECK(model.epoch == static_cast<std::int64_t>(kNow) + 8);
    CHECK(model.dense[0] == static_cast<float>(kNow));
  });
}
