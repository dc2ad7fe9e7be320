#include <algorithm>
#include <utility>

#include "app/plugins/device_plugin.h"
#include "base/mutex.h"

// The calls of NodeSlices that may take long: each is part of a job of one pod, and a pod has one job at a time. So a
// slow call delays only its own pod, and the order of the calls for one pod stays. A job works on copies of bindings.
// Meanwhile the thread of step() may remove a binding, but changes none of a pod that is known.
namespace carve::plugins {
namespace {

constexpr auto kEndAgain = std::chrono::milliseconds(200);

}  // namespace

/// Posts a job, unless one of this pod is queued or runs: done() then requests the round that posts it. `job` returns
/// whether another round is needed.
void DevicePlugin::post(const std::string& uid, std::function<bool()> job) {
  {
    const MutexLock lock(mutex_);
    if (stopped_ || !at_work_.insert(uid).second) return;
  }
  auto work = [this, uid, job = std::move(job)] { done(uid, job()); };
  if (!world_.post) return work();
  if (!world_.post(std::move(work))) done(uid, false);
}

/// The last step of a job. After it the object may be destroyed, so the notification is under the lock.
void DevicePlugin::done(const std::string& uid, bool again) {
  const MutexLock lock(mutex_);
  at_work_.erase(uid);
  const auto now = world_.clock.now();
  const bool end_is_due = std::any_of(ending_.begin(), ending_.end(), [&](const auto& entry) {
    return entry.first.uid == uid && entry.second.next <= now;
  });
  poked_ = poked_ || again || end_is_due;
  changed_.notify_all();
}

/// Jobs that run end normally; those that are queued do nothing.
void DevicePlugin::wait_for_jobs() {
  MutexLock lock(mutex_);
  stopped_ = true;
  while (!at_work_.empty()) changed_.wait(lock);
}

/// Prepares the slices of all bindings with a known pod.
void DevicePlugin::bind() {
  std::set<std::string> pods;
  for (const auto& binding : unready()) {
    const auto& uid = binding.kubelet_uid;
    if (!uid.empty() && pods.insert(uid).second) post(uid, [this, uid] { return bind_pod(uid); });
  }
}

/// Also takes the bindings that are identified while it runs. A binding that fails is retried in a later round. The
/// round comes immediately if the pods have changed meanwhile: the job may have worked with the earlier state.
bool DevicePlugin::bind_pod(const std::string& uid) {
  const auto revision = world_.pods.revision();
  bool failed = false;
  std::set<std::string> tried;
  while (auto binding = next_of(uid, tried)) {
    tried.insert(binding->device);
    failed = !bind_one(std::move(*binding)) || failed;
  }
  return revision != world_.pods.revision() && (failed || reported_over(uid));
}

/// The oldest binding of this pod that is not ready.
std::optional<DevicePlugin::Binding> DevicePlugin::next_of(const std::string& uid,
                                                           const std::set<std::string>& tried) const {
  const MutexLock lock(mutex_);
  const Binding* next = nullptr;
  for (const auto& [device, binding] : bindings_) {
    if (stopped_ || binding.ready || binding.kubelet_uid != uid || tried.contains(device)) continue;
    if (next == nullptr || binding.since < next->since) next = &binding;
  }
  return next == nullptr ? std::nullopt : std::optional(*next);
}

/// Whether the binding has its slices, or needs none any more.
bool DevicePlugin::bind_one(Binding binding) {
  const auto bound = try_bind(&binding);
  binding.ready = bound.has_value();
  if (!bound) binding.problem = bound.error();
  if (!store(binding)) {
    if (!binding.owner.uid.empty()) end_later(binding.owner);
    poke();
    return true;
  }
  if (binding.ready) answer_waiters(&binding.slots);
  return binding.ready;
}

/// The next round ends the slices of this owner. Any thread.
void DevicePlugin::end_later(const Owner& owner) {
  const MutexLock lock(mutex_);
  const auto now = world_.clock.now();
  ending_.emplace(owner, Ending{now, now});
}

/// Ends the slices of gone pods that are due.
void DevicePlugin::end_due() {
  std::vector<Owner> due;
  {
    const MutexLock lock(mutex_);
    const auto now = world_.clock.now();
    for (const auto& [owner, ending] : ending_) {
      if (ending.next <= now) due.push_back(owner);
    }
  }
  for (const auto& owner : due) post(owner.uid, [this, owner] { return end(owner); });
}

/// Always needs another round: for the list, or for the time of the next try.
bool DevicePlugin::end(const Owner& owner) {
  const auto ended = world_.slices.unprepare(owner);
  const MutexLock lock(mutex_);
  const auto now = world_.clock.now();
  if (!ended) {
    if (const auto found = ending_.find(owner); found != ending_.end()) found->second.next = now + kEndAgain;
    return true;
  }
  std::erase_if(bindings_, [&](const auto& entry) { return entry.second.owner == owner; });
  ending_.erase(owner);
  next_list_ = now;
  return true;
}

}  // namespace carve::plugins
