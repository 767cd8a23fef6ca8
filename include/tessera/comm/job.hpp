// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>

#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>

namespace tessera { inline namespace v0 {

/// Which rank of a job this process is.
struct RankOfJob {
  int rank = 0, size = 1;
  /// among the ranks of this machine; -1 if the launcher does not say
  int local_rank = 0, local_size = 1;
  std::string address;   ///< of rank 0's machine; empty if the launcher does not say
  int port = 29500;      ///< where rank 0 listens
  std::string token;     ///< tells this job's processes from another's; may be empty
  std::string launcher;  ///< who says so: "torchrun", "srun", ...; empty if there is none

  bool one_machine() const { return local_size == size; }
};

namespace detail {

/// A launcher's variables that say which rank a process is.
struct LauncherVariables {
  std::string_view launcher;
  const char *rank, *size, *local_rank, *local_size;
};
inline constexpr LauncherVariables kTorchrun{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK",
                                             "LOCAL_WORLD_SIZE"};
inline constexpr LauncherVariables kMpirun[]{
    {"mpirun (Open MPI)", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"mpirun (MPICH)", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"}};
/// A batch script has SLURM_PROCID, too; SLURM_STEP_NUM_TASKS only what srun starts. How many
/// tasks a machine has is in a list of all machines.
inline constexpr LauncherVariables kSrun{"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS",
                                         "SLURM_LOCALID", nullptr};

/// Returns the first of Slurm's hosts: "node007" of "node[007-009,012],login1".
inline std::string first_host(std::string_view list) {
  std::string host;
  for (std::size_t i = 0; i < list.size() && list[i] != ','; ++i) {
    if (list[i] != '[') {
      host += list[i];
      continue;
    }
    while (++i < list.size() && list[i] >= '0' && list[i] <= '9') host += list[i];
    i = list.find(']', i);
    if (i == list.npos) break;
  }
  return host;
}

/// Returns how many tasks Slurm's `machine` has: 2 for machine 1 of "4,2(x3)"; -1 if the list has
/// no such machine.
inline int tasks_of(std::string_view list, unsigned machine) {
  while (!list.empty()) {
    int tasks = -1;
    unsigned times = 1;
    const char* const end = list.data() + list.size();
    const char* at = std::from_chars(list.data(), end, tasks).ptr;
    if (end - at > 2 && at[0] == '(' && at[1] == 'x')
      at = std::from_chars(at + 2, end, times).ptr + 1;
    if (machine < times) return tasks;
    machine -= times;
    if (at >= end || *at != ',') break;
    list.remove_prefix(static_cast<std::size_t>(at + 1 - list.data()));
  }
  return -1;
}

/// `rank_from_environment`, of the variables that `get` knows: a name to its text, or null.
template <class Get>
class RankOfVariables {
 public:
  explicit RankOfVariables(const Get& get) : get_(get) {}

  RankOfJob find() const {
    RankOfJob job;
    // A launcher that starts others leaves them its own variables: torchrun's workers have srun's.
    if (get_("TORCHELASTIC_RUN_ID") != nullptr) {
      take(kTorchrun, job);
    } else {
      for (const LauncherVariables& mpirun : kMpirun)
        if (!set_by_srun(mpirun)) take(mpirun, job);
      if (job.launcher.empty()) take(kSrun, job);
      take(kTorchrun, job);  // also by hand, beside others
    }
    if (job.launcher.empty()) return job;
    if (job.launcher == kSrun.launcher) complete_srun(job);
    complete(job);
    return job;
  }

 private:
  /// Returns whether Slurm's PMI-2 plugin set what MPICH's mpirun sets, too.
  bool set_by_srun(const LauncherVariables& of) const {
    return get_(of.local_rank) == nullptr && get_(kSrun.size) != nullptr &&
           text(of.rank) == text(kSrun.rank) && text(of.size) == text(kSrun.size);
  }
  std::string text(const char* name) const {
    const char* const value = get_(name);
    return value == nullptr ? std::string() : std::string(value);
  }
  /// Returns a variable's number, or `missing`. Throws InvalidArgument if it is none in
  /// 0..`most`.
  int number(const char* name, int missing, int most) const {
    const char* const value = name == nullptr ? nullptr : get_(name);
    if (value == nullptr) return missing;
    const std::string_view digits = value;
    int found = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), found);
    require(
        error == std::errc() && end == digits.data() + digits.size() && found >= 0 && found <= most,
        "{}='{}': it must be a number in 0..{}; unset it, or let the launcher set it", name,
        digits.substr(0, 40), most);
    return found;
  }

  /// Takes what a launcher says, if it says something. Throws InvalidArgument if another one said
  /// something else.
  void take(const LauncherVariables& variables, RankOfJob& job) const {
    const bool complete = get_(variables.size) != nullptr;
    if (get_(variables.rank) == nullptr || (!complete && variables.launcher == kSrun.launcher))
      return;
    require(complete, "{} is set, and {} is not; set both, or neither", variables.rank,
            variables.size);
    constexpr int most = 1 << 20;
    const int size = number(variables.size, 1, most);
    require(size > 0, "{}=0: a job has at least one rank", variables.size);
    const int rank = number(variables.rank, 0, size - 1);
    if (!job.launcher.empty()) {
      require(job.rank == rank && job.size == size,
              "two launchers contradict each other: {} says rank {} of {}, {}={} and {}={} say "
              "rank {} of {}; unset those of one",
              job.launcher, job.rank, job.size, variables.rank, rank, variables.size, size, rank,
              size);
      return;
    }
    job.launcher = variables.launcher;
    job.rank = rank;
    job.size = size;
    job.local_size = number(variables.local_size, size == 1 ? 1 : -1, size);
    job.local_rank = number(variables.local_rank, size == 1 ? 0 : -1, size - 1);
  }

  void complete_srun(RankOfJob& job) const {
    const int machine = number("SLURM_NODEID", -1, job.size);
    if (machine >= 0)
      job.local_size = tasks_of(text("SLURM_STEP_TASKS_PER_NODE"), static_cast<unsigned>(machine));
    job.address = first_host(text("SLURM_STEP_NODELIST"));
    const std::string id = text("SLURM_JOB_ID"), step = text("SLURM_STEP_ID");
    if (!id.empty()) job.token = id + "." + step;
    // ports that Linux gives to no connection, one for each job of a while
    unsigned long ports = 0;
    std::from_chars(id.data(), id.data() + id.size(), ports);
    job.port = 61440 + static_cast<int>(ports % 4096);
  }

  void complete(RankOfJob& job) const {
    if (job.one_machine()) job.address = "127.0.0.1";
    if (get_("MASTER_ADDR") != nullptr) job.address = text("MASTER_ADDR");
    job.port = number("MASTER_PORT", job.port, 65535);
    // torchrun itself listens at its port
    if (text("TORCHELASTIC_USE_AGENT_STORE") == "True" && job.port < 65535) ++job.port;
    for (const char* const token : {"TESSERA_JOB_TOKEN", "TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE"})
      if (job.token.empty() || token == std::string_view("TESSERA_JOB_TOKEN"))
        if (get_(token) != nullptr) job.token = text(token);
  }

  const Get& get_;
};

}  // namespace detail

/// Returns which rank of its job this process is, from the variables that torchrun, mpirun (Open
/// MPI, MPICH) and srun set, or rank 0 of 1 if there are none. If launchers start each other, the
/// inner one counts: torchrun, then mpirun, then srun. MASTER_ADDR, MASTER_PORT and
/// TESSERA_JOB_TOKEN say where rank 0 listens, and what tells the job's processes from others;
/// else Slurm's first machine and a port by its job's number, or this machine if all ranks are on
/// it. torchrun listens at MASTER_PORT itself: then it is the next one. Throws InvalidArgument if a
/// variable is no number, one of a pair is missing, or RANK and WORLD_SIZE contradict another
/// launcher's.
inline RankOfJob rank_from_environment() {
  const auto get = [](const char* name) -> const char* { return std::getenv(name); };
  return detail::RankOfVariables(get).find();
}

}}  // namespace tessera::v0
