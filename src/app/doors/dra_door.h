#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "app/doors/claim_plan.h"
#include "app/doors/event_recorder.h"
#include "base/log.h"
#include "port/kube_api.h"
#include "port/kubelet.h"
#include "port/node_slices.h"

namespace carve::doors {

/// The DRA door: a claim's allocation, read from the API server by name and checked by UID, becomes
/// slices of this node. Ending needs the journal only. It keeps no state that a restart could lose:
/// what it remembers are answers, for a kubelet that asks again while the API server is away.
class DraDoor final : public DraCalls {
 public:
  struct World {
    NodeSlices& slices;
    KubeApi& api;
    EventRecorder& notices;
    const Clock& clock;
    Log& log;
    std::function<std::string()> shut = {};  // not empty: nothing new starts on this node, and why
  };
  DraDoor(std::string node, World world) : node_(std::move(node)), world_(world) {}

  PerClaim<std::vector<ClaimDevice>> prepare(const std::vector<ClaimRef>& claims) override;
  PerClaim<void> unprepare(const std::vector<ClaimRef>& claims) override;
  [[nodiscard]] std::vector<DeviceHealthView> health() const override;

 private:
  Result<std::vector<ClaimDevice>> prepare_one(const ClaimRef& ref);
  Result<std::vector<ClaimDevice>> bring_up(const codec::Claim& claim,
                                            std::vector<PlannedPart> parts);
  void tell_ready(const codec::Claim& claim, const std::vector<PlannedPart>& parts);
  Result<std::vector<ClaimDevice>> refuse(const ClaimRef& ref, const Error& error, const codec::Claim* claim);
  void tell_users(const codec::Claim& claim, const std::string& message);
  void tell_not_ready(const codec::Claim& claim, const std::string& message);
  void post_status(const codec::Claim& claim, const std::vector<codec::DeviceStatus>& devices,
                   Clock::Duration after);

  std::string node_;
  World world_;
  std::mutex mutex_;
  std::map<std::string, std::vector<ClaimDevice>> answered_;  // by claim UID; until it ends
  std::map<std::string, std::string> refused_;                // by claim UID: what its status says
};

}  // namespace carve::doors
