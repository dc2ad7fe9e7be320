#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "adapter/http/server.h"
#include "app/control/api/routes.h"
#include "base/log.h"
#include "base/mutex.h"

namespace carve::cmd {

/// Control's port without TLS: health, metrics, gpushare's calls. Safe from any thread.
class PlainPort {
 public:
  /// `routes` and `log` live longer.
  PlainPort(std::string listen, const control::Routes& routes, Log& log)
      : listen_(std::move(listen)), routes_(routes), log_(log) {}

  /// Begins to serve. Returns the port's number.
  ///   errors  http::Server::open()'s
  [[nodiscard]] Result<std::uint16_t> open() EXCLUDES(mutex_);
  /// Accepts no more connections. Requests that have arrived are answered for at most `grace`.
  void stop(std::chrono::milliseconds grace) EXCLUDES(mutex_);
  /// All 0 before open(): a request of the metrics may be among the first.
  [[nodiscard]] http::ServerCounts counts() const EXCLUDES(mutex_);

 private:
  const std::string listen_;
  const control::Routes& routes_;
  Log& log_;
  mutable Mutex mutex_;
  std::unique_ptr<http::Server> server_ GUARDED_BY(mutex_);
};

}  // namespace carve::cmd
