#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "codec/kubeconfig/exec_credential.h"

namespace carve::kube {

/// How to run a plug-in, in addition to the settings in the kubeconfig.
struct PluginRun {
  std::chrono::milliseconds limit = std::chrono::seconds(60);  // time limit; five times as long with a terminal
  bool terminal = false;                                       // standard input of this process is a terminal
};

/// Runs a credential plug-in, waits for its end and reads its output. The plug-in gets the environment of this process,
/// the variables from the kubeconfig, KUBERNETES_EXEC_INFO and standard error. If standard input is a terminal and the
/// plug-in may use it, the plug-in gets standard input and stays in the process group; otherwise it runs in its own
/// session. A plug-in that exceeds the time or output limit is killed, with its session if it has one.
///   errors  kFailedPrecondition: it needs a terminal and there is none; kNotFound: the program does not exist;
///           kPermissionDenied: it failed; kDeadlineExceeded; kResourceExhausted: more than 1 MiB of output;
///           kInvalidArgument: its output. The texts quote the install hint, but no argument, variable or output
[[nodiscard]] Result<codec::ExecCredential> run_plugin(const codec::ExecPlugin& plugin,
                                                       const codec::ExecCluster& cluster, const PluginRun& run);

/// Keeps a plug-in's credential until ten seconds before it expires, or until the server refuses it. After a failure
/// the plug-in does not run again for ten seconds; it never runs more than once a second. Not safe for concurrent use.
class KeptCredential {
 public:
  KeptCredential(const Clock& clock, const PluginRun& run) : clock_(clock), run_(run) {}

  /// The credential for `cluster`. Runs the plug-in when there is none yet, when it is due, or when the plug-in or the
  /// cluster has changed.
  ///   errors  those of run_plugin(), when no valid credential is left
  [[nodiscard]] Result<codec::ExecCredential> of(const codec::ExecPlugin& plugin, const codec::ExecCluster& cluster);
  /// Call it when the server has refused the credential.
  void refuse() { refused_ = held_.has_value(); }
  /// True when of() would run the plug-in or fail.
  [[nodiscard]] bool is_due() const;

 private:
  [[nodiscard]] bool serves() const;

  const Clock& clock_;
  const PluginRun run_;
  codec::ExecPlugin plugin_;  // the plug-in of the credential or of the failure
  codec::ExecCluster cluster_;
  std::optional<codec::ExecCredential> held_;
  std::optional<Error> failed_;  // the error of the last run
  bool refused_ = false;
  Clock::Time ran_{};
};

}  // namespace carve::kube
