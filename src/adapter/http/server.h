#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/log.h"
#include "base/result.h"
#include "port/http.h"

namespace carve::http {

/// The server's certificate, and the authorities of the client certificates that it accepts.
struct Identity {
  std::string certificate;  // PEM: the server's certificate, then the intermediate ones
  std::string key;          // PEM; a secret
  std::string authorities;  // PEM bundle: a client with a certificate of theirs is known by its CN; empty: none is
  /// Clients that call the server by this name (SNI) are offered HTTP/2, where many requests share one connection;
  /// empty: no client. All others use HTTP/1.1; they leave a hanging server at the first call that it does not answer.
  std::string multiplexed = {};
};

/// Limits per client and per server. The defaults are for production.
struct Limits {
  std::size_t head = 32UL << 10;  // bytes of a request's first line and fields
  std::size_t body = 16UL << 20;  // bytes: 5,000 whole Node objects do not fit, their names 70 times
  std::chrono::milliseconds handshake{10'000};
  std::chrono::milliseconds head_time{10'000};  // from a request's first byte to the end of its head
  std::chrono::milliseconds body_time{30'000};
  std::chrono::milliseconds write_time{30'000};
  // Longer than Go's 90 s: the client closes first, so that no request is sent on a connection that is being closed.
  std::chrono::milliseconds idle{120'000};
  // How long a request may wait for a thread; kube-scheduler gives up after 5 s.
  std::chrono::milliseconds queue{4'000};
  std::size_t connections = 1024;
  unsigned threads = 2;           // shared by all connections; each connection stays on one thread
  unsigned waiting_threads = 16;  // for requests that wait for another server
};

struct ServerOptions {
  std::string listen;                // ":8443" (every address), "127.0.0.1:0" (a free port), "[::1]:80"
  std::optional<Identity> identity;  // without: plain HTTP
  Limits limits;
  /// True for requests that wait for another server (the API server) or take long. They run on threads of their own, so
  /// that other requests do not queue behind them. Empty: no request does.
  std::function<bool(const HttpRequest&)> waits;
};

/// Counters since the start of the server.
struct ServerCounts {
  std::size_t open = 0;         // connections now
  std::size_t idle = 0;         // open connections that wait for a request
  std::uint64_t accepted = 0;   // connections
  std::uint64_t refused = 0;    // connections refused because there were too many
  std::uint64_t evicted = 0;    // idle connections closed in favour of new ones
  std::uint64_t malformed = 0;  // requests that were not HTTP, too large or too slow
};

/// An HTTP server on one port: HTTP/1.1 with keep-alive, and HTTP/2 for one name (Identity). A connection costs about
/// 10 KiB, 40 KiB with TLS, and no thread. When there are too many connections, the server closes the one that has been
/// idle longest, those of unknown clients first. Safe from any thread.
class Server {
 public:
  /// Listens and begins to serve.
  ///   errors  kInvalidArgument: `listen` or a part of the identity is invalid (the text says which); kUnavailable: the
  ///           port is in use; kPermissionDenied
  [[nodiscard]] static Result<std::unique_ptr<Server>> open(const ServerOptions& options, HttpHandler handler,
                                                            Log& log);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  [[nodiscard]] std::uint16_t port() const;
  /// Uses another identity from the next handshake on. Open connections are not affected.
  ///   errors  kInvalidArgument: the identity is invalid, nothing was changed; kFailedPrecondition: a plain port
  [[nodiscard]] Result<void> renew(const Identity& identity);
  /// Call it before stop(), while clients learn to use other replicas. All requests are still answered, but each
  /// connection ends with its next answer (HTTP/1.1: "Connection: close"; HTTP/2: GOAWAY immediately). This way stop()
  /// does not cut a connection on which a request is about to arrive.
  void drain();
  /// Accepts no new connections, closes idle ones immediately, and waits at most `grace` until the received requests
  /// are answered; then closes all connections. Returns when the last handler has returned. A second call does nothing.
  void stop(std::chrono::milliseconds grace);
  [[nodiscard]] ServerCounts counts() const;

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace carve::http
