#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "adapter/kube/exec_credential.h"
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
  /// `kubeconfigs`: merged in this order; none: as a pod of the cluster.
  Access(std::vector<std::string> kubeconfigs, const Clock& clock, const PluginRun& run = {})
      : kubeconfigs_(std::move(kubeconfigs)), clock_(clock), plugin_(clock, run) {}

  /// What is current. When a file cannot be read any more the last ones stay in use. A credential plug-in runs here,
  /// and whoever else asks waits for it.
  ///   errors  before the first success; a plug-in's when what it gave before has expired or was refused
  [[nodiscard]] Result<Credentials> current();
  /// The connection failed, perhaps by old files: they are read again at the next call, but at most once a second.
  void doubt();
  /// The server did not take this token, or the certificate beside it (401): as doubt(), and a plug-in is asked
  /// again, unless there is another token by now.
  void refuse(const std::string& token);

 private:
  Result<Credentials> read();
  Result<Credentials> from_files();
  void doubt_locked();

  const std::vector<std::string> kubeconfigs_;
  const Clock& clock_;
  std::mutex mutex_;
  Credentials held_;
  KeptCredential plugin_;
  bool plugin_failed_ = false;
  bool have_ = false;
  Clock::Time read_at_{};
  Clock::Time due_{};
};

}  // namespace carve::kube
