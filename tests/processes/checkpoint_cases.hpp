// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Checkpoints of ranks that are processes and of thread ranks are the same files; a fault on one
// rank reaches all. The program has included its engine.
#include <checkpoint/models.hpp>

#include <doctest/doctest.h>

#include <array>
#include <memory>
#include <string>

using namespace models;

namespace {

using Model = Trained<RowWiseAdagrad, float, engine::Comm>;

Layout layout(int ranks) {
  return make_layout({ranks}, {{"cut", 3000, 12}, {"copied", 9, 4}}, {},
                     {{0, {0, 1000, 0, 12}, 0},
                      {0, {1000, 3000, 0, 5}, 1 % ranks},
                      {0, {1000, 3000, 5, 12}, 2 % ranks},
                      {1, {0, 9, 0, 4}, every_rank}});
}

/// A folder that all ranks know.
struct SharedFolder {
  std::unique_ptr<TemporaryFolder> owner;
  std::filesystem::path path;
  explicit SharedFolder(engine::Comm& c) {
    std::array<char, 256> name{};
    if (c.rank() == 0) {
      owner = std::make_unique<TemporaryFolder>();
      owner->path.string().copy(name.data(), name.size() - 1);
    }
    c.broadcast(std::span<char>(name), 0);
    path = name.data();
  }
};

}  // namespace

TEST_CASE("ranks: save, load, and fail together" * doctest::skip(engine::skips_ranks)) {
  auto c = engine::world();
  {
    const SharedFolder folder(c);
    Model model(c, layout(c.size()), 5);
    const CheckpointBase saved = save_checkpoint(c, folder.path, model.contents, 1);
    Model other(c, layout(c.size()), 99);
    load_checkpoint(c, folder.path / saved.name, other.contents);
    CHECK(other.is<float>(5));

    // Thread ranks write the same bytes: the manifest holds the checksums of all of them.
    if (c.rank() == 0) {
      std::uint32_t crc = 0;
      run_ranks(2, [&](ThreadCommunicator& t) {
        Trained<RowWiseAdagrad, float, ThreadCommunicator> threads(t, layout(2), 5);
        const CheckpointBase base =
            save_checkpoint(t, folder.path / "threads", threads.contents, 1);
        if (t.rank() == 0) crc = base.crc;
      });
      CHECK(crc == saved.crc);
    }
    c.barrier();

    // Rank 1 cannot read one file's place in the model: nobody loads.
    CheckpointContents unlike;
    std::vector<float> values(7, 3.0f);
    unlike.add(c.rank() == 1 ? "mlp.weight" : "mlp.bias", {7}, std::span(values));
    CHECK_THROWS_AS(load_checkpoint(c, folder.path / saved.name, unlike), DataError);
    CHECK_THROWS_WITH_AS(save_checkpoint(c, folder.path, unlike, 2),
                         doctest::Contains("do not give the same"), DataError);
    CHECK(detail::checkpoint_steps(folder.path) == std::vector<std::int64_t>{1});
    CHECK(values == std::vector<float>(7, 3.0f));
    c.barrier();
  }
  c.finish();
}
