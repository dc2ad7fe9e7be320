#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "app/control/state/cluster_model.h"
#include "app/control/leader/leader.h"
#include "app/control/schedule/node_nominator.h"
#include "app/control/schedule/unschedulable_pods.h"
#include "codec/cluster/budget.h"
#include "codec/kube/event.h"
#include "codec/extender/extender.h"
#include "core/cluster/room.h"

namespace carve::control {

/// Makes room for pods that fit nowhere by card while pods of lower priority hold cards; kube-scheduler's own dry runs
/// do not consider cards. The leader chooses the victims (core/cluster/room.h), keeps the room for the pod, nominates
/// the node in the pod's status, and evicts through the Eviction API, which respects PodDisruptionBudgets. It works
/// when a waiting pod or the ledger of a node changes, when a filter call finds no node for a pod, when a time below is
/// over, and every kResync. One thread.
///
/// No pod is evicted unnecessarily:
///   - The preemptor evicts only for a pod that kube-scheduler asked about within kFresh, and only on the nodes of that
///     call: these passed all filters except cards. If the call is older, the preemptor touches the node (Requeuer), so
///     that kube-scheduler asks again.
///   - It does not evict while the pod fits somewhere, or will fit once the pods that are already ending are gone. If
///     kube-scheduler looked at only a part of the nodes, the other nodes are tried first (NodeNominator).
///   - It repeats the choice on the current ledger just before the first eviction.
///   - Several victims are first evicted with dryRun: either all of them may be evicted, or none is.
///   - The room is kept for the pod from before the first eviction on.
/// Every replica keeps the room, from the pod's nominatedNodeName: every filter respects it, and so does the next
/// leader. A scheduling attempt that was already in progress clears the nomination, because kube-scheduler's own dry
/// run finds no victims; the leader then nominates the node again. The room is given up kFreeFor after the last victim
/// released its cards, and at the latest kLatest after the victims' grace period.
class Preemptor {
 public:
  static constexpr Clock::Duration kGap = std::chrono::milliseconds(200);  // the least until a time that step() returns
  static constexpr Clock::Duration kFresh = std::chrono::seconds(3);
  /// From the rejection of a pod until the preemptor considers it: kube-scheduler may be choosing victims for the pod
  /// itself, on nodes that lack more than cards (PreemptVerb), and both must not evict at the same time.
  static constexpr Clock::Duration kSettle = std::chrono::milliseconds(300);
  /// kSettle no longer applies to a pod that has been retried for this long without a pause. kube-scheduler retries
  /// without a pause if it looks at a part of the nodes: the status that it writes after one attempt triggers the next.
  static constexpr Clock::Duration kPatience = std::chrono::seconds(2);
  /// How long the preemptor waits after another component nominated a node, because its victims are terminating.
  static constexpr Clock::Duration kNominated = std::chrono::seconds(10);
  static constexpr Clock::Duration kRetry = std::chrono::seconds(1);     // a pod that was considered
  static constexpr Clock::Duration kHopeless = std::chrono::seconds(8);  // a pod for which no room can be made
  static constexpr Clock::Duration kRequeueAgain = std::chrono::seconds(30);  // if kube-scheduler does not retry
  static constexpr Clock::Duration kBudgetAgain = std::chrono::seconds(10);  // a victim that a budget protected
  static constexpr Clock::Duration kFreeFor = std::chrono::seconds(15);
  static constexpr Clock::Duration kLatest = std::chrono::seconds(60);
  static constexpr std::size_t kPerStep = 16;  // pods that are considered in one step

  struct World {
    ClusterModel& model;
    const Leader& leader;
    KubeApi& api;  // its calls end within Binder::kWrite
    Clock& clock;
    Log& log;
    const UnschedulablePods& unschedulable_pods;
    std::function<const PolicyRow&(const PodEntry& pod, const std::string& node)> policy;
    std::function<void(codec::EventNote)> post_event;  // may be empty
    /// Reports a pod that this replica rejected to the leader; may be empty.
    std::function<void(const codec::UnschedulablePodsNote&)> forward_to_leader;
    const NodeNominator* node_nominator = nullptr;
  };
  explicit Preemptor(World world)
      : world_(std::move(world)),
        queue_({&world_.model.changes(), &world_.leader.changes(), &world_.unschedulable_pods.changes()}) {}

  /// Until `stop`.
  void run(const std::stop_token& stop);
  /// Does what is due now.
  ///   out     when to call it again, unless something changes before
  Clock::Time step();

  [[nodiscard]] ChangeQueue& changes() { return queue_; }
  /// How many pods the steps looked at, since the start.
  [[nodiscard]] std::uint64_t examined() const { return examined_; }

  struct Stats {
    std::uint64_t made = 0;       // pods for which room was made
    std::uint64_t victims = 0;    // evicted pods
    std::uint64_t by_budget = 0;  // times that a budget prevented an eviction
    std::uint64_t undone = 0;     // attempts that ended before the first eviction
    std::uint64_t given_up = 0;   // the room was free, and the pod did not use it
  };
  [[nodiscard]] Stats stats() const;

 private:
  using Pod = ClusterModel::Pod;
  /// Room that is being made for a pod.
  struct Attempt {
    std::string node;
    std::vector<Owner> victims;
    Clock::Time latest{};
    std::optional<Clock::Time> free_since;
    std::optional<Clock::Time> nominated_at;  // by this replica; nullopt: by another component, which may also clear it
  };
  enum class Answer : std::uint8_t { kEvicted, kProtected, kFailed };

  /// Enters the pods of `changes` that wait in due_, and forgets those that wait no longer.
  void collect(const Changes& changes, Clock::Time now);
  void forget(const std::string& uid);
  /// Checks the rooms that are being made. Returns when the next time of one of them is over.
  Clock::Time maintain_attempts(Clock::Time now);
  /// Whether the attempt goes on; sets `next` to the time of the next check, unless that is later.
  [[nodiscard]] bool maintain(const Pod& pod, const std::string& uid, Attempt* attempt, Clock::Time now,
                              Clock::Time* next);
  /// Keeps the room of the pod's nomination by another component. Returns when to try again; nullopt: not before a
  /// change.
  std::optional<Clock::Time> follow_nomination(const PodEntry& pod, std::optional<PreemptionCandidates>* all,
                                               Clock::Time now);
  void adopt(const PodEntry& pod, const PreemptionCandidates& all, Clock::Time now);
  void renominate(const PodEntry& pod, Attempt* attempt, Clock::Time now);
  void give_up(const PodEntry& pod, const Attempt& attempt, Clock::Time now);
  /// nullptr: the pod does not wait, or is deleted.
  [[nodiscard]] Pod waiting(const std::string& uid) const;
  /// When the pod may be considered: now or earlier: now. nullopt: not before something changes.
  [[nodiscard]] std::optional<Clock::Time> when_to_consider(const PodEntry& pod, Clock::Time now) const;
  void consider(const PodEntry& pod, Clock::Time now);
  [[nodiscard]] PreemptionCandidates candidates(const std::vector<codec::Budget>& budgets) const;
  [[nodiscard]] FoundRoom find(const PodEntry& pod, const std::vector<std::string>& names,
                               const PreemptionCandidates& all) const;
  void requeue(const std::string& uid, const std::string& node, Clock::Time now);
  void make_room(const PodEntry& pod, const FoundRoom& found, const std::vector<codec::Budget>& budgets);
  [[nodiscard]] bool allowed_all(const std::vector<Pod>& victims);
  bool evict_all(const PodEntry& pod, const FoundRoom& found, const std::vector<Pod>& victims, std::uint64_t epoch);
  Answer evict(const PodEntry& victim, bool dry);
  /// The server shows that the pod is deleted, replaced, terminating or ended. False if the pod cannot be read.
  [[nodiscard]] bool is_going(const PodEntry& victim);
  void undo(const PodEntry& pod);
  [[nodiscard]] Result<void> nominate(const PodEntry& pod, const std::string& node);
  void record_event(const PodEntry& about, const char* reason, std::string message, bool warning = false) const;

  World world_;
  ChangeQueue queue_;
  Clock::Time resync_at_{};
  std::int64_t lowest_ = INT64_MAX;         // the last known lowest priority of a pod that holds cards
  std::map<std::string, Clock::Time> due_;  // by UID: waiting pods, and when to look at them
  std::uint64_t examined_ = 0;
  std::map<std::string, Attempt> attempts_;        // by UID
  std::map<std::string, Clock::Time> not_before_;  // by UID
  std::map<std::string, Clock::Time> requeued_;    // by UID
  std::map<std::string, Clock::Time> no_room_;     // by UID: when the nominated node had no room for the pod
  std::map<std::string, Clock::Time> nominated_since_;  // by UID: since when another component's nomination is known
  std::set<std::string> abandoned_;                     // UIDs of pods with an abandoned nomination
  std::map<Owner, Clock::Time> protected_;              // protected victims, and until when they are not chosen again
  std::atomic<std::uint64_t> made_ = 0;
  std::atomic<std::uint64_t> victims_ = 0;
  std::atomic<std::uint64_t> blocked_by_budget_ = 0;
  std::atomic<std::uint64_t> undone_ = 0;
  std::atomic<std::uint64_t> given_up_ = 0;
};

}  // namespace carve::control
