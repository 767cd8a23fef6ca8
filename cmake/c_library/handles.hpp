// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// What stands behind the pointers of tessera.h, and the one way out of its functions.
#pragma once

#include <tessera/tessera.h>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/thread_group.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/jagged.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/op/inputs.hpp>
#include <tessera/sharding/layout.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera_c {

/// How many forks are between this process and the one that first used the library.
int forks();

/// Keeps the text for tessera_last_error and returns the status of the exception that is caught.
tessera_status failed() noexcept;

/// Something that this library was built without.
class Unsupported : public tessera::Error {
 public:
  using Error::Error;
};

/// Every function of tessera.h goes through here: nothing that is thrown leaves the library.
template <class F>
tessera_status call(F&& f) noexcept {
  try {
    f();
    return TESSERA_OK;
  } catch (...) {
    return failed();
  }
}

/// Base of what a pointer of tessera.h points to.
struct Handle {
  int made_after_forks = forks();
};

/// Returns what a pointer points to. Throws InvalidArgument for NULL and in the child of a fork.
template <class T>
T& checked(T* pointer, std::string_view call, std::string_view what) {
  tessera::require(pointer != nullptr, "{}: {} is NULL", call, what);
  if constexpr (std::is_base_of_v<Handle, T>)
    tessera::require(pointer->made_after_forks == forks(),
                     "{}: this process is a fork of the one that made its {}; make one here "
                     "(processes that are started anew, not forked, have no such limit)",
                     call, what);
  return *pointer;
}

/// Returns the options that a caller of this or an earlier version gives.
template <class Options>
const Options& sized(const Options* options, std::string_view call, std::string_view what) {
  const Options& given = checked(options, call, what);
  tessera::require(given.struct_size == sizeof(Options),
                   "{}: struct_size of {} is {}, must be {}: the program was compiled with the "
                   "tessera.h of another version, or did not fill it in",
                   call, what, given.struct_size, sizeof(Options));
  return given;
}

/// Views an array of a caller. Throws InvalidArgument for NULL with a size.
template <class T>
std::span<T> array(T* values, std::size_t count, std::string_view call, std::string_view what) {
  tessera::require(values != nullptr || count == 0, "{}: {} is NULL, but has {} elements", call,
                   what, count);
  return {values, count};
}

tessera::BadIds bad_ids_of(int number, std::string_view call);
std::vector<tessera::FeatureSpec> features_of(const tessera_feature* features, std::size_t count,
                                              std::deque<std::string>& names,
                                              std::string_view call);

/// Calls f(KeyedJagged<Id>) with a caller's batch.
template <class F>
void with_batch(const tessera_batch* batch, std::string_view call, F&& f) {
  const tessera_batch& given = checked(batch, call, "batch");
  tessera::require(given.id_bits == 32 || given.id_bits == 64,
                   "{}: id_bits is {}; ids are signed and have 32 or 64", call, given.id_bits);
  tessera::require(given.features >= 0 && given.samples >= 0,
                   "{}: features ({}) and samples ({}) must not be negative", call, given.features,
                   given.samples);
  std::int64_t bags = 0;
  tessera::require(!__builtin_mul_overflow(given.features, given.samples, &bags) &&
                       bags < (std::int64_t{1} << 48),
                   "{}: {} features x {} samples are too many bags", call, given.features,
                   given.samples);
  const auto run = [&]<class Id>(const Id* ids) {
    tessera::KeyedJagged<Id> view{};
    view.features = given.features;
    view.batch = given.samples;
    view.ids = array(ids, given.id_count, call, "ids");
    if (given.offsets != nullptr)
      view.offsets = {given.offsets, static_cast<std::size_t>(bags) + 1};
    if (given.weights != nullptr) view.weights = {given.weights, given.id_count};
    f(view);
  };
  if (given.id_bits == 32)
    run(static_cast<const std::int32_t*>(given.ids));
  else
    run(static_cast<const std::int64_t*>(given.ids));
}

/// A matrix of the caller's.
template <class T>
tessera::MatrixView<T> matrix(T* values, std::int64_t rows, std::int64_t columns,
                              std::int64_t stride, std::string_view call, std::string_view what) {
  tessera::require(values != nullptr || rows == 0 || columns == 0,
                   "{}: {} is NULL, but is [{}, {}]", call, what, rows, columns);
  tessera::require(stride >= columns, "{}: the stride of {} is {} floats, but rows have {}", call,
                   what, stride, columns);
  return {values, rows, columns, stride};
}

/// Copies a name. Throws InvalidArgument for NULL and no name.
std::string_view keep(std::deque<std::string>& names, const char* name, std::string_view call,
                      std::string_view what);

}  // namespace tessera_c

namespace tessera_c {

/// Communicators of GPUs whose waits a failure of one of these ranks ends.
class WaitsOfGpus {
 public:
  using End = std::function<void(const std::string&)>;
  void add(End end) {
    const std::lock_guard lock(mutex_);
    if (failed_) end(*failed_);
    ends_.push_back(std::move(end));
  }
  void end(const std::string& text) {
    const std::lock_guard lock(mutex_);
    failed_ = text;
    for (const End& end : ends_) end(text);
  }

 private:
  std::mutex mutex_;
  std::optional<std::string> failed_;
  std::vector<End> ends_;
};

}  // namespace tessera_c

struct tessera_communicator : tessera_c::Handle {
  template <class C>
  explicit tessera_communicator(std::shared_ptr<C> given,
                                std::optional<std::chrono::nanoseconds> most = {})
      : any(std::make_shared<tessera::AnyCommunicator>(*given)), owner(given), timeout(most) {
    if constexpr (requires { given->group(); }) threads = &given->group();
    if constexpr (requires { given->fail(std::string()); })
      fail = [given](const std::string& text) { given->fail(text); };
    else if constexpr (requires { given->interrupt(std::string()); })
      fail = [given](const std::string& text) { given->interrupt(text); };
  }

  std::shared_ptr<tessera::AnyCommunicator> any;
  std::shared_ptr<void> owner;  ///< of what `any` refers to
  std::function<void(const std::string&)> fail{};
  std::optional<std::chrono::nanoseconds> timeout;  ///< as given; none: it has no such wait
  tessera::ThreadGroup* threads = nullptr;          ///< of ranks that are threads
  /// of this process's ranks of the job
  std::shared_ptr<tessera_c::WaitsOfGpus> waits = std::make_shared<tessera_c::WaitsOfGpus>();
};

struct tessera_layout : tessera_c::Handle {
  std::shared_ptr<std::deque<std::string>> names = std::make_shared<std::deque<std::string>>();
  tessera::Layout layout{};  ///< refers to `names`
  std::string text{};        ///< of its plan file
};
