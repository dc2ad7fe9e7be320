#pragma once

#include <string>

#include "app/dashboard/dashboard_api.h"
#include "app/dashboard/usage_reader.h"
#include "port/kube_api.h"

// What control's dashboard and `kubectl carve dashboard` read in the same way, through the API server.
namespace carve::cmd {

/// Adds the sources that come from the agents: node, history, usage. `api` and `usage` outlive the sources.
void add_agent_sources(KubeApi& api, const std::string& namespace_name, dashboard::UsageReader& usage,
                       dashboard::Sources* sources);

/// For UsageReader: the history of all agents, and the ResourceQuotas of all namespaces.
[[nodiscard]] dashboard::UsageReader::Ask ask_all_histories(KubeApi& api, const std::string& namespace_name);
[[nodiscard]] dashboard::UsageReader::Quotas ask_quotas(KubeApi& api);

}  // namespace carve::cmd
