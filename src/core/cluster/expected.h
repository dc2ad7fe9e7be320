#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "core/cluster/cluster.h"

namespace carve {

/// Pods that were sent to a node a moment ago and whose Binding has not come yet. kube-scheduler asks about the next
/// pods meanwhile; without this all of a burst are sent to the room that the first of them will take. It is a guess and
/// decides nothing: no node is refused for it, only ranked, and it goes by itself. Not thread-safe.
class Expected {
 public:
  /// From a recommendation to the end of its Binding, also where many are on their way; longer, and what came to
  /// nothing is missed elsewhere for longer.
  static constexpr Clock::Duration kFor = std::chrono::seconds(5);

  /// The owner was sent there and will hold these; what was expected of it before is no longer.
  void expect(const Owner& owner, std::string node, std::vector<Slice> slices, Clock::Time now);
  void forget(const Owner& owner);
  /// Lets go of what is too old.
  void expire(Clock::Time now);

  /// The node as it will be when those have come who are expected there, `but` apart; nullopt: nobody is. Who holds
  /// there has come, and is expected no longer. Who no longer fits will not.
  ///   cost    a copy of the node, and add() per expected pod
  [[nodiscard]] std::optional<NodeState> ahead(std::string_view node, const NodeState& state, const Owner& but);
  /// What the owner will hold there; empty: it was not sent there. It is expected no longer.
  [[nodiscard]] std::vector<Slice> take(const Owner& owner, std::string_view node);

  [[nodiscard]] std::size_t size() const { return by_owner_.size(); }

 private:
  struct Room {
    std::vector<Slice> slices;
    Clock::Time until{};
  };
  std::map<std::string, std::map<Owner, Room>, std::less<>> by_node_;
  std::map<Owner, std::string> by_owner_;
};

}  // namespace carve
