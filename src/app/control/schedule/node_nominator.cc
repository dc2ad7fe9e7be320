#include "app/control/schedule/node_nominator.h"

#include <algorithm>
#include <utility>

#include "app/control/bind/binder.h"
#include "codec/cluster/eviction.h"

namespace carve::control {

bool NodeNominator::may_have_skipped_nodes(const PodEntry& pod) const {
  const auto nodes = world_.model.snapshot()->size();
  if (nodes <= kLeastPart) return false;
  const auto note = world_.unschedulable_pods.find(pod.object.ask.uid);
  // The note may come from another replica, which reports fewer details, or may be missing.
  return !note || note->asked == 0 || (note->asked >= kLeastPart && note->asked < nodes);
}

bool NodeNominator::is_hopeless(const Shape& shape) const {
  return std::find(hopeless_.begin(), hopeless_.end(), shape) != hopeless_.end();
}

void NodeNominator::begin(const std::vector<Pod>& refused, bool gained, Clock::Time now) {
  touch_.clear();
  last_step_ = now;
  next_ = now + kGap;
  again_ = Clock::Time::max();
  if (gained || now >= forget_hopeless_at_) {
    hopeless_.clear();
    forget_hopeless_at_ = now + kRetryHopeless;
  }
  std::set<std::string> waiting;
  for (const auto& pod : refused) waiting.insert(pod->object.ask.uid);
  std::erase_if(trials_, [&](const auto& one) { return !waiting.contains(one.first); });
  trials_in_progress_ = static_cast<std::size_t>(
      std::count_if(trials_.begin(), trials_.end(), [](const auto& one) { return !one.second.node.empty(); }));
}

void NodeNominator::mark_unsuccessful(const PodEntry& pod, Trial* trial, Clock::Time now) {
  ++unsuccessful_;
  --trials_in_progress_;
  world_.log.info("an unsuccessful nomination: the pod lacks more than cards on that node",
                  {{"pod", pod.full_name()}, {"node", trial->node}});
  world_.model.drop_nominated_reservation(pod.object.ask.uid);
  trial->failed_nodes.insert(std::exchange(trial->node, {}));
  if (trial->failed_nodes.size() >= kTries) trial->not_before = now + kPause;
  (void)nominate(pod, "");  // a nomination that stays does no harm: it is only a preference
}

/// The pod has an open nomination, and may still be bound there.
bool NodeNominator::trial_continues(const PodEntry& pod, Clock::Time now) {
  const auto found = trials_.find(pod.object.ask.uid);
  if (found == trials_.end() || found->second.node.empty()) return false;
  Trial& trial = found->second;
  const auto note = world_.unschedulable_pods.find(pod.object.ask.uid);
  const bool refused_there = note && note->at >= trial.nominated_at + kSeen;
  if (refused_there || now >= trial.nominated_at + kTrial) {
    mark_unsuccessful(pod, &trial, now);
    return false;
  }
  if (!trial.touched_again && now >= trial.nominated_at + kTouchAgain) {
    trial.touched_again = true;
    touch_ = trial.node;
  }
  step_again_at(trial.nominated_at + (trial.touched_again ? kTrial : kTouchAgain));
  return true;
}

bool NodeNominator::may_nominate(const PodEntry& pod, Clock::Time now) {
  if (!may_have_skipped_nodes(pod)) return false;
  // The preemptor keeps room for the pod, or another component nominated a node: victims end for the pod there.
  if (world_.model.has_nominated_reservation(pod.object.ask.uid)) return false;
  const auto found = trials_.find(pod.object.ask.uid);
  if (found == trials_.end()) return pod.object.nominated.empty();
  Trial& trial = found->second;
  if (!pod.object.nominated.empty() && !trial.failed_nodes.contains(pod.object.nominated)) return false;
  if (now < trial.not_before) {
    step_again_at(trial.not_before);
    return false;
  }
  if (trial.failed_nodes.size() >= kTries) trial.failed_nodes.clear();
  return true;
}

void NodeNominator::try_one(const PodEntry& pod, Clock::Time now) {
  const auto& uid = pod.object.ask.uid;
  const auto stored = trials_.find(uid);
  Shape shape{world_.model.within_quota(pod), pod.object.priority,
              stored == trials_.end() ? std::set<std::string>() : stored->second.failed_nodes};
  if (is_hopeless(shape)) return;
  auto sent = world_.choose(pod, shape.failed_nodes);
  if (!sent) return hopeless_.push_back(std::move(shape));
  world_.model.put_nominated_reservation(sent->node, {pod.owner(), pod.object.priority, std::move(sent->slices), {}},
                                         now + kTrial);
  if (const auto written = nominate(pod, sent->node); !written) {
    world_.model.drop_nominated_reservation(uid);
    world_.log.warn("no node is nominated: the pod's status cannot be written",
                    {{"pod", pod.full_name()}, {"error", written.error().what}});
    return step_again_at(now + kGap);
  }
  Trial& trial = trials_[uid];
  trial.node = touch_ = sent->node;
  trial.nominated_at = world_.clock.now();
  trial.touched_again = false;
  step_again_at(trial.nominated_at + kTouchAgain);
  ++nominated_;
  ++trials_in_progress_;
}

std::string NodeNominator::step(bool gained) {
  const auto now = world_.clock.now();
  const MutexLock lock(mutex_);
  if (!gained && now < next_) {
    step_again_at(next_);
    return {};
  }
  again_ = Clock::Time::max();
  if (!world_.model.synced() || world_.model.snapshot()->size() <= kLeastPart) return {};
  if (!world_.leader.leads_until(now + Binder::kWrite)) return trials_.clear(), std::string();
  auto refused = world_.model.waiting();
  std::erase_if(refused, [](const Pod& pod) { return !pod->object.refused; });
  begin(refused, gained, now);
  std::stable_sort(refused.begin(), refused.end(),
                   [](const Pod& a, const Pod& b) { return a->object.priority > b->object.priority; });
  const auto hopeless = hopeless_.size();
  for (const auto& pod : refused) {
    if (trial_continues(*pod, now)) continue;
    if (trials_in_progress_ >= kAtOnce || hopeless_.size() >= hopeless + kShapes) {
      step_again_at(now + kGap);
    } else if (may_nominate(*pod, now)) {
      try_one(*pod, now);
    }
  }
  if (!hopeless_.empty()) step_again_at(forget_hopeless_at_);
  return std::exchange(touch_, {});
}

Clock::Time NodeNominator::next_step() const {
  const MutexLock lock(mutex_);
  return again_;
}

bool NodeNominator::exhausted(const PodEntry& pod, Clock::Time since) const {
  if (!may_have_skipped_nodes(pod)) return true;
  const MutexLock lock(mutex_);
  if (!last_step_ || *last_step_ < since) return false;
  const auto stored = trials_.find(pod.object.ask.uid);
  if (stored == trials_.end()) return is_hopeless({world_.model.within_quota(pod), pod.object.priority, {}});
  const Trial& trial = stored->second;
  if (!trial.node.empty()) return false;
  return world_.clock.now() < trial.not_before ||
         is_hopeless({world_.model.within_quota(pod), pod.object.priority, trial.failed_nodes});
}

bool NodeNominator::is_trying(const std::string& uid) const {
  const MutexLock lock(mutex_);
  const auto stored = trials_.find(uid);
  return stored != trials_.end() && !stored->second.node.empty();
}

Result<void> NodeNominator::nominate(const PodEntry& pod, const std::string& node) {
  const auto written = world_.api.patch(pod_path(pod.object.ask.namespace_name, pod.object.ask.name) + "/status",
                                        KubePatch::kMerge, codec::nomination_patch(pod.object, node));
  if (!written) return tl::unexpected(written.error());
  return {};
}

}  // namespace carve::control
