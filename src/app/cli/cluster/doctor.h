#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/cli/cluster/questions.h"
#include "app/cli/cluster/stuck_pods.h"
#include "codec/cluster/installation.h"
#include "codec/node/gpu_object.h"
#include "codec/node/node_object.h"
#include "core/cluster/assemble.h"
#include "core/model/finding.h"

// `carve doctor --cluster`: turns the objects in the API server into findings that a person can act on.
namespace carve::cli {

/// The facts about one Node that a finding can be about.
struct NodeFacts {
  std::string name;
  bool ready = false;
  bool agent_ready = false;                      // an agent's pod on the node is ready
  bool labelled = false;                         // a label says that the node has NVIDIA cards
  std::vector<codec::NodeCondition> conditions;  // the agent's own; one that is on reports a fault
  // Resource names that a DeviceClass maps and a device plugin serves too.
  std::vector<std::string> mapped_and_served;
  bool serves_claims = false;    // a GPU object of the node names the DRA driver
  bool slices_published = true;  // the API server has a ResourceSlice of the driver for the node
};

/// A ConfigMap with invalid settings. The processes that read it keep the settings that they had.
struct WrongSettings {
  std::string config_map;  // "namespace/name"
  std::string error;       // with file and line
};

/// The facts about the cluster. An empty optional: the object does not exist.
struct ClusterFacts {
  std::string namespace_name = "carve-system";  // the namespace in which the doctor looks for Carve
  codec::ServerVersion server;
  bool crd = false;
  bool control_wanted = false;  // control is installed, wholly or in part
  std::optional<codec::Workload> agents, arbiters, control, scheduler;
  bool own_scheduler = false;      // pods of this installation use carve-scheduler
  std::string leader;              // holder of the coordination.k8s.io Lease carve-control; empty: none
  std::int64_t lease_age_s = 0;    // seconds since that Lease was renewed; -1: the time cannot be read
  std::int64_t lease_seconds = 0;  // its leaseDurationSeconds
  std::vector<std::string> policies_missing;
  std::vector<std::string> webhooks_missing;            // configurations that do not exist
  std::vector<std::string> webhooks_without_authority;  // configurations without a caBundle
  // The API server's error for a pod with an invalid request (dry run); empty: it admitted the pod.
  std::optional<std::string> nonsense;
  std::vector<NodeFacts> nodes;
  std::vector<codec::GpuObject> cards;
  std::vector<std::pair<std::string, Conflict>> conflicts;
  std::vector<codec::WaitingPod> waiting;
  std::vector<PodFacts> pods;
  std::vector<WrongSettings> settings;  // filled by the caller, which knows the files' formats
  std::vector<std::string> unread;  // "object: why", for each object that the caller may not read
};

/// Reads the facts from the API server.
///   errors  those of the API server, when it does not answer at all
///   cost    about 20 calls, and lists of all Nodes, Pods, GPU objects, ResourceClaims and ResourceSlices of the driver
[[nodiscard]] Result<ClusterFacts> look_at_cluster(const ClusterAccess& access, const std::string& scheduler);

/// All findings, errors first. Pure.
[[nodiscard]] std::vector<Finding> diagnose_cluster(const ClusterFacts& facts);

}  // namespace carve::cli
