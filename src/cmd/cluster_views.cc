#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "adapter/api/messages.h"
#include "adapter/kube/kube_client.h"
#include "app/cli/cluster/agents.h"
#include "app/cli/cluster/doctor.h"
#include "app/cli/cluster/explain.h"
#include "app/cli/cluster/gpushare.h"
#include "app/cli/cluster/inspect.h"
#include "app/cli/cluster/questions.h"
#include "app/cli/cluster/top.h"
#include "app/cli/doctor.h"
#include "app/cli/slice_table.h"
#include "app/control/state/policy_watcher.h"
#include "codec/cluster/notes.h"
#include "codec/host/findings.h"
#include "codec/kubeconfig/kubeconfig.h"
#include "cmd/cluster_access.h"
#include "cmd/cluster_config.h"
#include "cmd/config.h"
#include "cmd/document.h"
#include "cmd/live.h"
#include "cmd/options.h"

// The views of a whole cluster: `carve inspect --cluster`, `carve explain` and others, also as `kubectl carve …`.
namespace carve::cmd {
namespace {

/// Prints the answer of `ask`: as a document, or as `render` formats it; with --watch again whenever it changes.
template <class Ask, class Render>
int answer(const ClusterOptions& options, const Ask& ask, const Render& render) {
  return with_cluster(options, [&](const cli::ClusterAccess& access, const ClusterConfig&) {
    return show_watched(options.watch, options.output, [&]() -> Result<std::string> {
      CARVE_TRY(const auto answered, ask(access));
      return is_document(options.output) ? document(codec::to_json(answered), options.output) : render(answered);
    });
  });
}

}  // namespace

int inspect_cluster(const ClusterOptions& options) {
  if (options.output == "gpushare") {
    return with_cluster(options, [&](const cli::ClusterAccess& access, const ClusterConfig& config) {
      return show_watched(options.watch, options.output, [&]() -> Result<std::string> {
        CARVE_TRY(const auto view, cli::ask_cluster(access, options.name));
        CARVE_TRY(const auto addresses, cli::ask_addresses(access.api));
        return cli::render_gpushare(view, config.gpushare_unit, addresses, options.details);
      });
    });
  }
  return answer(
      options, [&](const cli::ClusterAccess& access) { return cli::ask_cluster(access, options.name); },
      [&](const codec::ClusterView& view) {
        if (options.output == "csv") return cli::cluster_csv(view);
        if (options.output == "name") return cli::cluster_names(view);
        return cli::render_cluster(view, options.output == "wide");
      });
}

int top_cluster(const ClusterOptions& options, const ViewOptions& how) {
  SystemClock clock;
  Log log([](std::string_view) {});
  auto api = api_of(options, clock, log);
  if (!api) return report(api.error());
  cli::SortSlices sort = cli::SortSlices::kName;
  cli::sort_from(how.sort, &sort);
  cli::SliceTable slices(sort, how.filter);
  return show_live(how, [&]() -> Result<std::string> {
    CARVE_TRY(const auto nodes, cli::ask_agents(**api, space_of(options), options.name, api::view_of_json));
    if (is_document(how.output)) return document(api::to_json(nodes), how.output);
    if (how.output == "csv") return slices.csv(nodes);
    if (!how.sort.empty() || !how.filter.empty()) return slices.render(nodes);
    return cli::render_cluster_top(nodes);
  });
}

namespace {

/// The settings without the lines that name users and groups, which exist on the nodes and not here. Keeps the numbers
/// of the lines.
std::string without_users(const std::string& text) {
  std::string kept;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find('\n', at), text.size());
    const auto first = text.find_first_not_of(" \t", at);
    const bool users =
        first != std::string::npos && (text.compare(first, 5, "allow") == 0 || text.compare(first, 4, "deny") == 0);
    if (!users) kept += text.substr(at, end - at);
    kept += '\n';
    at = end + 1;
  }
  return kept;
}

/// The ConfigMaps of this installation that the processes refuse. One that does not exist, or that the caller may not
/// read, is not wrong.
std::vector<cli::WrongSettings> wrong_settings(KubeApi& api, const std::string& namespace_name) {
  std::vector<cli::WrongSettings> wrong;
  const auto check = [&](const std::string& name, const char* key, const auto& parse) {
    const auto object = api.get(map_in(namespace_name, name));
    if (!object) return;
    const auto text = codec::config_map_value(*object, key);
    if (text.empty()) return;
    if (const auto error = parse(text); !error.empty()) wrong.push_back({namespace_name + "/" + name, error});
  };
  check("carve-agent", "carve.conf", [](const std::string& text) {
    HostOptions host;
    const auto read = parse_config(without_users(text), "carve.conf", {}, &host);
    return read ? std::string() : read.error().what;
  });
  check("carve-cluster", "cluster.conf", [](const std::string& text) {
    const auto read = parse_cluster_config(text, "cluster.conf");
    return read ? std::string() : read.error().what;
  });
  check(control::PolicyWatcher::kConfigMap, control::PolicyWatcher::kKey, [](const std::string& text) {
    const auto read = control::placement_rules_from(text, kPolicies[0]);
    return read ? std::string() : read.error().what;
  });
  return wrong;
}

}  // namespace

int doctor_cluster(const ClusterOptions& options) {
  return with_cluster(options, [&](const cli::ClusterAccess& access, const ClusterConfig& config) {
    auto facts = cli::look_at_cluster(access, config.scheduler);
    if (!facts) return report(facts.error());
    facts->settings = wrong_settings(access.api, access.namespace_name);
    const auto findings = cli::diagnose_cluster(*facts);
    const auto text = is_document(options.output) ? document(codec::to_json(findings), options.output)
                                                  : Result<std::string>(cli::render_findings(findings, std::nullopt));
    if (!text) return report(text.error());
    std::printf("%s", text->c_str());
    return cli::anything_wrong(findings) ? kExitFailed : kExitOk;
  });
}

int explain_pod(const ClusterOptions& options) {
  std::string namespace_name = options.namespace_name;
  std::string name = options.name;
  if (name.rfind("pod/", 0) == 0) name = name.substr(4);
  if (const auto slash = name.find('/'); slash != std::string::npos) {
    namespace_name = name.substr(0, slash);
    name = name.substr(slash + 1);
  }
  return answer(
      options, [&](const cli::ClusterAccess& access) { return cli::ask_pod(access, namespace_name, name); },
      [](const codec::Explanation& said) { return cli::render_explanation(said); });
}

}  // namespace carve::cmd
