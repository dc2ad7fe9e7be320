#include "cmd/secure_port.h"

#include <unistd.h>

#include <csignal>
#include <utility>

namespace carve::cmd {

SecurePort::SecurePort(http::ServerOptions options, const control::Routes& routes, Log& log)
    : options_(std::move(options)), routes_(routes), log_(log) {
  options_.waits = [this](const HttpRequest& ask) { return routes_.waits(ask); };
}

void SecurePort::serve_with(const tls::Serving& serving) {
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
  auto made = http::Server::open(
      options_, [this](const HttpRequest& ask) { return routes_.answer(ask); }, log_);
  if (made) {
    server_ = std::move(*made);
    log_.info("control serves", {{"listen", options_.listen}, {"port", server_->port()}});
    return;
  }
  log_.error("the port cannot be opened", {{"listen", options_.listen}, {"error", made.error().what}});
  failed_ = true;
  ::kill(::getpid(), SIGTERM);
}

void SecurePort::drain() {
  const MutexLock lock(mutex_);
  if (server_) server_->drain();
}

void SecurePort::stop(std::chrono::milliseconds grace) {
  http::Server* server = nullptr;
  {
    const MutexLock lock(mutex_);
    stopped_ = true;
    server = server_.get();
  }
  if (server != nullptr) server->stop(grace);
}

bool SecurePort::open() const {
  const MutexLock lock(mutex_);
  return server_ != nullptr && !stopped_;
}

http::ServerCounts SecurePort::counts() const {
  const MutexLock lock(mutex_);
  return server_ ? server_->counts() : http::ServerCounts{};
}

}  // namespace carve::cmd
