#include "app/doors/waiting_dra.h"

namespace carve::doors {
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

void WaitingDra::lead_to(DraCalls& door) {
  const std::lock_guard lock(mutex_);
  door_ = &door;
  changed_.notify_all();
}

void WaitingDra::give_up() {
  std::unique_lock lock(mutex_);
  ended_ = true;
  changed_.notify_all();
  changed_.wait(lock, [this] { return inside_ == 0; });
  door_ = nullptr;
}

DraCalls* WaitingDra::enter() {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, patience_, [this] { return ended_ || door_ != nullptr; });
  if (ended_ || door_ == nullptr) return nullptr;
  ++inside_;
  return door_;
}

void WaitingDra::leave() {
  const std::lock_guard lock(mutex_);
  --inside_;
  changed_.notify_all();
}

DraCalls::PerClaim<std::vector<ClaimDevice>> WaitingDra::prepare(const std::vector<ClaimRef>& claims) {
  DraCalls* door = enter();
  if (door == nullptr) return refused<std::vector<ClaimDevice>>(claims);
  auto answers = door->prepare(claims);
  leave();
  return answers;
}

DraCalls::PerClaim<void> WaitingDra::unprepare(const std::vector<ClaimRef>& claims) {
  DraCalls* door = enter();
  if (door == nullptr) return refused<void>(claims);
  auto answers = door->unprepare(claims);
  leave();
  return answers;
}

std::vector<DeviceHealthView> WaitingDra::health() const {
  // For the kubelet's health stream: nothing is known yet. The agent's own DRA driver soon reports it.
  return {};
}

}  // namespace carve::doors
