#include "app/plugins/waiting_dra.h"

namespace carve::plugins {
namespace {

template <class T>
DraCalls::PerClaim<T> refused(const std::vector<ClaimRef>& claims) {
  DraCalls::PerClaim<T> answers;
  for (const auto& claim : claims) {
    answers.emplace(claim.uid, fail(Code::kUnavailable,
                                    "the previous agent of this node has not ended yet; the kubelet retries"));
  }
  return answers;
}

}  // namespace

void WaitingDra::lead_to(DraCalls& plugin) {
  const MutexLock lock(mutex_);
  plugin_ = &plugin;
  changed_.notify_all();
}

void WaitingDra::give_up() {
  MutexLock lock(mutex_);
  ended_ = true;
  changed_.notify_all();
  while (inside_ != 0) changed_.wait(lock);
  plugin_ = nullptr;
}

DraCalls* WaitingDra::enter() {
  const auto end = std::chrono::steady_clock::now() + patience_;
  MutexLock lock(mutex_);
  while (!ended_ && plugin_ == nullptr && changed_.wait_until(lock, end) == std::cv_status::no_timeout) {
  }
  if (ended_ || plugin_ == nullptr) return nullptr;
  ++inside_;
  return plugin_;
}

void WaitingDra::leave() {
  const MutexLock lock(mutex_);
  --inside_;
  changed_.notify_all();
}

DraCalls::PerClaim<std::vector<ClaimDevice>> WaitingDra::prepare(const std::vector<ClaimRef>& claims) {
  DraCalls* driver = enter();
  if (driver == nullptr) return refused<std::vector<ClaimDevice>>(claims);
  auto answers = driver->prepare(claims);
  leave();
  return answers;
}

DraCalls::PerClaim<void> WaitingDra::unprepare(const std::vector<ClaimRef>& claims) {
  DraCalls* driver = enter();
  if (driver == nullptr) return refused<void>(claims);
  auto answers = driver->unprepare(claims);
  leave();
  return answers;
}

std::vector<DeviceHealthView> WaitingDra::health() const {
  // For the kubelet's health stream: nothing is known yet. The agent's own DRA driver soon reports it.
  return {};
}

}  // namespace carve::plugins
