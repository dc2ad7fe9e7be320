#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/cluster/cluster_state.h"
#include "core/cluster/nominated_reservation.h"
#include "core/ledger/ledger.h"
#include "core/policy/place_pod.h"
#include "core/topology/links.h"

namespace carve {

/// One node of the cluster: its cards, their slices, and how the cards are connected.
struct NodeState {
  Ledger ledger;
  LinkMatrix links;
  std::map<std::string, std::string> labels;  // of the Node object; pools select nodes by them
  std::vector<Owner> reserved;                // capacity is set aside for these owners, which are not bound yet; sorted
  std::vector<NominatedReservation> reservations = {};  // capacity kept for preemptors while their victims terminate
  std::string closed = {};                    // why the node takes no new pod now; empty: it takes them
  std::map<std::string, std::string> closed_to = {};  // by dialect: why the node takes no new pod of that dialect now
  friend bool operator==(const NodeState&, const NodeState&) = default;
};

/// Why the node takes no new pod with the dialects of these parts now; empty: it takes them.
[[nodiscard]] const std::string& closed_by_dialect(const NodeState& node, const std::vector<PartRequest>& parts);
/// The same, or why the node takes no new pod at all.
[[nodiscard]] const std::string& closed_for(const NodeState& node, const std::vector<PartRequest>& parts);

/// The node's ledger as a pod of that priority sees it (nominated_reservation.h). Copies the ledger only where a
/// reservation exists. Must not outlive the node.
class SeenLedger {
 public:
  SeenLedger(const NodeState& node, const Owner& owner, std::int32_t priority) : plain_(node.ledger) {
    if (!node.reservations.empty()) seen_ = seen_by(owner, priority, node.ledger, node.reservations);
  }
  const Ledger& operator*() const { return seen_ ? *seen_ : plain_; }

 private:
  const Ledger& plain_;
  std::optional<Ledger> seen_;
};

/// A node that fits a pod, and its score by the policy; higher is better.
struct FittingNode {
  std::string node;
  std::int64_t score = 0;
};

/// A node that does not fit, and why. `final`: it will not fit, regardless of which pods leave.
struct RefusedNode {
  std::string node;
  std::string why;
  bool final = false;
};

struct Fit {
  std::vector<FittingNode> nodes;  // in the order of the names that were passed
  std::vector<RefusedNode> refused;
};

/// Which of these nodes fit the pod. Pure: it sets nothing aside. A node where capacity is already set aside for the
/// owner fits. A pod does not see the capacity of a reservation of the same or a higher priority.
///   cost    place_pod() per node
[[nodiscard]] Fit fit(const ClusterState& cluster, const Owner& owner,
                      const std::vector<PartRequest>& parts, const std::vector<std::string>& names,
                      const PolicyRow& policy, std::int32_t priority = 0);

/// The node that Carve chooses among those that fit: the best score, and the lower name between equals. nullptr: the
/// list is empty.
[[nodiscard]] const FittingNode* choose_node(const std::vector<FittingNode>& nodes);

/// Nodes that do not fit a pod for the same reason.
struct RefusedGroup {
  std::size_t nodes = 0;
  std::string why;
};

/// Groups refusals by their text, the largest group first.
[[nodiscard]] std::vector<RefusedGroup> grouped(const std::vector<RefusedNode>& refused);

/// One sentence for at most `most` groups: "37 nodes: …; 12 nodes: …".
[[nodiscard]] std::string explain(const std::vector<RefusedGroup>& groups, std::size_t most);
/// The same, from ungrouped refusals.
[[nodiscard]] std::string explain(const std::vector<RefusedNode>& refused, std::size_t most = 5);

}  // namespace carve
