#include "app/cli/cluster/top.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>

#include "app/cli/cells.h"
#include "app/cli/cluster/objects.h"
#include "app/cli/table.h"
#include "base/thread.h"
#include "codec/cluster/cluster_pod.h"

namespace carve::cli {
namespace {

constexpr std::size_t kAtOnce = 16;

std::string pods_in(const std::string& namespace_name) {
  return fmt::format("/api/v1/namespaces/{}/pods", namespace_name);
}

/// The agents' pods, by node. A node has two during a takeover; either of them answers.
Result<std::map<std::string, std::vector<std::string>>> agents_of(KubeApi& api, const std::string& namespace_name,
                                                                  const std::string& node) {
  CARVE_TRY(const auto pods, api.list(pods_in(namespace_name), {{"labelSelector", kAgents}}));
  std::map<std::string, std::vector<std::string>> agents;
  for (const auto& text : pods) {
    const auto pod = codec::parse_cluster_pod(text);
    if (!pod || pod->node.empty() || (!node.empty() && pod->node != node)) continue;
    agents[pod->node].push_back(pod->ask.name);
  }
  return agents;
}

void ask(KubeApi& api, const std::string& pods, const std::vector<std::string>& agents, const ReadView& read,
         NodeView* into) {
  for (const auto& agent : agents) {
    auto text = api.get(fmt::format("{}/{}/proxy/v1/node", pods, agent));
    auto view = text ? read(*text) : Result<AgentView>(tl::unexpected(text.error()));
    if (view) {
      into->view = std::move(*view);
      return;
    }
    into->error = fmt::format("pod {} does not answer: {}", agent, view.error().what);
  }
}

void add_node(const NodeView& node, std::vector<std::vector<std::string>>* rows) {
  if (!node.view) {
    rows->push_back({node.node, "?", node.error});
    return;
  }
  for (const auto& card : node.view->cards) {
    const auto id = card.card.id.str();
    rows->push_back({node.node, short_uuid(id), card.card.model, used_cell(card.used, card.card.memory), "",
                     fmt::format("{} %", card.utilization_percent),
                     card.card.health.ok ? "" : "UNHEALTHY: " + card.card.health.reason});
    for (const auto& slice : node.view->slices) {
      for (const auto& held : slice.cards) {
        if (held.card != id) continue;
        rows->push_back({"", "", "  " + clipped(slice.name.empty() ? slice.id : slice.name, 48),
                         used_cell(held.used, held.limit), wanted_cell(slice, held),
                         fmt::format("{:.1f} %", held.delivered_percent), slice.state});
      }
    }
    for (const auto& process : card.foreign)
      rows->push_back({"", "", fmt::format("  process {} outside any slice", process.pid), memory_cell(process.memory),
                       "", fmt::format("{} %", process.sm_percent), "foreign"});
  }
}

}  // namespace

Result<std::string> ask_agent(KubeApi& api, const std::string& namespace_name, const std::string& node,
                              const std::string& path, const KubeApi::Query& query) {
  CARVE_TRY(const auto agents, agents_of(api, namespace_name, node));
  Error last{Code::kNotFound, "no agent runs on node \"" + node + "\""};
  for (const auto& [name, pods] : agents) {
    for (const auto& pod : pods) {
      auto text = api.get(fmt::format("{}/{}/proxy{}", pods_in(namespace_name), pod, path), query);
      if (text) return text;
      last = text.error();
    }
  }
  return tl::unexpected(last);
}

Result<std::vector<NodeView>> ask_agents(KubeApi& api, const std::string& namespace_name, const std::string& node,
                                         const ReadView& read) {
  CARVE_TRY(const auto agents, agents_of(api, namespace_name, node));
  if (agents.empty())
    return fail(Code::kNotFound,
                fmt::format("no agent runs{} in namespace {}; if Carve is in another namespace, name it with "
                            "--carve-namespace",
                            node.empty() ? std::string() : " on node \"" + node + "\"", namespace_name));
  std::vector<NodeView> views;
  views.reserve(agents.size());
  for (const auto& row : agents) views.push_back({row.first, std::nullopt, {}});
  std::atomic<std::size_t> next = 0;
  {
    std::vector<Thread> asking;
    for (std::size_t i = 0; i < std::min(kAtOnce, views.size()); ++i)
      asking.emplace_back("top-ask", [&] {
        for (std::size_t at = next++; at < views.size(); at = next++)
          ask(api, pods_in(namespace_name), agents.at(views[at].node), read, &views[at]);
      });
  }
  return views;
}

std::string render_cluster_top(const std::vector<NodeView>& nodes) {
  std::vector<std::vector<std::string>> rows = {
      {"NODE", "CARD", "MODEL / SLICE", "MEMORY USED / LIMIT", "COMPUTE REQUESTED", "DELIVERED", "STATE"}};
  for (const auto& node : nodes) add_node(node, &rows);
  return aligned(rows, {3, 5}, "");
}

}  // namespace carve::cli
