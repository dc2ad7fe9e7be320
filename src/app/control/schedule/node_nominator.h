#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "app/control/leader/leader.h"
#include "app/control/schedule/extender.h"
#include "app/control/schedule/unschedulable_pods.h"
#include "app/control/state/cluster_model.h"
#include "base/mutex.h"
#include "port/kube_api.h"

namespace carve::control {

/// Nominates a node for pods that kube-scheduler rejected without having looked at all nodes. In a cluster of more than
/// kLeastPart nodes, kube-scheduler may be configured to stop at a part of the nodes that pass its own filters
/// (percentageOfNodesToScore). These filters do not consider cards: if the nodes of that part are full, kube-scheduler
/// calls the pod unschedulable although other nodes have free cards. It tries the node of status.nominatedNodeName
/// before all others. So the leader writes the engine's choice among all nodes there, keeps the room, and makes
/// kube-scheduler retry.
///
/// Control does not know whether the pod lacks more than cards on a node (CPU, taints, affinity). If the pod is not
/// bound to the nominated node, the nomination was unsuccessful; after kTries unsuccessful nodes the pod gets no
/// nomination for kPause. step() must be called from one thread; exhausted(), is_trying() and stats() are safe from any
/// thread.
class NodeNominator {
 public:
  static constexpr std::size_t kLeastPart = 100;  // kube-scheduler's minFeasibleNodesToFind
  static constexpr Clock::Duration kGap = std::chrono::milliseconds(200);  // between two steps without new room
  /// The time from the nomination until a scheduling attempt must have seen it: after two of kube-scheduler's watches.
  static constexpr Clock::Duration kSeen = std::chrono::milliseconds(500);
  static constexpr Clock::Duration kTouchAgain = std::chrono::milliseconds(1200);  // an attempt was in progress
  static constexpr Clock::Duration kTrial = std::chrono::seconds(3);               // for the pod to be bound there
  static constexpr Clock::Duration kPause = std::chrono::seconds(60);
  static constexpr std::size_t kTries = 4;    // unsuccessful nodes of one pod
  static constexpr std::size_t kAtOnce = 16;  // pods with an open nomination: limits the load on the API server
  static constexpr std::size_t kShapes = 16;  // different requests per step: as many as FitCache remembers
  static constexpr Clock::Duration kRetryHopeless = std::chrono::seconds(2);  // an assumed pod may not have been bound

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
  ///   out   a node to touch (Requeuer), so that kube-scheduler retries the pod with the nomination; empty: none
  [[nodiscard]] std::string step(bool gained);
  /// When step() must be called again, unless a pod or a node changes before; Clock::Time::max(): not before a change.
  [[nodiscard]] Clock::Time next_step() const;

  /// There is no node left to nominate for that pod: kube-scheduler looked at all nodes, or no node has had room since
  /// `since`, or the nominations of those with room were unsuccessful. The preemptor checks this before it evicts for
  /// the pod.
  [[nodiscard]] bool exhausted(const PodEntry& pod, Clock::Time since) const;
  /// The pod has an open nomination: it is not known yet whether the pod will be bound there.
  [[nodiscard]] bool is_trying(const std::string& uid) const;

  struct Stats {
    std::uint64_t nominated = 0;
    std::uint64_t unsuccessful = 0;
  };
  [[nodiscard]] Stats stats() const { return {nominated_, unsuccessful_}; }

 private:
  using Pod = ClusterModel::Pod;
  /// The nominations of one pod.
  struct Trial {
    std::string node;  // the open nomination; empty: none
    Clock::Time nominated_at{};
    bool touched_again = false;
    std::set<std::string> failed_nodes;  // unsuccessful ones since the last pause
    Clock::Time not_before{};
  };
  /// Everything that decides where a pod fits.
  struct Shape {
    std::vector<PartRequest> parts;
    std::int32_t priority = 0;
    std::set<std::string> failed_nodes;
    friend bool operator==(const Shape&, const Shape&) = default;
  };

  [[nodiscard]] bool may_have_skipped_nodes(const PodEntry& pod) const;
  [[nodiscard]] bool is_hopeless(const Shape& shape) const REQUIRES(mutex_);
  void begin(const std::vector<Pod>& refused, bool gained, Clock::Time now) REQUIRES(mutex_);
  [[nodiscard]] bool trial_continues(const PodEntry& pod, Clock::Time now) REQUIRES(mutex_);
  void mark_unsuccessful(const PodEntry& pod, Trial* trial, Clock::Time now) REQUIRES(mutex_);
  [[nodiscard]] bool may_nominate(const PodEntry& pod, Clock::Time now) REQUIRES(mutex_);
  void try_one(const PodEntry& pod, Clock::Time now) REQUIRES(mutex_);
  void step_again_at(Clock::Time at) REQUIRES(mutex_) { again_ = std::min(again_, at); }
  Result<void> nominate(const PodEntry& pod, const std::string& node);

  const World world_;
  mutable Mutex mutex_;
  Clock::Time next_ GUARDED_BY(mutex_){};
  Clock::Time again_ GUARDED_BY(mutex_) = Clock::Time::max();  // next_step()
  Clock::Time forget_hopeless_at_ GUARDED_BY(mutex_){};        // when hopeless_ is cleared next
  std::optional<Clock::Time> last_step_ GUARDED_BY(mutex_);    // the last step that ran
  // No node had room for these, and no node has gained room since.
  std::vector<Shape> hopeless_ GUARDED_BY(mutex_);
  std::string touch_ GUARDED_BY(mutex_);                    // the result of this step
  std::map<std::string, Trial> trials_ GUARDED_BY(mutex_);  // by UID
  std::size_t trials_in_progress_ GUARDED_BY(mutex_) = 0;   // those with an open nomination
  std::atomic<std::uint64_t> nominated_ = 0;
  std::atomic<std::uint64_t> unsuccessful_ = 0;
};

}  // namespace carve::control
