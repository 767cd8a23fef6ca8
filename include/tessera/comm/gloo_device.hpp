// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>

#include <gloo/transport/device.h>
#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <netdb.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace tessera { inline namespace v0 {

/// Where a rank listens, and how long it waits.
struct GlooOptions {
  /// How long a rank waits without any message from a peer before it gives up and names the peer,
  /// unless that waits, too, which it is asked and has a second to say. Zero: for ever.
  std::chrono::nanoseconds timeout = std::chrono::minutes(10);
  /// How long the ranks, which have met, may take to connect to each other.
  std::chrono::nanoseconds connect_timeout = std::chrono::seconds(30);
  /// Where peers reach this rank: an address or name of this machine. The default admits ranks of
  /// this machine alone.
  std::string address = "127.0.0.1";
  /// The network interface whose address that is, as "eth0"; if given, `address` is not used.
  std::string interface = "";
  /// Larger blocks travel in pieces of this many bytes.
  std::size_t max_message_bytes = std::size_t{1} << 30;
  /// `run_gloo_rank`: how long a rank that failed waits for its peers to say so too before it ends.
  std::chrono::nanoseconds grace = std::chrono::seconds(2);
};

namespace detail {

/// Returns the addresses of a host; throws InvalidArgument if it has none. Gloo reads memory of its
/// own choice if a name does not resolve.
inline std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> resolve_host(const std::string& host,
                                                                       std::string_view what) {
  addrinfo kind{}, *found = nullptr;
  kind.ai_socktype = SOCK_DGRAM;
  const int code = getaddrinfo(host.c_str(), "9", &kind, &found);
  require(code == 0, "{} '{}' does not resolve: {}", what, host, gai_strerror(code));
  return {found, &freeaddrinfo};
}

}  // namespace detail

/// Returns the address of this machine from which packets to `host` go, for GlooOptions::address of
/// ranks on several machines: that of rank 0's machine is known to all. Sends nothing. Throws
/// InvalidArgument if the name has no address, or none that this machine has a way to.
inline std::string address_towards(const std::string& host) {
  const auto places = detail::resolve_host(host, "address_towards: host");
  int code = EHOSTUNREACH;
  for (const addrinfo* place = places.get(); place != nullptr; place = place->ai_next) {
    const int socket = ::socket(place->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_storage own{};
    socklen_t size = sizeof(own);
    char text[NI_MAXHOST];
    const bool found = socket >= 0 && ::connect(socket, place->ai_addr, place->ai_addrlen) == 0 &&
                       ::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &size) == 0 &&
                       getnameinfo(reinterpret_cast<const sockaddr*>(&own), size, text,
                                   sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0;
    if (!found) code = errno;
    if (socket >= 0) ::close(socket);
    if (found) return text;
  }
  throw InvalidArgument(detail::formatted(
      "address_towards: this machine has no way to host '{}': {}", host, std::strerror(code)));
}

namespace detail {

/// Returns what Gloo says, without the place in its sources.
inline std::string gloo_text(const std::exception& error) {
  const std::string_view text = error.what();
  const std::size_t place = text.starts_with('[') ? text.find("] ") : std::string_view::npos;
  return std::string(place == std::string_view::npos ? text : text.substr(place + 2));
}

/// Returns where it is, as "[127.0.0.1]:29500", that Gloo gives as bytes.
inline std::string gloo_place(std::string_view address) {
  return gloo::transport::tcp::Address(std::vector<char>(address.begin(), address.end())).str();
}

/// Keeps SIGPIPE from this thread and from those that it starts: Gloo writes to connections that
/// the peer may have closed.
class PipeSignalHeld {
 public:
  PipeSignalHeld() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    was_pending_ = pending();
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  PipeSignalHeld(const PipeSignalHeld&) = delete;
  PipeSignalHeld& operator=(const PipeSignalHeld&) = delete;
  ~PipeSignalHeld() {
    constexpr timespec kNow{};
    if (!was_pending_ && pending()) sigtimedwait(&pipe_, nullptr, &kNow);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  static bool pending() {
    sigset_t set;
    return sigpending(&set) == 0 && sigismember(&set, SIGPIPE) == 1;
  }

  sigset_t pipe_, before_;
  bool was_pending_ = false;
};

/// A wait for one buffer that another thread can end. Gloo's own timeout closes every connection.
class GlooWait {
 public:
  /// Waits for the buffer's message and returns true, or false if woken (even if the message has
  /// just come: wait again). Throws what Gloo throws if the connection is closed.
  bool wait(gloo::transport::UnboundBuffer& buffer, bool receive) {
    const Current current(*this, {&buffer, receive});
    return receive ? buffer.waitRecv(nullptr, kForever) : buffer.waitSend(nullptr, kForever);
  }
  void wake() {
    const std::lock_guard lock(mutex_);
    if (waiting_.buffer == nullptr) return;
    waiting_.receive ? waiting_.buffer->abortWaitRecv() : waiting_.buffer->abortWaitSend();
  }
  /// Takes a message whose bytes are there, of a buffer that is never woken.
  static void take(gloo::transport::UnboundBuffer& buffer) { buffer.waitRecv(nullptr, kForever); }
  /// Returns whether the connection of a buffer that waits for a message which never comes is
  /// closed. Does not wait.
  static bool closed(gloo::transport::UnboundBuffer& buffer) {
    try {
      buffer.abortWaitRecv();
      buffer.waitRecv(nullptr, kForever);
      return false;
    } catch (const std::exception&) {
      return true;
    }
  }

 private:
  static constexpr std::chrono::milliseconds kForever = std::chrono::hours(100'000);

  struct Waiting {
    gloo::transport::UnboundBuffer* buffer = nullptr;
    bool receive = false;
  };
  class Current {
   public:
    Current(GlooWait& wait, Waiting waiting) : wait_(wait) { set(waiting); }
    ~Current() { set({}); }

   private:
    void set(Waiting waiting) {
      const std::lock_guard lock(wait_.mutex_);
      wait_.waiting_ = waiting;
    }
    GlooWait& wait_;
  };

  std::mutex mutex_;
  Waiting waiting_;
};

/// What a communicator and its parts share: Gloo's device, which has a thread that moves the bytes,
/// and a thread that wakes their waits from time to time, to look for what Gloo does not tell.
class GlooDevice {
 public:
  explicit GlooDevice(const GlooOptions& options)
      : device_(make(options)), waker_([this](std::stop_token stop) { run(stop); }) {}
  GlooDevice(const GlooDevice&) = delete;
  GlooDevice& operator=(const GlooDevice&) = delete;

  gloo::transport::Device& device() { return *device_; }

  void add(GlooWait& wait) {
    const std::lock_guard lock(mutex_);
    waits_.push_back(&wait);
  }
  void remove(GlooWait& wait) {
    const std::lock_guard lock(mutex_);
    std::erase(waits_, &wait);
  }

 private:
  static std::shared_ptr<gloo::transport::Device> make(const GlooOptions& options) {
    gloo::transport::tcp::attr where;
    if (options.interface.empty()) {
      resolve_host(options.address, "GlooOptions: address");
      where.hostname = options.address;
    } else {
      where.iface = options.interface;
    }
    const PipeSignalHeld held;  // also in the device's thread
    try {
      return gloo::transport::tcp::CreateDevice(where);
    } catch (const std::exception& error) {
      throw InvalidArgument(formatted(
          "GlooOptions: this machine has no {} '{}' to bind to ({}); 'ip address' lists what it "
          "has",
          options.interface.empty() ? "address" : "network interface",
          options.interface.empty() ? options.address : options.interface, gloo_text(error)));
    }
  }

  void run(const std::stop_token& stop) {
    for (std::unique_lock lock(mutex_); !stop.stop_requested();) {
      stopped_.wait_for(lock, stop, std::chrono::milliseconds(5), [] { return false; });
      for (GlooWait* wait : waits_) wait->wake();
    }
  }

  std::shared_ptr<gloo::transport::Device> device_;
  std::mutex mutex_;
  std::condition_variable_any stopped_;
  std::vector<GlooWait*> waits_;
  std::jthread waker_;
};

}  // namespace detail

}}  // namespace tessera::v0
