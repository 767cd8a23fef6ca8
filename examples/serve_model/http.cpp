// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "http.hpp"

#include <tessera/core/error.hpp>

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
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
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
  std::atomic<std::uint64_t> memory{0};  ///< of bodies
  std::atomic<bool> leaving{false};      ///< each answer is the last of its connection
  std::atomic<bool> closing{false};      ///< connections between requests end

  bool reserve(std::uint64_t bytes) {
    if (memory.fetch_add(bytes) + bytes <= options.most_memory) return true;
    memory.fetch_sub(bytes);
    return false;
  }
};

/// One connection: reads a request, answers it, reads the next. All of it runs on a strand.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, Shared& shared)
      : shared_(shared), socket_(std::move(socket)), timer_(socket_.get_executor()) {}
  ~Connection() { release(); }

  void start() {
    asio::post(socket_.get_executor(), [self = shared_from_this()] { self->wait(); });
  }
  /// Ends it where no request has begun.
  void close_if_idle() {
    asio::post(socket_.get_executor(), [self = shared_from_this()] {
      if (self->idle_) self->close();
    });
  }

 private:
  using Parser = http::request_parser<http::string_body>;

  /// For the first byte of a request.
  void wait() {
    idle_ = true;
    if (shared_.closing && buffer_.size() == 0) return close();
    if (buffer_.size() > 0) return read();  // of the next request already
    limit(shared_.options.idle_seconds);
    socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](error_code error) {
      if (error) return self->close();
      self->read();
    });
  }

  void read() {
    idle_ = false;
    parser_.emplace();
    parser_->header_limit(kHeaderBytes);
    parser_->body_limit(shared_.options.most_body);
    limit(shared_.options.request_seconds);
    http::async_read_header(socket_, buffer_, *parser_,
                            [self = shared_from_this()](error_code error, std::size_t) {
                              error ? self->fail(error) : self->read_body();
                            });
  }

  void read_body() {
    const auto length = parser_->content_length();
    const std::uint64_t most = shared_.options.most_body;
    if (length && *length > most) return fail(http::error::body_limit);
    const std::uint64_t bytes = length ? *length : parser_->chunked() ? most : 0;
    if (!shared_.reserve(bytes))
      return refuse(503,
                    "the server holds as many bytes of requests as it may; try again in a "
                    "second");
    reserved_ = bytes;
    if (parser_->get()[http::field::expect] == "100-continue" && !parser_->is_done()) {
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

  void handle() {
    timer_.cancel();
    auto message = parser_->release();
    keep_alive_ = message.keep_alive();
    HttpRequest request{.method = std::string(message.method_string()),
                        .target = std::string(message.target()),
                        .body = std::move(message.body()),
                        .encoding = std::string(message[http::field::content_encoding])};
    if (const auto found = message.find("Inference-Header-Content-Length"); found != message.end())
      request.json_bytes = std::string(found->value());
    // The connection leaves the function with its answer: it ends on a thread of the connections.
    shared_.service.handle(
        std::move(request), [self = shared_from_this()](HttpReply reply) mutable {
          auto executor = self->socket_.get_executor();
          asio::post(executor, [self = std::move(self),
                                reply = std::make_shared<HttpReply>(std::move(reply))] {
            self->write(std::move(*reply));
          });
        });
  }

  /// What was read is no request, or did not end in time.
  void fail(error_code error) {
    if (error == http::error::end_of_stream) return close();
    if (error == asio::error::operation_aborted && late_)
      return refuse(408, "the request did not arrive in time; send it faster, or in parts");
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
    release();
    response_ = {};
    response_.version(11);
    response_.result(static_cast<unsigned>(reply.status));
    response_.set(http::field::server, "tessera");
    response_.set(http::field::content_type, reply.type);
    if (reply.json_bytes > 0)
      response_.set("Inference-Header-Content-Length", std::to_string(reply.json_bytes));
    if (reply.status == 503) response_.set(http::field::retry_after, "1");
    response_.keep_alive(keep_alive_ && !shared_.leaving);
    response_.body() = std::move(reply.body);
    response_.prepare_payload();
    limit(shared_.options.request_seconds);
    http::async_write(socket_, response_,
                      [self = shared_from_this()](error_code error, std::size_t) {
                        if (error || !self->response_.keep_alive()) return self->linger(error);
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

  void release() { shared_.memory.fetch_sub(std::exchange(reserved_, 0)); }
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
  std::uint64_t reserved_ = 0;
  bool idle_ = true, keep_alive_ = true, late_ = false;
};

/// Accepts connections, and ends in steps: not ready, no further connections, none between
/// requests, none at all.
class Server {
 public:
  Server(Service& service, const HttpOptions& options)
      : shared_{service, options},
        context_(options.threads),
        acceptor_(context_),
        signals_(context_, SIGTERM, SIGINT),
        timer_(context_) {
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
      if (!error) leave();
    });
    ready(acceptor_.local_endpoint().port());
    std::vector<std::thread> threads;
    for (int t = 1; t < shared_.options.threads; ++t)
      threads.emplace_back([this] { context_.run(); });
    context_.run();
    for (std::thread& thread : threads) thread.join();
  }

 private:
  void accept() {
    if (connections_ >= shared_.options.most_connections) {
      full_ = true;
      return;
    }
    acceptor_.async_accept(asio::make_strand(context_),
                           asio::bind_executor(main_, [this](error_code error, tcp::socket socket) {
                             if (!acceptor_.is_open()) return;
                             if (!error) add(std::move(socket));
                             if (error == asio::error::no_descriptors) return later();
                             accept();
                           }));
  }
  /// No files are left: some connections must end first.
  void later() {
    timer_.expires_after(std::chrono::milliseconds(100));
    timer_.async_wait(asio::bind_executor(main_, [this](error_code error) {
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
      timer_.async_wait(asio::bind_executor(main_, [this](error_code) { close(); }));
    });
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
  asio::steady_timer timer_;
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
