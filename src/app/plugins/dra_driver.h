#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "app/plugins/claim_plan.h"
#include "app/events/event_recorder.h"
#include "app/plugins/full_cards.h"
#include "base/log.h"
#include "base/mutex.h"
#include "port/kube_api.h"
#include "port/kubelet.h"
#include "port/node_slices.h"

namespace carve::plugins {

/// The DRA driver. It reads a claim's allocation from the API server by name, checks the UID, and prepares the
/// allocation as slices of this node. Unprepare needs the journal only. A restart loses no state: the driver remembers
/// only its answers, for a kubelet that retries while the API server does not answer.
class DraDriver final : public DraCalls {
 public:
  struct World {
    NodeSlices& slices;
    KubeApi& api;
    events::EventRecorder& notices;
    const Clock& clock;
    Log& log;
    std::function<std::string()> shut = {};  // why nothing new may start on this node; empty: it may
    FullCards* full = nullptr;               // notes the cards on which a claim was refused for lack of room
  };
  DraDriver(std::string node, World world) : node_(std::move(node)), world_(world) {}

  PerClaim<std::vector<ClaimDevice>> prepare(const std::vector<ClaimRef>& claims) override;
  PerClaim<void> unprepare(const std::vector<ClaimRef>& claims) override;
  [[nodiscard]] std::vector<DeviceHealthView> health() const override;

 private:
  Result<std::vector<ClaimDevice>> prepare_one(const ClaimRef& ref);
  Result<std::vector<ClaimDevice>> bring_up(const codec::Claim& claim, const ClaimPlan& plan);
  Result<void> may_start(const Record& record, const GpuInventory& cards) const;
  void note_full(const Record& record, const GpuInventory& cards);
  void post_ready(const codec::Claim& claim, const ClaimPlan& plan);
  Result<std::vector<ClaimDevice>> refuse(const ClaimRef& ref, const Error& error, const codec::Claim* claim);
  void report_to_pods(const codec::Claim& claim, const std::string& message);
  void post_refused(const codec::Claim& claim, const std::string& message);
  void post_status(const codec::Claim& claim, const std::vector<codec::DeviceStatus>& devices,
                   Clock::Duration after);

  std::string node_;
  World world_;
  Mutex mutex_;
  std::map<std::string, std::vector<ClaimDevice>> answered_ GUARDED_BY(mutex_);  // by claim UID, until unprepare
  std::map<std::string, std::string> refused_ GUARDED_BY(mutex_);  // by claim UID: the message in its status
};

}  // namespace carve::plugins
