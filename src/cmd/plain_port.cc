#include "cmd/plain_port.h"

#include <utility>

namespace carve::cmd {

Result<std::uint16_t> PlainPort::open() {
  CARVE_TRY(auto server, http::Server::open(
                             {.listen = listen_,
                              .identity = {},
                              .limits = {},
                              .waits = [this](const HttpRequest& ask) { return routes_.waits(ask); }},
                             [this](const HttpRequest& ask) { return routes_.answer(ask); }, log_));
  const MutexLock lock(mutex_);
  server_ = std::move(server);
  return server_->port();
}

void PlainPort::stop(std::chrono::milliseconds grace) {
  http::Server* server = nullptr;
  {
    const MutexLock lock(mutex_);
    server = server_.get();
  }
  if (server != nullptr) server->stop(grace);  // without the lock: a handler may wait for it
}

http::ServerCounts PlainPort::counts() const {
  const MutexLock lock(mutex_);
  return server_ ? server_->counts() : http::ServerCounts{};
}

}  // namespace carve::cmd
