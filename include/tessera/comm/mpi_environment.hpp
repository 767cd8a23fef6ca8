// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>

#include <mpi.h>

#include <cstddef>
#include <string>

namespace tessera { inline namespace v0 {

/// Starts MPI if the program has not, and then ends it on destruction. Keep one in `main`,
/// around every communicator. Throws CommunicatorError if the MPI library cannot give the thread
/// level.
class MpiEnvironment {
 public:
  explicit MpiEnvironment(int thread_level = MPI_THREAD_MULTIPLE) {
    int initialized = 0, provided = 0;
    MPI_Initialized(&initialized);
    owner_ = initialized == 0;
    if (owner_) {
      MPI_Init_thread(nullptr, nullptr, thread_level, &provided);
    } else {
      MPI_Query_thread(&provided);
    }
    if (provided < thread_level)
      throw CommunicatorError(
          -1, "MPI_Init_thread",
          detail::formatted("MPI offers thread level {}, but level {} is asked for; "
                            "ask MpiEnvironment for less, or use an MPI "
                            "library built with threads",
                            provided, thread_level));
  }
  MpiEnvironment(const MpiEnvironment&) = delete;
  MpiEnvironment& operator=(const MpiEnvironment&) = delete;
  ~MpiEnvironment() {
    if (owner_ && !finalized()) MPI_Finalize();
  }

  static bool finalized() {
    int result = 0;
    MPI_Finalized(&result);
    return result != 0;
  }

 private:
  bool owner_ = false;
};

namespace detail {

/// Returns what MPI says about one of its error codes.
inline std::string mpi_error_text(int code) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return formatted("MPI error {}", code);
  return {text, static_cast<std::size_t>(length)};
}

/// Throws CommunicatorError with MPI's own text unless `code` is MPI_SUCCESS.
inline void require_mpi(int code, std::string_view call) {
  if (code != MPI_SUCCESS)
    throw CommunicatorError(-1, call, formatted("{}: {}", call, mpi_error_text(code)));
}

}  // namespace detail

}}  // namespace tessera::v0
