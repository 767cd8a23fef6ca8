// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/deadline.hpp>
#include <tessera/comm/job.hpp>
#include <tessera/core/error.hpp>
#include <tessera/version.hpp>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <boost/asio/buffer.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// How long ranks wait for each other to meet, and what they must agree on.
struct MeetingOptions {
  /// What all ranks must have alike, beside the library's version: the program, its options.
  std::string facts = {};
  /// How long a rank waits for all others.
  std::chrono::nanoseconds timeout = std::chrono::minutes(5);
};

namespace detail {

namespace asio = boost::asio;

/// What ranks say before they trust each other. Integers are little endian.
/// 1. A rank says a magic word and a nonce.
/// 2. Rank 0 says the same and its proof.
/// 3. The rank says its proof, its rank, the size, the lengths of its facts and of what it brings,
///    and these.
/// 4. Rank 0 says the length of what all bring, or of an error, and that.
///
/// A proof is HMAC-SHA256 (RFC 2104), keyed by the job's token, of who it is and both nonces: who
/// has listened cannot use it again. Nothing is read on before it is right.
struct Meeting {
  static constexpr std::string_view kMagic = "TSRMEET1";
  static constexpr std::size_t kNonce = 16, kProof = 32, kNumber = 8;
  static constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 28;

  static std::string nonce() {
    std::string bytes(kNonce, '\0');
    require<Error>(RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), kNonce) == 1,
                   "OpenSSL has no random numbers for the ranks' meeting");
    return bytes;
  }
  static std::string proof(const RankOfJob& job, std::string_view who, std::string_view nonces) {
    const std::string text = std::string(who) + std::string(nonces);
    std::string bytes(kProof, '\0');
    require<Error>(HMAC(EVP_sha256(), job.token.data(), static_cast<int>(job.token.size()),
                        reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                        reinterpret_cast<unsigned char*>(bytes.data()), nullptr) != nullptr,
                   "OpenSSL has no HMAC-SHA256 for the ranks' meeting");
    return bytes;
  }
  static bool same(std::string_view a, std::string_view b) {
    return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
  }
  static std::string number(std::uint64_t value) {
    std::string bytes;
    for (std::size_t i = 0; i < kNumber; ++i) bytes += static_cast<char>(value >> (8 * i));
    return bytes;
  }
  /// Takes a number from the front of `bytes`.
  static std::uint64_t take_number(std::string_view& bytes) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < kNumber; ++i)
      value |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
    bytes.remove_prefix(kNumber);
    return value;
  }
  static std::string facts(const MeetingOptions& options) {
    return formatted("Tessera {}.{}.{} {}", TESSERA_VERSION_MAJOR, TESSERA_VERSION_MINOR,
                     TESSERA_VERSION_PATCH, options.facts);
  }
  static std::string place(const RankOfJob& job) {
    return formatted("{}:{}", job.address, job.port);
  }
  [[noreturn]] static void fail(int rank, const std::string& text) {
    throw CommunicatorError(rank, "meeting", "the ranks' meeting: " + text);
  }
  /// Throws CommunicatorError unless the name has an address.
  static std::vector<asio::ip::tcp::endpoint> resolve(asio::io_context& context,
                                                      const RankOfJob& job) {
    asio::ip::tcp::resolver resolver(context);
    boost::system::error_code error;
    const auto found = resolver.resolve(job.address, std::to_string(job.port), error);
    if (error)
      fail(0, formatted("'{}', where rank 0 should listen, has no address ({}); set MASTER_ADDR "
                        "to rank 0's machine",
                        job.address, error.message()));
    std::vector<asio::ip::tcp::endpoint> all;
    for (const auto& entry : found) all.push_back(entry.endpoint());
    return all;
  }
};

/// Rank 0: lets others in, and gives all what each brought.
class MeetingHost {
 public:
  MeetingHost(const RankOfJob& job, std::string mine, const MeetingOptions& options)
      : job_(job), facts_(Meeting::facts(options)), timeout_(options.timeout) {
    present_.resize(static_cast<std::size_t>(job.size));
    brought_.resize(present_.size());
    brought_[0] = std::move(mine);
    const auto endpoint = Meeting::resolve(context_, job).front();
    require(!endpoint.address().is_loopback() || job.local_size < 0 || job.one_machine(),
            "MASTER_ADDR: '{}' is an address of this machine alone ({}), and ranks are on others; "
            "give its address in the network",
            job.address, endpoint.address().to_string());
    boost::system::error_code error;
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error)
      Meeting::fail(0, formatted("rank 0 cannot listen at {}: {}; set {}", Meeting::place(job),
                                 error.message(),
                                 error == boost::system::errc::address_not_available
                                     ? "MASTER_ADDR to an address of rank 0's machine"
                                     : "MASTER_PORT to a free port"));
  }

  std::vector<std::string> run() {
    accept();
    deadline_.expires_after(timeout_);
    deadline_.async_wait([this](boost::system::error_code error) {
      if (error) return;
      if (done_) return context_.stop();  // it does not wait for who takes no answer
      fail(-1, "rank 0 waited {} s at {} for rank(s) {}{}", seconds(timeout_), Meeting::place(job_),
           absent(), strangers());
      deadline_.expires_after(std::chrono::seconds(1));
      deadline_.async_wait([this](boost::system::error_code) { context_.stop(); });
    });
    context_.run();
    if (!failure_.empty()) Meeting::fail(at_fault_, failure_);
    return std::move(brought_);
  }

 private:
  /// A connection, at first of a stranger.
  struct Guest {
    explicit Guest(asio::ip::tcp::socket accepted)
        : socket(std::move(accepted)), timer(socket.get_executor()) {}
    asio::ip::tcp::socket socket;
    asio::steady_timer timer;  // a stranger has little time
    std::string in, out, nonces;
    int rank = -1;
  };
  using Shared = std::shared_ptr<Guest>;

  static std::int64_t seconds(std::chrono::nanoseconds time) {
    return std::chrono::duration_cast<std::chrono::seconds>(time).count();
  }
  std::string absent() const {
    std::string names;
    for (std::size_t r = 1; r < present_.size(); ++r)
      if (!present_[r]) names += formatted("{}{}", names.empty() ? "" : ", ", r);
    return names;
  }
  std::string strangers() const {
    return refused_ == 0 ? ""
                         : formatted("; it refused {} connection(s), the last one because {}",
                                     refused_, last_refusal_);
  }

  void accept() {
    acceptor_.async_accept([this](boost::system::error_code error, asio::ip::tcp::socket socket) {
      if (done_) return;
      if (error) {  // no memory for it, or it is gone already
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      } else {
        welcome(std::make_shared<Guest>(std::move(socket)));
      }
      accept();
    });
  }

  /// Reads so many bytes, then calls `next` with them. A connection that ends is a stranger's.
  template <class Next>
  void read(const Shared& guest, std::size_t bytes, Next next) {
    guest->in.resize(bytes);
    asio::async_read(guest->socket, asio::buffer(guest->in),
                     [this, guest, next](boost::system::error_code error, std::size_t) {
                       if (done_ || !guest->socket.is_open()) return;
                       if (error) return refuse(guest, "it ended before it had said who it is");
                       next(std::string_view(guest->in));
                     });
  }
  void refuse(const Shared& guest, std::string reason) {
    ++refused_;
    last_refusal_ = std::move(reason);
    guest->timer.cancel();
    guest->socket.close();
  }

  void welcome(const Shared& guest) {
    guest->timer.expires_after(std::chrono::seconds(10));
    guest->timer.async_wait([this, guest](boost::system::error_code error) {
      if (!error && guest->rank < 0 && !done_) refuse(guest, "it was silent for 10 s");
    });
    read(guest, Meeting::kMagic.size() + Meeting::kNonce, [this, guest](std::string_view hello) {
      if (!hello.starts_with(Meeting::kMagic)) return refuse(guest, "it is no rank of Tessera");
      const std::string mine = Meeting::nonce();
      guest->nonces = std::string(hello.substr(Meeting::kMagic.size())) + mine;
      guest->out = std::string(Meeting::kMagic) + mine;
      guest->out += Meeting::proof(job_, "rank 0", guest->nonces);
      asio::async_write(guest->socket, asio::buffer(guest->out),
                        [guest](boost::system::error_code, std::size_t) {});
      read(guest, Meeting::kProof + 4 * Meeting::kNumber,
           [this, guest](std::string_view said) { know(guest, said); });
    });
  }

  void know(const Shared& guest, std::string_view said) {
    if (!Meeting::same(said.substr(0, Meeting::kProof),
                       Meeting::proof(job_, "rank", guest->nonces)))
      return refuse(guest, "it has not this job's token");
    said.remove_prefix(Meeting::kProof);
    const std::uint64_t rank = Meeting::take_number(said), size = Meeting::take_number(said);
    const std::uint64_t facts = Meeting::take_number(said), bytes = Meeting::take_number(said);
    if (facts > Meeting::kMostBytes || bytes > Meeting::kMostBytes)
      return refuse(guest, "it announces more than a rank brings");
    read(guest, facts + bytes, [this, guest, rank, size, facts](std::string_view both) {
      guest->timer.cancel();
      if (size != present_.size())
        return turn_away(guest, "rank {} was started as one of {}, rank 0 as one of {}", rank, size,
                         present_.size());
      if (rank == 0 || rank >= size || present_[rank])
        return turn_away(guest, "two processes were started as rank {} (two jobs on one port?)",
                         rank);
      guest->rank = static_cast<int>(rank);
      present_[rank] = guest;
      if (both.substr(0, facts) != facts_)
        return fail(guest->rank, "rank {} differs from rank 0: '{}' in place of '{}'", rank,
                    both.substr(0, std::min<std::size_t>(facts, 400)), facts_.substr(0, 400));
      brought_[rank] = std::string(both.substr(facts));
      if (++come_ + 1 == present_.size()) return answer('+', all());
      watch(guest);
    });
  }
  void watch(const Shared& guest) {
    guest->in.resize(1);
    guest->socket.async_read_some(
        asio::buffer(guest->in), [this, guest](boost::system::error_code, std::size_t) {
          if (!done_) fail(guest->rank, "rank {} ended before all had come", guest->rank);
        });
  }

  /// Tells a process that it is not of this job; the job goes on.
  template <class... Values>
  void turn_away(const Shared& guest, FormatText<Values...> text, const Values&... values) {
    last_refusal_ = formatted<Values...>(text, values...);
    ++refused_;
    guest->out = framed('-', last_refusal_);
    asio::async_write(guest->socket, asio::buffer(guest->out),
                      [guest](boost::system::error_code, std::size_t) {});
  }
  template <class... Values>
  void fail(int rank, FormatText<Values...> text, const Values&... values) {
    at_fault_ = rank;
    failure_ = formatted<Values...>(text, values...);
    answer('-', failure_);
  }

  static std::string framed(char what, std::string_view text) {
    return what + Meeting::number(text.size()) + std::string(text);
  }
  std::string all() const {
    std::string text;
    for (const std::string& one : brought_) text += Meeting::number(one.size()) + one;
    return text;
  }
  /// Tells all that are here, and ends the meeting.
  void answer(char what, std::string_view text) {
    done_ = true;
    answer_ = framed(what, text);
    untold_ = std::ssize(present_) - std::count(present_.begin(), present_.end(), nullptr);
    if (untold_ == 0) context_.stop();
    for (const Shared& guest : present_)
      if (guest)
        asio::async_write(guest->socket, asio::buffer(answer_),
                          [this, guest](boost::system::error_code error, std::size_t) {
                            if (error && failure_.empty()) {
                              at_fault_ = guest->rank;
                              failure_ = formatted("rank {} ended while all came", guest->rank);
                            }
                            if (--untold_ == 0) context_.stop();
                          });
  }

  const RankOfJob& job_;
  const std::string facts_;
  const std::chrono::nanoseconds timeout_;
  asio::io_context context_{1};
  asio::ip::tcp::acceptor acceptor_{context_};
  asio::steady_timer deadline_{context_};
  std::vector<Shared> present_;
  std::vector<std::string> brought_;
  std::size_t come_ = 0;
  std::ptrdiff_t untold_ = 0;
  int refused_ = 0, at_fault_ = -1;
  bool done_ = false;
  std::string last_refusal_, failure_, answer_;
};

/// Any other rank: goes to rank 0, and is given what each brought.
class MeetingGuest {
 public:
  MeetingGuest(const RankOfJob& job, const MeetingOptions& options)
      : job_(job), facts_(Meeting::facts(options)), deadline_(deadline_after(options.timeout)) {}

  std::vector<std::string> run(std::string_view mine) {
    const std::vector<asio::ip::tcp::endpoint> places = Meeting::resolve(context_, job_);
    connect(places);
    const std::string nonce = Meeting::nonce();
    write(std::string(Meeting::kMagic) + nonce);
    const std::string hello = read(Meeting::kMagic.size() + Meeting::kNonce + Meeting::kProof);
    if (!hello.starts_with(Meeting::kMagic)) stranger();
    const std::string nonces = nonce + hello.substr(Meeting::kMagic.size(), Meeting::kNonce);
    if (!Meeting::same(std::string_view(hello).substr(Meeting::kMagic.size() + Meeting::kNonce),
                       Meeting::proof(job_, "rank 0", nonces)))
      Meeting::fail(0, formatted("who listens at {} has not this job's token: it is another "
                                 "job's rank 0, or TESSERA_JOB_TOKEN differs; set MASTER_PORT to "
                                 "a port of this job alone",
                                 Meeting::place(job_)));
    std::string said = Meeting::proof(job_, "rank", nonces);
    for (const std::size_t number :
         {static_cast<std::size_t>(job_.rank), static_cast<std::size_t>(job_.size), facts_.size(),
          mine.size()})
      said += Meeting::number(number);
    write(said + facts_ + std::string(mine));
    const std::string frame = read(1 + Meeting::kNumber);
    std::string_view length(frame);
    length.remove_prefix(1);
    const std::string text = read(Meeting::take_number(length));
    if (frame[0] != '+') Meeting::fail(-1, text);
    std::vector<std::string> all;
    for (std::string_view rest = text; !rest.empty();) {
      if (rest.size() < Meeting::kNumber) stranger();
      const std::size_t bytes = Meeting::take_number(rest);
      if (bytes > rest.size()) stranger();
      all.emplace_back(rest.substr(0, bytes));
      rest.remove_prefix(bytes);
    }
    return all;
  }

 private:
  /// Runs what `start` begins with a handler, to its end or the deadline. Returns its error.
  template <class Start>
  boost::system::error_code wait(Start start) {
    boost::system::error_code result = asio::error::timed_out;
    start([&result](boost::system::error_code error, const auto&) { result = error; });
    context_.restart();
    context_.run_until(deadline_);
    if (!context_.stopped()) {
      socket_.close();
      context_.run();
      result = asio::error::timed_out;
    }
    return result;
  }
  void connect(const std::vector<asio::ip::tcp::endpoint>& places) {
    for (;;) {  // rank 0 may start later
      const auto error =
          wait([&](auto handler) { asio::async_connect(socket_, places, std::move(handler)); });
      if (!error) return;
      if (error == asio::error::no_descriptors)
        Meeting::fail(job_.rank, "this rank can open no socket: " + error.message());
      if (std::chrono::steady_clock::now() + std::chrono::milliseconds(50) > deadline_)
        Meeting::fail(0, formatted("rank 0 does not listen at {} ({}); is it started, and is "
                                   "MASTER_ADDR its machine?",
                                   Meeting::place(job_), error.message()));
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
  void write(const std::string& bytes) {
    check(wait([&](auto handler) {
      asio::async_write(socket_, asio::buffer(bytes), std::move(handler));
    }));
  }
  std::string read(std::size_t bytes) {
    if (bytes > Meeting::kMostBytes * static_cast<std::size_t>(job_.size)) stranger();
    std::string text(bytes, '\0');
    check(wait(
        [&](auto handler) { asio::async_read(socket_, asio::buffer(text), std::move(handler)); }));
    return text;
  }
  void check(boost::system::error_code error) const {
    if (error == asio::error::timed_out)
      Meeting::fail(-1, formatted("rank {} waited at {} for rank 0, or for others that it waits "
                                  "for",
                                  job_.rank, Meeting::place(job_)));
    if (error)
      Meeting::fail(0, formatted("rank 0 at {} ended, or it is no rank of Tessera ({})",
                                 Meeting::place(job_), error.message()));
  }
  [[noreturn]] void stranger() const {
    Meeting::fail(0, formatted("who listens at {} is no rank of Tessera; set MASTER_PORT to a "
                               "free port",
                               Meeting::place(job_)));
  }

  const RankOfJob& job_;
  const std::string facts_;
  const std::chrono::steady_clock::time_point deadline_;
  asio::io_context context_{1};
  asio::ip::tcp::socket socket_{context_};
};

}  // namespace detail

/// Gives every rank what each one brings, in rank order: once, before there is a communicator; such
/// as the addresses that GlooCommunicator listens at. Rank 0 listens at the job's address and port
/// and takes nothing but from processes that prove to have the job's token (HMAC-SHA256); others
/// may knock. What is said is not encrypted. Throws CommunicatorError on every rank if one is
/// missing when the time is over, ends, or differs in facts, and if the port is taken; a process
/// with another token, of another size, or whose rank is there already throws alone. Needs
/// Boost.Asio and OpenSSL. Collective.
inline std::vector<std::string> meet_at_rank_0(const RankOfJob& job, std::string mine,
                                               const MeetingOptions& options = {}) {
  require(job.size >= 1 && job.rank >= 0 && job.rank < job.size,
          "meet_at_rank_0: rank {} of {} is none", job.rank, job.size);
  require(mine.size() <= detail::Meeting::kMostBytes,
          "meet_at_rank_0: a rank brings at most {} bytes, not {}", detail::Meeting::kMostBytes,
          mine.size());
  if (job.size == 1) return {std::move(mine)};
  require(!job.address.empty(),
          "the launcher does not say where rank 0 is; set MASTER_ADDR to its machine, and "
          "MASTER_PORT");
  require(job.port >= 1 && job.port <= 65535,
          "MASTER_PORT={}: rank 0 listens at a port that all know; set it to one in 1..65535",
          job.port);
  if (job.rank == 0) return detail::MeetingHost(job, std::move(mine), options).run();
  return detail::MeetingGuest(job, options).run(mine);
}

}}  // namespace tessera::v0
