#include "core/cluster/assumed_pods.h"

#include <algorithm>
#include <utility>

namespace carve {

void AssumedPods::expect(const Owner& owner, std::string node, std::vector<Slice> slices, Clock::Time now,
                      std::string why) {
  forget(owner);
  NodeAssumptions& there = by_node_[node];
  there.seen = nullptr;
  there.rooms[owner] = {std::move(slices), now + kFor, std::move(why)};
  first_end_ = std::min(first_end_, now + kFor);
  by_owner_[owner] = std::move(node);
}

void AssumedPods::binding_begins(const Owner& owner, Clock::Time now) {
  const auto known = by_owner_.find(owner);
  if (known == by_owner_.end()) return;
  Room& room = by_node_.find(known->second)->second.rooms.at(owner);
  room.until = std::min(room.until, now + kAfterBinding);
  first_end_ = std::min(first_end_, room.until);
}

void AssumedPods::forget(const Owner& owner) {
  const auto known = by_owner_.find(owner);
  if (known == by_owner_.end()) return;
  const auto node = by_node_.find(known->second);
  node->second.seen = nullptr;
  node->second.rooms.erase(owner);
  if (node->second.rooms.empty()) by_node_.erase(node);
  by_owner_.erase(known);
}

void AssumedPods::expire(Clock::Time now) {
  if (now < first_end_) return;
  first_end_ = Clock::Time::max();
  for (auto node = by_node_.begin(); node != by_node_.end();) {
    NodeAssumptions& there = node->second;
    const auto gone = std::erase_if(there.rooms, [&](const auto& one) {
      if (one.second.until > now) {
        first_end_ = std::min(first_end_, one.second.until);
        return false;
      }
      by_owner_.erase(one.first);
      return true;
    });
    if (gone > 0) there.seen = nullptr;
    node = there.rooms.empty() ? by_node_.erase(node) : std::next(node);
  }
}

const AssumedPods::Room* AssumedPods::room_of(const Owner& owner, std::string_view node) const {
  const auto known = by_owner_.find(owner);
  if (known == by_owner_.end() || known->second != node) return nullptr;
  return &by_node_.find(node)->second.rooms.at(owner);
}

std::vector<Slice> AssumedPods::sent_for(const Owner& owner, std::string_view node) const {
  const Room* room = room_of(owner, node);
  return room == nullptr ? std::vector<Slice>() : room->slices;
}

std::string AssumedPods::why_sent(const Owner& owner, std::string_view node) const {
  const Room* room = room_of(owner, node);
  return room == nullptr ? std::string() : room->why;
}

std::vector<std::string_view> AssumedPods::nodes() const {
  std::vector<std::string_view> names;
  names.reserve(by_node_.size());
  for (const auto& [name, there] : by_node_) names.push_back(name);
  return names;
}

AssumedPods::Node AssumedPods::build_ahead(const NodeAssumptions& there, const Node& state, const Owner& but,
                                    std::vector<Owner>* arrived) {
  std::vector<const Room*> rooms;
  std::vector<Slice> all;
  for (const auto& [owner, room] : there.rooms) {
    if (!state->ledger.slices_of(owner).empty()) {
      arrived->push_back(owner);
    } else if (owner != but) {
      rooms.push_back(&room);
      all.insert(all.end(), room.slices.begin(), room.slices.end());
    }
  }
  if (rooms.empty()) return nullptr;
  auto ahead = std::make_shared<NodeState>(*state);
  // Nearly always all of them fit, and then the order does not matter: one change of the ledger.
  if (ahead->ledger.add(all)) return ahead;
  for (const Room* room : rooms) (void)ahead->ledger.add(room->slices);
  return ahead;
}

AssumedPods::Node AssumedPods::ahead(std::string_view node, const Node& state, const Owner& but) {
  const auto found = by_node_.find(node);
  if (found == by_node_.end()) return nullptr;
  NodeAssumptions& there = found->second;
  if (there.seen == state && !there.rooms.contains(but)) return there.ahead;
  std::vector<Owner> arrived;
  auto ahead = build_ahead(there, state, but, &arrived);
  const bool for_all = !there.rooms.contains(but);
  for (const auto& owner : arrived) forget(owner);
  // The last forget() of a node erases the node's entry.
  if (const auto left = by_node_.find(node); for_all && left != by_node_.end()) {
    left->second.seen = state;
    left->second.ahead = ahead;
  }
  return ahead;
}

}  // namespace carve
