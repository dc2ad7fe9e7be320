#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "app/control/state/pod_entry.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "codec/dialects/dialect.h"
#include "codec/extender/extender.h"
#include "core/cluster/assumed_pods.h"
#include "core/cluster/cluster.h"
#include "core/cluster/fit_cache.h"
#include "core/policy/rules.h"

namespace carve::control {

/// Answers kube-scheduler's filter and prioritize calls. A pure computation on a snapshot: it calls no other component
/// and sets nothing aside, so any replica may answer, and a repeated or lost call does no harm. With a clock,
/// filter_to_place, prioritize and choose remember for a few seconds which pod they sent to which node
/// (core/cluster/assumed_pods.h). This affects only the ranking of nodes for the following pods. Safe from any thread.
class Extender {
 public:
  /// `snapshot` returns the current state of the cluster, `rules` the placement rules. The objects that they point to
  /// never change.
  using Snapshot = std::function<std::shared_ptr<const ClusterState>()>;
  using Rules = std::function<std::shared_ptr<const PlacementRules>()>;
  /// Called after each of kube-scheduler's calls for a pod's nodes, with the pod and the result.
  using Watcher = std::function<void(const Owner&, const FitView&)>;
  /// Called after a pod took its claims, before the snapshot is read: their room is kept for the pod from then on.
  using ClaimsTaken = std::function<void()>;
  /// ClusterModel::within_quota(); empty: no namespace has a quota.
  using WithinQuota = std::function<std::vector<PartRequest>(const std::string& namespace_name, const Owner& owner,
                                                             std::vector<PartRequest> parts)>;
  Extender(PodRequests requests, Rules rules, Snapshot snapshot, Watcher watcher = {},
           const Clock* clock = nullptr, ClaimsTaken claims_taken = {}, WithinQuota within_quota = {})
      : requests_(requests),
        rules_(std::move(rules)),
        snapshot_(std::move(snapshot)),
        watcher_(std::move(watcher)),
        clock_(clock),
        claims_taken_(std::move(claims_taken)),
        within_quota_(std::move(within_quota)) {}

  /// Returns every node that serves the pod, and for each other node the reason. Nodes where eviction would not help
  /// are listed separately (FailedAndUnresolvableNodes). A pod that requests nothing from Carve, or that uses Carve's
  /// names without slots, fits on every node. `Error` reports an invalid call or pod. For any caller: the watcher is
  /// not called, so an unauthenticated caller cannot cause an eviction.
  ///   cost    FitCache::fit(), and parsing and writing the JSON
  [[nodiscard]] std::string filter(std::string_view call) const;
  /// The same for kube-scheduler. kube-scheduler calls prioritize next, except when only one node is left: it takes
  /// that node. In that case this call assumes the pod on the node.
  ///
  /// For kube-scheduler (here and in choose()) all refused nodes are unresolvable, except the pod's nominated node.
  /// kube-scheduler names only nodes where nothing but cards is missing. Its own dry run for victims finds that it
  /// needs none there, and reports an error that lists the nodes in a different order each time. A pod is retried
  /// immediately when its message changes. For the same reason the refusals are short (kUnschedulableTexts) in calls
  /// with kMany or more refused nodes.
  [[nodiscard]] std::string filter_to_place(std::string_view call) const;
  static constexpr std::size_t kMany = 100;
  /// filter and prioritize in one call: returns only the engine's choice among the nodes that serve the pod, so the
  /// scheduler has nothing left to score or to ask. If no node serves the pod, returns all refusals, as filter does.
  /// Only for a scheduler that has no other extender: another extender might refuse that node.
  ///   cost    the same as filter; the size of the answer does not depend on the cluster
  [[nodiscard]] std::string choose(std::string_view call) const;
  /// Scores 10 for the engine's choice and at most 9 for every other node, so that neither the scheduler's own scores
  /// nor its random tie-break decide. Returns an empty list for a call that cannot be parsed; the scheduler treats it
  /// as no opinion. A node that will be full once all pods that are assumed there are bound gets the lowest score.
  [[nodiscard]] std::string prioritize(std::string_view call) const;
  /// The same scores for any caller: no pod is assumed on a node, and no claim is taken.
  [[nodiscard]] std::string rank(std::string_view call) const;
  /// The slices for which the pod was recently sent to that node; empty: it was not. Called when the pod's Binding
  /// begins: the pod stays assumed for AssumedPods::kAfterBinding, or until the cluster shows its slices, because an
  /// earlier call may still use a snapshot without the pod.
  [[nodiscard]] std::vector<Slice> sent_for(const Owner& owner, const std::string& node) const;
  /// Why the pod was sent there, for people: among how many nodes and by which policies. Empty: this replica did not
  /// send it there.
  [[nodiscard]] std::string why_sent(const Owner& owner, const std::string& node) const;
  struct Sent {
    std::string node;
    std::vector<Slice> slices;  // the slices that it will hold there
  };
  /// What choose() would return for all nodes that have a card, except `excluded`. Assumes the pod on that node.
  /// nullopt: no node serves the pod, or none will once all assumed pods are bound.
  ///   cost    the same as choose()
  [[nodiscard]] std::optional<Sent> choose_anywhere(const PodEntry& pod, const std::set<std::string>& excluded) const;

 private:
  /// A parsed call: the pod's request, and which of the named nodes serve it.
  struct Asked {
    codec::ExtenderArgs args;
    std::vector<PartRequest> parts;
    FitView fit;  // the names point into `args`
    Owner owner;
    std::shared_ptr<const ClusterState> cluster;
    std::shared_ptr<const PlacementRules> rules;
    std::optional<PodPolicy> policy;  // from `rules`; nullopt: the pod requests nothing from Carve
  };
  /// `to_place`: kube-scheduler places the pod, which takes the claims that it uses.
  ///   errors  kInvalidArgument: the call or the pod is invalid; kFailedPrecondition: a claim cannot be used
  [[nodiscard]] Result<std::unique_ptr<Asked>> ask(std::string_view call, bool to_place) const;
  enum class Answer : std::uint8_t { kAll, kAllToPlace, kOne };
  [[nodiscard]] std::string nodes_for(std::string_view call, Answer wanted) const;
  [[nodiscard]] std::string scores_for(std::string_view call, bool to_place) const;
  [[nodiscard]] static FitCache::Ask ask_of(const Asked& asked);
  /// nullptr: no node serves the request.
  const FittingView* best_of(Asked& asked) const;

  /// Ranks the nodes by their state once all assumed pods are bound, chooses one, and assumes the pod there.
  const FittingView* choose_ahead(Asked& asked) const;
  [[nodiscard]] static std::string why_there(const Asked& asked, const NodeState& there);
  /// Re-scores the nodes that have assumed pods, by their state once those pods are bound.
  void look_ahead(Asked& asked) const REQUIRES(mutex_);
  [[nodiscard]] std::optional<std::vector<Slice>> placed_on(const Asked& asked, const NodeState& state) const;

  PodRequests requests_;
  Rules rules_;
  Snapshot snapshot_;
  Watcher watcher_;
  const Clock* clock_;
  ClaimsTaken claims_taken_;
  WithinQuota within_quota_;
  mutable Mutex mutex_;
  mutable FitCache cache_ GUARDED_BY(mutex_);
  mutable AssumedPods assumed_ GUARDED_BY(mutex_);
};

}  // namespace carve::control
