// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A cache against a table, and its parts: which rows are in which slots, records in files,
// transfers.
#include "../../bench/file_calibration.hpp"

#include <tessera/host/copy_rows.hpp>
#include <tessera/io/safetensors.hpp>
#include <tessera/tables/row_cache.hpp>

#include <support/copy_blocks.hpp>
#include <support/on_backend.hpp>
#include <support/temporary_folder.hpp>

#include <doctest/doctest.h>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace tessera;

TEST_CASE("the directory finds what a map finds, through many insertions and removals") {
  detail::RowDirectory directory(61);
  std::map<std::int64_t, detail::RowDirectory::Slot> expected;
  std::minstd_rand random(5);
  for (int turn = 0; turn < 20'000; ++turn) {
    const std::int64_t row = static_cast<std::int64_t>(random() % 400) << (random() % 3 * 20);
    const auto found = expected.find(row);
    REQUIRE(directory.find(row) ==
            (found == expected.end() ? detail::RowDirectory::none : found->second));
    if (found != expected.end()) continue;
    directory.begin_batch();
    directory.begin_batch();
    const detail::RowDirectory::Slot slot = directory.victims(1).at(0);
    std::erase_if(expected, [&](const auto& entry) { return entry.second == slot; });
    directory.remove(slot);
    directory.insert(slot, row);
    directory.use(slot);
    expected[row] = slot;
  }
  CHECK(expected.size() == 61);
}

TEST_CASE("the directory gives up what a list in order of use gives up, batch by batch") {
  using Slot = detail::RowDirectory::Slot;
  for (const std::int64_t slots : {1, 2, 90}) {
    CAPTURE(slots);
    detail::RowDirectory directory(slots);
    std::map<std::int64_t, Slot> expected;  // by row
    std::vector<Slot> order(static_cast<std::size_t>(slots));
    std::iota(order.begin(), order.end(), 0);
    const auto use = [&](Slot slot) {
      std::erase(order, slot);
      order.push_back(slot);
    };
    std::minstd_rand random(7);
    std::set<Slot> before, now;
    Slot pinned = detail::RowDirectory::none;
    for (int batch = 0; batch < 600; ++batch) {
      CAPTURE(batch);
      before = std::exchange(now, {});
      directory.begin_batch();
      // between few rows and so many that slots run out
      std::vector<std::int64_t> rows(random() % (batch % 5 == 0 ? 60 : 25));
      for (std::int64_t& row : rows) row = static_cast<std::int64_t>(random() % 200) - 5;
      std::vector<std::int64_t> missing;
      directory.find_each(rows, [&](std::size_t i, Slot slot) {
        const auto found = expected.find(rows[i]);
        REQUIRE(slot == (found == expected.end() ? detail::RowDirectory::none : found->second));
        if (slot != detail::RowDirectory::none) {
          const bool first = now.insert(slot).second;
          CHECK(directory.use(slot) == first);
          if (first) use(slot);
        } else if (rows[i] >= 0 && std::count(missing.begin(), missing.end(), rows[i]) == 0) {
          missing.push_back(rows[i]);
        }
      });
      std::vector<Slot> free;
      for (const Slot slot : order)
        if (slot != pinned && !before.contains(slot) && !now.contains(slot)) free.push_back(slot);
      REQUIRE(directory.victims(slots) == free);
      missing.resize(std::min(missing.size(), free.size()));
      free.resize(missing.size());
      REQUIRE(directory.victims(std::ssize(free)) == free);
      directory.replace(free, missing);
      for (std::size_t i = 0; i < free.size(); ++i) {
        CHECK(directory.pins(free[i]) == 1);
        directory.unpin(free[i]);
        std::erase_if(expected, [&](const auto& entry) { return entry.second == free[i]; });
        expected[missing[i]] = free[i];
        now.insert(free[i]);
        use(free[i]);
      }
      for (const auto& [row, slot] : expected) REQUIRE(directory.row(slot) == row);
      if (batch % 4 == 0) {  // longer than its batch and the next keep it
        if (pinned != detail::RowDirectory::none) directory.unpin(pinned);
        pinned = now.empty() ? detail::RowDirectory::none : *now.begin();
        if (pinned != detail::RowDirectory::none) directory.pin(pinned);
      }
      if (batch == 300) {
        directory.clear();
        expected.clear();
        now.clear();
        pinned = detail::RowDirectory::none;
        std::sort(order.begin(), order.end());
      }
    }
  }
}

TEST_CASE("victims are the oldest rows; those in use and of the batch before are none") {
  detail::RowDirectory directory(5);
  for (detail::RowDirectory::Slot slot = 0; slot < 5; ++slot) {
    directory.begin_batch();
    directory.insert(slot, 10 + slot);
    directory.use(slot);
  }
  directory.begin_batch();
  CHECK(directory.use(1));
  CHECK(!directory.use(1));
  directory.pin(0);
  // 4 was the batch before, 1 is this one's, 0 is pinned
  CHECK(directory.victims(5) == std::vector<detail::RowDirectory::Slot>{2, 3});
  directory.begin_batch();
  CHECK(directory.victims(5) == std::vector<detail::RowDirectory::Slot>{2, 3, 4});
  directory.unpin(0);
  CHECK(directory.victims(2) == std::vector<detail::RowDirectory::Slot>{0, 2});
  directory.forget_batch(1);
  CHECK(directory.victims(5) == std::vector<detail::RowDirectory::Slot>{0, 2, 3, 4, 1});
  on_backend::check_message([] { detail::RowDirectory none(0); }, "a cache of 0 rows");
}

TEST_CASE(
    "records of any size come back from files as they were written, beside their neighbours") {
  const TemporaryFolder folder;
  std::minstd_rand random(3);
  for (const std::int64_t floats : {1, 17, 65, 1500})
    for (const int depth : {0, 8}) {
      CAPTURE(floats);
      const std::int64_t rows = 700;
      detail::RecordFormat format;
      format.add(4 * floats);
      detail::RowFiles files(depth);
      files.add(folder.path / "a.safetensors", 0, 300, format, {{"table", "a"}});
      files.add(folder.path / "b.safetensors", 300, rows - 300, format, {});
      std::vector<float> expected(static_cast<std::size_t>(rows * floats)), memory = expected;
      const auto record = [&](std::vector<float>& values, std::int64_t row) {
        return reinterpret_cast<std::byte*>(values.data() + row * floats);
      };
      for (int turn = 0; turn < 12; ++turn) {
        std::vector<detail::RowFiles::Transfer> transfers;
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
        for (const detail::RowFiles::Transfer& t : transfers)
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
  const detail::DirectFile file(folder.path / "short", 8 * detail::DirectFile::block);
  std::filesystem::resize_file(folder.path / "short", detail::DirectFile::block);
  detail::BlockBuffer memory;
  const detail::FileTransfer transfer{&file, 4 * detail::DirectFile::block,
                                      memory.resize(detail::DirectFile::block),
                                      detail::DirectFile::block};
  for (const unsigned depth : {0u, 4u}) {
    detail::TransferQueue queue(depth);
    on_backend::check_message([&] { queue.read({&transfer, 1}); }, "the file has become shorter");
  }
}

TEST_CASE("a clone is the file as it was, or there is none") {
  const TemporaryFolder folder;
  constexpr std::size_t bytes = 4 * detail::DirectFile::block;
  detail::DirectFile file(folder.path / "rows", bytes);
  std::fill_n(file.view(), bytes, std::byte{1});
  const auto as_it_was = [&](const detail::FileClone& clone) {
    file.view()[5000] = std::byte{2};
    file.write_view();
    CHECK(std::all_of(clone.at(file.view()), clone.at(file.view() + bytes),
                      [](std::byte b) { return b == std::byte{1}; }));
    file.view()[5000] = std::byte{1};
  };
  // This folder's file system may be able to, or not.
  if (const auto clone = file.clone()) as_it_was(*clone);
  const CopiedBlocks copied;
  const auto clone = file.clone();
  REQUIRE(clone != nullptr);
  CHECK(CopiedBlocks::calls == 1);
  as_it_was(*clone);
  detail::share_blocks = [](int, int) { return -1; };
  CHECK(file.clone() == nullptr);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path), {}) == 1);
}

TEST_CASE("a file that another lets go of in a moment is waited for, even if it is removed then") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path / "rows";
  for (const bool removed : {false, true}) {
    const int other = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    REQUIRE(::flock(other, LOCK_EX | LOCK_NB) == 0);
    std::thread owner([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      if (removed) std::filesystem::remove(path);
      ::close(other);
    });
    {
      const detail::DirectFile file(path, 4096);
      owner.join();
      CHECK(std::filesystem::file_size(path) == 4096);
    }
    CHECK(!std::filesystem::exists(path));
  }
}

TEST_CASE("why a table file cannot be emptied is the system's word") {
  const TemporaryFolder folder;
  const std::string path = (folder.path / "pipe").string();
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  errno = EPERM;  // of what went wrong before
  on_backend::check_message([&] { detail::DirectFile(path, 4096); },
                            "cannot empty '" + path + "': Invalid argument");
}

TEST_CASE("a disk is measured in the folder that was named, which is empty again") {
  using bench::FileSpeed;
  const TemporaryFolder folder;
  const FileSpeed speed = bench::measure_files(folder.path.string(), 1 << 20, 20, 1);
  CHECK(speed.bandwidth > 0);
  CHECK(speed.queue_depth >= 1);
  CHECK(speed.queue_depth <= 256);
  CHECK(std::filesystem::is_empty(folder.path));
  const bench::Disk disk(folder.path.string(), 1 << 20);
  CHECK(std::filesystem::is_empty(folder.path));  // also if a signal ends the process
  on_backend::check_message([&] { bench::measure_files((folder.path / "none").string()); },
                            "--files: there is no folder");
  // the shallowest queue that is about as fast as any
  CHECK(bench::shallowest({{1e8, 1}, {4.75e8, 4}, {5e8, 16}, {4e8, 64}}).queue_depth == 4);
  CHECK(bench::shallowest({{1e8, 1}, {4.7e8, 4}, {5e8, 16}}).bandwidth == 5e8);
}

namespace {

/// Mistakes in a cache that a test must see.
enum class Fault : std::uint8_t { none, pinned_victim, missing_write_back, late_fetch };
Fault planted = Fault::none;

struct FaultyDirectory : detail::RowDirectory {
  using detail::RowDirectory::RowDirectory;

  std::vector<Slot> victims(std::int64_t count) const {
    std::vector<Slot> chosen = detail::RowDirectory::victims(count);
    if (planted == Fault::pinned_victim && !chosen.empty())
      for (Slot slot = 0; slot < slots(); ++slot)
        if (pins(slot) > 0) {
          chosen.front() = slot;
          break;
        }
    return chosen;
  }
  bool dirty(Slot slot) const {
    return planted != Fault::missing_write_back && detail::RowDirectory::dirty(slot);
  }
};

/// A host that does its work when it is waited for, as a GPU may.
struct Late : Host {
  std::shared_ptr<std::vector<std::function<void()>>> work =
      std::make_shared<std::vector<std::function<void()>>>();
  std::shared_ptr<std::size_t> waited = std::make_shared<std::size_t>(0);

  void copy(void* to, const void* from, std::size_t bytes) const {
    const auto* const first = static_cast<const std::byte*>(from);
    work->push_back([to, copied = std::vector<std::byte>(first, first + bytes)] {
      std::memcpy(to, copied.data(), copied.size());
    });
  }
  /// With a late fetch: does what was given before it was last waited for.
  void synchronize() const {
    const std::size_t end = planted == Fault::late_fetch ? *waited : work->size();
    for (std::size_t i = 0; i < end; ++i) (*work)[i]();
    work->erase(work->begin(), work->begin() + static_cast<std::ptrdiff_t>(end));
    *waited = work->size();
  }
};

}  // namespace

template <>
struct tessera::op::Kernel<tessera::op::CopyRows, Late> {
  static void run(const Late& backend, const op::CopyRows::Parameters& p) {
    backend.work->push_back([p] { op::Kernel<op::CopyRows, Host>::run(Host(), p); });
  }
};

namespace {

/// Rows of three numbers and a state behind a cache, and what they should be.
class CachedRows {
 public:
  /// `file`: where the rows stay; empty: in memory.
  explicit CachedRows(const std::string& file) {
    detail::RecordFormat format;
    format.add(3 * sizeof(float));
    format.add(sizeof(float));
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t c = 0; c < 4; ++c) expected_[row][c] = static_cast<float>(10 * row + c);
    cache_ = std::make_shared<Cache>(backend_, slots, fields(weights_, states_), format, "cache");
    if (file.empty()) {
      cache_->in_memory(fields(resting_weights_, resting_states_));
      write_resting(0, rows);
    } else {
      cache_->in_files(8).add(file, 0, rows, format, {});
      cache_->fill_all(rows, [&](std::int64_t first, std::int64_t count) {
        for (std::int64_t i = 0; i < count; ++i) write_slot(i, first + i);
      });
    }
  }

  /// Trains as RouteAhead does, among all else that reads or changes rows. Returns how many numbers
  /// were not what they should be. A fault is planted when buffers have grown as far as they will.
  std::int64_t train(Fault fault) {
    planted = Fault::none;
    for (int i = 0; i < 8; ++i) {
      Batch batch = fetch(Cache::For::batch, 40);
      update(batch);
      update(fetch(Cache::For::task, 40));
    }
    planted = fault;
    check_resting();
    Batch now = fetch(Cache::For::batch, 40);
    for (int step = 0; step < 300; ++step) {
      Batch next = fetch(Cache::For::batch, 40);
      if (step % 5 == 1) {
        Batch evaluated = fetch(Cache::For::batch, 30);
        check(evaluated);
        evaluated.pins.release(true);
      }
      if (step % 7 == 2) update(fetch(Cache::For::task, 6));
      if (step % 20 == 9) check_resting();
      if (step % 20 == 11) set_rows();
      update(now);
      check(next);
      now = std::move(next);
    }
    planted = Fault::none;
    return wrong_;
  }

 private:
  static constexpr std::int64_t rows = 400, slots = 130;
  using Cache = detail::RowCache<Late, FaultyDirectory>;
  using Row = std::array<float, 4>;

  struct Batch {
    std::vector<std::int64_t> rows;
    std::vector<detail::RowDirectory::Slot> slots;
    Cache::Pins pins;
  };

  static detail::PodVector<std::byte*> fields(std::vector<float>& weights,
                                              std::vector<float>& states) {
    return {reinterpret_cast<std::byte*>(weights.data()),
            reinterpret_cast<std::byte*>(states.data())};
  }

  Batch fetch(Cache::For what, std::int64_t count) {
    Batch batch;
    for (std::int64_t i = 0; i < count; ++i)
      batch.rows.push_back(static_cast<std::int64_t>(random_() % (random_() % 2 ? 20 : rows)) -
                           (i == 7));
    batch.slots.resize(batch.rows.size());
    batch.pins = Cache::acquire(cache_, backend_, batch.rows, batch.slots, what);
    return batch;
  }

  Row slot_row(std::int64_t slot) const {
    const float* const w = weights_.data() + 3 * slot;
    return {w[0], w[1], w[2], states_[static_cast<std::size_t>(slot)]};
  }
  void write_slot(std::int64_t slot, std::int64_t row) {
    const Row& values = expected_[row];
    std::copy_n(values.data(), 3, weights_.data() + 3 * slot);
    states_[static_cast<std::size_t>(slot)] = values[3];
  }
  void check(const Batch& batch) {
    for (std::size_t i = 0; i < batch.rows.size(); ++i) {
      if (batch.rows[i] < 0) {
        wrong_ += batch.slots[i] != detail::RowDirectory::none;
      } else {
        wrong_ += slot_row(batch.slots[i]) != expected_[batch.rows[i]];
        wrong_ += cache_->table_rows()[batch.slots[i]] != batch.rows[i];
      }
    }
  }
  void update(const Batch& batch) {
    check(batch);
    batch.pins.mark_changed();
    for (std::size_t i = 0; i < batch.rows.size(); ++i) {
      if (batch.rows[i] < 0) continue;
      for (float& x : expected_[batch.rows[i]]) x = static_cast<float>(random_() % 10'000);
      write_slot(batch.slots[i], batch.rows[i]);
    }
  }

  float* resting(std::int64_t row, std::size_t field) {
    return reinterpret_cast<float*>(cache_->resting_rows(0, field) + row * cache_->stride(field));
  }
  void write_resting(std::int64_t first, std::int64_t end) {
    for (std::int64_t row = first; row < end; ++row) {
      std::copy_n(expected_[row].data(), 3, resting(row, 0));
      *resting(row, 1) = expected_[row][3];
    }
  }
  void check_resting() {
    cache_->flush();
    for (std::int64_t row = 0; row < rows; ++row)
      wrong_ += std::memcmp(resting(row, 0), expected_[row].data(), 3 * sizeof(float)) != 0 ||
                *resting(row, 1) != expected_[row][3];
  }
  /// As `tables().set`.
  void set_rows() {
    cache_->flush();
    const auto first = static_cast<std::int64_t>(random_() % 300);
    for (std::int64_t row = first; row < first + 100; ++row) expected_[row][1] += 0.5f;
    write_resting(first, first + 100);
    cache_->reload();
    cache_->refresh();
  }

  Late backend_;
  std::minstd_rand random_{11};
  std::map<std::int64_t, Row> expected_;
  std::vector<float> weights_ = std::vector<float>(3 * slots), states_ = std::vector<float>(slots),
                     resting_weights_ = std::vector<float>(3 * rows),
                     resting_states_ = std::vector<float>(rows);
  std::shared_ptr<Cache> cache_;
  std::int64_t wrong_ = 0;
};

}  // namespace

TEST_CASE("rows behind a cache are those of a table; a fault planted in the cache is seen") {
  const TemporaryFolder folder;
  for (const std::string& file : {std::string(), (folder.path / "rows").string()}) {
    CAPTURE(file);
    CHECK(CachedRows(file).train(Fault::none) == 0);
    CHECK(CachedRows(file).train(Fault::pinned_victim) > 100);
    CHECK(CachedRows(file).train(Fault::missing_write_back) > 100);
    CHECK(CachedRows(file).train(Fault::late_fetch) > 100);
  }
}
