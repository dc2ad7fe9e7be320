#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "adapter/http/server.h"
#include "adapter/tls/certificates.h"
#include "app/control/api/routes.h"
#include "base/log.h"
#include "base/mutex.h"

namespace carve::cmd {

/// A port of control. Without TLS it serves health, metrics and gpushare's calls. With TLS it opens with the first
/// certificate and takes each new one without an interruption. Safe from any thread.
class ControlPort {
 public:
  /// `routes` and `log` live longer.
  ControlPort(http::ServerOptions options, const control::Routes& routes, Log& log);

  /// Opens the port without TLS. Returns its number.
  ///   errors  http::Server::open()'s; kFailedPrecondition: stop() was called
  [[nodiscard]] Result<std::uint16_t> open() EXCLUDES(mutex_);
  /// Opens the port with these certificates, or gives them to the open port. If the port cannot be opened, the process
  /// ends by SIGTERM (failed()). The Deployment restarts it and shows the failure.
  void serve_with(const tls::Serving& serving) EXCLUDES(mutex_);
  /// Before stop(): requests are answered, and clients are asked to reconnect.
  void drain() EXCLUDES(mutex_);
  /// Accepts no more connections, and never opens again. Requests that have arrived are answered for at most `grace`.
  void stop(std::chrono::milliseconds grace) EXCLUDES(mutex_);

  [[nodiscard]] bool is_open() const EXCLUDES(mutex_);
  [[nodiscard]] bool failed() const { return failed_; }
  /// All 0 before the port is open: a request of the metrics may be among the first.
  [[nodiscard]] http::ServerCounts counts() const EXCLUDES(mutex_);

 private:
  Result<std::uint16_t> begin() REQUIRES(mutex_);

  http::ServerOptions options_ GUARDED_BY(mutex_);
  const control::Routes& routes_;
  Log& log_;
  mutable Mutex mutex_;
  std::unique_ptr<http::Server> server_ GUARDED_BY(mutex_);
  bool stopped_ GUARDED_BY(mutex_) = false;
  std::atomic<bool> failed_ = false;
};

}  // namespace carve::cmd
