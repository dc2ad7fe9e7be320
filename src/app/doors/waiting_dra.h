#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "port/kubelet.h"

namespace carve::doors {

/// The DRA door of an agent that takes a node over: registered beside the agent that still serves, so that the kubelet
/// has a driver at every moment. A call waits until there is a door that it can be handed to.
class WaitingDra final : public DraCalls {
 public:
  /// `patience`: how long a call waits before it is answered kUnavailable; well within the kubelet's own 45 s.
  explicit WaitingDra(std::chrono::milliseconds patience = std::chrono::seconds(30)) : patience_(patience) {}
  /// From now on calls go to this door, those that wait first. It outlives give_up().
  void lead_to(DraCalls& door);
  /// Returns when no call is in the door any more; those that wait, and later ones, are answered kUnavailable.
  void give_up();

  PerClaim<std::vector<ClaimDevice>> prepare(const std::vector<ClaimRef>& claims) override;
  PerClaim<void> unprepare(const std::vector<ClaimRef>& claims) override;
  [[nodiscard]] std::vector<DeviceHealthView> health() const override;

 private:
  /// The door, entered; null: there is none.
  DraCalls* enter();
  void leave();

  std::chrono::milliseconds patience_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  DraCalls* door_ = nullptr;
  bool ended_ = false;
  int inside_ = 0;
};

}  // namespace carve::doors
