#pragma once

#include <mutex>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "codec/kubeconfig/kubeconfig.h"

namespace carve::kube {

/// Where the API server is.
struct Endpoint {
  std::string host;      // a name or an address, without brackets
  std::string port;      // decimal
  std::string tls_name;  // what the certificate must be made out to
  std::string base = {};  // before every path, where a proxy stands before many clusters: "" or "/k8s/clusters/c-1"

  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

/// "https://host[:port][/path]".
///   errors  kInvalidArgument
[[nodiscard]] Result<Endpoint> parse_server(const std::string& server);

/// What one connection needs. Holds secrets: never logged, never part of an Error.
struct Credentials {
  Endpoint endpoint;
  std::string authority;    // PEM; empty: the system's
  std::string certificate;  // PEM; empty: none
  std::string key;
  std::string token;
  std::uint64_t generation = 0;  // changes with everything but the token: connections of another one are old
};

/// Reads the credentials when they are due. Safe from any thread.
class Access {
 public:
  Access(std::string kubeconfig, const Clock& clock) : kubeconfig_(std::move(kubeconfig)), clock_(clock) {}

  /// What is current. When a file cannot be read any more the last ones stay in use.
  ///   errors  only before the first success
  [[nodiscard]] Result<Credentials> current();
  /// The server did not take them: they are read again at the next call, but at most once a second.
  void doubt();

 private:
  Result<Credentials> read() const;

  std::string kubeconfig_;  // empty: in the cluster
  const Clock& clock_;
  std::mutex mutex_;
  Credentials held_;
  bool have_ = false;
  Clock::Time read_at_{};
  Clock::Time due_{};
};

}  // namespace carve::kube
