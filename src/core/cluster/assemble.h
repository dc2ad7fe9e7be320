#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/cluster/cluster.h"

namespace carve {

/// The slices of one owner on a node, as one source reports them.
struct Booking {
  Owner owner;
  std::vector<Slice> slices;
  std::uint64_t epoch = 0;  // of the allocator that decided
  bool prepared = false;    // the node itself reports it as prepared: this is a fact, not a plan
  bool reserved = false;    // decided, but not written yet
  friend bool operator==(const Booking&, const Booking&) = default;
};

/// Everything that is known about one node.
struct NodeParts {
  std::vector<Card> cards;
  LinkMatrix links;
  std::map<std::string, std::string> labels;
  std::vector<Booking> bookings;
  std::string closed = {};  // as in NodeState
  std::map<std::string, std::string> closed_to = {};
};

/// A booking that is reported but does not fit.
struct Conflict {
  Owner owner;
  CardId card;
  std::string why;  // for messages
  friend bool operator==(const Conflict&, const Conflict&) = default;
};

struct Assembled {
  NodeState state;
  std::vector<Conflict> conflicts;  // in the order of the bookings
};

/// Builds the node's ledger from its parts, which may be in any order. Bookings are added in this order: those that the
/// node has prepared, then the decisions by epoch, the newest first, and by owner within one epoch. A booking that does
/// not fit on a card is a conflict. That card is closed: it takes no new slice until an owner leaves it. A booking of
/// several cards is kept on the cards where it fits. Pure; the same parts give the same state.
///   cost    O(slices × log slices)
[[nodiscard]] Assembled assemble(NodeParts parts);

}  // namespace carve
