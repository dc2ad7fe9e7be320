#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "codec/kubeconfig/exec_credential.h"

namespace carve::kube {

/// Where a plug-in runs, besides what the kubeconfig says of it.
struct PluginRun {
  std::chrono::milliseconds limit = std::chrono::seconds(60);  // then it is killed; five times as long at a terminal
  bool terminal = false;                                       // our standard input is one
};

/// Runs a credential plug-in, waits for its end and reads what it wrote. It gets our environment, its own and
/// KUBERNETES_EXEC_INFO, our standard error, and our standard input if that is a terminal it may use; then it stays in
/// our process group, else it is a session of its own, which is killed whole when it is late or writes too much.
///   errors  kFailedPrecondition: it wants a terminal and there is none; kNotFound: no such program;
///           kPermissionDenied: it failed; kDeadlineExceeded; kResourceExhausted: more than 1 MiB of output;
///           kInvalidArgument: what it wrote. No argument, variable or output is quoted; the install hint is
[[nodiscard]] Result<codec::ExecCredential> run_plugin(const codec::ExecPlugin& plugin,
                                                       const codec::ExecCluster& cluster, const PluginRun& run);

/// What a plug-in said, kept until ten seconds before it expires, or until the server refuses it. A plug-in that fails
/// is left alone for ten seconds, and never asked more often than once a second. Not safe for two threads at once.
class KeptCredential {
 public:
  KeptCredential(const Clock& clock, const PluginRun& run) : clock_(clock), run_(run) {}

  /// The credential for `cluster`; runs the plug-in when there is none, or another plug-in or cluster than before.
  ///   errors  as run_plugin, when there is no credential that still serves
  [[nodiscard]] Result<codec::ExecCredential> of(const codec::ExecPlugin& plugin, const codec::ExecCluster& cluster);
  /// The server did not take it.
  void refuse() { refused_ = held_.has_value(); }
  /// of() would ask the plug-in, or fail.
  [[nodiscard]] bool is_due() const;

 private:
  [[nodiscard]] bool serves() const;

  const Clock& clock_;
  const PluginRun run_;
  codec::ExecPlugin plugin_;  // that gave what is held, or failed
  codec::ExecCluster cluster_;
  std::optional<codec::ExecCredential> held_;
  std::optional<Error> failed_;  // the last run
  bool refused_ = false;
  Clock::Time ran_{};
};

}  // namespace carve::kube
