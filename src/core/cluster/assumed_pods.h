#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "core/cluster/cluster.h"

namespace carve {

/// Pods that a recommendation has just sent to a node and that are not bound yet. kube-scheduler asks about further
/// pods in the meantime. Without this record, all pods of a burst would be sent to the capacity that the first one
/// takes. The record is a guess and decides nothing: it never refuses a node, it only changes the ranking, and its
/// entries expire. Not thread-safe.
class AssumedPods {
 public:
  /// How long an entry lives after the recommendation. It covers the time until the Binding is complete, even in a
  /// burst. A longer time hides capacity for longer when a pod never arrives.
  static constexpr Clock::Duration kFor = std::chrono::seconds(5);
  /// How long an entry lives after its Binding begins. Another replica may write the Binding; this process then learns
  /// of it from its watch. The value bounds how long a pod that was bound and deleted between two queries is still
  /// assumed.
  static constexpr Clock::Duration kAfterBinding = std::chrono::seconds(2);

  /// The owner was sent to `node` and will hold `slices` there; replaces any earlier entry of the owner. `why`: for
  /// messages.
  void expect(const Owner& owner, std::string node, std::vector<Slice> slices, Clock::Time now, std::string why = {});
  /// The owner's Binding begins.
  void binding_begins(const Owner& owner, Clock::Time now);
  void forget(const Owner& owner);
  /// Drops the entries that are too old.
  ///   cost    one comparison, while no entry is too old
  void expire(Clock::Time now);

  /// The node as it will be when the pods that are assumed there have arrived, `but` excepted. An owner that already
  /// has slices in `state` has arrived, and its entry is dropped. A pod that no longer fits is left out.
  ///   out     nullptr: no other pod is assumed there. Else, while the entries do not change, the same object as in the
  ///           previous call for the same `state`
  ///   cost    for a new object, a copy of the node and one add(); one add() per assumed pod where not all of them fit
  using Node = std::shared_ptr<const NodeState>;
  [[nodiscard]] Node ahead(std::string_view node, const Node& state, const Owner& but);
  /// The nodes that have an entry; valid until the next call of another member.
  [[nodiscard]] std::vector<std::string_view> nodes() const;
  /// The slices that the owner will hold on that node; empty: it was not sent there.
  [[nodiscard]] std::vector<Slice> sent_for(const Owner& owner, std::string_view node) const;
  [[nodiscard]] std::string why_sent(const Owner& owner, std::string_view node) const;

  [[nodiscard]] std::size_t size() const { return by_owner_.size(); }

 private:
  struct Room;
  [[nodiscard]] const Room* room_of(const Owner& owner, std::string_view node) const;
  struct Room {
    std::vector<Slice> slices;
    Clock::Time until{};
    std::string why;
  };
  struct NodeAssumptions {
    std::map<Owner, Room> rooms;
    Node seen;   // the node for which `ahead` was built; nullptr: `ahead` is out of date
    Node ahead;
  };
  [[nodiscard]] static Node build_ahead(const NodeAssumptions& there, const Node& state, const Owner& but,
                                       std::vector<Owner>* arrived);

  std::map<std::string, NodeAssumptions, std::less<>> by_node_;
  std::map<Owner, std::string> by_owner_;
  Clock::Time first_end_ = Clock::Time::max();  // no entry is too old before this time
};

}  // namespace carve
