#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/cluster/cluster.h"

namespace carve {

/// What one owner holds on a node, according to somebody.
struct Booking {
  Owner owner;
  std::vector<Slice> slices;
  std::uint64_t epoch = 0;  // of the allocator that decided
  bool prepared = false;    // the node itself says so: it cannot be otherwise
  bool reserved = false;    // decided and not yet written
  friend bool operator==(const Booking&, const Booking&) = default;
};

/// Everything that is known of one node.
struct NodeParts {
  std::vector<Card> cards;
  LinkMatrix links;
  std::map<std::string, std::string> labels;
  std::vector<Booking> bookings;
  std::string closed = {};  // as in NodeState
  std::map<std::string, std::string> closed_to = {};
};

/// Something that is held and cannot be.
struct Conflict {
  Owner owner;
  CardId card;
  std::string why;  // for a person
  friend bool operator==(const Conflict&, const Conflict&) = default;
};

struct Assembled {
  NodeState state;
  std::vector<Conflict> conflicts;  // in the order of booking
};

/// The node's ledger out of its parts, in whatever order they are: what the node has prepared is booked first, then
/// the decisions, the newest epoch first, equal ones by owner. What does not fit on a card is a conflict; that card is
/// closed, so that nothing more is put there until somebody goes. A booking of several cards stands on those where it
/// fits. Pure; the same parts give the same state.
///   cost    O(slices × log slices)
[[nodiscard]] Assembled assemble(NodeParts parts);

}  // namespace carve
