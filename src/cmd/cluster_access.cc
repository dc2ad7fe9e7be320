#include "cmd/cluster_access.h"

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "adapter/kube/kube_client.h"
#include "app/control/state/policy_watcher.h"
#include "codec/cluster/notes.h"
#include "codec/kubeconfig/kubeconfig.h"

namespace carve::cmd {
namespace {

/// The log of a command for a person: its answer says everything, and log lines are JSON for programs.
void drop_line(std::string_view) {}

/// Like kubectl: the files of $KUBECONFIG, else ~/.kube/config. `given` is one file, even if its name contains a colon.
std::vector<std::string> kubeconfigs_of(const std::string& given) {
  if (!given.empty()) return {given};
  if (const char* list = std::getenv("KUBECONFIG"); list != nullptr && *list != '\0') {
    return codec::kubeconfig_list(list);
  }
  const char* home = std::getenv("HOME");
  return {std::string(home == nullptr ? "" : home) + "/.kube/config"};
}

}  // namespace

Result<std::unique_ptr<KubeApi>> api_of(const ClusterOptions& options, Clock& clock, Log& log) {
  std::string all;
  const auto files = kubeconfigs_of(options.kubeconfig);
  for (const auto& file : files) all += (all.empty() ? "" : ":") + file;
  auto api = kube::open_merged(files, clock, log, {}, options.context);
  if (!api) return fail_in(all.empty() ? "$KUBECONFIG" : "kubeconfig " + all, api.error());
  return api;
}

namespace {

/// Warns if the namespace does not exist: then Carve is installed in another one. If the namespace exists without the
/// ConfigMap, Carve serves DRA alone.
void tell_of_no_namespace(KubeApi& api, const std::string& namespace_name) {
  const auto object = api.get("/api/v1/namespaces/" + namespace_name);
  if (!object && object.error().code == Code::kNotFound)
    std::fprintf(stderr,
                 "carve: namespace %s does not exist; set --carve-namespace to Carve's namespace; assuming defaults\n",
                 namespace_name.c_str());
}

/// How this installation reads requests. If the user may not read the ConfigMap, a warning says so and the defaults are
/// used.
ClusterConfig config_of(KubeApi& api, const std::string& namespace_name) {
  const auto object = api.get(map_in(namespace_name, "carve-cluster"));
  if (!object) {
    if (object.error().code == Code::kNotFound)
      tell_of_no_namespace(api, namespace_name);
    else
      std::fprintf(stderr, "carve: ConfigMap %s/carve-cluster: %s; defaults are assumed\n", namespace_name.c_str(),
                   object.error().what.c_str());
    return {};
  }
  const auto config = parse_cluster_config(codec::config_map_value(*object, "cluster.conf"), "cluster.conf");
  if (config) return *config;
  std::fprintf(stderr, "carve: %s; defaults are assumed\n", config.error().what.c_str());
  return {};
}

/// The placement rules. If they cannot be read, a warning says so and `otherwise` is used.
PlacementRules placement_of_cluster(KubeApi& api, const std::string& namespace_name, const PolicyRow& otherwise) {
  const std::string name = control::PolicyWatcher::kConfigMap;
  const auto object = api.get(map_in(namespace_name, name));
  if (!object && object.error().code != Code::kNotFound) {
    std::fprintf(stderr, "carve: ConfigMap %s/%s: %s; the cluster's policy is assumed everywhere\n",
                 namespace_name.c_str(), name.c_str(), object.error().what.c_str());
  }
  const auto text = object ? codec::config_map_value(*object, control::PolicyWatcher::kKey) : std::string();
  auto rules = control::placement_rules_from(text, otherwise);
  if (rules) return *rules;
  std::fprintf(stderr,
               "carve: ConfigMap %s/%s: %s\ncarve control keeps the last valid rules, which this command does not "
               "know; the cluster's policy is assumed everywhere\n",
               namespace_name.c_str(), name.c_str(), rules.error().what.c_str());
  return control::rules_of(otherwise);
}

}  // namespace

std::string space_of(const ClusterOptions& options) { return options.carve.empty() ? "carve-system" : options.carve; }

std::string map_in(const std::string& namespace_name, const std::string& name) {
  return "/api/v1/namespaces/" + namespace_name + "/configmaps/" + name;
}

int with_cluster(const ClusterOptions& options,
                 const std::function<int(const cli::ClusterAccess&, const ClusterConfig&)>& use) {
  SystemClock clock;
  Log log(drop_line);
  auto api = api_of(options, clock, log);
  if (!api) return report(api.error());
  const std::string namespace_name = space_of(options);
  const ClusterConfig config = config_of(**api, namespace_name);
  const auto policy = policy_named(config.policy);
  if (!policy) return report(policy.error());
  const auto placement = placement_of_cluster(**api, namespace_name, **policy);
  return use(cli::ClusterAccess{**api, clock, log, config.dialects(), placement, namespace_name}, config);
}

}  // namespace carve::cmd
