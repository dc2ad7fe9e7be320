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

#include "app/control/cluster_model.h"
#include "app/control/leader.h"
#include "app/control/node_nominator.h"
#include "app/control/unschedulable_pods.h"
#include "codec/cluster/budget.h"
#include "codec/dra/event.h"
#include "codec/extender/extender.h"
#include "core/cluster/room.h"

namespace carve::control {

/// Makes room for pods that fit nowhere by card while others of lower priority hold some: kube-scheduler's own dry runs
/// see no cards. The leader chooses who goes (core/cluster/room.h), keeps the room for the pod, names the node in the
/// pod's status, and evicts by the Eviction API, which keeps PodDisruptionBudgets. One thread.
///
/// Nobody goes in vain:
///   - only for a pod that kube-scheduler asked about within kFresh and only on nodes that it named then: they passed
///     everything but cards. What it said longer ago is asked anew, by a touch of the node (Requeuer);
///   - not while the pod fits somewhere, or will when those have gone who are going already; where kube-scheduler named
///     a part of the nodes, not before the others have been tried (NodeNominator);
///   - what is chosen is chosen again on the ledger as it is just before the first eviction;
///   - several victims are asked for with dryRun first: all of them may go, or none does;
///   - the room is kept for the pod from before the first eviction on.
/// Every replica keeps the room, from the pod's nominatedNodeName, so that the next leader does and every filter says
/// so. A try of kube-scheduler's that was under way takes the name back, as its own dry run knows no victims: the
/// leader names the node again. The room is given up kFreeFor after the last of those who went let go, or at the latest
/// kLatest after their grace.
class Preemptor {
 public:
  static constexpr Clock::Duration kPoll = std::chrono::milliseconds(200);
  static constexpr Clock::Duration kFresh = std::chrono::seconds(3);
  /// Before a pod that was turned away is looked at: kube-scheduler itself may be choosing whom it evicts for the pod,
  /// on nodes that lack more than cards (PreemptVerb), and two must not do it at once.
  static constexpr Clock::Duration kSettle = std::chrono::milliseconds(300);
  /// One that is tried without end never settles: kube-scheduler does so where it looks at a part of the nodes, being
  /// woken by what it wrote itself of the try before.
  static constexpr Clock::Duration kPatience = std::chrono::seconds(2);
  static constexpr Clock::Duration kNamed = std::chrono::seconds(10);        // it named a node: its victims are going
  static constexpr Clock::Duration kRetry = std::chrono::seconds(1);         // a pod that was looked at
  static constexpr Clock::Duration kHopeless = std::chrono::seconds(8);      // and for which nothing could be done
  static constexpr Clock::Duration kRequeueAgain = std::chrono::seconds(30);    // a scheduler that does not ask
  static constexpr Clock::Duration kBudgetAgain = std::chrono::seconds(10);  // a victim that its budget protected
  static constexpr Clock::Duration kFreeFor = std::chrono::seconds(15);
  static constexpr Clock::Duration kLatest = std::chrono::seconds(60);
  static constexpr std::size_t kPerStep = 16;  // pods that are looked at in one step

  struct World {
    ClusterModel& model;
    const Leader& leader;
    KubeApi& api;  // whose calls end within Binder::kWrite
    Clock& clock;
    Log& log;
    const UnschedulablePods& unschedulable_pods;
    std::function<const PolicyRow&(const PodEntry& pod, const std::string& node)> policy;
    std::function<void(codec::EventNote)> post_event;  // may be empty
    /// Tells the leader of a pod that this replica turned away; may be empty.
    std::function<void(const codec::UnschedulablePodsNote&)> forward_to_leader;
    const NodeNominator* node_nominator = nullptr;
  };
  explicit Preemptor(World world) : world_(std::move(world)) {}

  /// Until `stop`.
  void run(const std::stop_token& stop);
  void step();

  struct Stats {
    std::uint64_t made = 0;       // room, for one pod
    std::uint64_t victims = 0;    // evicted, ever
    std::uint64_t by_budget = 0;  // a budget stood in the way
    std::uint64_t undone = 0;     // begun, and nobody was evicted
    std::uint64_t given_up = 0;   // the room was there and the pod did not come
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
    std::optional<Clock::Time> nominated_at;  // by this replica; nullopt: another's word, and another's to take back
  };
  enum class Answer : std::uint8_t { kEvicted, kProtected, kFailed };

  void maintain_reservations(const std::vector<Pod>& nominated, Clock::Time now);
  void adopt(const PodEntry& pod, const PreemptionCandidates& all, Clock::Time now);
  void renominate(const PodEntry& pod, Attempt* attempt, Clock::Time now);
  void give_up(const PodEntry& pod, const Attempt& attempt, Clock::Time now);
  /// The lowest priority among those who hold; nobody: the highest there is.
  [[nodiscard]] std::int64_t lowest_priority() const;
  /// nullptr: it does not wait, or is gone.
  [[nodiscard]] Pod waiting(const std::string& uid) const;
  [[nodiscard]] bool may_consider(const PodEntry& pod, Clock::Time now);
  void consider(const PodEntry& pod, Clock::Time now);
  [[nodiscard]] PreemptionCandidates candidates(const std::vector<codec::Budget>& budgets) const;
  [[nodiscard]] FoundRoom find(const PodEntry& pod, const std::vector<std::string>& names,
                               const PreemptionCandidates& all) const;
  void requeue(const std::string& uid, const std::string& node, Clock::Time now);
  void make_room(const PodEntry& pod, const FoundRoom& found, const std::vector<codec::Budget>& budgets);
  [[nodiscard]] bool allowed_all(const std::vector<Pod>& victims);
  bool evict_all(const PodEntry& pod, const FoundRoom& found, const std::vector<Pod>& victims, std::uint64_t epoch);
  Answer evict(const PodEntry& victim, bool dry);
  /// The server has it still, and not as one that goes. What cannot be read may have gone.
  [[nodiscard]] bool stays(const PodEntry& victim);
  void undo(const PodEntry& pod);
  [[nodiscard]] Result<void> nominate(const PodEntry& pod, const std::string& node);
  void record_event(const PodEntry& about, const char* reason, std::string message, bool warning = false) const;

  World world_;
  std::map<std::string, Attempt> attempts_;        // by UID
  std::map<std::string, Clock::Time> not_before_;  // by UID
  std::map<std::string, Clock::Time> requeued_;       // by UID
  std::map<std::string, Clock::Time> no_room_;     // by UID: when the node that is named to it had no room for it
  std::map<std::string, Clock::Time> nominated_since_;       // by UID: since when somebody else's nomination is known
  std::set<std::string> abandoned_;                // UIDs whose nomination came to nothing
  std::map<Owner, Clock::Time> protected_;         // whom a budget protected, until when they are not asked again
  std::atomic<std::uint64_t> made_ = 0;
  std::atomic<std::uint64_t> victims_ = 0;
  std::atomic<std::uint64_t> blocked_by_budget_ = 0;
  std::atomic<std::uint64_t> undone_ = 0;
  std::atomic<std::uint64_t> given_up_ = 0;
};

}  // namespace carve::control
