#include "app/control/node_nominator.h"

#include <algorithm>
#include <utility>

#include "app/control/binder.h"
#include "codec/cluster/eviction.h"

namespace carve::control {

bool NodeNominator::may_overlook(const PodEntry& pod) const {
  const auto nodes = world_.model.snapshot()->size();
  if (nodes <= kLeastPart) return false;
  const auto note = world_.turned_away.find(pod.object.ask.uid);
  // Another replica may have been asked, which says less, or nothing.
  return !note || note->asked == 0 || (note->asked >= kLeastPart && note->asked < nodes);
}

bool NodeNominator::is_hopeless(const Shape& shape) const {
  return std::find(hopeless_.begin(), hopeless_.end(), shape) != hopeless_.end();
}

void NodeNominator::begin(const std::vector<Pod>& refused, bool gained, Clock::Time now) {
  touch_.clear();
  looked_ = now;
  next_ = now + kLook;
  if (gained || now >= forget_) {
    hopeless_.clear();
    forget_ = now + kAskAnew;
  }
  std::set<std::string> waiting;
  for (const auto& pod : refused) waiting.insert(pod->object.ask.uid);
  std::erase_if(trials_, [&](const auto& one) { return !waiting.contains(one.first); });
  tried_ = static_cast<std::size_t>(
      std::count_if(trials_.begin(), trials_.end(), [](const auto& one) { return !one.second.node.empty(); }));
}

void NodeNominator::in_vain(const PodEntry& pod, Trial* trial, Clock::Time now) {
  ++in_vain_;
  --tried_;
  world_.log.info("a node was named to a pod in vain: more than cards is missing there",
                  {{"pod", pod.full_name()}, {"node", trial->node}});
  world_.model.drop_hold(pod.object.ask.uid);
  trial->vain.insert(std::exchange(trial->node, {}));
  if (trial->vain.size() >= kTries) trial->not_before = now + kPause;
  (void)nominate(pod, "");  // one that stays does no harm: it is a wish
}

/// A node has been named to it, and it may come yet.
bool NodeNominator::still_tries(const PodEntry& pod, Clock::Time now) {
  const auto found = trials_.find(pod.object.ask.uid);
  if (found == trials_.end() || found->second.node.empty()) return false;
  Trial& trial = found->second;
  const auto note = world_.turned_away.find(pod.object.ask.uid);
  const bool refused_there = note && note->at >= trial.named_at + kSeen;
  if (refused_there || now >= trial.named_at + kTrial) {
    in_vain(pod, &trial, now);
    return false;
  }
  if (!trial.touched_again && now >= trial.named_at + kTouchAgain) {
    trial.touched_again = true;
    touch_ = trial.node;
  }
  return true;
}

bool NodeNominator::may_name(const PodEntry& pod, Clock::Time now) {
  if (!may_overlook(pod)) return false;
  // Somebody else keeps room for it, or has named it a node: others go for it there.
  if (world_.model.has_hold(pod.object.ask.uid)) return false;
  const auto found = trials_.find(pod.object.ask.uid);
  if (found == trials_.end()) return pod.object.nominated.empty();
  Trial& trial = found->second;
  if (!pod.object.nominated.empty() && !trial.vain.contains(pod.object.nominated)) return false;
  if (now < trial.not_before) return false;
  if (trial.vain.size() >= kTries) trial.vain.clear();
  return true;
}

void NodeNominator::try_one(const PodEntry& pod, Clock::Time now) {
  const auto& uid = pod.object.ask.uid;
  const auto known = trials_.find(uid);
  Shape shape{pod.parts, pod.object.priority, known == trials_.end() ? std::set<std::string>() : known->second.vain};
  if (is_hopeless(shape)) return;
  auto sent = world_.choose(pod, shape.vain);
  if (!sent) return hopeless_.push_back(std::move(shape));
  world_.model.put_reservation(sent->node, {pod.owner(), pod.object.priority, std::move(sent->slices), {}},
                               now + kTrial);
  if (const auto written = nominate(pod, sent->node); !written) {
    world_.model.drop_hold(uid);
    world_.log.warn("no node is named to a pod: its status cannot be written",
                    {{"pod", pod.full_name()}, {"error", written.error().what}});
    return;
  }
  Trial& trial = trials_[uid];
  trial.node = touch_ = sent->node;
  trial.named_at = world_.clock.now();
  trial.touched_again = false;
  ++named_;
  ++tried_;
}

std::string NodeNominator::step(bool gained) {
  const auto now = world_.clock.now();
  const std::lock_guard lock(mutex_);
  if (!gained && now < next_) return {};
  if (!world_.model.synced() || world_.model.snapshot()->size() <= kLeastPart) return {};
  if (!world_.leader.leads_until(now + Binder::kWrite)) return trials_.clear(), std::string();
  auto refused = world_.model.pods_where([](const PodEntry& pod) { return pod.waits() && pod.object.refused; });
  begin(refused, gained, now);
  std::stable_sort(refused.begin(), refused.end(),
                   [](const Pod& a, const Pod& b) { return a->object.priority > b->object.priority; });
  const auto hopeless = hopeless_.size();
  for (const auto& pod : refused) {
    if (still_tries(*pod, now)) continue;
    if (tried_ >= kAtOnce || hopeless_.size() >= hopeless + kShapes) continue;
    if (may_name(*pod, now)) try_one(*pod, now);
  }
  return std::exchange(touch_, {});
}

bool NodeNominator::exhausted(const PodEntry& pod, Clock::Time since) const {
  if (!may_overlook(pod)) return true;
  const std::lock_guard lock(mutex_);
  if (!looked_ || *looked_ < since) return false;
  const auto known = trials_.find(pod.object.ask.uid);
  if (known == trials_.end()) return is_hopeless({pod.parts, pod.object.priority, {}});
  const Trial& trial = known->second;
  if (!trial.node.empty()) return false;
  return world_.clock.now() < trial.not_before || is_hopeless({pod.parts, pod.object.priority, trial.vain});
}

bool NodeNominator::tries(const std::string& uid) const {
  const std::lock_guard lock(mutex_);
  const auto known = trials_.find(uid);
  return known != trials_.end() && !known->second.node.empty();
}

Result<void> NodeNominator::nominate(const PodEntry& pod, const std::string& node) {
  const auto written = world_.api.patch(pod_path(pod.object.ask.space, pod.object.ask.name) + "/status",
                                        KubePatch::kMerge, codec::nomination_patch(pod.object, node));
  if (!written) return tl::unexpected(written.error());
  return {};
}

}  // namespace carve::control
