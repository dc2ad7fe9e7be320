#pragma once

#include <chrono>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "adapter/tls/rotation.h"
#include "adapter/tls/secret.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/result.h"
#include "port/kube_api.h"

namespace carve::tls {

struct CertificateNames {
  std::string namespace_name = "carve-system";
  std::string service = "carve-control";        // the Service that the serving certificate is for
  std::string secret = "carve-control-tls";     // authority and serving certificate
  std::string client_secret = "carve-scheduler-tls";
  std::string client = "carve-scheduler";       // CN of kube-scheduler's certificate
  std::string webhooks = "carve-admission";     // the name of both webhook configurations
};

/// The part that a server needs. Contains a secret.
struct Serving {
  Pair pair;
  std::string authorities;
  Life life;
};

/// The certificate that a client of the service presents, and the authorities that it trusts. Contains a secret.
struct ClientPair {
  Pair pair;
  std::string authorities;
};

/// Keeps the certificates valid. Every replica runs one. The first replica that finds a certificate missing or due
/// issues it and writes it with a precondition; if two replicas do this concurrently, one write succeeds and the other
/// replica uses its result. If the Secrets are deleted, all certificates are issued again, and clients must read their
/// Secret again.
class Certificates {
 public:
  Certificates(KubeApi& api, Clock& clock, Log& log, CertificateNames names = {}, Lives lives = {})
      : api_(api), clock_(clock), log_(log), names_(std::move(names)), lives_(lives) {}

  /// Reads the Secrets and webhooks once and corrects them. Calls `changed` when the serving certificate or the
  /// authorities differ from those before.
  ///   errors  those of the API server; the previous certificate stays in use
  [[nodiscard]] Result<void> step(const std::function<void(const Serving&)>& changed);
  /// Calls step() after every change of one of the Secrets or webhooks, and every 10 minutes for renewals, until
  /// `stop`. Uses four watches. While a watch has failed, or the ServiceAccount may not watch, calls step() every
  /// 3 seconds. After an error of step() it retries 2 seconds later.
  void run(const std::function<void(const Serving&)>& changed, const std::stop_token& stop);
  /// The end of validity of the serving certificate; the epoch: there is none yet.
  [[nodiscard]] Clock::WallTime good_until() const;
  /// The client's certificate as last read; empty: there is none yet.
  [[nodiscard]] ClientPair client() const;

 private:
  using Change = std::function<Result<void>(Secret&, std::vector<std::string>*)>;
  Result<Secret> settle(const std::string& name, const Change& change);
  Result<void> update_webhooks(const std::string& kind, const std::string& authorities);
  void follow(const std::string& collection, const std::string& name, const std::stop_token& stop);
  void wake();
  std::stop_token arm();
  [[nodiscard]] Clock::Duration pause(bool done) const;

  KubeApi& api_;
  Clock& clock_;
  Log& log_;
  const CertificateNames names_;
  const Lives lives_;
  mutable Mutex mutex_;
  Serving serving_ GUARDED_BY(mutex_);
  ClientPair client_ GUARDED_BY(mutex_);
  std::stop_source awake_ GUARDED_BY(mutex_);       // of the next sleep; stopped when an object has changed
  Clock::Time watched_again_ GUARDED_BY(mutex_){};  // until then a watch may miss changes
};

}  // namespace carve::tls
