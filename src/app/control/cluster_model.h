#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "app/control/pod_entry.h"
#include "app/control/node_entry.h"
#include "base/clock.h"
#include "base/log.h"
#include "codec/dialects/projection.h"
#include "core/cluster/assemble.h"
#include "core/policy/policy.h"
#include "port/kube_api.h"

namespace carve::control {

/// The whole cluster's ledger, out of Nodes, GPU objects and Pods as the API server tells them, and of what the
/// binder has set aside. It is a function of the objects that are there now, not of the order in which they came: a
/// node's ledger is made anew from its objects whenever one of them changed. Safe from any thread; the three sinks
/// may be fed by three threads.
///
/// A slice is booked as long as anybody says that it is held: the record of a pod that has a node and has not ended;
/// the GPU object of its card (the agent's word, which lets go when the last process has ended; claims of the DRA
/// door are known by it alone); and for kLinger after a pod went whose slice its GPU object never named, since the
/// agent writes each at most once in two seconds.
class ClusterModel {
 public:
  static constexpr Clock::Duration kLinger = std::chrono::seconds(3);

  ClusterModel(codec::DialectSettings settings, const Clock& clock, Log& log)
      : settings_(settings), clock_(clock), log_(log) {}

  /// What KubeApi::watch delivers of /api/v1/nodes, /apis/elasticgpu.io/v1alpha1/gpus and /api/v1/pods (of all
  /// namespaces, without a selector). What cannot be read is counted and left out.
  [[nodiscard]] KubeSink nodes();
  [[nodiscard]] KubeSink gpus();
  [[nodiscard]] KubeSink pods();

  /// All three have been told whole once.
  [[nodiscard]] bool synced() const;
  /// The cluster as it is known now; what it points to never changes. Nodes that exist and have a card.
  ///   cost    nothing while nothing changed; else the ledgers of the nodes that did, and what ClusterState::change()
  ///           costs
  [[nodiscard]] std::shared_ptr<const ClusterState> snapshot() const;

  /// The highest epoch that stands in a record; 0: none.
  [[nodiscard]] std::uint64_t highest_epoch() const;

  /// The GPU objects as they are, in no order.
  [[nodiscard]] std::vector<codec::GpuObject> gpu_objects() const;
  using Pod = std::shared_ptr<const PodEntry>;
  [[nodiscard]] Pod pod(const std::string& uid) const;  // nullptr: not known, or nothing to do with cards
  /// Those that `wanted` says yes to, by UID.
  [[nodiscard]] std::vector<Pod> pods_where(const std::function<bool(const PodEntry&)>& wanted) const;
  /// Under the lock: `look` is quick, and calls nothing of this.
  void each_pod(const std::function<void(const PodEntry&)>& look) const;

  /// On those cards of the node, by their places in the driver's list, nothing new is put; on all others of it may be.
  void mark(const std::string& node, std::set<int> indexes);

  /// Chooses cards for the pod on that node and sets them aside until settle(). Room that is set aside for this very
  /// owner on that node already in this epoch is given again as it is: a repeated write must say the same.
  /// Nothing is set aside on a node whose agent is leaving, but for a pod that is on it already; nor where another
  /// device plugin serves a name of its dialect.
  /// Where the cards of `wish` still serve the pod it is those: in a burst the next pods were sent elsewhere because of
  /// it. Only its cards count: what the pod gets of them is what it asks for.
  ///   errors  kNotFound: no such node, or no card on it; kFailedPrecondition: the pod has a node already;
  ///           kUnavailable: one of the two, try again; place()'s
  [[nodiscard]] Result<Reservation> reserve(const std::string& node, const PodEntry& pod, const PolicyRow& policy,
                                            std::uint64_t epoch, const std::vector<Slice>& wish = {});
  /// How the write ended for which reserve() set aside; each reserve() is settled once.
  void settle(const std::string& node, const Owner& owner, Outcome outcome);
  /// The room is free again, however the write ended: the caller knows that it cannot take effect any more.
  void release(const std::string& node, const Owner& owner);
  /// Set aside, nobody writes just now, and the pod's watch has not shown the record: since before `before`.
  [[nodiscard]] std::vector<Reservation> unsettled(Clock::Time before) const;

  /// Keeps room on that node for the pod that the hold is for: from now on the ledgers of all others of its priority
  /// or below have that much less. It ends when the pod is bound, over or gone, by drop_hold(), and at `until`. A pod
  /// has one hold; a new one takes the place of the old.
  void put_reservation(const std::string& node, NominatedReservation hold, Clock::Time until);
  void drop_hold(const std::string& uid);
  [[nodiscard]] bool has_hold(const std::string& uid) const;
  /// UIDs of pods that held something and went within kDeparted: their slices are going.
  static constexpr Clock::Duration kDeparted = std::chrono::seconds(60);
  [[nodiscard]] std::vector<std::string> departed() const;

  /// The node's cards with their places in the driver's list.
  [[nodiscard]] std::vector<codec::CountedCard> counted_cards(const std::string& node) const;

  /// What is held and cannot be, with the node; sorted.
  [[nodiscard]] std::vector<std::pair<std::string, Conflict>> conflicts() const;

  struct Stats {
    std::size_t nodes = 0;  // with cards
    std::size_t cards = 0;
    std::size_t closed = 0;  // cards on which nothing new is put
    std::size_t leaving = 0;  // nodes whose agent is being replaced
    std::size_t shared = 0;   // nodes that are closed to a dialect
    std::size_t holding = 0;
    std::size_t waiting = 0;
    std::size_t unplaced = 0;
    std::size_t reserved = 0;
    std::size_t held = 0;  // pods for which room is kept while others go
    std::size_t conflicts = 0;         // now
    std::uint64_t conflicts_seen = 0;  // ever
    std::uint64_t unreadable = 0;      // objects, ever
    std::uint64_t rebuilt = 0;         // ledgers, ever
  };
  [[nodiscard]] Stats stats() const;

 private:
  void put_node(const std::string& text);
  void put_gpu(const std::string& text);
  void put_pod(const std::string& text);
  void replace_nodes(const std::vector<std::string>& all);
  void replace_gpus(const std::vector<std::string>& all);
  void replace_pods(const std::vector<std::string>& all);
  // The rest is called under the lock.
  [[nodiscard]] bool whole() const { return nodes_synced_ && gpus_synced_ && pods_synced_; }
  void heard(bool* which);
  void unreadable(const char* kind, const Error& error);
  void store_pod(const std::string& uid, Pod pod);
  void pod_gone(const PodEntry& pod);
  Result<Reservation> set_aside(const std::string& node, const PodEntry& pod, const PolicyRow& policy,
                                std::uint64_t epoch, const std::vector<Slice>& wish);
  void free_room(const std::string& node, const Owner& owner);
  void drop_reservations(const std::string& uid);
  void store_gpu(const std::string& name, std::optional<GpuEntry> gpu);
  /// It is looked at again: as what was changed of it says / anew / for what that owner holds there.
  NodeEntry& touch(const std::string& node) const;
  NodeEntry& touch_all(const std::string& node) const;
  NodeEntry& touch_of(const std::string& node, const Owner& owner) const;
  void refresh() const;
  void refresh_node(const std::string& name, ClusterState::Nodes* changed) const;
  void end_lingering() const;
  void end_holds() const;
  void settled(const std::string& uid);
  void free_hold(const std::string& uid);
  void tell_conflicts(const std::string& node, const std::vector<Conflict>& before,
                      const std::vector<Conflict>& now) const;

  const codec::DialectSettings settings_;
  const Clock& clock_;
  Log& log_;
  mutable std::mutex mutex_;
  bool nodes_synced_ = false;
  bool gpus_synced_ = false;
  bool pods_synced_ = false;
  std::map<std::string, Pod> pods_;                         // by UID
  std::map<std::string, std::string> gpu_node_;             // a GPU object's name → its node
  std::map<std::string, std::set<std::string>> reserved_;   // by UID: the nodes where room is set aside
  mutable std::map<std::string, std::string> held_;         // by UID: the node where room is kept
  std::map<std::string, Clock::Time> departed_;             // by UID: when a pod that held went
  Clock::Time look_at_departed_{};                          // when those are let go of who went long ago
  // Made anew lazily.
  mutable std::map<std::string, NodeEntry> nodes_;
  mutable std::set<std::string> dirty_;
  mutable std::set<std::string> lingering_;  // nodes with pods that went and may still hold
  mutable Clock::Time linger_until_ = Clock::Time::max();  // before it none of them has gone for long enough
  mutable std::shared_ptr<const ClusterState> published_ = std::make_shared<ClusterState>();
  mutable Stats stats_;
};

}  // namespace carve::control
