#pragma once

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/system/error_code.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "adapter/http/identity.h"
#include "adapter/http/server.h"
#include "adapter/http/streams.h"

namespace carve::http {

/// The data that all connections of a server share.
struct Common {
  Limits limits;
  HttpHandler handler;
  std::function<bool(const HttpRequest&)> waits;
  boost::asio::thread_pool waiting;
  std::atomic<bool> draining = false;  // each connection ends with its next answer
  std::atomic<bool> stopping = false;
  std::atomic<std::uint64_t> malformed = 0;

  Common(const ServerOptions& options, HttpHandler answers)
      : limits(options.limits),
        handler(std::move(answers)),
        waits(options.waits),
        waiting(options.limits.waiting_threads) {}
};

/// One connection. It belongs to one thread; other threads read only its atomic members.
class Session {
 public:
  Session(Common& common, boost::asio::ip::tcp::socket socket, std::shared_ptr<TlsContext> context);

  /// Serves until one side ends the connection.
  boost::asio::awaitable<void> run();
  /// On its thread: closes the connection immediately if no request is being read or answered; with `busy_too`, always.
  void end(bool busy_too);
  /// On its thread: tells an HTTP/2 client to send its next requests to another server.
  void drain();

  [[nodiscard]] boost::asio::any_io_executor executor() { return tcp_.get_executor(); }
  [[nodiscard]] bool busy() const { return busy_; }
  [[nodiscard]] bool known() const { return known_; }
  [[nodiscard]] std::int64_t idle_since() const { return idle_since_; }

  bool leaving = false;  // set by the server when it has asked the session to end

 private:
  struct Got {
    HttpRequest http;
    bool keep = false;
    int refusal = 0;    // an HTTP status: the request is refused without the handler; 0: it is not
    bool gone = false;  // the client has gone and cannot be answered
    bool late = false;
  };
  /// The concurrent requests of one HTTP/2 connection.
  struct Flow;
  boost::asio::awaitable<void> multiplexed();
  boost::asio::awaitable<void> take(Flow& flow, std::vector<Streams::Request> requests);
  boost::asio::awaitable<void> later(Flow& flow, Streams::Request request);
  boost::asio::awaitable<void> flush(Flow& flow);
  boost::asio::awaitable<void> drain_flow(Flow& flow);
  boost::asio::awaitable<void> leave_flow(Flow& flow);
  void hang_up(Flow& flow);
  boost::asio::awaitable<void> linger(Flow& flow);
  boost::asio::awaitable<void> keep_time(Flow& flow);
  void done_with(Flow& flow);

  /// The transfers of the connection, through TLS if it has TLS. Everything above them is compiled once for both.
  struct Received {
    boost::system::error_code wrong;
    std::size_t size = 0;
  };
  boost::asio::awaitable<Received> receive(boost::asio::mutable_buffer room);
  boost::asio::awaitable<boost::system::error_code> send(std::string_view bytes);

  boost::asio::awaitable<void> requests();
  boost::asio::awaitable<Got> read();
  boost::asio::awaitable<boost::system::error_code> parse(boost::beast::http::basic_parser<true>& parser,
                                                          bool whole);
  boost::asio::awaitable<bool> write(const HttpResponse& reply, bool keep, bool head_only);
  boost::asio::awaitable<void> keep_sending(HttpResponse reply);
  boost::asio::awaitable<void> discard_body();
  boost::asio::awaitable<HttpResponse> answer(const HttpRequest& request);
  [[nodiscard]] HttpResponse guarded(const HttpRequest& request) const;
  void rest();  // marks the connection as idle from now on
  void learn_peer();

  Common& common_;
  boost::beast::tcp_stream tcp_;
  std::shared_ptr<TlsContext> context_;
  std::optional<boost::asio::ssl::stream<boost::beast::tcp_stream&>> tls_;
  boost::beast::flat_buffer buffer_;
  Flow* flow_ = nullptr;  // set while the connection uses HTTP/2
  bool in_handshake_ = false;
  bool verified_ = true;  // no step of the peer's verification failed
  std::string peer_;
  std::atomic<bool> busy_ = false;
  std::atomic<bool> known_ = false;
  std::atomic<std::int64_t> idle_since_ = 0;  // ns of the steady clock
};

}  // namespace carve::http
