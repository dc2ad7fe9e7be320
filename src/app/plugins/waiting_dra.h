#pragma once

#include <chrono>
#include <vector>

#include "base/mutex.h"
#include "port/kubelet.h"

namespace carve::plugins {

/// The DRA driver of an agent that takes over a node. It is registered while the previous agent still serves, so that
/// the kubelet always has a driver. A call waits until lead_to() names the driver that answers it.
class WaitingDra final : public DraCalls {
 public:
  /// `patience`: how long a call waits before it fails with kUnavailable; well below the kubelet's limit of 45 s.
  explicit WaitingDra(std::chrono::milliseconds patience = std::chrono::seconds(30)) : patience_(patience) {}
  /// Forwards waiting and later calls to this driver, which outlives give_up().
  void lead_to(DraCalls& plugin);
  /// Fails waiting and later calls with kUnavailable, and returns when no call is inside the driver any more.
  void give_up();

  PerClaim<std::vector<ClaimDevice>> prepare(const std::vector<ClaimRef>& claims) override;
  PerClaim<void> unprepare(const std::vector<ClaimRef>& claims) override;
  [[nodiscard]] std::vector<DeviceHealthView> health() const override;

 private:
  /// The driver, with one more call inside; null: there is none.
  DraCalls* enter();
  void leave();

  std::chrono::milliseconds patience_;
  mutable Mutex mutex_;
  Condition changed_;
  DraCalls* plugin_ GUARDED_BY(mutex_) = nullptr;
  bool ended_ GUARDED_BY(mutex_) = false;
  int inside_ GUARDED_BY(mutex_) = 0;
};

}  // namespace carve::plugins
