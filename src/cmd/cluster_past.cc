#include <map>
#include <string>
#include <utility>

#include "app/cli/cluster/agents.h"
#include "cmd/cluster_access.h"
#include "cmd/options.h"
#include "cmd/past.h"

// carve timeline and carve report of a cluster.
namespace carve::cmd {
namespace {

AskHistories histories_of(const cli::ClusterAccess& access) {
  return [&access](const HistoryQuery& query) {
    return cli::ask_histories(access.api, access.namespace_name, "", query);
  };
}

/// The facts that the board has about now.
void add_now(const codec::ClusterView& view, cli::ReportFacts* facts) {
  std::map<std::string, int> models;
  for (const auto& gpu : view.cards) {
    ++models[gpu.card.model];
    if (!gpu.card.health.ok)
      facts->unhealthy.push_back(gpu.node + " " + gpu.card.id.str() + ": " + gpu.card.health.reason);
  }
  for (const auto& [model, count] : models)
    facts->models += (facts->models.empty() ? "" : ", ") + std::to_string(count) + " × " + model;
  for (const auto& pod : view.waiting)
    facts->waiting.push_back(pod.namespace_name + "/" + pod.name + " (" + pod.asks + "): " + pod.why);
}

}  // namespace

int timeline_of_cluster(const TimelineOptions& options) {
  return with_cluster(options.of, [&](const cli::ClusterAccess& access, const ClusterConfig&) {
    std::string what = options.of.name;
    if (what.rfind("pod/", 0) == 0) what = what.substr(4);
    const bool card = what.starts_with("GPU-") || what.starts_with("MIG-");
    if (!what.empty() && !card && what.find('/') == std::string::npos) what = options.of.namespace_name + "/" + what;
    return print_timeline(options, what, histories_of(access));
  });
}

int report_of_cluster(const ReportOptions& options) {
  return with_cluster(options.of, [&](const cli::ClusterAccess& access, const ClusterConfig&) {
    cli::ReportFacts facts;
    facts.scope = "the cluster of the kubeconfig";
    const auto view = cli::ask_cluster(access, "");
    if (!view) return report(view.error());
    add_now(*view, &facts);
    return write_report(options, std::move(facts),
                        histories_of(access));
  });
}

}  // namespace carve::cmd
