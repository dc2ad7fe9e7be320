#include "app/control/preempt/mode_drain.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "app/control/bind/binder.h"
#include "codec/cluster/eviction.h"

namespace carve::control {

void ModeDrain::look_at(const std::string& node, const NodeState& state) {
  std::erase_if(misplaced_, [&](const auto& one) { return one.second.node == node; });
  if (!world_.model.drains(node)) return;
  for (const CardState& card : state.ledger.cards()) {
    for (const Slice& slice : card.slices) {
      if (slice.owner.kind != OwnerKind::kPod || permits(card.card.mode, slice.whole)) continue;
      auto why = fmt::format("card {} of node {} is in mode {}, and the pod holds {} of it", card.card.id.str(), node,
                             to_string(card.card.mode), slice.whole ? "all" : "a fraction");
      misplaced_.try_emplace(slice.owner.uid, Misplaced{node, std::move(why)});
    }
  }
}

void ModeDrain::evict(const PodEntry& pod, const std::string& why) {
  const auto& ask = pod.object.ask;
  const auto done =
      world_.api.create(pod_path(ask.namespace_name, ask.name) + "/eviction", codec::eviction_body(pod.object, false));
  if (!done && done.error().code == Code::kNotFound) return;
  if (!done) {
    world_.log.warn("a pod is not evicted from a card with another mode",
                    {{"pod", pod.full_name()}, {"why", why}, {"error", done.error().what}});
    return;
  }
  world_.log.info("a pod is evicted from a card with another mode", {{"pod", pod.full_name()}, {"why", why}});
  if (world_.post_event)
    world_.post_event({"Pod", ask.namespace_name, ask.name, ask.uid, "CardModeDrained", "evicted: " + why, false});
}

Clock::Time ModeDrain::step() {
  const auto now = world_.clock.now();
  const auto changes = queue_.take();
  if (!world_.model.synced()) return now + kResync;  // the queue wakes this thread when the model is synced
  const auto cluster = world_.model.snapshot();
  if (changes.all || now >= resync_at_) {
    resync_at_ = now + kResync;
    misplaced_.clear();
    for (const auto& [name, state] : *cluster) look_at(name, *state);
    std::erase_if(not_before_, [&](const auto& one) { return !misplaced_.contains(one.first); });
  } else {
    for (const auto& name : changes.nodes) {
      if (const auto found = cluster->find(name); found != cluster->end()) look_at(name, *found->second);
    }
  }
  auto next = resync_at_;
  std::size_t evicted = 0;
  for (auto at = misplaced_.begin(); at != misplaced_.end();) {
    const auto pod = world_.model.pod(at->first);
    if (!pod || !pod->holds() || pod->object.deleting || pod->object.mirror) {
      at = misplaced_.erase(at);
      continue;
    }
    auto& again = not_before_[at->first];
    if (now >= again && evicted < kPerStep && world_.leader.leads_until(now + Binder::kWrite)) {
      ++evicted;
      again = now + kAgain;
      evict(*pod, at->second.why);
    }
    next = std::min(next, std::max(again, now + std::chrono::milliseconds(200)));
    ++at;
  }
  return next;
}

void ModeDrain::run(const std::stop_token& stop) {
  queue_.run(world_.clock, stop, [this] { return step(); });
}

}  // namespace carve::control
