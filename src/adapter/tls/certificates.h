#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include "adapter/tls/rotation.h"
#include "adapter/tls/secret.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "port/kube_api.h"

namespace carve::tls {

struct CertificateNames {
  std::string space = "carve-system";
  std::string service = "carve-control";        // what the serving certificate is made out to
  std::string secret = "carve-control-tls";     // authority and serving certificate
  std::string client_secret = "carve-scheduler-tls";
  std::string client = "carve-scheduler";       // CN of kube-scheduler's certificate
  std::string webhooks = "carve-admission";     // both configurations
};

/// What a server needs of all this. Holds a secret.
struct Serving {
  Pair pair;
  std::string authorities;
  Life life;
};

/// By what a client of the service is known, and whom it believes. Holds a secret.
struct ClientPair {
  Pair pair;
  std::string authorities;
};

/// Keeps the certificates good. Every replica runs one: what is missing or due is made by whoever sees it first and
/// written with a precondition, so that of two who do it at once one wins and the other takes what the first wrote.
/// Deleting the Secrets makes all of it new: clients then have to read their Secret again.
class Certificates {
 public:
  Certificates(KubeApi& api, Clock& clock, Log& log, CertificateNames names = {}, Lives lives = {})
      : api_(api), clock_(clock), log_(log), names_(std::move(names)), lives_(lives) {}

  /// One look at Secrets and webhooks, and what it takes to put them right. `changed` is called when what is served
  /// with is another than before.
  ///   errors  those of the API server; what was served with before stays good
  [[nodiscard]] Result<void> step(const std::function<void(const Serving&)>& changed);
  /// A step whenever one of the Secrets or webhooks has changed, and now and then for what time makes due, until
  /// `stop`. Four watches; while one of them is away, and where the account may not watch, a step every few seconds.
  void run(const std::function<void(const Serving&)>& changed, const std::stop_token& stop);
  /// Until when the certificate is good that is served with; the epoch: there is none yet.
  [[nodiscard]] Clock::WallTime good_until() const;
  /// The client's certificate as last seen; empty: there is none yet.
  [[nodiscard]] ClientPair client() const;

 private:
  using Change = std::function<Result<void>(Secret&, std::vector<std::string>*)>;
  Result<Secret> settle(const std::string& name, const Change& change);
  Result<void> tell_webhooks(const std::string& kind, const std::string& authorities);
  void follow(const std::string& collection, const std::string& name, const std::stop_token& stop);
  void wake();
  std::stop_token arm();
  [[nodiscard]] Clock::Duration pause(bool done) const;

  KubeApi& api_;
  Clock& clock_;
  Log& log_;
  const CertificateNames names_;
  const Lives lives_;
  mutable std::mutex mutex_;
  Serving serving_;
  ClientPair client_;
  std::stop_source awake_;          // of the sleep that comes next: requested when something changed
  Clock::Time watched_again_{};     // until then a watch may be deaf
};

}  // namespace carve::tls
