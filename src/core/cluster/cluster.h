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

/// One machine of the cluster: its cards, who holds what there, how the cards are connected.
struct NodeState {
  Ledger ledger;
  LinkMatrix links;
  std::map<std::string, std::string> labels;  // of the Node: pools are selected by them
  std::vector<Owner> reserved;                // room is set aside for them, they are not bound yet; sorted
  std::vector<NominatedReservation> reservations = {};               // room that is kept while others go
  std::string closed = {};                    // why nobody is sent there just now; empty: they are
  std::map<std::string, std::string> closed_to = {};  // by dialect: why nobody who asks in it is sent there just now
  friend bool operator==(const NodeState&, const NodeState&) = default;
};

/// Why nobody who asks in the dialects of these is sent there just now; empty: they are.
[[nodiscard]] const std::string& closed_by_dialect(const NodeState& node, const std::vector<PartRequest>& parts);
/// The same, or why nobody is sent there at all.
[[nodiscard]] const std::string& closed_for(const NodeState& node, const std::vector<PartRequest>& parts);

/// The node's ledger as somebody of that priority sees it; no copy where nothing is held. Not longer than the node.
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

/// A node that serves a pod, and how the policy likes it; the higher the better.
struct FittingNode {
  std::string node;
  std::int64_t score = 0;
};

/// A node that does not, and why, for a person. `final`: it never will, whoever goes there.
struct RefusedNode {
  std::string node;
  std::string why;
  bool final = false;
};

struct Fit {
  std::vector<FittingNode> nodes;  // in the order in which they were named
  std::vector<RefusedNode> refused;
};

/// Which of these nodes serve the pod: pure, nothing is set aside. Where room is set aside for the owner
/// already, it fits. Who has a lower priority than a hold's, or the same, does not see its room.
///   cost    place_pod() per node
[[nodiscard]] Fit fit(const ClusterState& cluster, const Owner& owner,
                      const std::vector<PartRequest>& parts, const std::vector<std::string>& names,
                      const PolicyRow& policy, std::int32_t priority = 0);

/// The engine's choice among nodes that fit: the best score, the lower name between equals;
/// nullptr: none.
[[nodiscard]] const FittingNode* choose_node(const std::vector<FittingNode>& nodes);

/// Nodes that do not serve a pod for one and the same reason.
struct RefusedGroup {
  std::size_t nodes = 0;
  std::string why;
};

/// Refusals grouped by their words, the largest group first.
[[nodiscard]] std::vector<RefusedGroup> grouped(const std::vector<RefusedNode>& refused);

/// One sentence for all groups: "37 nodes: …; 12 nodes: …", at most `most` of them.
[[nodiscard]] std::string explain(const std::vector<RefusedGroup>& groups, std::size_t most);
/// The same of refusals.
[[nodiscard]] std::string explain(const std::vector<RefusedNode>& refused, std::size_t most = 5);

}  // namespace carve
