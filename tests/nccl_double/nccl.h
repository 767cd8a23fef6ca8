// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

// Stands in for NCCL's header of the same name: the calls that the communicator makes, between threads of one process, on streams of
// the CUDA double beside it, or of the emulator (simt/toolkit/cuda_runtime_api.h). Bytes move when all have come, as NCCL's kernels do; what never comes, hangs until an abort. Written from
// NCCL's documentation. Between processes: nccl_processes.hpp. What tests may set and read is in namespace nccl_double at the end.

#define NCCL_VERSION_CODE 22809
#define NCCL_CONFIG_INITIALIZER \
  { 1 }
#define NCCL_UNIQUE_ID_BYTES 128

enum ncclResult_t {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7
};
enum ncclDataType_t { ncclInt8 = 0, ncclInt32 = 2, ncclInt64 = 4, ncclUint64 = 5, ncclFloat32 = 7, ncclFloat64 = 8 };
enum ncclRedOp_t { ncclSum = 0, ncclMax = 2, ncclMin = 3 };
struct ncclUniqueId {
  char internal[NCCL_UNIQUE_ID_BYTES];
};
struct ncclConfig_t {
  int blocking;
};
#define NCCL_REVOKE_DEFAULT 0

namespace nccl_double {

/// What a thread (a rank) can ask of its own calls: the n-th call of a name returns `result`.
struct Faults {
  std::string call;
  int nth = 1;
  ncclResult_t result = ncclSystemError;
};
inline thread_local Faults faults;
inline thread_local std::vector<std::string> log;  ///< every call of this thread
inline std::atomic<int> version{NCCL_VERSION_CODE};
inline std::atomic<int> polls{2};  ///< how often a non-blocking call answers "in progress"
/// A graph that captured a communicator: none ends while it lives.
inline std::atomic<bool> graph_lives{false};
/// The first group of a blocking communicator returns when all ranks have come to theirs, as where connections are made.
inline std::atomic<bool> first_group_connects{false};
inline std::atomic<bool> sums_in_reverse{std::getenv("TESSERA_NCCL_DOUBLE_REVERSE") != nullptr};
inline std::atomic<bool> aborts_reach_peers{false};
/// Blocks of bytes that were sent or received from a place that is no multiple of 16 bytes, of all ranks. NCCL moves a call's bytes 16 at
/// a time only if all of its blocks begin at such places, else one at a time.
inline std::atomic<std::uint64_t> unaligned_blocks{0};

/// Groups of calls that ranks of this process have made, replayed ones, too: collectives, to who counts them. At its end the process
/// writes them to the file that TESSERA_NCCL_DOUBLE_COUNT names.
inline std::atomic<std::uint64_t> groups{0};
inline const struct Told {
  ~Told() {
    if (const char* const file = std::getenv("TESSERA_NCCL_DOUBLE_COUNT")) std::ofstream(file) << groups;
  }
} told;

inline ncclResult_t note(std::string_view call, const std::string& what = "") {
  log.push_back(what.empty() ? std::string(call) : std::string(call) + " " + what);
  return faults.call == call && --faults.nth == 0 ? faults.result : ncclSuccess;
}

inline std::size_t size_of(ncclDataType_t type) { return type == ncclInt8 ? 1 : type == ncclInt32 || type == ncclFloat32 ? 4 : 8; }

enum class Kind { send, receive, broadcast, reduce, all_reduce, reduce_scatter, all_gather, all_to_all };
struct Operation {
  Kind kind;
  const void* from = nullptr;
  void* to = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclInt8;
  ncclRedOp_t reduction = ncclSum;
  int peer = 0;  // or root
  bool captured = false;  // in a graph; NCCL wants that alike on all ranks
  bool done = false;
  std::size_t bytes() const { return count * size_of(type); }
};

template <class T>
T reduce(ncclRedOp_t reduction, T a, T b) {
  return reduction == ncclSum ? static_cast<T>(a + b) : reduction == ncclMin ? std::min(a, b) : std::max(a, b);
}
/// to = reduction over all `from`, in rank order or in reverse. `to` may be one of `from`.
template <class T>
void reduce_all(ncclRedOp_t reduction, std::vector<const void*> from, void* to, std::size_t count) {
  if (sums_in_reverse) std::reverse(from.begin(), from.end());
  std::vector<T> result(count);
  if (count != 0) std::memcpy(result.data(), from[0], count * sizeof(T));
  for (std::size_t r = 1; r < from.size(); ++r)
    for (std::size_t i = 0; i < count; ++i) result[i] = reduce(reduction, result[i], static_cast<const T*>(from[r])[i]);
  if (count != 0) std::memcpy(to, result.data(), count * sizeof(T));
}
inline void reduce_all(ncclDataType_t type, ncclRedOp_t reduction, const std::vector<const void*>& from, void* to, std::size_t count) {
  switch (type) {
    case ncclInt8:
      return reduce_all<std::int8_t>(reduction, from, to, count);
    case ncclInt32:
      return reduce_all<std::int32_t>(reduction, from, to, count);
    case ncclInt64:
      return reduce_all<std::int64_t>(reduction, from, to, count);
    case ncclUint64:
      return reduce_all<std::uint64_t>(reduction, from, to, count);
    case ncclFloat32:
      return reduce_all<float>(reduction, from, to, count);
    case ncclFloat64:
      return reduce_all<double>(reduction, from, to, count);
  }
}

/// Where the ranks of one communicator meet. All bytes are moved under its mutex, so that an abort takes a rank's buffers out safely.
class Hub {
 public:
  explicit Hub(int ranks)
      : errors(static_cast<std::size_t>(ranks), ncclSuccess),
        aborted(static_cast<std::size_t>(ranks), false),
        revoked(static_cast<std::size_t>(ranks), false),
        ranks_(ranks),
        collectives_(static_cast<std::size_t>(ranks)) {}

  int ranks() const { return ranks_; }
  void join() {
    const std::lock_guard lock(mutex);
    ++joined_;
    changed.notify_all();
  }
  bool complete() {
    const std::lock_guard lock(mutex);
    return joined_ == ranks_;
  }
  void wait_until_complete() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return joined_ == ranks_; });
  }
  /// A blocking call of a rank waits until all ranks are connected, or the rank is revoked.
  ncclResult_t connect(int rank) {
    std::unique_lock lock(mutex);
    ++connected_;
    changed.notify_all();
    changed.wait(lock, [&] { return connected_ >= ranks_ || revoked[static_cast<std::size_t>(rank)]; });
    return connected_ >= ranks_ ? ncclSuccess : ncclInternalError;
  }
  /// Whether a rank has left.
  bool ended(int rank) {
    const std::lock_guard lock(mutex);
    return aborted[static_cast<std::size_t>(rank)] || revoked[static_cast<std::size_t>(rank)];
  }
  void revoke(int rank) {
    const std::lock_guard lock(mutex);
    revoked[static_cast<std::size_t>(rank)] = true;
    changed.notify_all();
  }

  /// Does the operations of one group of `rank`, all at once: returns when all are done, or the rank has aborted.
  void run(int rank, std::vector<Operation> group) {
    std::unique_lock lock(mutex);
    if (aborted[static_cast<std::size_t>(rank)] || revoked[static_cast<std::size_t>(rank)]) return;
    for (Operation& operation : group) {
      if (operation.kind == Kind::send) {
        sends_[{rank, operation.peer}].push_back(&operation);
      } else if (operation.kind == Kind::receive) {
        receives_[{operation.peer, rank}].push_back(&operation);
      } else {
        collectives_[static_cast<std::size_t>(rank)].push_back(&operation);
      }
    }
    match();
    changed.notify_all();
    const auto done = [&] { return std::all_of(group.begin(), group.end(), [](const Operation& o) { return o.done; }); };
    changed.wait(lock, [&] { return done() || aborted[static_cast<std::size_t>(rank)] || revoked[static_cast<std::size_t>(rank)]; });
    if (done()) return;
    const auto forget = [&](std::deque<Operation*>& queue) {
      std::erase_if(queue, [&](const Operation* o) { return o >= group.data() && o < group.data() + group.size(); });
    };
    for (auto& [pair, queue] : sends_) forget(queue);
    for (auto& [pair, queue] : receives_) forget(queue);
    for (auto& queue : collectives_) forget(queue);
  }

  /// The n-th split: what a rank asks for, and, once all ranks have asked, its new hub and its rank there.
  void ask(int rank, std::size_t split, int color, int key) {
    const std::lock_guard lock(mutex);
    splits_[split].asked[{color, key, rank}] = rank;
  }
  std::shared_ptr<Hub> part_of(int rank, std::size_t split, int color, int* place) {
    const std::lock_guard lock(mutex);
    Split& found = splits_[split];
    if (std::ssize(found.asked) < ranks_) return nullptr;
    int size = 0;
    for (const auto& [order, member] : found.asked) {
      if (std::get<0>(order) != color) continue;
      if (member == rank) *place = size;
      ++size;
    }
    std::shared_ptr<Hub>& part = found.parts[color];
    if (!part) part = std::make_shared<Hub>(size);
    return part;
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<ncclResult_t> errors;  ///< what a rank's asynchronous error is
  std::vector<bool> aborted, revoked;

 private:
  void match() {
    for (auto& [pair, queue] : sends_) {
      auto& waiting = receives_[pair];
      // NCCL does not compare sizes; a pair that differs hangs here, where NCCL may do anything.
      while (!queue.empty() && !waiting.empty() && queue.front()->bytes() == waiting.front()->bytes()) {
        if (queue.front()->captured != waiting.front()->captured) return refuse();
        if (queue.front()->bytes() != 0) std::memcpy(waiting.front()->to, queue.front()->from, queue.front()->bytes());
        queue.front()->done = waiting.front()->done = true;
        queue.pop_front();
        waiting.pop_front();
      }
    }
    while (std::none_of(collectives_.begin(), collectives_.end(), [](const auto& queue) { return queue.empty(); })) {
      std::vector<Operation*> ops;
      for (const auto& queue : collectives_) ops.push_back(queue.front());
      const auto differs = [&](const Operation* o) {
        return o->kind != ops[0]->kind || o->count != ops[0]->count || o->type != ops[0]->type || o->reduction != ops[0]->reduction ||
               o->peer != ops[0]->peer;
      };
      if (std::any_of(ops.begin(), ops.end(), differs)) return;  // as NCCL: a hang
      if (std::any_of(ops.begin(), ops.end(), [&](const Operation* o) { return o->captured != ops[0]->captured; })) return refuse();
      execute(ops);
      for (std::size_t r = 0; r < ops.size(); ++r) {
        ops[r]->done = true;
        collectives_[r].pop_front();
      }
    }
  }

  /// What NCCL leaves undefined is an error of all ranks here.
  void refuse() { std::fill(errors.begin(), errors.end(), ncclInvalidUsage); }

  void execute(const std::vector<Operation*>& ops) {
    const Operation& first = *ops[0];
    const std::size_t ranks = ops.size(), bytes = first.bytes(), root = static_cast<std::size_t>(first.peer);
    const auto at = [](const void* p, std::size_t offset) { return static_cast<const void*>(static_cast<const std::byte*>(p) + offset); };
    const auto sources = [&](std::size_t offset) {
      std::vector<const void*> from;
      for (const Operation* o : ops) from.push_back(at(o->from, offset));
      return from;
    };
    const auto copy = [](void* to, std::size_t offset, const void* from, std::size_t size) {
      if (size != 0) std::memmove(static_cast<std::byte*>(to) + offset, from, size);
    };
    std::vector<std::byte> sum(bytes);
    for (std::size_t r = 0; r < ranks; ++r) {
      switch (first.kind) {
        case Kind::broadcast:
          copy(ops[r]->to, 0, ops[root]->from, bytes);
          break;
        case Kind::reduce:
          if (r == root) reduce_all(first.type, first.reduction, sources(0), ops[r]->to, first.count);
          break;
        case Kind::all_reduce:
          if (r == 0) reduce_all(first.type, first.reduction, sources(0), sum.data(), first.count);
          break;
        case Kind::reduce_scatter:
          reduce_all(first.type, first.reduction, sources(r * bytes), ops[r]->to, first.count);
          break;
        case Kind::all_gather:
          for (std::size_t s = 0; s < ranks; ++s) copy(ops[r]->to, s * bytes, ops[s]->from, bytes);
          break;
        case Kind::all_to_all:
          for (std::size_t s = 0; s < ranks; ++s) copy(ops[r]->to, s * bytes, at(ops[s]->from, r * bytes), bytes);
          break;
        case Kind::send:
        case Kind::receive:
          break;
      }
    }
    if (first.kind == Kind::all_reduce)
      for (Operation* o : ops) copy(o->to, 0, sum.data(), bytes);
  }

  struct Split {
    std::map<std::tuple<int, int, int>, int> asked;  // rank by (color, key, rank)
    std::map<int, std::shared_ptr<Hub>> parts;       // by color
  };

  int ranks_;
  int joined_ = 0, connected_ = 0;
  std::map<std::size_t, Split> splits_;
  std::map<std::pair<int, int>, std::deque<Operation*>> sends_, receives_;  // by (from, to)
  std::vector<std::deque<Operation*>> collectives_;
};

inline std::shared_ptr<Hub> hub_of(const ncclUniqueId& id, int ranks) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<Hub>> hubs;
  const std::lock_guard lock(mutex);
  auto& slot = hubs[std::string(id.internal, sizeof(id.internal))];
  std::shared_ptr<Hub> hub = slot.lock();
  if (!hub) slot = hub = std::make_shared<Hub>(ranks);
  return hub;
}

}  // namespace nccl_double

#include "nccl_processes.hpp"

struct ncclComm {
  std::shared_ptr<nccl_double::Hub> hub;
  std::shared_ptr<nccl_double::Line> line{};  // to the hub of another process; `hub` has no more than this rank's state then
  int rank = 0;
  bool blocking = true, joined = false, connected = false, finalized = false;
  int polls = 0;                                        // until the last call is taken
  std::vector<std::pair<cudaStream_t, CudaTask>> held;  // and goes to its stream
  std::size_t splits = 0;
  ncclComm** split_result = nullptr;  // of a split that is under way
  int split_color = 0;
  bool split_blocking = true;
};
using ncclComm_t = ncclComm*;

namespace nccl_double {

struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;  // of a call in it: none of its calls is made
  std::vector<std::pair<ncclComm_t, cudaStream_t>> places;  // in order
  std::map<std::pair<ncclComm_t, cudaStream_t>, std::vector<Operation>> operations;
};
inline thread_local Group group;

inline void release(ncclComm_t comm) {
  for (auto& [stream, task] : comm->held) cuda_double_add(stream, std::move(task));
  comm->held.clear();
}

inline ncclResult_t end_group() {
  ncclResult_t result = ncclSuccess;
  Group ended = std::exchange(group, {});
  for (const auto& place : ended.places) {
    const auto [comm, stream] = place;
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    cudaStreamIsCapturing(stream, &capture);
    for (Operation& operation : ended.operations[place]) operation.captured = capture != cudaStreamCaptureStatusNone;
    comm->held.emplace_back(stream, [hub = comm->hub, line = comm->line, rank = comm->rank, ops = ended.operations[place]] {
      ++groups;
      if (line)
        line->run(ops, [&] { return hub->ended(rank); });
      else
        hub->run(rank, ops);
    });
    if (comm->blocking) {
      if (first_group_connects && !comm->line && !std::exchange(comm->connected, true)) result = comm->hub->connect(comm->rank);
      release(comm);
    } else {
      comm->polls = polls;
      result = ncclInProgress;
    }
  }
  return result;
}

inline std::size_t count_unaligned(const Operation& operation, std::size_t ranks) {
  const std::size_t bytes = operation.bytes();
  std::size_t count = 0;
  const auto add = [&](const void* first, std::size_t blocks) {
    if (first == nullptr || bytes == 0) return;
    for (std::size_t block = 0; block < blocks; ++block) count += (reinterpret_cast<std::uintptr_t>(first) + block * bytes) % 16 != 0;
  };
  switch (operation.kind) {
    case Kind::send:
    case Kind::receive:
    case Kind::broadcast:
      add(operation.from, 1);
      add(operation.to, 1);
      break;
    case Kind::all_gather:
      add(operation.from, 1);
      add(operation.to, ranks);
      break;
    case Kind::all_to_all:
      add(operation.from, ranks);
      add(operation.to, ranks);
      break;
    case Kind::reduce:
    case Kind::all_reduce:
    case Kind::reduce_scatter:
      break;  // of whole numbers, which NCCL moves as such
  }
  return count;
}

inline ncclResult_t add(std::string_view name, const std::string& what, ncclComm_t comm, cudaStream_t stream, Operation operation) {
  if (const ncclResult_t planned = note(name, what); planned != ncclSuccess) return group.error = planned;
  // NCCL refuses a communicator whose last call is not taken yet, and memory that is not the device's.
  if (comm->polls != 0 || !comm->joined) return ncclInvalidUsage;
  for (const void* const p : {operation.from, static_cast<const void*>(operation.to)})
    if (p != nullptr && !cuda_double_on_device(p)) return ncclInvalidArgument;
  unaligned_blocks += count_unaligned(operation, static_cast<std::size_t>(comm->hub->ranks()));
  const std::pair place(comm, stream);
  if (!group.operations.contains(place)) group.places.push_back(place);
  group.operations[place].push_back(operation);
  return group.depth == 0 ? end_group() : ncclSuccess;
}

inline std::string text(std::size_t count, std::string_view rest = "") { return std::to_string(count) + std::string(rest); }
inline std::string text(std::size_t count, int peer) { return std::to_string(count) + " @" + std::to_string(peer); }

/// Makes `result` the asynchronous error of one rank.
inline void set_async_error(ncclComm_t comm, ncclResult_t result) {
  const std::lock_guard lock(comm->hub->mutex);
  comm->hub->errors[static_cast<std::size_t>(comm->rank)] = result;
}

}  // namespace nccl_double

inline const char* ncclGetErrorString(ncclResult_t result) {
  constexpr std::array<const char*, 8> texts{"no error",         "unhandled cuda error", "unhandled system error", "internal error",
                                             "invalid argument", "invalid usage",        "remote process exited",  "in progress"};
  return texts[static_cast<std::size_t>(result)];
}
inline const char* ncclGetLastError(ncclComm_t) { return "last error of the double"; }
inline ncclResult_t ncclGetVersion(int* version) {
  *version = nccl_double::version;
  return ncclSuccess;
}
inline ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<std::uint64_t> next{1};
  if (const ncclResult_t planned = nccl_double::note("ncclGetUniqueId"); planned != ncclSuccess) return planned;
  const std::uint64_t number = next++;
  std::memset(id->internal, 0x5a, sizeof(id->internal));
  std::memcpy(id->internal, &number, sizeof(number));
  const pid_t process = ::getpid();
  std::memcpy(id->internal + sizeof(number), &process, sizeof(process));
  nccl_double::serve_processes();
  return ncclSuccess;
}
inline ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (const ncclResult_t planned = nccl_double::note("ncclCommInitRankConfig"); planned != ncclSuccess) return planned;
  pid_t process = 0;
  std::memcpy(&process, id.internal + sizeof(std::uint64_t), sizeof(process));
  const bool here = process == ::getpid();
  *comm = new ncclComm{.hub = here ? nccl_double::hub_of(id, ranks) : std::make_shared<nccl_double::Hub>(ranks),
                       .rank = rank,
                       .blocking = config->blocking != 0,
                       .held = {}};
  if (!here) {
    (*comm)->line = std::make_shared<nccl_double::Line>(process, nccl_double::Hello{id, rank, ranks});
    if (!(*comm)->line->welcome([&] { return (*comm)->hub->ended(rank); })) return ncclRemoteError;
    (*comm)->joined = true;
    return ncclSuccess;
  }
  (*comm)->hub->join();
  if (!(*comm)->blocking) return ncclInProgress;
  (*comm)->hub->wait_until_complete();
  (*comm)->joined = true;
  return ncclSuccess;
}
namespace nccl_double {
/// Makes the part that a split asked for, once all ranks have asked.
inline bool finish_split(ncclComm_t comm) {
  int place = 0;
  auto hub = comm->hub->part_of(comm->rank, comm->splits, comm->split_color, &place);
  if (!hub) return false;
  hub->join();
  *std::exchange(comm->split_result, nullptr) =
      new ncclComm{.hub = std::move(hub), .rank = place, .blocking = comm->split_blocking, .joined = comm->split_blocking, .held = {}};
  ++comm->splits;
  return true;
}
}  // namespace nccl_double
inline ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  {
    const std::lock_guard lock(comm->hub->mutex);
    *state = comm->hub->errors[static_cast<std::size_t>(comm->rank)];
  }
  if (*state != ncclSuccess || comm->blocking) return ncclSuccess;
  if (comm->split_result != nullptr) {
    *state = nccl_double::finish_split(comm) ? ncclSuccess : ncclInProgress;
  } else if (!comm->joined) {
    comm->joined = comm->hub->complete();
    *state = comm->joined ? ncclSuccess : ncclInProgress;
  } else if (comm->finalized && nccl_double::graph_lives) {
    *state = ncclInProgress;
  } else if (comm->polls > 0) {
    if (--comm->polls == 0) nccl_double::release(comm);
    *state = comm->polls > 0 ? ncclInProgress : ncclSuccess;
  }
  return ncclSuccess;
}
inline ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* part, ncclConfig_t* config) {
  if (const ncclResult_t planned = nccl_double::note("ncclCommSplit"); planned != ncclSuccess) return planned;
  if (comm->polls != 0 || !comm->joined || nccl_double::group.depth != 0 || comm->line) return ncclInvalidUsage;
  comm->hub->ask(comm->rank, comm->splits, color, key);
  comm->split_result = part;
  comm->split_color = color;
  comm->split_blocking = config->blocking != 0;
  *part = nullptr;
  if (!comm->blocking) return ncclInProgress;
  while (!nccl_double::finish_split(comm)) {
    {
      const std::lock_guard lock(comm->hub->mutex);
      if (comm->hub->revoked[static_cast<std::size_t>(comm->rank)]) return ncclInternalError;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return ncclSuccess;
}
inline ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  *rank = comm->rank;
  return ncclSuccess;
}
inline ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  *count = comm->hub->ranks();
  return ncclSuccess;
}
inline ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (const ncclResult_t planned = nccl_double::note("ncclCommFinalize"); planned != ncclSuccess) return planned;
  comm->finalized = true;
  if (comm->blocking) {
    while (nccl_double::graph_lives) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return ncclSuccess;
  }
  comm->polls = nccl_double::polls;
  return ncclInProgress;
}
inline ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  nccl_double::note("ncclCommDestroy");
  delete comm;
  return ncclSuccess;
}
inline ncclResult_t ncclCommRevoke(ncclComm_t comm, int) {
  nccl_double::note("ncclCommRevoke");
  comm->hub->revoke(comm->rank);
  return ncclSuccess;
}
inline ncclResult_t ncclCommAbort(ncclComm_t comm) {
  nccl_double::note("ncclCommAbort");
  {
    const std::lock_guard lock(comm->hub->mutex);
    comm->hub->aborted[static_cast<std::size_t>(comm->rank)] = true;
    if (nccl_double::aborts_reach_peers)
      for (ncclResult_t& error : comm->hub->errors) error = ncclRemoteError;
    comm->hub->changed.notify_all();
  }
  delete comm;
  return ncclSuccess;
}

inline ncclResult_t ncclGroupStart() {
  const ncclResult_t planned = nccl_double::note("ncclGroupStart");
  if (planned == ncclSuccess) ++nccl_double::group.depth;
  return planned;
}
inline ncclResult_t ncclGroupEnd() {
  const ncclResult_t planned = nccl_double::note("ncclGroupEnd");
  if (nccl_double::group.depth == 0) return ncclInvalidUsage;
  if (--nccl_double::group.depth > 0) return planned;
  const ncclResult_t result = planned != ncclSuccess ? planned : nccl_double::group.error;
  if (result == ncclSuccess) return nccl_double::end_group();
  nccl_double::group = {};
  return result;
}

inline ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return nccl_double::add("ncclSend", nccl_double::text(count, peer), comm, stream,
                          {.kind = nccl_double::Kind::send, .from = from, .count = count, .type = type, .peer = peer});
}
inline ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return nccl_double::add("ncclRecv", nccl_double::text(count, peer), comm, stream,
                          {.kind = nccl_double::Kind::receive, .to = to, .count = count, .type = type, .peer = peer});
}
inline ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                                  cudaStream_t stream) {
  return nccl_double::add("ncclBroadcast", nccl_double::text(count, root), comm, stream,
                          {.kind = nccl_double::Kind::broadcast, .from = from, .to = to, .count = count, .type = type, .peer = root});
}
inline ncclResult_t ncclReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t reduction, int root,
                               ncclComm_t comm, cudaStream_t stream) {
  return nccl_double::add(
      "ncclReduce", nccl_double::text(count, root), comm, stream,
      {.kind = nccl_double::Kind::reduce, .from = from, .to = to, .count = count, .type = type, .reduction = reduction, .peer = root});
}
inline ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t reduction,
                                  ncclComm_t comm, cudaStream_t stream) {
  return nccl_double::add(
      "ncclAllReduce", nccl_double::text(count), comm, stream,
      {.kind = nccl_double::Kind::all_reduce, .from = from, .to = to, .count = count, .type = type, .reduction = reduction});
}
inline ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t reduction,
                                      ncclComm_t comm, cudaStream_t stream) {
  return nccl_double::add(
      "ncclReduceScatter", nccl_double::text(count), comm, stream,
      {.kind = nccl_double::Kind::reduce_scatter, .from = from, .to = to, .count = count, .type = type, .reduction = reduction});
}
inline ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                                  cudaStream_t stream) {
  return nccl_double::add("ncclAllGather", nccl_double::text(count), comm, stream,
                          {.kind = nccl_double::Kind::all_gather, .from = from, .to = to, .count = count, .type = type});
}
inline ncclResult_t ncclAlltoAll(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
  return nccl_double::add("ncclAlltoAll", nccl_double::text(count), comm, stream,
                          {.kind = nccl_double::Kind::all_to_all, .from = from, .to = to, .count = count, .type = type});
}
