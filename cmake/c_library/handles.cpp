// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "handles.hpp"

#include <tessera/version.hpp>

#include <fmt/format.h>

#include <pthread.h>

#include <atomic>
#include <exception>
#include <new>
#include <string>

namespace tessera_c {
namespace {

std::atomic<int> fork_count{0};
thread_local std::string last_error;

}  // namespace

int forks() {
  [[maybe_unused]] static const int watched =
      ::pthread_atfork(nullptr, nullptr, [] { fork_count.fetch_add(1); });
  return fork_count.load(std::memory_order_relaxed);
}

tessera_status failed() noexcept {
  const auto keep_text = [](tessera_status status, const char* text) {
    try {
      last_error = text;
    } catch (...) {
      last_error.clear();
    }
    return status;
  };
  try {
    throw;
  } catch (const tessera::BadId& error) {
    return keep_text(TESSERA_BAD_ID, error.what());
  } catch (const tessera::InvalidArgument& error) {
    return keep_text(TESSERA_INVALID_ARGUMENT, error.what());
  } catch (const tessera::DataError& error) {
    return keep_text(TESSERA_DATA_ERROR, error.what());
  } catch (const tessera::CommunicatorError& error) {
    return keep_text(TESSERA_COMMUNICATOR_ERROR, error.what());
  } catch (const Unsupported& error) {
    return keep_text(TESSERA_UNSUPPORTED, error.what());
  } catch (const std::bad_alloc&) {
    return keep_text(TESSERA_OUT_OF_MEMORY, "there is not enough memory");
  } catch (const std::exception& error) {
    return keep_text(TESSERA_INTERNAL, error.what());
  } catch (...) {
    return keep_text(TESSERA_INTERNAL, "something was thrown that is not a std::exception");
  }
}

tessera::BadIds bad_ids_of(int number, std::string_view call) {
  tessera::require(number >= 0 && number <= 3,
                   "{}: bad_ids is {}; give 0 (an error), 1 (a zero vector), 2 (clamp) or 3 (wrap)",
                   call, number);
  return static_cast<tessera::BadIds>(number);
}

std::string_view keep(std::deque<std::string>& names, const char* name, std::string_view call,
                      std::string_view what) {
  tessera::require(name != nullptr && *name != '\0', "{}: {} has no name", call, what);
  return names.emplace_back(name);
}

std::vector<tessera::FeatureSpec> features_of(const tessera_feature* features, std::size_t count,
                                              std::deque<std::string>& names,
                                              std::string_view call) {
  std::vector<tessera::FeatureSpec> specs;
  for (const tessera_feature& feature : array(features, count, call, "features")) {
    const std::string_view name =
        keep(names, feature.name, call, fmt::format("feature {}", specs.size()));
    tessera::require(feature.pooling >= 0 && feature.pooling <= 4,
                     "{}: feature '{}' has pooling {}; there are 0 (sum) to 4 (sequence)", call,
                     name, feature.pooling);
    specs.push_back(
        {.name = name,
         .table = keep(names, feature.table, call, fmt::format("the table of feature '{}'", name)),
         .pooling = static_cast<tessera::Pooling>(feature.pooling),
         .weighted = feature.weighted != 0});
  }
  return specs;
}

}  // namespace tessera_c

const char* tessera_last_error() { return tessera_c::last_error.c_str(); }

#define TESSERA_TEXT_OF(x) #x
#define TESSERA_DOTTED(a, b, c) TESSERA_TEXT_OF(a) "." TESSERA_TEXT_OF(b) "." TESSERA_TEXT_OF(c)
const char* tessera_version() {
  return TESSERA_DOTTED(TESSERA_VERSION_MAJOR, TESSERA_VERSION_MINOR, TESSERA_VERSION_PATCH);
}
