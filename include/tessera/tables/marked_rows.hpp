// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/pod_vector.hpp>
#include <tessera/core/row_marks.hpp>
#include <tessera/op/mark_rows.hpp>
#include <tessera/tables/buffer.hpp>
#include <tessera/tables/rank_layout.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// RowMarks of one collection: a bit for each row of its arenas. It is one of `all`, whose bits
/// updates set, as long as it lives.
template <class Backend>
class MarkedRows final : public RowMarks {
 public:
  MarkedRows(const Backend& backend, const std::vector<ArenaPlan>& arenas,
             PodVector<MarkedRows*>& all)
      : backend_(backend), all_(all) {
    for (const ArenaPlan& arena : arenas) {
      words_.emplace_back();
      words_.back().resize(backend, static_cast<std::size_t>(arena.rows + 31) / 32);
    }
    clear();
    all_.push_back(this);
  }
  MarkedRows(const MarkedRows&) = delete;
  MarkedRows& operator=(const MarkedRows&) = delete;
  ~MarkedRows() override { all_.remove(this); }

  void clear() override {
    for (const Buffer<std::uint32_t, Backend>& words : words_)
      backend_.fill_zero(words.data(), words.size() * sizeof(std::uint32_t));
  }

  std::vector<std::int64_t> changed(int arena, std::int64_t begin,
                                    std::int64_t end) const override {
    std::vector<std::int64_t> rows;
    if (begin == end) return rows;
    const std::int64_t first = begin / 32, count = (end + 31) / 32 - first;
    std::vector<std::uint32_t> words(static_cast<std::size_t>(count));
    backend_.copy(words.data(), words_[static_cast<std::size_t>(arena)].data() + first,
                  words.size() * sizeof(std::uint32_t));
    backend_.synchronize();
    for (std::int64_t w = 0; w < count; ++w)
      for (std::uint32_t rest = words[static_cast<std::size_t>(w)]; rest != 0; rest &= rest - 1)
        if (const std::int64_t row = (first + w) * 32 + std::countr_zero(rest);
            row >= begin && row < end)
          rows.push_back(row - begin);
    return rows;
  }

  /// Marks the rows of an arena that bags name.
  template <IdType Id>
  void mark(std::size_t arena, std::span<const op::Bags<Id>> bags) {
    op::run<op::MarkRows<Id>>(backend_, {bags, words_[arena].data()});
  }
  /// Marks rows of an arena, whose numbers are in the host's memory.
  void mark_rows(std::size_t arena, std::span<const std::int64_t> rows) {
    Buffer<std::int64_t, Backend> ids;
    ids.resize(backend_, rows.size());
    backend_.copy(ids.data(), rows.data(), rows.size_bytes());
    op::Bags<std::int64_t> bags;
    bags.ids = ids.data();
    bags.bags = bags.entry_bound = std::ssize(rows);
    mark<std::int64_t>(arena, {&bags, 1});
    backend_.synchronize();
  }

 private:
  Backend backend_;
  PodVector<MarkedRows*>& all_;
  std::vector<Buffer<std::uint32_t, Backend>> words_;  ///< by arena
};

}}}  // namespace tessera::v0::detail
