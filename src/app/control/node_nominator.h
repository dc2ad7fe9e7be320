#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "app/control/cluster_model.h"
#include "app/control/extender.h"
#include "app/control/leader.h"
#include "app/control/unschedulable_pods.h"
#include "port/kube_api.h"

namespace carve::control {

/// Names a node to pods that kube-scheduler turned away without having looked at all nodes. In a cluster of more than
/// kLeastPart it may be set to stop at a part of those that pass its own filters (percentageOfNodesToScore), which know
/// nothing of cards: where those of the part are full it calls the pod unschedulable beside free ones. It tries the
/// node of status.nominatedNodeName before all others, so the leader writes the engine's choice among all nodes there,
/// keeps the room, and has kube-scheduler try again.
///
/// What else stands in the pod's way on a node (CPU, taints, affinity) control does not know. A node to which the pod
/// does not come was named in vain; after kTries of them nothing is named for kPause.
/// step() is one thread's; exhausted() and stats() are safe from any.
class NodeNominator {
 public:
  static constexpr std::size_t kLeastPart = 100;  // kube-scheduler's minFeasibleNodesToFind
  static constexpr Clock::Duration kPoll = std::chrono::milliseconds(200);  // while nothing changes
  /// From the name to the look that must have known it, two watches of kube-scheduler's later.
  static constexpr Clock::Duration kSeen = std::chrono::milliseconds(500);
  static constexpr Clock::Duration kTouchAgain = std::chrono::milliseconds(1200);  // its look crossed the name
  static constexpr Clock::Duration kTrial = std::chrono::seconds(3);               // until which it has come
  static constexpr Clock::Duration kPause = std::chrono::seconds(60);
  static constexpr std::size_t kTries = 4;    // nodes in vain, of one pod
  static constexpr std::size_t kAtOnce = 16;  // pods with a name and no node yet: what naming may cost the API server
  static constexpr std::size_t kShapes = 16;  // kinds of requests that are looked at in one step, as FitCache remembers
  static constexpr Clock::Duration kRetryHopeless = std::chrono::seconds(2);  // who was on the way there may not have come

  struct World {
    ClusterModel& model;
    const Leader& leader;
    KubeApi& api;
    Clock& clock;
    Log& log;
    const UnschedulablePods& unschedulable_pods;
    /// Extender::choose_anywhere().
    std::function<std::optional<Extender::Sent>(const PodEntry&, const std::set<std::string>& excluded)> choose;
  };
  explicit NodeNominator(World world) : world_(std::move(world)) {}

  /// `gained`: some node has more room than at the step before.
  ///   out   a node that is to be touched (Requeuer), so that kube-scheduler tries again whom a node was named to;
  ///   empty:
  ///         none
  [[nodiscard]] std::string step(bool gained);

  /// No node is to be named to that pod: kube-scheduler has looked at all, or since `since` none had room, or those
  /// that had were named in vain. Whoever would evict somebody for the pod asks first.
  [[nodiscard]] bool exhausted(const PodEntry& pod, Clock::Time since) const;
  /// A node has been named to it, and whether it comes is not known yet.
  [[nodiscard]] bool is_trying(const std::string& uid) const;

  struct Stats {
    std::uint64_t nominated = 0;
    std::uint64_t unsuccessful = 0;
  };
  [[nodiscard]] Stats stats() const { return {nominated_, unsuccessful_}; }

 private:
  using Pod = ClusterModel::Pod;
  /// What was done for one pod.
  struct Trial {
    std::string node;            // named, and it has not come yet; empty: none is
    Clock::Time nominated_at{};
    bool touched_again = false;
    std::set<std::string> failed_nodes;  // nodes, since the last pause
    Clock::Time not_before{};
  };
  /// What decides where a pod fits.
  struct Shape {
    std::vector<PartRequest> parts;
    std::int32_t priority = 0;
    std::set<std::string> failed_nodes;
    friend bool operator==(const Shape&, const Shape&) = default;
  };

  [[nodiscard]] bool may_have_skipped_nodes(const PodEntry& pod) const;
  [[nodiscard]] bool is_hopeless(const Shape& shape) const;
  void begin(const std::vector<Pod>& refused, bool gained, Clock::Time now);
  [[nodiscard]] bool trial_continues(const PodEntry& pod, Clock::Time now);
  void mark_unsuccessful(const PodEntry& pod, Trial* trial, Clock::Time now);
  [[nodiscard]] bool may_nominate(const PodEntry& pod, Clock::Time now);
  void try_one(const PodEntry& pod, Clock::Time now);
  Result<void> nominate(const PodEntry& pod, const std::string& node);

  const World world_;
  mutable std::mutex mutex_;
  Clock::Time next_{};
  Clock::Time forget_hopeless_at_{};               // when what is hopeless is asked anew
  std::optional<Clock::Time> last_step_;  // the last step that looked
  std::vector<Shape> hopeless_;        // no node had room for it, and none has gained any since
  std::string touch_;                  // of this step
  std::map<std::string, Trial> trials_;  // by UID
  std::size_t trials_in_progress_ = 0;                // of which so many have a node
  std::atomic<std::uint64_t> nominated_ = 0;
  std::atomic<std::uint64_t> unsuccessful_ = 0;
};

}  // namespace carve::control
