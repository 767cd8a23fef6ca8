// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "http.hpp"

#include <tessera/core/error.hpp>
#include <tessera/io/text.hpp>
#include <tessera_serving/running_threads.hpp>

#include <fmt/format.h>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <boost/optional.hpp>

#ifdef __linux__
#include <linux/filter.h>
#include <sys/socket.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace serve {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;
using tcp = asio::ip::tcp;

constexpr std::uint32_t kHeaderBytes = 16 << 10;

std::chrono::milliseconds duration(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1e3));
}

/// What connections share.
struct Shared {
  Service& service;
  const HttpOptions& options;
  std::atomic<bool> leaving{false};  ///< each answer is the last of its connection
  std::atomic<bool> closing{false};  ///< connections between requests end
};

/// A body that takes memory as its bytes come, whatever its header announces.
struct CountedBody {
  struct value_type {
    std::string text;
    Held* held = nullptr;
  };
  class reader {
   public:
    template <bool is_request, class Fields>
    reader(http::header<is_request, Fields>&, value_type& body) : body_(body) {}
    void init(const boost::optional<std::uint64_t>& length, error_code& error) {
      length_ = length.value_or(length_);
      error = {};
    }
    template <class Buffers>
    std::size_t put(const Buffers& buffers, error_code& error) {
      std::string& text = body_.text;
      const std::size_t more = asio::buffer_size(buffers), needed = text.size() + more;
      error = {};
      if (needed > text.capacity()) {
        const std::uint64_t grown =
            std::max<std::uint64_t>(needed, std::min<std::uint64_t>(2 * text.capacity(), length_));
        if (!body_.held->set(grown)) {
          error = make_error_code(boost::system::errc::not_enough_memory);
          return 0;
        }
        try {
          text.reserve(grown);
        } catch (const std::bad_alloc&) {
          error = make_error_code(boost::system::errc::not_enough_memory);
          return 0;
        }
      }
      for (auto b = asio::buffer_sequence_begin(buffers); b != asio::buffer_sequence_end(buffers);
           ++b)
        text.append(static_cast<const char*>(b->data()), b->size());
      return more;
    }
    void finish(error_code& error) { error = {}; }

   private:
    value_type& body_;
    std::uint64_t length_ = std::numeric_limits<std::uint64_t>::max();
  };
};

/// One connection: reads a request, answers it, reads the next. All of it runs on a strand.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, Shared& shared)
      : shared_(shared),
        socket_(std::move(socket)),
        timer_(socket_.get_executor()),
        held_(shared.service.held_bytes(), shared.options.most_memory) {}

  void start() {
    asio::post(socket_.get_executor(), [self = shared_from_this()] { self->wait(); });
  }
  /// Ends it if no request has begun and none lies in the socket. One that has had no request yet
  /// may be about to send its first: it has a moment more.
  void close_if_idle() {
    asio::post(socket_.get_executor(), [self = shared_from_this()] {
      if (!self->idle_ || self->readable()) return;
      self->fresh_ ? self->limit(kMomentSeconds) : self->close();
    });
  }

 private:
  using Parser = http::request_parser<CountedBody>;

  static constexpr double kMomentSeconds = 1;

  bool readable() {
    error_code ignored;
    return buffer_.size() > 0 || socket_.available(ignored) > 0;
  }

  /// For the first byte of a request.
  void wait() {
    idle_ = true;
    if (readable()) return read();
    if (shared_.closing && !fresh_) return close();
    limit(shared_.closing ? kMomentSeconds : shared_.options.idle_seconds);
    socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](error_code error) {
      if (error && !self->readable()) return self->close();
      self->read();
    });
  }

  void read() {
    idle_ = fresh_ = head_ = false;
    parser_.emplace();
    parser_->get().body().held = &held_;
    parser_->header_limit(kHeaderBytes);
    parser_->body_limit(shared_.options.most_body);
    limit(shared_.options.request_seconds);
    http::async_read_header(socket_, buffer_, *parser_,
                            [self = shared_from_this()](error_code error, std::size_t) {
                              error ? self->fail(error) : self->read_body();
                            });
  }

  void read_body() {
    request_ = request();
    // where such a body ends is not known, and it would be taken for the next request
    if (const std::optional<std::string> coding = joined(http::field::transfer_encoding);
        coding && !boost::beast::iequals(*coding, "chunked"))
      return refuse(400,
                    fmt::format("bodies of Transfer-Encoding {} are not read; send chunked, or "
                                "Content-Length without it",
                                tessera::detail::quoted(*coding)));
    takes_body_ = shared_.service.takes_body(request_);
    const auto length = parser_->content_length();
    if (!takes_body_) {
      // a short body is passed over, and the connection goes on
      if (length && *length > kHeaderBytes) return handle_without_body();
      parser_->body_limit(kHeaderBytes);
    }
    if (boost::beast::iequals(parser_->get()[http::field::expect], "100-continue") &&
        !parser_->is_done()) {
      auto go_on = std::make_shared<http::response<http::empty_body>>(http::status::continue_, 11);
      return http::async_write(socket_, *go_on,
                               [self = shared_from_this(), go_on](error_code error, std::size_t) {
                                 error ? self->close() : self->read_rest();
                               });
    }
    read_rest();
  }
  void read_rest() {
    http::async_read(socket_, buffer_, *parser_,
                     [self = shared_from_this()](error_code error, std::size_t) {
                       error ? self->fail(error) : self->handle();
                     });
  }

  /// What the header says. HEAD is GET whose answer has no body.
  HttpRequest request() {
    const auto& message = parser_->get();
    keep_alive_ = message.keep_alive();
    head_ = message.method() == http::verb::head;
    HttpRequest request{.method = head_ ? "GET" : std::string(message.method_string()),
                        .target = std::string(message.target()),
                        .encoding = joined(http::field::content_encoding).value_or(""),
                        .accepts = joined(http::field::accept_encoding),
                        .most_body = shared_.options.most_body,
                        .held = &held_};
    if (const auto found = message.find("Inference-Header-Content-Length"); found != message.end())
      request.json_bytes = std::string(found->value());
    return request;
  }

  /// A header's lists, which may be on several lines; none if there is no such header.
  std::optional<std::string> joined(http::field name) const {
    std::optional<std::string> all;
    for (auto [line, end] = parser_->get().equal_range(name); line != end; ++line)
      all = all ? *all + "," + std::string(line->value()) : std::string(line->value());
    return all;
  }

  void handle() {
    timer_.cancel();
    request_.body = std::move(parser_->get().body().text);
    parser_.reset();
    // The connection leaves the function with its answer: it ends on a thread of the connections.
    shared_.service.handle(
        std::move(request_), [self = shared_from_this()](HttpReply reply) mutable {
          auto executor = self->socket_.get_executor();
          asio::post(executor, [self = std::move(self),
                                reply = std::make_shared<HttpReply>(std::move(reply))] {
            self->write(std::move(*reply));
          });
        });
  }
  /// The body that is not read would be taken for the next request.
  void handle_without_body() {
    keep_alive_ = false;
    handle();
  }

  /// What was read is no request, or did not end in time.
  void fail(error_code error) {
    if (error == http::error::end_of_stream) return close();
    if (error == asio::error::operation_aborted && late_)
      return refuse(408, "the request did not arrive in time; send it faster, or in parts");
    if (error == http::error::body_limit && !takes_body_ && parser_->is_header_done())
      return handle_without_body();
    if (error == boost::system::errc::not_enough_memory) return refuse(503, kHeldTooMuch);
    if (error == http::error::body_limit)
      return refuse(413, "the body is too large; send fewer samples at once");
    if (error == http::error::header_limit || error == http::error::buffer_overflow)
      return refuse(431, "the header is too large");
    if (error.category() == make_error_code(http::error::bad_method).category())
      return refuse(400, "this is no request of HTTP/1.1: " + error.message());
    close();  // the client is gone
  }
  void refuse(int status, const std::string& text) {
    keep_alive_ = false;
    write(shared_.service.refusal(status, text));
  }

  void write(HttpReply reply) {
    parser_.reset();
    if (!held_.set(reply.body.size())) held_.set(0);  // a short one
    response_.version(11);
    response_.result(static_cast<unsigned>(reply.status));
    response_.set(http::field::server, "tessera");
    response_.set(http::field::content_type, reply.type);
    if (reply.json_bytes > 0)
      response_.set("Inference-Header-Content-Length", std::to_string(reply.json_bytes));
    if (reply.coding != Coding::identity) {
      response_.set(http::field::content_encoding, name_of(reply.coding));
      response_.set(http::field::vary, "Accept-Encoding");
    }
    if (reply.status == 415) response_.set(http::field::accept_encoding, "gzip, deflate");
    if (reply.status == 503) response_.set(http::field::retry_after, "1");
    response_.keep_alive(keep_alive_ && !shared_.leaving);
    if (response_.keep_alive()) response_.set(http::field::connection, "keep-alive");  // HTTP/1.0
    response_.content_length(reply.body.size());
    if (!head_) response_.body() = std::move(reply.body);
    limit(shared_.options.request_seconds);
    http::async_write(socket_, response_,
                      [self = shared_from_this()](error_code error, std::size_t) {
                        const bool goes_on = self->response_.keep_alive();
                        self->response_ = {};
                        self->held_.set(0);
                        if (error || !goes_on) return self->linger(error);
                        self->wait();
                      });
  }

  /// A connection that is closed while the client still sends loses the answer: what comes is read
  /// and thrown away, for a moment.
  void linger(error_code error) {
    error_code ignored;
    if (error) return close();
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
    limit(std::min(2.0, shared_.options.request_seconds));
    discard(0);
  }
  void discard(std::size_t bytes) {
    constexpr std::size_t kMost = std::size_t{256} << 20;
    rest_.resize(1 << 16);
    socket_.async_read_some(asio::buffer(rest_),
                            [self = shared_from_this(), bytes](error_code error, std::size_t n) {
                              if (error || bytes + n > kMost) return self->close();
                              self->discard(bytes + n);
                            });
  }

  /// Cancels what goes on after so many seconds.
  void limit(double seconds) {
    late_ = false;
    timer_.expires_after(duration(seconds));
    timer_.async_wait([weak = weak_from_this()](error_code error) {
      const auto self = weak.lock();
      // a timer that was set again in the meantime is not over
      if (error || !self || self->timer_.expiry() > std::chrono::steady_clock::now()) return;
      self->late_ = true;
      error_code ignored;
      self->socket_.cancel(ignored);
    });
  }

  void close() {
    error_code ignored;
    timer_.cancel();
    socket_.close(ignored);
  }

  Shared& shared_;
  tcp::socket socket_;
  asio::steady_timer timer_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  http::response<http::string_body> response_;
  std::vector<char> rest_;
  Held held_;
  HttpRequest request_;
  bool idle_ = true, keep_alive_ = true, late_ = false;
  bool fresh_ = true;        ///< no request has begun
  bool takes_body_ = false;  ///< the request goes to a model
  bool head_ = false;        ///< its answer has no body
};

/// Accepts connections, and ends in steps: not ready, no further connections, none between
/// requests, none at all.
class Server {
 public:
  Server(Service& service, const HttpOptions& options)
      : shared_{service, options},
        context_(options.threads),
        acceptor_(context_),
        signals_(context_, SIGTERM, SIGINT) {
    error_code error;
    const auto address = asio::ip::make_address(options.host, error);
    tessera::require<tessera::Error>(!error,
                                     "--host: '{}' is no address of this machine; give one "
                                     "in digits, as 127.0.0.1 or 0.0.0.0",
                                     options.host);
    const tcp::endpoint endpoint(address, options.port);
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    tessera::require<tessera::Error>(!error, "cannot listen on {}, port {}: {}", options.host,
                                     options.port, error.message());
  }

  void run(const std::function<void(int)>& ready) {
    accept();
    signals_.async_wait([this](error_code error, int) {
      if (error) return;
      signals_.clear(error);  // a second one ends the process at once
      leave();
    });
    ready(acceptor_.local_endpoint().port());
    const tessera::detail::RunningThreads others(
        shared_.options.threads - 1, [this] { work(); }, [this] { context_.stop(); });
    work();
  }

 private:
  /// Until nothing is left to do. What a handler throws, as if no memory is left, ends its
  /// connection alone.
  void work() {
    for (;;) try {
        context_.run();
        return;
      } catch (const std::exception& error) {
        std::fputs(fmt::format("a connection ended: {}\n", error.what()).c_str(), stderr);
      }
  }

  void accept() {
    if (connections_ >= shared_.options.most_connections) {
      full_ = true;
      return;
    }
    acceptor_.async_accept(asio::make_strand(context_),
                           asio::bind_executor(main_, [this](error_code error, tcp::socket socket) {
                             if (!error) add(std::move(socket));
                             if (!acceptor_.is_open()) return;
                             if (error == asio::error::no_descriptors) return later();
                             accept();
                           }));
  }
  /// No files are left: some connections must end first.
  void later() {
    pause_.expires_after(std::chrono::milliseconds(100));
    pause_.async_wait(asio::bind_executor(main_, [this](error_code error) {
      if (!error && acceptor_.is_open()) accept();
    }));
  }

  void add(tcp::socket socket) {
    error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    auto* const made = new Connection(std::move(socket), shared_);
    ++connections_;
    // the server does not end before it
    const auto work = asio::make_work_guard(context_);
    const std::shared_ptr<Connection> connection(made, [this, work](Connection* c) {
      delete c;
      asio::post(main_, [this] {
        --connections_;
        if (std::exchange(full_, false) && acceptor_.is_open()) accept();
        forget();
      });
    });
    open_.insert(connection);
    connection->start();
  }
  void forget() {
    std::erase_if(open_, [](const std::weak_ptr<Connection>& c) { return c.expired(); });
  }

  void leave() {
    asio::post(main_, [this] {
      shared_.service.leave();
      shared_.leaving = true;
      timer_.expires_after(duration(shared_.options.drain_seconds));
      timer_.async_wait(asio::bind_executor(main_, [this](error_code) { make_no_more(); }));
    });
  }
  /// From now on the system answers no new wish to connect: who came between the last that is
  /// accepted and the end would be connected, and cut off. Who was answered before has a moment to
  /// complete the connection.
  void make_no_more() {
#ifdef __linux__
    // TCP's flags are byte 13 of its header; 2 is SYN, the first packet of a connection
    sock_filter drop_first[]{{BPF_LD | BPF_B | BPF_ABS, 0, 0, 13},
                             {BPF_JMP | BPF_JSET | BPF_K, 1, 0, 2},
                             {BPF_RET | BPF_K, 0, 0, 0xffffffff},
                             {BPF_RET | BPF_K, 0, 0, 0}};
    const sock_fprog program{4, drop_first};
    ::setsockopt(acceptor_.native_handle(), SOL_SOCKET, SO_ATTACH_FILTER, &program,
                 sizeof(program));
#endif
    timer_.expires_after(std::chrono::milliseconds(50));
    timer_.async_wait(asio::bind_executor(main_, [this](error_code) { close(); }));
  }
  void close() {
    // those that wait to be accepted have been connected, and may have sent a request
    error_code error;
    acceptor_.non_blocking(true, error);
    while (!error) {
      tcp::socket socket(asio::make_strand(context_));
      acceptor_.accept(socket, error);
      if (!error) add(std::move(socket));
    }
    acceptor_.close(error);
    shared_.closing = true;
    for (const auto& weak : open_)
      if (const auto connection = weak.lock()) connection->close_if_idle();
  }

  using Weak = std::weak_ptr<Connection>;
  Shared shared_;
  asio::io_context context_;
  asio::strand<asio::io_context::executor_type> main_{context_.get_executor()};
  tcp::acceptor acceptor_;
  asio::signal_set signals_;
  asio::steady_timer timer_{context_}, pause_{context_};  ///< of the end; of accepting
  std::set<Weak, std::owner_less<Weak>> open_;
  int connections_ = 0;
  bool full_ = false;
};

}  // namespace

void serve_http(Service& service, const HttpOptions& options,
                const std::function<void(int port)>& ready) {
  Server(service, options).run(ready);
}

}  // namespace serve
