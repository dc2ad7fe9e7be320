#include "cmd/dashboard_sources.h"

#include <utility>

#include "app/cli/cluster/agents.h"
#include "codec/history/history_segment.h"

namespace carve::cmd {

void add_agent_sources(KubeApi& api, const std::string& namespace_name, dashboard::UsageReader& usage,
                       dashboard::Sources* sources) {
  sources->node = [&api, namespace_name](const std::string& node) {
    return cli::ask_agent(api, namespace_name, node, "/v1/node", {});
  };
  sources->history = [&api, namespace_name](const dashboard::HistoryRequest& ask) -> Result<std::string> {
    CARVE_TRY_VOID(codec::parse_history_span("since", ask.since));
    return cli::ask_agent(api, namespace_name, ask.node, "/v1/history",
                          {{"card", ask.card}, {"slice", ask.slice}, {"since", ask.since}});
  };
  sources->usage = [&usage](const std::string& since) -> Result<dashboard::UsageReader::Shared> {
    CARVE_TRY(const auto span, codec::parse_history_span("since", since));
    return usage.of(span);
  };
}

dashboard::UsageReader::Ask ask_all_histories(KubeApi& api, const std::string& namespace_name) {
  return [&api, namespace_name](const HistoryQuery& query, const auto& agents, const auto& take, const auto& stop) {
    return cli::each_history(api, namespace_name, query, agents, take, stop);
  };
}

dashboard::UsageReader::Quotas ask_quotas(KubeApi& api) {
  return [&api] { return api.list("/api/v1/resourcequotas", {}); };
}

}  // namespace carve::cmd
