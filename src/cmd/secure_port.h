#pragma once

#include <atomic>
#include <chrono>
#include <memory>

#include "adapter/http/server.h"
#include "adapter/tls/certificates.h"
#include "app/control/api/routes.h"
#include "base/log.h"
#include "base/mutex.h"

namespace carve::cmd {

/// Control's port over TLS. It opens with the first certificate and takes each new one without an interruption. Safe
/// from any thread.
class SecurePort {
 public:
  /// `routes` and `log` live longer.
  SecurePort(http::ServerOptions options, const control::Routes& routes, Log& log);

  /// Opens the port, or gives the open port these certificates. If the port cannot be opened, the process ends by
  /// SIGTERM (failed()). The Deployment restarts it and shows the failure.
  void serve_with(const tls::Serving& serving);
  /// Before stop(): requests are answered, and clients are asked to reconnect.
  void drain();
  /// Accepts no more connections. Requests that have arrived are answered for at most `grace`.
  void stop(std::chrono::milliseconds grace);

  [[nodiscard]] bool open() const;
  [[nodiscard]] bool failed() const { return failed_; }
  [[nodiscard]] http::ServerCounts counts() const;

 private:
  http::ServerOptions options_;
  const control::Routes& routes_;
  Log& log_;
  mutable Mutex mutex_;
  std::unique_ptr<http::Server> server_ GUARDED_BY(mutex_);
  bool stopped_ GUARDED_BY(mutex_) = false;
  std::atomic<bool> failed_ = false;
};

}  // namespace carve::cmd
