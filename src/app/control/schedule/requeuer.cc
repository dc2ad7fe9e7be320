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
    if (was->card.mode != card.card.mode) return true;
    return std::any_of(was->slices.begin(), was->slices.end(), [&](const Slice& slice) {
      return std::find(card.slices.begin(), card.slices.end(), slice) == card.slices.end();
    });
  });
}

Result<void> touch_node(KubeApi& api, const Clock& clock, const std::string& node) {
  const auto body = fmt::format(R"({{"metadata":{{"annotations":{{"{}":"{}"}}}}}})", Requeuer::kTouched,
                                clock.wall_now().time_since_epoch().count());
  const auto touched = api.patch("/api/v1/nodes/" + node, KubePatch::kMerge, body);
  if (!touched) return tl::unexpected(touched.error());
  return {};
}

bool Requeuer::gained(const ClusterState& cluster, const std::string& node) {
  ++examined_;
  const auto found = cluster.find(node);
  if (found == cluster.end()) return seen_.erase(node), false;
  auto& was = seen_[node];
  const auto before = std::exchange(was, found->second);
  if (before == was) return false;
  return before ? gained_room(*before, *was) : seen_all_;
}

bool Requeuer::look_for_room(const Changes& changes, Clock::Time now) {
  const auto cluster = world_.model.snapshot();
  bool found = false;
  const auto look_at = [&](const std::string& node) {
    if (!gained(*cluster, node)) return;
    node_due_ = node;
    skipped_.clear();
    found = true;
  };
  if (!changes.all && now < resync_at_) {
    for (const auto& node : changes.nodes) look_at(node);
    return found;
  }
  resync_at_ = now + kResync;
  if (now > skipped_at_ + kResync) skipped_.clear();
  if (node_due_.empty()) node_due_ = skipped_;
  std::erase_if(seen_, [&](const auto& one) { return !cluster->contains(one.first); });
  for (const auto& [name, state] : *cluster) look_at(name);
  seen_all_ = true;
  // Other quotas may admit a waiting pod although no node gained room.
  const auto seen = std::exchange(quota_changes_, world_.model.quota_changes());
  if (seen != quota_changes_ && !cluster->empty()) {
    node_due_ = (*cluster->begin()).first;
    found = true;
  }
  return found;
}

void Requeuer::touch(Clock::Time now) {
  const auto waiting = world_.model.waiting_count();
  if (waiting == 0) {
    if (skipped_ != node_due_) skipped_at_ = now;
    skipped_ = std::exchange(node_due_, {});
    return;
  }
  next_ = now + gap_for(waiting);
  const auto touched = touch_node(world_.api, world_.clock, node_due_);
  if (touched || touched.error().code == Code::kNotFound) return node_due_.clear();
  world_.log.warn("waiting pods are not requeued: the node cannot be written",
                  {{"node", node_due_}, {"error", touched.error().what}});
}

Clock::Time Requeuer::step() {
  const auto ends = world_.model.expire();
  const auto changes = queue_.take();
  const auto now = world_.clock.now();
  const bool gained = look_for_room(changes, now);
  auto next = std::min(ends, resync_at_);
  if (world_.node_nominator != nullptr) {
    if (auto node = world_.node_nominator->step(gained); !node.empty()) node_due_ = std::move(node);
    next = std::min(next, world_.node_nominator->next_step());
  }
  // The start of leadership is a change.
  if (!node_due_.empty() && world_.leader.leads_until(now)) {
    if (now >= next_) touch(now);
    if (!node_due_.empty()) next = std::min(next, next_);
  }
  return next;
}

void Requeuer::run(const std::stop_token& stop) {
  queue_.run(world_.clock, stop, [this] { return step(); });
}

}  // namespace carve::control
