#include "cmd/control_port.h"

#include <unistd.h>

#include <csignal>
#include <utility>

namespace carve::cmd {

ControlPort::ControlPort(http::ServerOptions options, const control::Routes& routes, Log& log)
    : options_(std::move(options)), routes_(routes), log_(log) {
  options_.waits = [this](const HttpRequest& ask) { return routes_.waits(ask); };
}

Result<std::uint16_t> ControlPort::begin() {
  if (stopped_) return fail(Code::kFailedPrecondition, "the process is stopping");
  CARVE_TRY(server_, http::Server::open(
                         options_, [this](const HttpRequest& ask) { return routes_.answer(ask); }, log_));
  return server_->port();
}

Result<std::uint16_t> ControlPort::open() {
  const MutexLock lock(mutex_);
  return begin();
}

void ControlPort::serve_with(const tls::Serving& serving) {
  const http::Identity identity{serving.pair.certificate, serving.pair.key, serving.authorities,
                                tls::CertificateNames{}.service};  // kube-scheduler uses this name (scheduler.yaml)
  const MutexLock lock(mutex_);
  if (stopped_) return;
  if (server_) {
    if (auto done = server_->renew(identity); !done)
      log_.error("the new certificate cannot be used", {{"error", done.error().what}});
    return;
  }
  options_.identity = identity;
  if (const auto port = begin()) {
    log_.info("control serves", {{"listen", options_.listen}, {"port", *port}});
  } else {
    log_.error("the port cannot be opened", {{"listen", options_.listen}, {"error", port.error().what}});
    failed_ = true;
    ::kill(::getpid(), SIGTERM);
  }
}

void ControlPort::drain() {
  const MutexLock lock(mutex_);
  if (server_) server_->drain();
}

void ControlPort::stop(std::chrono::milliseconds grace) {
  http::Server* server = nullptr;
  {
    const MutexLock lock(mutex_);
    stopped_ = true;
    server = server_.get();
  }
  if (server != nullptr) server->stop(grace);  // without the lock: a handler may wait for it
}

bool ControlPort::is_open() const {
  const MutexLock lock(mutex_);
  return server_ != nullptr && !stopped_;
}

http::ServerCounts ControlPort::counts() const {
  const MutexLock lock(mutex_);
  return server_ ? server_->counts() : http::ServerCounts{};
}

}  // namespace carve::cmd
