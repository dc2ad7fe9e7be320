#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

#include "base/fd.h"
#include "base/log.h"
#include "base/result.h"
#include "port/agent_api.h"

namespace carve::api {

/// How much of the agent its users may take.
struct ServerLimits {
  int connections = 256;
  int kept_for_root = 32;  // of these: where all users of a machine fill theirs, root and the pod's probe are answered
  int per_user = 32;       // root aside
  std::chrono::milliseconds idle{30'000};  // without a whole request, and none being answered: then it is closed
};

/// Serves an AgentApi on a unix socket: one thread per connection, few per user, all input checked. It
/// decides nothing: who may do what is the application's business; here the kernel is asked who it is.
class Server {
 public:
  /// Takes the socket over (a stale one is replaced). Errors as listen_at().
  static Result<std::unique_ptr<Server>> open(const std::string& path, AgentApi& api, Log& log,
                                              const ServerLimits& limits = {});
  ~Server();  // removes the socket
  /// Until `stop`; then closes all connections and joins their threads.
  void run(const std::stop_token& stop);

 private:
  struct Connection {
    Fd fd;
    std::atomic<bool> done{false};
    std::thread thread;
  };
  Server(std::string path, Fd listener, AgentApi& api, Log& log, const ServerLimits& limits);
  void accept_one(const std::stop_token& stop);
  [[nodiscard]] bool take_seat(const Caller& caller);
  void note_refused(const Caller& caller);
  void serve(Connection& connection, const Caller& caller, const std::stop_token& stop);
  std::string answer(std::string_view bytes, const Caller& caller, int fd, const std::stop_token& stop);
  void reap(bool all);

  std::string path_;
  Fd listener_;
  AgentApi& api_;
  Log& log_;
  ServerLimits limits_;
  std::mutex mutex_;
  std::map<std::uint32_t, int> per_user_;
  // Touched by the accepting thread only.
  std::list<Connection> connections_;
  std::uint64_t refused_ = 0;  // since the last line about it
  std::chrono::steady_clock::time_point next_line_{};
};

}  // namespace carve::api
