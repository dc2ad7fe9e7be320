#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <stop_token>
#include <string>

#include "base/fd.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/result.h"
#include "base/thread.h"
#include "port/agent_api.h"

namespace carve::api {

/// The limits on connections.
struct ServerLimits {
  int connections = 256;
  int kept_for_root = 32;  // of `connections`: root and the pod's probe are answered when users have filled the rest
  int per_user = 32;       // for each user except root
  // A connection without a complete request, and without one being answered, is closed after this time.
  std::chrono::milliseconds idle{30'000};
};

/// Serves an AgentApi on a Unix socket: one thread per connection, few connections per user, all input checked. The
/// server reads the caller's identity from the kernel; the application decides about permissions.
class Server {
 public:
  /// Creates the socket; replaces a stale one. Errors: those of listen_at().
  static Result<std::unique_ptr<Server>> open(const std::string& path, AgentApi& api, Log& log,
                                              const ServerLimits& limits = {});
  ~Server();  // removes the socket
  /// Serves until `stop`; then closes all connections and joins their threads.
  void run(const std::stop_token& stop);

 private:
  struct Connection {
    Fd fd;
    std::atomic<bool> done{false};
    Thread thread;
  };
  Server(std::string path, Fd listener, AgentApi& api, Log& log, const ServerLimits& limits);
  void accept_one(const std::stop_token& stop);
  [[nodiscard]] bool admit(const Caller& caller);
  void note_refused(const Caller& caller);
  void serve(Connection& connection, const Caller& caller, const std::stop_token& stop);
  std::string answer(std::string_view bytes, const Caller& caller, int fd, const std::stop_token& stop);
  void reap(bool all);

  std::string path_;
  Fd listener_;
  AgentApi& api_;
  Log& log_;
  ServerLimits limits_;
  Mutex mutex_;
  std::map<std::uint32_t, int> per_user_ GUARDED_BY(mutex_);
  // Used by the accepting thread only.
  std::list<Connection> connections_;
  std::uint64_t refused_ = 0;  // refusals since the last log line about them
  std::chrono::steady_clock::time_point next_line_{};
};

}  // namespace carve::api
