#include "core/cluster/expected.h"

#include <utility>

namespace carve {

void Expected::expect(const Owner& owner, std::string node, std::vector<Slice> slices, Clock::Time now) {
  forget(owner);
  by_node_[node][owner] = {std::move(slices), now + kFor};
  by_owner_[owner] = std::move(node);
}

void Expected::forget(const Owner& owner) {
  const auto known = by_owner_.find(owner);
  if (known == by_owner_.end()) return;
  const auto node = by_node_.find(known->second);
  node->second.erase(owner);
  if (node->second.empty()) by_node_.erase(node);
  by_owner_.erase(known);
}

void Expected::expire(Clock::Time now) {
  for (auto node = by_node_.begin(); node != by_node_.end();) {
    std::erase_if(node->second, [&](const auto& one) {
      if (one.second.until > now) return false;
      by_owner_.erase(one.first);
      return true;
    });
    node = node->second.empty() ? by_node_.erase(node) : std::next(node);
  }
}

std::vector<Slice> Expected::take(const Owner& owner, std::string_view node) {
  const auto known = by_owner_.find(owner);
  if (known == by_owner_.end() || known->second != node) return {};
  auto slices = std::move(by_node_.find(node)->second[owner].slices);
  forget(owner);
  return slices;
}

std::optional<NodeState> Expected::ahead(std::string_view node, const NodeState& state, const Owner& but) {
  const auto there = by_node_.find(node);
  if (there == by_node_.end()) return std::nullopt;
  std::optional<NodeState> ahead;
  std::vector<Owner> come;
  for (const auto& [owner, room] : there->second) {
    if (!state.ledger.slices_of(owner).empty()) {
      come.push_back(owner);
    } else if (owner != but) {
      if (!ahead) ahead = state;
      (void)ahead->ledger.add(room.slices);
    }
  }
  for (const auto& owner : come) forget(owner);
  return ahead;
}

}  // namespace carve
