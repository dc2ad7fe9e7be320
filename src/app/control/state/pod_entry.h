#pragma once

#include <optional>
#include <string>
#include <vector>

#include "codec/cluster/cluster_pod.h"
#include "app/control/state/claim_book.h"
#include "codec/dialects/dialect.h"
#include "core/model/record.h"

namespace carve::control {

/// A Pod that concerns cards: it requests cards from Carve, or has a record.
struct PodEntry {
  codec::ClusterPod object;
  std::vector<PartRequest> parts;  // its request, by slots and claims (PodRequests)
  std::string request_error;       // what is wrong with the request; empty: nothing
  std::optional<Record> record;    // the decision about it
  std::string record_error;        // why the annotation is not a valid record; empty: nothing is wrong

  [[nodiscard]] Owner owner() const { return {OwnerKind::kPod, object.ask.uid}; }
  [[nodiscard]] std::string full_name() const { return object.ask.namespace_name + "/" + object.ask.name; }
  /// The pod has a node and a decision: it owns the slices of its record until it ends.
  [[nodiscard]] bool holds() const { return record.has_value() && !object.node.empty() && !object.ended; }
  /// The pod requests cards and is not bound to a node.
  [[nodiscard]] bool waits() const {
    return !parts.empty() && object.node.empty() && !object.ended && !object.deleting && !object.gated;
  }
  /// The pod requests Carve's cards, has a node, and has no record, because its node was chosen without Carve: a static
  /// pod, a DaemonSet with nodeName, a pod of another scheduler.
  [[nodiscard]] bool unplaced() const {
    return !parts.empty() && !object.node.empty() && object.record.empty() && !object.ended && !object.deleting;
  }
};

/// The pod's path at the API server.
[[nodiscard]] std::string pod_path(const std::string& namespace_name, const std::string& name);

/// nullopt: the Pod does not concern cards. A record is valid only if the pod has a node and the record names this pod:
/// policies protect the annotation from the Binding on, and a record from a pod template is not a decision.
[[nodiscard]] std::optional<PodEntry> pod_entry_of(codec::ClusterPod object, const PodRequests& requests);

}  // namespace carve::control
