// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "metrics.hpp"

#include <tessera/core/error.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace dlrm { namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

/// One connection at a time, which has two seconds: a collector asks every few of them.
class Server final : public MetricsServer {
 public:
  explicit Server(int port) : acceptor_(context_) {
    const tcp::endpoint place(asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(port));
    error_code error;
    acceptor_.open(place.protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(place, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    tessera::require<tessera::Error>(!error, "--metrics-port {}: {}; give another port", port,
                                     error.message());
    accept();
    thread_ = std::thread([this] { context_.run(); });
  }
  ~Server() override {
    context_.stop();
    thread_.join();
  }

  void set(std::string text) override {
    const std::lock_guard lock(mutex_);
    text_ = std::move(text);
  }
  int port() const override { return acceptor_.local_endpoint().port(); }

 private:
  struct Connection {
    explicit Connection(tcp::socket socket) : stream(std::move(socket)) {}
    beast::tcp_stream stream;
    beast::flat_buffer buffer{16 << 10};
    http::request_parser<http::empty_body> request;
    http::response<http::string_body> response;
  };

  void accept() {
    acceptor_.async_accept([this](error_code error, tcp::socket socket) {
      if (error) {  // as if no files are left
        pause_.expires_after(std::chrono::milliseconds(100));
        return pause_.async_wait([this](error_code) { accept(); });
      }
      const auto connection = std::make_shared<Connection>(std::move(socket));
      connection->stream.expires_after(std::chrono::seconds(2));
      connection->request.header_limit(8 << 10);
      http::async_read_header(connection->stream, connection->buffer, connection->request,
                              [this, connection](error_code failed, std::size_t) {
                                if (failed) return accept();
                                answer(*connection);
                                http::async_write(connection->stream, connection->response,
                                                  [this, connection](error_code, std::size_t) {
                                                    error_code ignored;
                                                    connection->stream.socket().shutdown(
                                                        tcp::socket::shutdown_both, ignored);
                                                    accept();
                                                  });
                              });
    });
  }

  void answer(Connection& connection) {
    const auto& asked = connection.request.get();
    auto& response = connection.response;
    response.keep_alive(false);
    if (asked.method() != http::verb::get || asked.target() != "/metrics") {
      response.result(asked.method() == http::verb::get ? http::status::not_found
                                                        : http::status::method_not_allowed);
      response.body() = "GET /metrics is all there is\n";
    } else {
      response.set(http::field::content_type, "text/plain; version=0.0.4");
      const std::lock_guard lock(mutex_);
      response.body() = text_;
    }
    response.prepare_payload();
  }

  asio::io_context context_{1};
  tcp::acceptor acceptor_;
  asio::steady_timer pause_{context_};
  std::mutex mutex_;
  std::string text_;
  std::thread thread_;
};

[[maybe_unused]] const bool added = [] {
  metrics_servers() = [](int port) -> std::unique_ptr<MetricsServer> {
    return std::make_unique<Server>(port);
  };
  return true;
}();

}  // namespace
}  // namespace dlrm
