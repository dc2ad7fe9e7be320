#include "app/control/schedule/requeuer.h"

#include <fmt/format.h>

#include <algorithm>

namespace carve::control {

bool gained_room(const NodeState& before, const NodeState& now) {
  if (!before.closed.empty() && now.closed.empty()) return true;
  if (std::any_of(before.closed_to.begin(), before.closed_to.end(),
                  [&](const auto& dialect) { return !now.closed_to.contains(dialect.first); }))
    return true;
  // A nominated reservation that ended may have kept other pods out.
  if (std::any_of(before.reservations.begin(), before.reservations.end(), [&](const NominatedReservation& reservation) {
        return std::find(now.reservations.begin(), now.reservations.end(), reservation) == now.reservations.end();
      }))
    return true;
  return std::any_of(now.ledger.cards().begin(), now.ledger.cards().end(), [&](const CardState& card) {
    const CardState* was = before.ledger.find(card.card.id);
    const bool open = card.card.health.ok && card.card.closed.empty();
    if (was == nullptr || (open && !(was->card.health.ok && was->card.closed.empty()))) return open;
    return std::any_of(was->slices.begin(), was->slices.end(), [&](const Slice& slice) {
      return std::find(card.slices.begin(), card.slices.end(), slice) == card.slices.end();
    });
  });
}

namespace {

/// The node with that number is new or gained room. Most nodes of a large cluster did not change.
bool gained_room_at(const ClusterState& before, const ClusterState& now, ClusterState::Number number) {
  const bool same_names = now.same_names(before);
  if (same_names && now.same_piece(before, number)) return false;
  const auto& node = now.node(number);
  if (same_names) return before.node(number) != node && gained_room(*before.node(number), *node);
  const auto was = before.find(now.name(number));
  return was == before.end() || (was->second != node && gained_room(*was->second, *node));
}

}  // namespace

Result<void> touch_node(KubeApi& api, const Clock& clock, const std::string& node) {
  const auto body = fmt::format(R"({{"metadata":{{"annotations":{{"{}":"{}"}}}}}})", Requeuer::kTouched,
                                clock.wall_now().time_since_epoch().count());
  const auto touched = api.patch("/api/v1/nodes/" + node, KubePatch::kMerge, body);
  if (!touched) return tl::unexpected(touched.error());
  return {};
}

/// Compares with the previous state. True: a node gained room.
bool Requeuer::poll() {
  const auto state = model_.snapshot();
  const auto before = std::exchange(last_state_, state);
  if (!before || state == before) return false;
  bool gained = false;
  for (ClusterState::Number at = 0; at < state->size(); ++at) {
    if (!gained_room_at(*before, *state, at)) continue;
    node_due_ = state->name(at);
    gained = true;
  }
  return gained;
}

void Requeuer::step() {
  const bool gained = poll();
  if (before_touch_) {
    if (auto node = before_touch_(gained); !node.empty()) node_due_ = std::move(node);
  }
  const auto now = clock_.now();
  if (node_due_.empty() || now < next_ || !leader_.leads_until(now)) return;
  std::size_t waiting = 0;
  model_.each_pod([&](const PodEntry& pod) { waiting += pod.waits() ? 1 : 0; });
  if (waiting == 0) return node_due_.clear();
  next_ = now + gap_for(waiting);
  const auto touched = touch_node(api_, clock_, node_due_);
  if (touched || touched.error().code == Code::kNotFound) return node_due_.clear();
  log_.warn("waiting pods are not requeued: the node cannot be written",
            {{"node", node_due_}, {"error", touched.error().what}});
}

void Requeuer::run(const std::stop_token& stop) {
  while (clock_.sleep_for(kPoll, stop)) step();
}

}  // namespace carve::control
