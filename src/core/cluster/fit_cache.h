#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/cluster/ruled_fit.h"

namespace carve {

/// A node of a FitView. `node` refers to the name that the caller passed.
struct FittingView {
  std::string_view node;
  std::int64_t score = 0;
  const std::shared_ptr<const NodeState>* state = nullptr;  // lives as long as the cluster that was passed
  ClusterState::Number number = 0;                          // its number in that cluster
};
struct RefusedView {
  std::string_view node;
  std::shared_ptr<const std::string> why;
  bool final = false;
  UnschedulableReason class_of_why = UnschedulableReason::kNoCard;
};

/// As choose_node() of a Fit.
[[nodiscard]] const FittingView* choose_node(const std::vector<FittingView>& nodes);

/// A Fit without copies: its names refer to those of the call.
struct FitView {
  std::vector<FittingView> nodes;
  std::vector<RefusedView> refused;
};

/// fit() with a memory. The answer of a node to a request is valid as long as the node is the same object. In a burst
/// of pods with equal requests, only two kinds of nodes are evaluated again: those that changed, and those with a
/// reservation. Such pods differ only in their owner. place_pod() does not use the owner while the owner has no slices,
/// which is the case for every pod that waits for a node. Not thread-safe.
///   memory  at most kShapes requests, each with about 100 bytes per node
class FitCache {
 public:
  static constexpr std::size_t kShapes = 16;  // different requests that are remembered, the last used ones

  /// The arguments for one pod. `rules` are the rules from which `policy` was made.
  struct Ask {
    const Owner& owner;
    const std::vector<PartRequest>& parts;
    const std::vector<std::string_view>& names;
    std::shared_ptr<const PlacementRules> rules;
    PodPolicy policy;
    std::int32_t priority = 0;
  };
  ///   out     as fit(); the names live as long as `ask.names`
  ///   cost    a look-up per name; place_pod() per node that changed since the last equal request; after a node was
  ///           added or removed, place_pod() for all nodes
  [[nodiscard]] FitView fit(const std::shared_ptr<const ClusterState>& cluster, const Ask& ask);
  /// The score of a node of that cluster in its future state `ahead`, if the pod fits then. Cached like the answers of
  /// fit(), separately from them.
  [[nodiscard]] std::optional<std::int64_t> score_ahead(const std::shared_ptr<const ClusterState>& cluster,
                                                        ClusterState::Number number,
                                                        const std::shared_ptr<const NodeState>& ahead, const Ask& ask);

  struct Stats {
    std::uint64_t remembered = 0;  // nodes with a cached answer
    std::uint64_t asked = 0;       // nodes that were evaluated
  };
  [[nodiscard]] Stats figures() const { return figures_; }

 private:
  /// The cached answer of a node.
  struct CachedAnswer {
    std::shared_ptr<const NodeState> state;        // the object that was evaluated; nullptr: not evaluated yet
    std::shared_ptr<const std::string> why;        // nullptr: it fits
    std::int64_t score = 0;
    bool final = false;
    bool for_all = false;  // valid for every owner: no capacity is set aside or reserved on the node
    UnschedulableReason class_of_why = UnschedulableReason::kNoCard;
  };
  struct Shape {
    std::vector<PartRequest> parts;
    std::shared_ptr<const PlacementRules> rules;
    PodPolicy policy;
    std::vector<CachedAnswer> answers;  // by the node's number
    std::vector<CachedAnswer> ahead;    // of the nodes in their future state
  };

  void use(const std::shared_ptr<const ClusterState>& cluster);
  Shape& shape_of(const Ask& ask);
  /// Evaluates the node, unless `known` already holds the answer of this object.
  void refresh(CachedAnswer* known, const std::shared_ptr<const NodeState>& state, const Ask& ask);
  void answer(Shape& shape, ClusterState::Number number, std::string_view name, const Ask& ask, FitView* view);
  static void add_to_view(const CachedAnswer& cached, const FittingView& node, FitView* view);

  std::shared_ptr<const ClusterState> seen_;
  std::list<Shape> shapes_;  // the last used first
  Stats figures_;
};

}  // namespace carve
