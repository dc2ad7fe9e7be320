#include <fmt/format.h>

#include <algorithm>

#include "app/plugins/device_plugin.h"
#include "base/mutex.h"
#include "codec/record.h"

// The end of slots: slices of pods that have ended, and bindings of containers that will never start. Also the starts
// that the end of the agent itself would interrupt.
namespace carve::plugins {
namespace {

using std::chrono::seconds;

constexpr auto kUnseenPod = seconds(10);  // after the first full list: then an unlisted pod is gone
constexpr auto kStartsSoon = seconds(5);  // after Allocate: later it waits for an image or for another container

}  // namespace

bool DevicePlugin::overlap(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  auto x = a.begin();
  auto y = b.begin();
  while (x != a.end() && y != b.end()) {
    if (*x == *y) return true;
    *x < *y ? ++x : ++y;
  }
  return false;
}

/// Whether the kubelet still runs a pod that the API server does not know. The checkpoint keeps a pod that has ended
/// until the kubelet allocates slots again. PodResources lists only running pods. If it cannot be read, the pod counts
/// as running.
bool DevicePlugin::still_listed(const std::string& uid) {
  std::vector<std::vector<std::string>> slots;
  {
    const MutexLock lock(mutex_);
    if (!in_checkpoint_.contains(uid)) return false;
    for (const auto& [device, binding] : bindings_) {
      if (binding.kubelet_uid == uid) slots.push_back(binding.slots);
    }
  }
  const auto now = world_.clock.now();
  if (!listed_ || now - listed_at_ >= kUnseenPod) {
    listed_at_ = now;
    listed_.reset();
    if (const auto asked = world_.kubelet.holders(kSlotResource)) {
      listed_.emplace();
      for (const auto& holder : *asked) listed_->insert(listed_->end(), holder.slots.begin(), holder.slots.end());
      std::sort(listed_->begin(), listed_->end());
    }
  }
  return !listed_ || slots.empty() ||
         std::any_of(slots.begin(), slots.end(), [&](const auto& one) { return overlap(one, *listed_); });
}

/// Whether the API server has reported the end of this pod.
bool DevicePlugin::reported_over(const std::string& uid) const {
  const auto pod = world_.pods.by_uid(uid);
  return pod ? pod->ended : world_.pods.was_deleted(uid);
}

/// Whether the kubelet starts no container of this pod any more. `settled`: the API server has had time to report it.
bool DevicePlugin::is_over(const std::string& uid, bool settled) {
  return reported_over(uid) || (settled && !world_.pods.by_uid(uid) && !still_listed(uid));
}

/// Ends the slices of pods that were deleted or have ended, and after a restart those of unknown pods.
void DevicePlugin::end_gone_pods() {
  const auto now = world_.clock.now();
  const bool synced = world_.pods.synced();
  if (!synced) synced_since_ = now;
  const bool settled = synced && now - synced_since_ >= kUnseenPod;
  std::set<Owner> owners;
  for (const auto& slice : world_.slices.held()) {
    if (slice.owner.kind == OwnerKind::kPod) owners.insert(slice.owner);
  }
  for (const auto& owner : owners) {
    if (world_.pods.was_deleted(owner.uid) || is_over(owner.uid, settled)) end_later(owner);
  }
  forget_unused(owners, settled);
  end_due();
}

/// Forgets bindings of containers that hold no slice and belong to an ended pod: refused ones, and those that only the
/// checkpoint still contains. Otherwise their slots would stay in use forever.
void DevicePlugin::forget_unused(const std::set<Owner>& holding, bool settled) {
  std::vector<Binding> unused;
  {
    const MutexLock lock(mutex_);
    for (const auto& entry : bindings_) {
      const Binding& binding = entry.second;
      const bool awaited = std::any_of(waiters_.begin(), waiters_.end(),
                                       [&](const Waiter& waiter) { return waiter.slots == binding.slots; });
      const bool holds = holding.contains(binding.owner) || holding.contains({OwnerKind::kPod, binding.kubelet_uid});
      if (!awaited && !binding.kubelet_uid.empty() && !holds && !at_work_.contains(binding.kubelet_uid))
        unused.push_back(binding);
    }
  }
  for (const auto& binding : unused) {
    if (!is_over(binding.kubelet_uid, settled)) continue;
    clear_refusal(binding.slots);
    const MutexLock lock(mutex_);
    bindings_.erase(binding.device);
    next_list_ = world_.clock.now();
  }
}

std::vector<std::string> DevicePlugin::unfinished() const {
  std::vector<std::string> open;
  std::set<std::pair<std::string, std::string>> held;  // pod UID, container
  for (const auto& slice : world_.slices.held()) held.emplace(slice.owner.uid, slice.part);
  for (const auto& pod : world_.pods.all()) {
    if (pod.ended || pod.record.empty()) continue;
    const auto record = codec::decode_record(pod.record);
    if (!record || record->owner != Owner{OwnerKind::kPod, pod.uid}) continue;
    for (const auto& part : record->parts) {
      if (!held.contains({pod.uid, part.part}))
        open.push_back(fmt::format("pod {}/{}, container {}: bound here, slices not ready", pod.namespace_name,
                                   pod.name, part.part));
    }
  }
  const auto now = world_.clock.now();
  const MutexLock lock(mutex_);
  for (const auto& [device, binding] : bindings_) {
    if (binding.ready && !binding.begun && now - binding.since < kStartsSoon)
      open.push_back(fmt::format("pod {}/{}, container {}: about to start", binding.namespace_name, binding.pod,
                                 binding.container));
  }
  return open;
}

}  // namespace carve::plugins
