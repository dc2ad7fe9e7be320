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

/// Pods that were sent to a node a moment ago and whose Binding has not come yet. kube-scheduler asks about the next
/// pods meanwhile; without this all of a burst are sent to the room that the first of them will take. It is a guess and
/// decides nothing: no node is refused for it, only ranked, and it goes by itself. Not thread-safe.
class AssumedPods {
 public:
  /// From a recommendation to the end of its Binding, also where many are on their way; longer, and what came to
  /// nothing is missed elsewhere for longer.
  static constexpr Clock::Duration kFor = std::chrono::seconds(5);
  /// From the begin of its Binding, which another replica may write and our watch tells of then: who comes and goes
  /// before anybody asks again is no longer expected than that.
  static constexpr Clock::Duration kAfterBinding = std::chrono::seconds(2);

  /// The owner was sent there and will hold these; what was expected of it before is no longer. `why`: for a person.
  void expect(const Owner& owner, std::string node, std::vector<Slice> slices, Clock::Time now, std::string why = {});
  /// Its Binding begins.
  void binding_begins(const Owner& owner, Clock::Time now);
  void forget(const Owner& owner);
  /// Lets go of what is too old.
  ///   cost    a comparison, while nothing is
  void expire(Clock::Time now);

  /// The node as it will be when those have come who are expected there, `but` apart. Who holds
  /// there has come, and is expected no longer. Who no longer fits will not.
  ///   out     nullptr: nobody is; else the same object as before for the same `state`, while nobody else is expected
  ///   cost    where it is another one a copy of the node and an add(); one per expected pod where not all of them fit
  using Node = std::shared_ptr<const NodeState>;
  [[nodiscard]] Node ahead(std::string_view node, const Node& state, const Owner& but);
  /// The nodes on which somebody is expected; valid until the next call of another function.
  [[nodiscard]] std::vector<std::string_view> nodes() const;
  /// What the owner will hold there; empty: it was not sent there.
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
    Node seen;   // the node when `ahead` was made; nullptr: it is to be made anew
    Node ahead;
  };
  [[nodiscard]] static Node build_ahead(const NodeAssumptions& there, const Node& state, const Owner& but,
                                       std::vector<Owner>* arrived);

  std::map<std::string, NodeAssumptions, std::less<>> by_node_;
  std::map<Owner, std::string> by_owner_;
  Clock::Time first_end_ = Clock::Time::max();  // before it nothing is too old
};

}  // namespace carve
