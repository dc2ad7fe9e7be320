#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "adapter/kube/exec_credential.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "codec/kubeconfig/kubeconfig.h"

namespace carve::kube {

/// The address of the API server.
struct Endpoint {
  std::string host;      // a name or an address, without brackets
  std::string port;      // decimal
  std::string tls_name;  // the name or address that its certificate must have
  std::string base = {};  // prefix of every path, for a proxy of several clusters: "" or "/k8s/clusters/c-1"

  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

/// Parses "https://host[:port][/path]".
///   errors  kInvalidArgument
[[nodiscard]] Result<Endpoint> parse_server(const std::string& server);

/// The credentials for one connection. Contains secrets, which are never logged and never part of an Error.
struct Credentials {
  Endpoint endpoint;
  std::string authority;    // PEM; empty: the system's
  std::string certificate;  // PEM; empty: none
  std::string key;
  std::string token;
  std::uint64_t generation =
      0;  // changes when anything except the token changes; connections of another generation are outdated
};

/// Reads the credentials when they are due. Safe from any thread.
class Access {
 public:
  /// `kubeconfigs`: merged in this order; empty: the ServiceAccount of the pod that this process runs in. `context`:
  /// of the kubeconfigs; empty: the current one.
  Access(std::vector<std::string> kubeconfigs, const Clock& clock, const PluginRun& run = {}, std::string context = {})
      : kubeconfigs_(std::move(kubeconfigs)), context_(std::move(context)), clock_(clock), plugin_(clock, run) {}

  /// The current credentials. If a file can no longer be read, the previous credentials stay in use. A credential
  /// plug-in runs inside this call, and other callers wait for it.
  ///   errors  before the first success: those of the files; later: those of a plug-in after its previous credential
  ///           has expired or was refused
  [[nodiscard]] Result<Credentials> current();
  /// Call it after a failed connection, perhaps because the files are outdated: the next call of current() reads them
  /// again, at most once a second.
  void doubt();
  /// Call it when the server refused this token or the certificate (401): like doubt(), and a plug-in runs again,
  /// unless the token has changed meanwhile.
  void refuse(const std::string& token);

 private:
  Result<Credentials> read() REQUIRES(mutex_);
  Result<Credentials> from_files() REQUIRES(mutex_);
  void doubt_locked() REQUIRES(mutex_);

  const std::vector<std::string> kubeconfigs_;
  const std::string context_;
  const Clock& clock_;
  Mutex mutex_;
  Credentials held_ GUARDED_BY(mutex_);
  KeptCredential plugin_ GUARDED_BY(mutex_);
  bool plugin_failed_ GUARDED_BY(mutex_) = false;
  bool have_ GUARDED_BY(mutex_) = false;
  Clock::Time read_at_ GUARDED_BY(mutex_){};
  Clock::Time due_ GUARDED_BY(mutex_){};
};

}  // namespace carve::kube
