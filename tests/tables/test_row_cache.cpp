// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Parts of a cache: which rows are in which slots, records in files, transfers.
#include <tessera/host/copy_rows.hpp>
#include <tessera/io/safetensors.hpp>
#include <tessera/tables/row_cache.hpp>

#include <support/on_backend.hpp>
#include <support/temporary_folder.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <vector>

using namespace tessera;

TEST_CASE("the directory finds what a map finds, through many insertions and removals") {
  RowDirectory directory(61);
  std::map<std::int64_t, RowDirectory::Slot> expected;
  std::minstd_rand random(5);
  for (int turn = 0; turn < 20'000; ++turn) {
    const std::int64_t row = static_cast<std::int64_t>(random() % 400) << (random() % 3 * 20);
    const auto found = expected.find(row);
    REQUIRE(directory.find(row) == (found == expected.end() ? RowDirectory::none : found->second));
    if (found != expected.end()) continue;
    directory.begin_batch();
    directory.begin_batch();
    const RowDirectory::Slot slot = directory.victims(1).at(0);
    std::erase_if(expected, [&](const auto& entry) { return entry.second == slot; });
    directory.remove(slot);
    directory.insert(slot, row);
    directory.use(slot);
    expected[row] = slot;
  }
  CHECK(expected.size() == 61);
}

TEST_CASE("victims are the oldest rows; those in use and of the batch before are none") {
  RowDirectory directory(5);
  for (RowDirectory::Slot slot = 0; slot < 5; ++slot) {
    directory.begin_batch();
    directory.insert(slot, 10 + slot);
    directory.use(slot);
  }
  directory.begin_batch();
  CHECK(directory.use(1));
  CHECK(!directory.use(1));
  directory.pin(0);
  // 4 was the batch before, 1 is this one's, 0 is pinned
  CHECK(directory.victims(5) == std::vector<RowDirectory::Slot>{2, 3});
  directory.begin_batch();
  CHECK(directory.victims(5) == std::vector<RowDirectory::Slot>{2, 3, 4});
  directory.unpin(0);
  CHECK(directory.victims(2) == std::vector<RowDirectory::Slot>{0, 2});
  directory.forget_batch(1);
  CHECK(directory.victims(5) == std::vector<RowDirectory::Slot>{0, 2, 3, 4, 1});
  on_backend::check_message([] { RowDirectory none(0); }, "a cache of 0 rows");
}

TEST_CASE(
    "records of any size come back from files as they were written, beside their neighbours") {
  const TemporaryFolder folder;
  std::minstd_rand random(3);
  for (const std::int64_t floats : {1, 17, 65, 1500})
    for (const int depth : {0, 8}) {
      CAPTURE(floats);
      const std::int64_t rows = 700;
      RecordFormat format;
      format.add(4 * floats);
      RowFiles files(depth);
      files.add(folder.path / "a.safetensors", 0, 300, format, {{"table", "a"}});
      files.add(folder.path / "b.safetensors", 300, rows - 300, format, {});
      std::vector<float> expected(static_cast<std::size_t>(rows * floats)), memory = expected;
      const auto record = [&](std::vector<float>& values, std::int64_t row) {
        return reinterpret_cast<std::byte*>(values.data() + row * floats);
      };
      for (int turn = 0; turn < 12; ++turn) {
        std::vector<RowFiles::Transfer> transfers;
        for (std::int64_t row = 0; row < rows; ++row) {
          if (turn > 1 && random() % 4 != 0) continue;
          const bool write = turn == 0 || random() % 2 == 0;
          if (write)
            for (std::int64_t c = 0; c < floats; ++c)
              expected[static_cast<std::size_t>(row * floats + c)] =
                  static_cast<float>(random() % 1000);
          transfers.push_back({row, write ? record(expected, row) : record(memory, row), write});
        }
        files.exchange(transfers);
        for (const RowFiles::Transfer& t : transfers)
          if (!t.write)
            REQUIRE(std::memcmp(t.record, record(expected, t.row),
                                static_cast<std::size_t>(format.bytes)) == 0);
      }
      // as anybody reads them
      const SafetensorsReader reader(folder.path / "b.safetensors");
      CHECK((reader.info("records").shape == std::vector<std::int64_t>{rows - 300, 4 * floats}));
      CHECK(std::memcmp(reader.bytes("records").data(), record(expected, 300),
                        static_cast<std::size_t>((rows - 300) * format.bytes)) == 0);
      CHECK(std::memcmp(files.view(299), record(expected, 299),
                        static_cast<std::size_t>(format.bytes)) == 0);
    }
  CHECK(std::filesystem::is_empty(folder.path));
}

TEST_CASE("a file that has become shorter is an error that names it") {
  const TemporaryFolder folder;
  const DirectFile file(folder.path / "short", 8 * DirectFile::block);
  std::filesystem::resize_file(folder.path / "short", DirectFile::block);
  BlockBuffer memory;
  const FileTransfer transfer{&file, 4 * DirectFile::block, memory.resize(DirectFile::block),
                              DirectFile::block};
  for (const unsigned depth : {0u, 4u}) {
    TransferQueue queue(depth);
    on_backend::check_message([&] { queue.read({&transfer, 1}); }, "the file has become shorter");
  }
}
