#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>

#include "adapter/http/server.h"
#include "adapter/tls/certificates.h"
#include "app/control/routes.h"
#include "base/log.h"

namespace carve::cmd {

/// Control's port over TLS. It opens with the first certificate, and is told of each new one without a gap. Safe from
/// any thread.
class SecurePort {
 public:
  /// `routes` and `log` live longer.
  SecurePort(http::ServerOptions options, const control::Routes& routes, Log& log);

  /// Opens the port, or lets the open one go on with these certificates. A port that cannot be opened ends the process
  /// by SIGTERM (failed()): the Deployment starts it again, and shows that it failed.
  void serve_with(const tls::Serving& serving);
  /// Before stop(): whoever asks is answered, and told to connect anew.
  void drain();
  /// No connection is accepted any more; requests that have come are answered for at most `grace`.
  void stop(std::chrono::milliseconds grace);

  [[nodiscard]] bool open() const;
  [[nodiscard]] bool failed() const { return failed_; }
  [[nodiscard]] http::ServerCounts counts() const;

 private:
  http::ServerOptions options_;
  const control::Routes& routes_;
  Log& log_;
  mutable std::mutex mutex_;
  std::unique_ptr<http::Server> server_;
  bool stopped_ = false;
  std::atomic<bool> failed_ = false;
};

}  // namespace carve::cmd
