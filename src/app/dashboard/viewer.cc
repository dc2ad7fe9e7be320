#include "app/dashboard/viewer.h"

#include <map>

namespace carve::dashboard {
namespace {

using codec::Board;
using codec::BoardCard;
using codec::BoardSlice;

/// The card as the owner of these slices knows it.
BoardCard own_part(BoardCard card, const std::vector<const BoardSlice*>& slices) {
  card.granted = Bytes();
  card.free = Bytes();
  card.cores_granted = 0;
  card.cores_free = 0;
  card.used = Bytes();
  card.delivered_percent = 0;
  card.utilization_percent = std::nullopt;
  card.power_w = std::nullopt;
  card.foreign = 0;
  card.slices = static_cast<std::uint32_t>(slices.size());
  for (const auto* slice : slices) {
    card.granted += slice->memory;
    card.cores_granted += slice->cores;
    if (slice->used && card.used)
      *card.used += *slice->used;
    else
      card.used = std::nullopt;
    if (slice->delivered_percent && card.delivered_percent)
      *card.delivered_percent += *slice->delivered_percent;
    else
      card.delivered_percent = std::nullopt;
  }
  return card;
}

}  // namespace

std::set<std::string> namespaces_on(const Board& board) {
  std::set<std::string> names;
  for (const auto& slice : board.slices) names.insert(slice.namespace_name);
  for (const auto& pod : board.waiting) names.insert(pod.namespace_name);
  for (const auto& event : board.events) names.insert(event.namespace_name);
  names.erase("");
  return names;
}

Board seen_by(const Viewer& viewer, const Board& board) {
  if (viewer.everything) return board;
  Board seen;
  seen.scope = board.scope;
  seen.notice = board.notice;
  for (const auto& slice : board.slices) {
    if (viewer.sees(slice.namespace_name)) seen.slices.push_back(slice);
  }
  std::map<std::string, std::vector<const BoardSlice*>> on_card;
  for (const auto& slice : seen.slices) on_card[slice.card].push_back(&slice);
  std::set<std::string> nodes;
  for (const auto& card : board.cards) {
    const auto own = on_card.find(card.uuid);
    if (!viewer.cards && own == on_card.end()) continue;
    seen.cards.push_back(viewer.cards ? card : own_part(card, own->second));
    nodes.insert(card.node);
  }
  for (auto node : board.nodes) {
    if (nodes.count(node.name) == 0) continue;
    if (!viewer.cards) node.error.clear();
    seen.nodes.push_back(std::move(node));
  }
  for (const auto& pod : board.waiting) {
    if (!viewer.sees(pod.namespace_name)) continue;
    seen.waiting.push_back(pod);
  }
  for (const auto& event : board.events) {
    if (!event.namespace_name.empty() && viewer.sees(event.namespace_name)) seen.events.push_back(event);
  }
  codec::sum_nodes(&seen);
  return seen;
}

}  // namespace carve::dashboard
