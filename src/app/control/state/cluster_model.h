#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "app/control/state/change_queue.h"
#include "app/control/state/cluster_stats.h"
#include "app/control/state/node_entry.h"
#include "app/control/state/pod_entry.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "codec/dialects/projection.h"
#include "core/cluster/assemble.h"
#include "core/cluster/quota_book.h"
#include "core/policy/policy.h"
#include "port/kube_api.h"

namespace carve::control {

/// The ledger of the whole cluster, built from the API server's Nodes, GPU objects and Pods, and from the room that the
/// binder has set aside. It is a function of the current objects, not of the order in which they arrived: a node's
/// ledger is rebuilt from its objects whenever one of them changes. Every function that changes something publishes the
/// new ledgers before it returns; the const functions only read. Safe from any thread; three threads may feed the three
/// sinks.
///
/// A slice is booked while at least one of these sources names it:
///   - the record of a pod that has a node and has not ended;
///   - the GPU object of its card. The agent writes it, and removes the slice when the slice's last process has ended.
///     Claims of the DRA driver appear only there;
///   - a deleted pod, if its slice never appeared in the GPU object, for kLinger: an agent writes each GPU object at
///     most once in two seconds.
class ClusterModel {
 public:
  static constexpr Clock::Duration kLinger = std::chrono::seconds(3);

  ClusterModel(PodRequests requests, const Clock& clock, Log& log)
      : requests_(requests), clock_(clock), log_(log) {}

  /// Sinks for KubeApi::watch of /api/v1/nodes, /apis/elasticgpu.io/v1alpha1/gpus and /api/v1/pods (all namespaces, no
  /// selector). Objects that cannot be parsed are counted and skipped.
  [[nodiscard]] KubeSink nodes();
  [[nodiscard]] KubeSink gpus();
  [[nodiscard]] KubeSink pods();

  /// Each sink has received its first complete list.
  [[nodiscard]] bool synced() const;
  /// The current state of all nodes that exist and have a card. The returned object never changes.
  ///   cost    none. Each change costs the ledgers of the changed nodes, and ClusterState::change()
  [[nodiscard]] std::shared_ptr<const ClusterState> snapshot() const;
  /// What changes, for the queues of the consumers.
  [[nodiscard]] const ChangeFeed& changes() const { return changes_; }
  /// Removes what ends by itself, as reserve() does: the room of deleted pods after kLinger; nominated reservations.
  ///   out     when something ends next; Clock::Time::max(): nothing does
  Clock::Time expire();

  /// The highest epoch of all records; 0: no record.
  [[nodiscard]] std::uint64_t highest_epoch() const;

  /// The current GPU objects, in unspecified order.
  [[nodiscard]] std::vector<codec::GpuObject> gpu_objects() const;
  using Pod = std::shared_ptr<const PodEntry>;
  [[nodiscard]] Pod pod(const std::string& uid) const;  // nullptr: unknown, or it does not concern cards
  /// The pods for which `wanted` returns true, sorted by UID. Looks at all pods.
  [[nodiscard]] std::vector<Pod> pods_where(const std::function<bool(const PodEntry&)>& wanted) const;
  /// The pods for which PodEntry::waits() / PodEntry::unplaced() is true, sorted by UID. Look at no other pod.
  [[nodiscard]] std::vector<Pod> waiting() const;
  [[nodiscard]] std::vector<Pod> unplaced() const;
  [[nodiscard]] std::size_t waiting_count() const;
  /// The lowest priority of the pods that hold cards and are not being deleted; INT64_MAX: there is none.
  [[nodiscard]] std::int64_t lowest_held_priority() const;

  /// Closes these cards of the node to new slices, and opens all its other cards. `indexes` are places in the driver's
  /// list.
  void mark(const std::string& node, std::set<int> indexes);
  /// The Node tells control to empty cards with a mode that does not permit their slices (codec::kCardModeDrain).
  [[nodiscard]] bool drains(const std::string& node) const;
  /// Replaces the namespaces' quotas. The consumers of changes() look at everything again.
  void set_quotas(Quotas quotas);
  /// How often the quotas were replaced by others.
  [[nodiscard]] std::uint64_t quota_changes() const;
  /// The containers' requests without the models that the namespace's quotas bar (QuotaBook::barred()).
  [[nodiscard]] std::vector<PartRequest> within_quota(const std::string& namespace_name, const Owner& owner,
                                                      std::vector<PartRequest> parts) const;
  [[nodiscard]] std::vector<PartRequest> within_quota(const PodEntry& pod) const;
  [[nodiscard]] std::vector<QuotaUse> quota_uses() const;
  /// Computes the requests of these pods again, because their claims changed. Looks at all pods.
  void read_pods_again(const std::function<bool(const PodEntry&)>& which);

  /// Chooses cards for the pod on that node and sets them aside until settle(). If this epoch has already set room
  /// aside for the same owner on that node, returns that room unchanged: a repeated write must contain the same record.
  /// Sets nothing aside on a node while its agent is leaving, unless the pod is already bound to it, nor on a node
  /// where another device plugin serves a resource name of the pod's dialect. Uses the cards of `wish` if they still
  /// serve the pod: the following pods of the burst were sent elsewhere because of them. Only the cards of `wish`
  /// matter; the amounts come from the pod's request.
  ///   errors  kNotFound: no such node, or no card on it; kFailedPrecondition: the pod already has a node;
  ///           kUnavailable: the agent is leaving, or another device plugin serves the name: retry; place()'s
  [[nodiscard]] Result<Reservation> reserve(const std::string& node, const PodEntry& pod, const PolicyRow& policy,
                                            std::uint64_t epoch, const std::vector<Slice>& wish = {});
  /// Reports the outcome of the write for which reserve() set room aside. Call it once per reserve().
  void settle(const std::string& node, const Owner& owner, Outcome outcome);
  /// Frees the room regardless of the write's outcome: the caller knows that the write can no longer take effect.
  void release(const std::string& node, const Owner& owner);
  /// Reservations with a last write that began before `before` and has ended, if the watch of pods has not shown the
  /// record.
  [[nodiscard]] std::vector<Reservation> unsettled(Clock::Time before) const;

  /// Keeps room on that node for `reservation.owner`: for all other pods of the same or a lower priority the ledger has
  /// that much less room. It ends when the pod is bound, has ended or is deleted, by drop_nominated_reservation(), and
  /// at `until`. A pod has at most one nominated reservation; a new one replaces it.
  void put_nominated_reservation(const std::string& node, NominatedReservation reservation, Clock::Time until);
  void drop_nominated_reservation(const std::string& uid);
  [[nodiscard]] bool has_nominated_reservation(const std::string& uid) const;
  static constexpr Clock::Duration kDeparted = std::chrono::seconds(60);
  /// UIDs of pods that held slices and were deleted within the last kDeparted: their slices are about to be released.
  [[nodiscard]] std::vector<std::string> departed() const;

  /// The node's cards, with their places in the driver's list.
  [[nodiscard]] std::vector<codec::CountedCard> counted_cards(const std::string& node) const;

  /// Slices that are booked but do not fit, each with its node; sorted.
  [[nodiscard]] std::vector<std::pair<std::string, Conflict>> conflicts() const;

  using Stats = ClusterStats;
  [[nodiscard]] Stats stats() const;

 private:
  void put_node(const std::string& text) EXCLUDES(mutex_);
  void put_gpu(const std::string& text) EXCLUDES(mutex_);
  void put_pod(const std::string& text) EXCLUDES(mutex_);
  void replace_nodes(const std::vector<std::string>& all) EXCLUDES(mutex_);
  void replace_gpus(const std::vector<std::string>& all) EXCLUDES(mutex_);
  void replace_pods(const std::vector<std::string>& all) EXCLUDES(mutex_);
  [[nodiscard]] bool all_synced() const REQUIRES(mutex_) { return nodes_synced_ && gpus_synced_ && pods_synced_; }
  void mark_synced(bool* which) REQUIRES(mutex_);
  void unreadable(const char* kind, const Error& error) REQUIRES(mutex_);
  void store_pod(const std::string& uid, Pod pod) REQUIRES(mutex_);
  void index_pod(const std::string& uid, const PodEntry* before, const PodEntry* now) REQUIRES(mutex_);
  void on_pod_removed(const PodEntry& pod) REQUIRES(mutex_);
  Result<Reservation> reserve_locked(const std::string& node, const PodEntry& pod, const PolicyRow& policy,
                                     std::uint64_t epoch, const std::vector<Slice>& wish) REQUIRES(mutex_);
  void free_room(const std::string& node, const Owner& owner) REQUIRES(mutex_);
  void drop_reservations(const std::string& uid) REQUIRES(mutex_);
  void store_gpu(const std::string& name, std::optional<GpuEntry> gpu) REQUIRES(mutex_);
  /// Mark the node's state as out of date: as recorded in the entry / for a complete rebuild / for this owner's
  /// bookings. publish() must follow.
  NodeEntry& touch(const std::string& node) REQUIRES(mutex_);
  NodeEntry& touch_to_rebuild(const std::string& node) REQUIRES(mutex_);
  NodeEntry& touch_owner(const std::string& node, const Owner& owner) REQUIRES(mutex_);
  /// Rebuilds the ledgers of the touched nodes, and publishes them and their names.
  void publish() REQUIRES(mutex_);
  void rebuild_node(const std::string& name, ClusterState::Nodes* changed) REQUIRES(mutex_);
  void count_for_quotas(const std::string& node, const NodeState* state) REQUIRES(mutex_);
  [[nodiscard]] std::string namespace_of(const std::string& node, const Owner& owner) const REQUIRES(mutex_);
  Clock::Time expire_locked() REQUIRES(mutex_);
  void expire_lingering(Clock::Time now) REQUIRES(mutex_);
  /// True: the node has slices of deleted pods left.
  [[nodiscard]] bool expire_lingering_of(const std::string& node, Clock::Time now) REQUIRES(mutex_);
  /// Returns when the next nominated reservation ends.
  Clock::Time expire_nominated(Clock::Time now) REQUIRES(mutex_);
  void on_pod_settled(const std::string& uid) REQUIRES(mutex_);
  void erase_nominated(const std::string& uid) REQUIRES(mutex_);
  void report_conflicts(const std::string& node, const std::vector<Conflict>& before, const std::vector<Conflict>& now)
      REQUIRES(mutex_);

  const PodRequests requests_;
  const Clock& clock_;
  Log& log_;
  ChangeFeed changes_;
  mutable Mutex mutex_;
  bool nodes_synced_ GUARDED_BY(mutex_) = false;
  bool gpus_synced_ GUARDED_BY(mutex_) = false;
  bool pods_synced_ GUARDED_BY(mutex_) = false;
  std::map<std::string, Pod> pods_ GUARDED_BY(mutex_);              // by UID
  std::set<std::string> waiting_ GUARDED_BY(mutex_);                // UIDs of pods_
  std::set<std::string> unplaced_ GUARDED_BY(mutex_);               // UIDs of pods_
  std::size_t holding_ GUARDED_BY(mutex_) = 0;                      // pods
  std::map<std::int32_t, std::size_t> held_ GUARDED_BY(mutex_);     // by priority: pods that hold cards and stay
  std::map<std::string, std::string> gpu_node_ GUARDED_BY(mutex_);  // a GPU object's name → its node
  std::map<std::string, std::set<std::string>> reserved_ GUARDED_BY(mutex_);  // by UID: where reserve() set room aside
  std::map<std::string, std::string> nominated_ GUARDED_BY(mutex_);  // by UID: the node of the nominated reservation
  std::map<std::string, Clock::Time> departed_ GUARDED_BY(mutex_);   // by UID: when a pod that held slices was deleted
  Clock::Time departed_cleanup_at_ GUARDED_BY(mutex_){};             // when old entries of departed_ are removed next
  std::map<std::string, NodeEntry> nodes_ GUARDED_BY(mutex_);
  std::set<std::string> dirty_ GUARDED_BY(mutex_);      // touched since the last publish()
  std::set<std::string> lingering_ GUARDED_BY(mutex_);  // nodes with deleted pods that may still hold slices
  Clock::Time linger_until_ GUARDED_BY(mutex_) = Clock::Time::max();  // the earliest end of their kLinger
  QuotaBook quota_book_ GUARDED_BY(mutex_);
  std::uint64_t quota_changes_ GUARDED_BY(mutex_) = 0;
  std::shared_ptr<const ClusterState> published_ GUARDED_BY(mutex_) = std::make_shared<ClusterState>();
  Stats stats_ GUARDED_BY(mutex_);
};

}  // namespace carve::control
