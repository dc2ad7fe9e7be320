#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace carve::kube {
class Channel;
}

namespace carve::http {

/// Who asks another replica, and whom it believes. Holds a secret.
struct PeerAccess {
  std::string certificate;  // PEM
  std::string key;
  std::string authorities;
  std::string name;  // that the other's certificate is made out to
};

/// Calls of one replica to another over TLS, each side with a certificate. Connections are kept; one that has ended
/// meanwhile is made anew. Safe from any thread.
class PeerClient {
 public:
  PeerClient();
  ~PeerClient();
  /// POSTs `body` to `path` at "HOST:PORT"; the answer's body.
  ///   errors  kInvalidArgument: the address; kUnavailable: no connection, or a status other than 200;
  ///           kDeadlineExceeded: no answer in time, so the outcome is unknown
  [[nodiscard]] Result<std::string> post(const PeerAccess& access, const std::string& address, const std::string& path,
                                         std::string body, std::chrono::milliseconds limit);

 private:
  struct Idle {
    std::string address;
    std::string certificate;  // ours, by which it was made
    std::unique_ptr<kube::Channel> channel;
  };
  std::unique_ptr<kube::Channel> take(const std::string& address, const std::string& certificate);

  std::mutex mutex_;
  std::vector<Idle> idle_;
};

}  // namespace carve::http
