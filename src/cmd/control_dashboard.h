#pragma once

#include <functional>
#include <string>

#include "app/control/api/wait_reasons.h"
#include "app/control/state/claim_book.h"
#include "app/control/state/cluster_model.h"
#include "app/dashboard/agent_samples.h"
#include "app/dashboard/cluster_events.h"
#include "app/dashboard/dashboard_api.h"
#include "app/dashboard/token_viewers.h"
#include "app/dashboard/usage_reader.h"
#include "base/clock.h"
#include "codec/dialects/dialect.h"
#include "core/policy/rules.h"
#include "port/kube_api.h"

namespace carve::cmd {

/// The dashboard of a cluster, as control serves it: grants and waiting pods from control's model, use and history from
/// the agents, for each caller what its token may see.
class ControlDashboard {
 public:
  struct World {
    const control::ClusterModel& model;
    const control::ClaimBook& claims;
    control::PodRequests requests;
    std::function<PlacementRules()> rules;
    KubeApi& api;
    std::string namespace_name;  // of Carve
    Clock& clock;
  };
  explicit ControlDashboard(World world);

  [[nodiscard]] HttpResponse answer(const HttpRequest& ask) { return page_.answer(ask); }

 private:
  dashboard::Sources sources();
  [[nodiscard]] Result<std::string> explain(const std::string& namespace_name, const std::string& pod) const;

  const World world_;
  control::WaitReasons reasons_;
  dashboard::TokenViewers viewers_;
  dashboard::ClusterEvents events_;
  dashboard::AgentSamples samples_;
  dashboard::UsageReader usage_;
  dashboard::DashboardApi page_;
};

}  // namespace carve::cmd
