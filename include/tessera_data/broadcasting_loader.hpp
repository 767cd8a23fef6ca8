// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/communicator.hpp>
#include <tessera/core/error.hpp>
#include <tessera_data/click_batch.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <future>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// Which rank reads, and whether a batch ahead.
struct BroadcastingLoaderOptions {
  int root = 0;  ///< the rank that reads
  /// read and hand out the next batch on a thread of each rank while this one is used
  bool prefetch = true;
};

/// One rank reads, all ranks get their part, a run of samples in rank order; sizes differ by one at
/// most, the first ranks' are the larger. `next` is a collective call; with prefetch it takes what
/// a thread has fetched, which uses `communicator` alone until the loader is destroyed: give it one
/// of its own. Two messages per rank and batch.
template <IdType Id, Communicator<Collective::all_to_all | Collective::broadcast> C>
class BroadcastingLoader {
 public:
  /// Fills the next global batch and returns true, or returns false if the data ends. Called on
  /// the root alone.
  using Read = std::function<bool(ClickBatch<Id>&)>;

  BroadcastingLoader(C& communicator, Read read, BroadcastingLoaderOptions options = {})
      : communicator_(communicator), read_(std::move(read)), options_(options) {
    require(options.root >= 0 && options.root < communicator.size(),
            "BroadcastingLoader: root {} is not a rank (0..{})", options.root,
            communicator.size() - 1);
    require(communicator.rank() != options.root || read_,
            "BroadcastingLoader: rank {} reads, but was given no function to read with",
            options.root);
  }
  BroadcastingLoader(const BroadcastingLoader&) = delete;
  BroadcastingLoader& operator=(const BroadcastingLoader&) = delete;

  /// Reads this rank's part of the next batch; false if the data ends, on all ranks at once.
  /// Throws DataError on every rank if reading failed, with the reader's text. Buffers of `part`
  /// are reused.
  bool next(ClickBatch<Id>& part) {
    if (!options_.prefetch) return fetch(part);
    if (!coming_.valid()) prefetch();
    const bool there = coming_.get();
    if (!there) {
      coming_ = std::async(std::launch::deferred, [] { return false; });
      return false;
    }
    std::swap(part, next_);
    prefetch();
    return true;
  }

 private:
  enum Status : std::int64_t { end, batch, failed };
  /// What each rank is told first: of its part, or the length of the reader's text.
  struct Header {
    std::int64_t status = 0, size = 0, features = 0, dense_columns = 0, ids = 0, one_hot = 0,
                 text = 0;
  };

  void prefetch() {
    coming_ = std::async(std::launch::async, [this] { return fetch(next_); });
  }

  bool fetch(ClickBatch<Id>& part) {
    const auto ranks = static_cast<std::size_t>(communicator_.size()),
               mine = static_cast<std::size_t>(communicator_.rank());
    const bool root = communicator_.rank() == options_.root;
    headers_.assign(ranks, Header{});
    std::string text;
    if (root) text = read_and_pack();
    communicator_.broadcast(std::span(headers_), options_.root);
    const Header& header = headers_[mine];
    if (header.status == failed) {
      text.resize(static_cast<std::size_t>(header.text));
      communicator_.broadcast(std::span(text), options_.root);
      throw DataError(text);
    }
    if (header.status == end) return false;
    std::vector<std::size_t> to(ranks), from(ranks);
    for (std::size_t r = 0; root && r < ranks; ++r) to[r] = bytes_of(headers_[r]);
    from[static_cast<std::size_t>(options_.root)] = bytes_of(header);
    received_.resize(bytes_of(header));
    communicator_.all_to_all(std::span<const std::byte>(packed_.data(), root ? packed_.size() : 0),
                             to, std::span(received_), from);
    unpack(header, part);
    return true;
  }

  /// Returns, on the root, headers and bytes for all, or the text of what went wrong.
  std::string read_and_pack() {
    std::string text;
    Status status = failed;
    try {
      status = read_(whole_) ? batch : end;
    } catch (const std::exception& error) {
      text = detail::formatted("rank {}, which reads for all: {}", options_.root, error.what());
    }
    const auto ranks = std::ssize(headers_);
    const auto cut = [&](std::int64_t r) {
      return whole_.size / ranks * r + std::min(r, whole_.size % ranks);
    };
    packed_.clear();
    for (std::int64_t r = 0; r < ranks; ++r) {
      Header& header = headers_[static_cast<std::size_t>(r)];
      header = Header{.status = status, .text = std::ssize(text)};
      if (status == batch) pack(cut(r), cut(r + 1), header);
    }
    return text;
  }

  void pack(std::int64_t first, std::int64_t last, Header& header) {
    header.size = last - first;
    header.features = whole_.features;
    header.dense_columns = whole_.dense_columns;
    header.one_hot = whole_.offsets.empty();
    append(std::span(whole_.labels), first, last);
    append(std::span(whole_.dense), first * whole_.dense_columns, last * whole_.dense_columns);
    // Feature by feature: this rank's samples are a run of each.
    const auto bag = [&](std::int64_t f, std::int64_t s) {
      return static_cast<std::size_t>(f * whole_.size + s);
    };
    if (header.one_hot != 0) {
      header.ids = header.size * header.features;
    } else {
      offsets_.assign(1, 0);
      for (std::int64_t f = 0; f < header.features; ++f)
        for (std::int64_t s = first; s < last; ++s)
          offsets_.push_back(offsets_.back() + whole_.offsets[bag(f, s) + 1] -
                             whole_.offsets[bag(f, s)]);
      header.ids = offsets_.back();
      append(std::span(offsets_), 0, std::ssize(offsets_));
    }
    for (std::int64_t f = 0; f < header.features; ++f) {
      const std::size_t begin = bag(f, first), stop = bag(f, last);
      if (header.one_hot != 0)
        append(std::span(whole_.ids), static_cast<std::int64_t>(begin),
               static_cast<std::int64_t>(stop));
      else
        append(std::span(whole_.ids), whole_.offsets[begin], whole_.offsets[stop]);
    }
  }

  template <class T>
  void append(std::span<T> values, std::int64_t begin, std::int64_t stop) {
    const auto bytes = std::as_bytes(
        values.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(stop - begin)));
    packed_.insert(packed_.end(), bytes.begin(), bytes.end());
  }

  static std::size_t bytes_of(const Header& h) {
    const std::int64_t offsets = h.one_hot != 0 ? 0 : h.features * h.size + 1;
    return static_cast<std::size_t>(h.size * (1 + h.dense_columns)) * sizeof(float) +
           static_cast<std::size_t>(offsets) * sizeof(std::int64_t) +
           static_cast<std::size_t>(h.ids) * sizeof(Id);
  }

  void unpack(const Header& header, ClickBatch<Id>& part) const {
    part.size = header.size;
    part.features = header.features;
    part.dense_columns = header.dense_columns;
    const std::byte* at = received_.data();
    const auto take = [&]<class T>(std::vector<T>& values, std::int64_t count) {
      values.resize(static_cast<std::size_t>(count));
      if (count != 0) std::memcpy(values.data(), at, values.size() * sizeof(T));
      at += values.size() * sizeof(T);
    };
    take(part.labels, header.size);
    take(part.dense, header.size * header.dense_columns);
    take(part.offsets, header.one_hot != 0 ? 0 : header.features * header.size + 1);
    take(part.ids, header.ids);
  }

  C& communicator_;
  Read read_;
  BroadcastingLoaderOptions options_;
  ClickBatch<Id> whole_, next_;
  std::vector<Header> headers_;
  std::vector<std::int64_t> offsets_;
  std::vector<std::byte> packed_, received_;
  std::future<bool> coming_;  // last: its thread uses the others
};

}}  // namespace tessera::v0
