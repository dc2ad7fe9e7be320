#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/cli/cluster/questions.h"
#include "codec/cluster/installation.h"
#include "codec/node/gpu_object.h"
#include "codec/node/node_object.h"
#include "core/cluster/assemble.h"
#include "core/model/finding.h"

// `carve doctor --cluster`: from what the API server knows to findings a person can act on.
namespace carve::cli {

/// A Node, as far as somebody could be wrong there.
struct NodeFacts {
  std::string name;
  bool ready = false;
  bool agent_ready = false;  // an agent's pod on it is
  bool labelled = false;     // somebody's label says that it has cards of NVIDIA
  std::vector<codec::NodeCondition> conditions;  // the agent's own; a trouble where on
  std::vector<std::string> mapped_and_served;    // names that a DeviceClass maps and a device plugin serves as well
};

/// What was looked up. Empty optionals: it is not there.
struct ClusterFacts {
  std::string space = "carve-system";  // where Carve is looked for
  codec::ServerVersion server;
  bool crd = false;
  bool control_wanted = false;  // somebody installed it
  std::optional<codec::Workload> agents, arbiters, control, scheduler;
  bool own_scheduler = false;        // this installation's pods are for carve-scheduler
  std::string leader;                // who holds the lease; empty: nobody
  std::int64_t lease_age_s = 0;      // since it was renewed; -1: it cannot be read
  std::int64_t lease_seconds = 0;    // that it is good for
  std::vector<std::string> policies_missing;
  std::vector<std::string> webhooks_missing;          // configurations that are not there
  std::vector<std::string> webhooks_without_authority;
  std::optional<std::string> nonsense;  // what the API server said to a pod that asks for nonsense; empty: it took it
  std::vector<NodeFacts> nodes;
  std::vector<codec::GpuObject> cards;
  std::vector<std::pair<std::string, Conflict>> conflicts;
  std::vector<codec::WaitingPod> waiting;
  std::vector<std::string> unread;  // what the caller may not read, and why
};

/// Reads all that.
///   errors  the API server's, when it does not answer at all
///   cost    some 15 calls, and all Nodes, Pods and GPU objects
[[nodiscard]] Result<ClusterFacts> look_at_cluster(const ClusterAccess& access, const std::string& scheduler);

/// All that is wrong, worst first. Pure.
[[nodiscard]] std::vector<Finding> diagnose_cluster(const ClusterFacts& facts);

}  // namespace carve::cli
