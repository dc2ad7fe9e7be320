#pragma once

#include <csignal>
#include <memory>

#include "app/agent/agent.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "cmd/options.h"

namespace carve::cmd {

/// What serves the kubelet and the cluster, from its construction to its destruction.
class NodeServing {
 public:
  virtual ~NodeServing() = default;
  /// True if it cannot serve and has asked this process to stop.
  [[nodiscard]] virtual bool failed() const = 0;
};

/// What an agent does on a Kubernetes node, beyond an agent of a single machine. It outlives the agent.
class NodePart {
 public:
  virtual ~NodePart() = default;
  /// Another agent has the journal, for the reason `why`. Called every 10 ms; `round` counts the calls from 0.
  ///   errors  the agent cannot wait, and ends
  virtual Result<void> journal_is_taken(int round, const Error& why) = 0;
  /// Serves the kubelet and the cluster with this agent, which outlives the result.
  virtual std::unique_ptr<NodeServing> serve(agent::Agent& agent) = 0;
  /// True if a change of the settings has ended this process.
  [[nodiscard]] virtual bool settings_changed() const = 0;
};

/// Runs the agent until one of the signals `stop_signals`, which are blocked. Returns the exit code; kSettingsChanged:
/// its settings changed.
///   node  nullptr: the agent of a single machine
int serve_agent(HostOptions options, NodePart* node, Clock& clock, Log& log, const sigset_t& stop_signals);

/// Runs the agent of a Kubernetes node, and starts it again when its settings changed.
int run_node_agent(const HostOptions& options, const NodeOptions& node, Clock& clock, Log& log,
                   const sigset_t& stop_signals);

/// What XIDs mean: the built-in table, overridden by the operator's file.
///   errors  kInvalidArgument: every line that is wrong; the errors of reading the file
[[nodiscard]] Result<XidPolicy> xid_policy_of(const HostOptions& options);

}  // namespace carve::cmd
