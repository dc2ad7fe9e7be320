#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"

namespace carve::kube {
class Channel;
}

namespace carve::http {

/// The certificate with which a replica calls another one, and the authorities that it trusts. Contains a secret.
struct PeerAccess {
  std::string certificate;  // PEM
  std::string key;
  std::string authorities;
  std::string name;  // the name in the other replica's certificate
};

/// Calls from one replica to another over TLS; each side has a certificate. Connections are kept and re-created after
/// they have ended. Safe from any thread.
class PeerClient {
 public:
  PeerClient();
  ~PeerClient();
  /// POSTs `body` to `path` at `address` ("HOST:PORT") and returns the body of the answer.
  ///   errors  kInvalidArgument: `address` is not HOST:PORT; kUnavailable: no connection, or a status other than 200;
  ///           kDeadlineExceeded: no answer in time, so the outcome is unknown
  [[nodiscard]] Result<std::string> post(const PeerAccess& access, const std::string& address, const std::string& path,
                                         std::string body, std::chrono::milliseconds limit);

 private:
  struct Idle {
    std::string address;
    std::string certificate;  // this replica's certificate at the time of the connection
    std::unique_ptr<kube::Channel> channel;
  };
  std::unique_ptr<kube::Channel> take(const std::string& address, const std::string& certificate);

  Mutex mutex_;
  std::vector<Idle> idle_ GUARDED_BY(mutex_);
};

}  // namespace carve::http
