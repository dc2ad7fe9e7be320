#include <string>
#include <utility>
#include <vector>

#include "adapter/api/messages.h"
#include "app/cli/cluster/agents.h"
#include "app/cli/cluster/objects.h"
#include "app/cli/cluster/questions.h"
#include "app/dashboard/agent_samples.h"
#include "app/dashboard/boards.h"
#include "app/dashboard/cluster_events.h"
#include "app/dashboard/usage_reader.h"
#include "cmd/cluster_access.h"
#include "cmd/dashboard.h"
#include "cmd/dashboard_sources.h"

// carve dashboard of a cluster, with the rights of the user's kubeconfig.
namespace carve::cmd {
namespace {

using dashboard::Sources;

/// The quotas of carve-placement, computed from all objects; none if they cannot be read.
std::vector<codec::CardQuota> placement_quotas(const cli::ClusterAccess& access) {
  if (access.placement.quotas.empty()) return {};
  const auto all = cli::read_all(access.api);
  if (!all) return {};
  return codec::card_quotas(cli::KnownCluster(access, *all).model().quota_uses());
}

/// What the API server tells the user of this kubeconfig. The arguments outlive the answer.
Sources cluster_sources(const cli::ClusterAccess& access, dashboard::AgentSamples& samples,
                        dashboard::ClusterEvents& events, dashboard::UsageReader& usage) {
  Sources sources;
  add_agent_sources(access.api, access.namespace_name, usage, &sources);
  sources.board = [&access, &samples, &events]() -> Result<codec::Board> {
    CARVE_TRY(const auto view, cli::ask_cluster(access, ""));
    auto board = dashboard::board_of_cluster(view, *samples.latest());
    events.add(&board);
    return board;
  };
  sources.explain = [&access](const std::string& namespace_name, const std::string& pod) -> Result<std::string> {
    CARVE_TRY(const auto said, cli::ask_pod(access, namespace_name, pod));
    return codec::to_json(said);
  };
  return sources;
}

}  // namespace

int dashboard_of_cluster(const DashboardOptions& options, const sigset_t& stop_signals) {
  SystemClock clock;
  return with_cluster(options.of, [&](const cli::ClusterAccess& access, const ClusterConfig&) {
    dashboard::AgentSamples samples(
        [&access] { return cli::ask_agents(access.api, access.namespace_name, "", api::view_of_json); }, clock);
    dashboard::ClusterEvents events(access.api, clock);
    dashboard::UsageReader usage(ask_all_histories(access.api, access.namespace_name), ask_quotas(access.api), clock,
                                 [&access] { return placement_quotas(access); });
    return serve_page(options, cluster_sources(access, samples, events, usage), stop_signals);
  });
}

}  // namespace carve::cmd
