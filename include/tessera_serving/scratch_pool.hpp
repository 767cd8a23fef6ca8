// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// Objects that one call uses at a time; as many are made as calls run at once. Thread-safe.
template <class Scratch>
class ScratchPool {
 public:
  using Make = std::function<std::unique_ptr<Scratch>()>;

  /// Makes the first one: what cannot be made is an error now.
  explicit ScratchPool(Make make) : make_(std::move(make)) {
    idle_.push_back(make_());
    made_ = 1;
  }

  /// One of them, which goes back at the end.
  class Lease {
   public:
    explicit Lease(ScratchPool& pool) : pool_(pool), scratch_(pool.take()) {}
    ~Lease() {
      const std::lock_guard lock(pool_.mutex_);
      pool_.idle_.push_back(std::move(scratch_));  // there is room
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    Scratch& operator*() const { return *scratch_; }

   private:
    ScratchPool& pool_;
    std::unique_ptr<Scratch> scratch_;
  };

 private:
  std::unique_ptr<Scratch> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        auto scratch = std::move(idle_.back());
        idle_.pop_back();
        return scratch;
      }
      idle_.reserve(++made_);
    }
    return make_();
  }

  Make make_;
  std::mutex mutex_;  ///< of what follows
  std::vector<std::unique_ptr<Scratch>> idle_;
  std::size_t made_ = 0;
};

}}}  // namespace tessera::v0::detail
