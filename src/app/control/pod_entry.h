#pragma once

#include <optional>
#include <string>
#include <vector>

#include "codec/cluster/cluster_pod.h"
#include "codec/dialects/dialect.h"
#include "core/model/record.h"

namespace carve::control {

/// A Pod that concerns cards: it asks Carve for some, or has a record.
struct PodEntry {
  codec::ClusterPod object;
  std::vector<PartRequest> parts;  // what it asks for: by slots (codec::requests_by_slots)
  std::string nonsense;            // what is wrong with the asking; empty: nothing
  std::optional<Record> record;    // the decision about it
  std::string odd_record;          // why what stands there is none; empty: nothing is wrong

  [[nodiscard]] Owner owner() const { return {OwnerKind::kPod, object.ask.uid}; }
  [[nodiscard]] std::string full_name() const { return object.ask.space + "/" + object.ask.name; }
  /// It has a node and a decision: what the record says is its own until it ends.
  [[nodiscard]] bool holds() const { return record.has_value() && !object.node.empty() && !object.ended; }
  /// It asks for cards and nobody has sent it anywhere.
  [[nodiscard]] bool waits() const {
    return !parts.empty() && object.node.empty() && !object.ended && !object.deleting && !object.gated;
  }
  /// It asks for cards of ours and somebody who does not know of them gave it a node: a static pod, a DaemonSet with
  /// nodeName, another scheduler.
  [[nodiscard]] bool unplaced() const {
    return !parts.empty() && !object.node.empty() && object.record.empty() && !object.ended && !object.deleting;
  }
};

/// Where the API server has a pod.
[[nodiscard]] std::string pod_path(const std::string& space, const std::string& name);

/// nullopt: the Pod has nothing to do with cards. A record counts only where a node stands beside it, for this very
/// pod: policies protect the annotation from the Binding on, what a template says before is nobody's decision.
[[nodiscard]] std::optional<PodEntry> known_pod(codec::ClusterPod object, const codec::DialectSettings& settings);

}  // namespace carve::control
