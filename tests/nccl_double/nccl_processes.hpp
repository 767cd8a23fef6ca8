// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Of NCCL's double: ranks in processes of one machine, if TESSERA_NCCL_DOUBLE_PROCESSES is set. The process that makes an id has the
// hub; those of others send it each group of calls over a Unix socket, with the bytes, and a thread there calls the hub in their place.
// For nccl.h, which includes it behind the hub.

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace nccl_double {

inline int socket_of(pid_t process, bool listens) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un place{};
  place.sun_family = AF_UNIX;
  const std::string name = "tessera-nccl-double-" + std::to_string(process);
  std::memcpy(place.sun_path + 1, name.data(),
              name.size());  // no file: the name begins with a zero
  const auto* address = reinterpret_cast<const sockaddr*>(&place);
  if (listens ? ::bind(fd, address, sizeof(place)) == 0 && ::listen(fd, 64) == 0
              : ::connect(fd, address, sizeof(place)) == 0)
    return fd;
  ::close(fd);
  return -1;
}
/// Moves all bytes. False: the peer is gone.
inline bool read_all(int fd, void* to, std::size_t bytes) {
  for (auto* at = static_cast<std::byte*>(to); bytes > 0;) {
    const ssize_t got = ::recv(fd, at, bytes, 0);
    if (got <= 0) return false;
    at += got, bytes -= static_cast<std::size_t>(got);
  }
  return true;
}
inline bool write_all(int fd, const void* from, std::size_t bytes) {
  for (const auto* at = static_cast<const std::byte*>(from); bytes > 0;) {
    const ssize_t sent = ::send(fd, at, bytes, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    at += sent, bytes -= static_cast<std::size_t>(sent);
  }
  return true;
}

/// Bytes that an operation of a rank reads, and that it writes.
inline std::size_t bytes_in(const Operation& o, int ranks) {
  const bool all = o.kind == Kind::reduce_scatter || o.kind == Kind::all_to_all;
  return o.kind == Kind::receive ? 0 : o.bytes() * (all ? static_cast<std::size_t>(ranks) : 1);
}
inline std::size_t bytes_out(const Operation& o, int ranks, int rank) {
  const bool all = o.kind == Kind::all_gather || o.kind == Kind::all_to_all,
             none = o.kind == Kind::send || (o.kind == Kind::reduce && o.peer != rank);
  return none ? 0 : o.bytes() * (all ? static_cast<std::size_t>(ranks) : 1);
}

struct Hello {
  ncclUniqueId id;
  int rank, ranks;
};

/// Is a rank of another process.
inline void serve(int fd) {
  Hello hello{};
  if (!read_all(fd, &hello, sizeof(hello))) return static_cast<void>(::close(fd));
  const std::shared_ptr<Hub> hub = hub_of(hello.id, hello.ranks);
  hub->join();
  hub->wait_until_complete();
  const char welcome = 1;
  bool open = write_all(fd, &welcome, 1);
  for (std::size_t count = 0; open && read_all(fd, &count, sizeof(count));) {
    std::vector<Operation> group(count);
    std::vector<std::vector<std::byte>> in(count), out(count);
    open = read_all(fd, group.data(), count * sizeof(Operation));
    for (std::size_t i = 0; open && i < count; ++i) {
      in[i].resize(bytes_in(group[i], hello.ranks));
      out[i].resize(bytes_out(group[i], hello.ranks, hello.rank));
      open = read_all(fd, in[i].data(), in[i].size());
      group[i].from = in[i].data(), group[i].to = out[i].data();
    }
    if (!open) break;
    hub->run(hello.rank, group);
    for (std::size_t i = 0; open && i < count; ++i)
      open = write_all(fd, out[i].data(), out[i].size());
  }
  ::close(fd);
}

/// Begins to serve processes that get ids of this one, once.
inline void serve_processes() {
  [[maybe_unused]] static const bool serves = [] {
    if (std::getenv("TESSERA_NCCL_DOUBLE_PROCESSES") == nullptr) return false;
    const int listening = socket_of(::getpid(), true);
    std::thread([listening] {
      for (int fd = 0; (fd = ::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;)
        std::thread(serve, fd).detach();
    }).detach();
    return true;
  }();
}

/// A rank whose hub is in another process.
class Line {
 public:
  Line(pid_t process, const Hello& hello)
      : fd_(socket_of(process, false)), rank_(hello.rank), ranks_(hello.ranks) {
    if (fd_ < 0 || !write_all(fd_, &hello, sizeof(hello))) hang_up();
  }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;
  ~Line() { hang_up(); }

  /// Whether all ranks have joined: waits for them, or until `ended`.
  template <class Ended>
  bool welcome(const Ended& ended) {
    char text = 0;
    return answer(&text, 1, ended);
  }
  /// Hub::run there. What never comes, as from a process that has died, hangs until `ended`.
  template <class Ended>
  void run(const std::vector<Operation>& group, const Ended& ended) {
    const std::size_t count = group.size();
    bool open = write_all(fd_, &count, sizeof(count)) &&
                write_all(fd_, group.data(), count * sizeof(Operation));
    for (const Operation& o : group) open = open && write_all(fd_, o.from, bytes_in(o, ranks_));
    for (const Operation& o : group)
      if (!answer(o.to, bytes_out(o, ranks_, rank_), ended)) return;
  }

 private:
  template <class Ended>
  bool answer(void* to, std::size_t bytes, const Ended& ended) {
    while (bytes > 0 && !ended()) {
      pollfd waiting{fd_, POLLIN, 0};
      if (fd_ >= 0 && ::poll(&waiting, 1, 20) == 0) continue;
      if (fd_ >= 0 && read_all(fd_, to, bytes)) return true;
      hang_up();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return bytes == 0;
  }
  void hang_up() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

  int fd_, rank_, ranks_;
};

}  // namespace nccl_double
