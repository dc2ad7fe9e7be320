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

/// What the server shows of itself over TLS, and whose clients it believes.
struct Identity {
  std::string certificate;  // PEM: its own, then those between it and the authority
  std::string key;          // PEM; a secret
  std::string authorities;  // PEM bundle: whoever they signed is known by his CN; empty: nobody is
  /// Who calls us by this name (SNI) is offered HTTP/2, where many requests share one connection; empty: nobody. All
  /// others speak HTTP/1.1, and leave a server that hangs with the first call that it does not answer.
  std::string multiplexed = {};
};

/// What one client may take. The defaults are for production.
struct Limits {
  std::size_t head = 32UL << 10;  // bytes of a request's first line and fields
  std::size_t body = 16UL << 20;  // bytes: 5,000 whole Node objects do not fit, their names 70 times
  std::chrono::milliseconds handshake{10'000};
  std::chrono::milliseconds head_time{10'000};  // from a request's first byte to the end of its head
  std::chrono::milliseconds body_time{30'000};
  std::chrono::milliseconds write_time{30'000};
  std::chrono::milliseconds idle{120'000};  // above Go's 90 s: the client hangs up first, so nobody calls into a
                                            // connection that is just being closed
  std::chrono::milliseconds queue{4'000};   // that a request waits for a thread; kube-scheduler gives up after 5 s
  std::size_t connections = 1024;
  unsigned threads = 2;           // for all connections, each of which stays on one of them
  unsigned waiting_threads = 16;  // for the requests that wait for somebody
};

struct ServerOptions {
  std::string listen;                // ":8443" (every address), "127.0.0.1:0" (a free port), "[::1]:80"
  std::optional<Identity> identity;  // without: plain HTTP
  Limits limits;
  /// Which requests wait for somebody (the API server), or take long: they get threads of their own, so that the others
  /// never stand behind them. Without: none do.
  std::function<bool(const HttpRequest&)> waits;
};

/// What happened so far.
struct ServerCounts {
  std::size_t open = 0;         // connections now
  std::size_t idle = 0;         // those of them that wait for a request
  std::uint64_t accepted = 0;   // connections
  std::uint64_t refused = 0;    // connections, because there were too many
  std::uint64_t evicted = 0;    // idle connections, closed to make room
  std::uint64_t malformed = 0;  // requests that were none, too large or too slow
};

/// An HTTP server on one port: HTTP/1.1 with keep-alive, HTTP/2 by name (Identity). A connection costs no thread: some
/// 10 KiB, over TLS 40. When there are too many, the one that has idled longest makes room, strangers before those that
/// are known. Safe from any thread.
class Server {
 public:
  /// Listens and serves at once.
  ///   errors  kInvalidArgument: `listen`, or which part of the identity cannot be used; kUnavailable: the port is
  ///           taken; kPermissionDenied
  [[nodiscard]] static Result<std::unique_ptr<Server>> open(const ServerOptions& options, HttpHandler handler,
                                                            Log& log);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  [[nodiscard]] std::uint16_t port() const;
  /// From the next handshake on; connections that are open stay as they are.
  ///   errors  kInvalidArgument: nothing was changed; kFailedPrecondition: this is a plain port
  [[nodiscard]] Result<void> renew(const Identity& identity);
  /// Before stop(), while clients learn that others are to be asked: all is answered as before, and with each answer
  /// its connection is given up (HTTP/1.1: "Connection: close"; HTTP/2: told at once that the next request belongs
  /// elsewhere). A connection that is in use then is none that stop() could cut off under a request on its way.
  void drain();
  /// Takes nothing new, lets go of idle connections at once, waits until the requests that have come are answered, at
  /// most `grace`, then cuts. Returns when the last handler has. A second call does nothing.
  void stop(std::chrono::milliseconds grace);
  [[nodiscard]] ServerCounts counts() const;

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace carve::http
