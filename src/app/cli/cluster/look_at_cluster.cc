#include <algorithm>
#include <chrono>
#include <set>

#include "app/cli/cluster/doctor.h"
#include "app/cli/cluster/objects.h"
#include "app/plugins/device_names.h"
#include "codec/cluster/cluster_pod.h"
#include "codec/cluster/lease.h"
#include "codec/dra/resource_slice.h"

// Reads the facts of `carve doctor --cluster` from the API server. An object that the caller may not read is listed in
// `unread`; the doctor assumes nothing about it.
namespace carve::cli {
namespace {

constexpr const char* kAdmission = "/apis/admissionregistration.k8s.io/v1/";

constexpr const char* kAgentPolicies[] = {"carve-agent-slices.elasticgpu.io", "carve-agent-claims.elasticgpu.io",
                                          "carve-agent-gpus.elasticgpu.io", "carve-agent-nodes.elasticgpu.io",
                                          "carve-events.elasticgpu.io"};
constexpr const char* kControlPolicies[] = {"carve-pods.elasticgpu.io", "carve-bindings.elasticgpu.io",
                                            "carve-leader.elasticgpu.io", "carve-control-nodes.elasticgpu.io"};

/// A pod that requests more compute than a card has. It is only sent as a dry run and never created.
constexpr const char* kNonsense =
    R"({"apiVersion":"v1","kind":"Pod","metadata":{"name":"carve-doctor"},"spec":{"containers":[)"
    R"({"name":"main","image":"none","resources":{"limits":{"elasticgpu.io/gpu-core":"7777"}}}]}})";

class Look {
 public:
  Look(const ClusterAccess& access, ClusterFacts* facts) : access_(access), facts_(*facts) {}

  /// nullopt: the object does not exist, or the caller may not read it (then it is added to `unread`).
  std::optional<std::string> object(const std::string& path) {
    auto text = access_.api.get(path);
    if (text) return std::move(*text);
    if (text.error().code != Code::kNotFound) facts_.unread.push_back(path + ": " + text.error().what);
    return std::nullopt;
  }
  std::optional<codec::Workload> workload(const std::string& path) {
    const auto text = object("/apis/apps/v1/namespaces/" + access_.namespace_name + "/" + path);
    if (!text) return std::nullopt;
    const auto read = codec::parse_workload(*text);
    return read ? std::optional(*read) : std::nullopt;
  }
  /// Adds to `into` the objects that do not exist, except for those that the caller may not read.
  template <class Names>
  void missing(const char* kind, const Names& names, std::vector<std::string>* into) {
    for (const char* name : names) {
      const auto noted = facts_.unread.size();
      if (!object(std::string(kAdmission) + kind + "/" + name) && facts_.unread.size() == noted) into->push_back(name);
    }
  }

 private:
  const ClusterAccess& access_;
  ClusterFacts& facts_;
};

void look_at_leader(Look& look, const Clock& clock, ClusterFacts* facts) {
  const auto text =
      look.object("/apis/coordination.k8s.io/v1/namespaces/" + facts->namespace_name + "/leases/carve-control");
  const auto lease = text ? codec::parse_lease(*text) : Result<codec::Lease>(tl::unexpected(Error{}));
  if (!lease) return;
  const auto now = std::chrono::duration_cast<std::chrono::seconds>(clock.wall_now().time_since_epoch()).count();
  facts->leader = lease->holder;
  facts->lease_age_s = codec::seconds_since_renewal(*lease, now).value_or(-1);
  facts->lease_seconds = lease->seconds;
}

void look_at_admission(Look& look, KubeApi& api, ClusterFacts* facts) {
  look.missing("validatingadmissionpolicies", kAgentPolicies, &facts->policies_missing);
  look.missing("validatingadmissionpolicybindings", kAgentPolicies, &facts->policies_missing);
  if (!facts->control_wanted) return;
  look.missing("validatingadmissionpolicies", kControlPolicies, &facts->policies_missing);
  look.missing("validatingadmissionpolicybindings", kControlPolicies, &facts->policies_missing);
  for (const char* kind : {"mutatingwebhookconfigurations", "validatingwebhookconfigurations"}) {
    const auto noted = facts->unread.size();
    const auto text = look.object(std::string(kAdmission) + kind + "/carve-admission");
    const std::string name = std::string(kind) + "/carve-admission";
    if (!text && facts->unread.size() == noted) facts->webhooks_missing.push_back(name);
    if (text && !codec::has_authority(*text)) facts->webhooks_without_authority.push_back(name);
  }
  const auto tried = api.patch("/api/v1/namespaces/default/pods/carve-doctor", KubePatch::kApply, kNonsense,
                               {{"fieldManager", "carve-doctor"}, {"dryRun", "All"}});
  if (tried)
    facts->nonsense = "";
  else if (tried.error().code == Code::kPermissionDenied && tried.error().what.find("7777") == std::string::npos)
    facts->unread.push_back("admission of an invalid request: " + tried.error().what);
  else
    facts->nonsense = tried.error().what;
}

/// The names that DeviceClasses map to extended resources.
std::vector<std::string> mapped_names(KubeApi& api) {
  std::vector<std::string> names;
  const auto classes = api.list("/apis/resource.k8s.io/v1/deviceclasses");
  if (!classes) return names;  // a Kubernetes without DRA maps nothing
  for (const auto& text : *classes) {
    auto name = codec::mapped_name(text);
    if (!name.empty()) names.push_back(std::move(name));
  }
  return names;
}

/// True for conditions that the node's agent writes. The doctor ignores the kubelet's conditions.
bool is_agents(const std::string& type) {
  return type.rfind("GPU", 0) == 0 || type == "RuntimeWithoutCDI" || type == "ConflictingPlugin";
}

void look_at_nodes(KubeApi& api, const Objects& all, ClusterFacts* facts) {
  std::set<std::string> with_agent;
  const auto agents = api.list("/api/v1/namespaces/" + facts->namespace_name + "/pods", {{"labelSelector", kAgents}});
  if (!agents) facts->unread.push_back("pods of " + facts->namespace_name + ": " + agents.error().what);
  for (const auto& text : agents ? *agents : std::vector<std::string>()) {
    const auto pod = codec::parse_cluster_pod(text);
    if (pod && codec::is_ready(text)) with_agent.insert(pod->node);
  }
  const auto mapped = mapped_names(api);
  for (const auto& text : all.nodes) {
    const auto node = codec::parse_node_object(text);
    if (!node) continue;
    NodeFacts one{node->name,
                  codec::is_ready(text),
                  !agents || with_agent.count(node->name) != 0,
                  codec::labelled_with_cards(text),
                  {},
                  {},
                  false,
                  true};
    for (const auto& [type, condition] : node->conditions) {
      if (is_agents(type)) one.conditions.push_back(condition);
    }
    for (const auto& name : mapped) {
      const auto count = codec::allocatable_of(text, name);
      if (!count.empty() && count != "0") one.mapped_and_served.push_back(name + ": " + count);
    }
    facts->nodes.push_back(std::move(one));
  }
}

/// Whether the nodes that serve claims have ResourceSlices.
void look_at_slices(KubeApi& api, ClusterFacts* facts) {
  std::set<std::string> serving;
  for (const auto& gpu : facts->cards) {
    if (std::find(gpu.plugins.begin(), gpu.plugins.end(), "dra") != gpu.plugins.end()) serving.insert(gpu.node);
  }
  if (serving.empty()) return;
  std::set<std::string> published;
  const auto slices = api.list("/apis/resource.k8s.io/v1/resourceslices",
                               {{"fieldSelector", "spec.driver=" + std::string(plugins::kDriver)}});
  if (!slices) facts->unread.push_back("ResourceSlices: " + slices.error().what);
  for (const auto& text : slices ? *slices : std::vector<std::string>()) {
    const auto slice = codec::parse_slice(text);
    if (slice && slice->driver == plugins::kDriver && !slice->devices.empty()) published.insert(slice->node);
  }
  for (auto& node : facts->nodes) {
    node.serves_claims = serving.contains(node.name);
    node.slices_published = !slices || published.contains(node.name);
  }
}

void look_at_pods(const ClusterAccess& access, const Objects& all, ClusterFacts* facts) {
  const auto claims = access.api.list("/apis/resource.k8s.io/v1/resourceclaims");
  // A Kubernetes without DRA has no such resource, and so no claim.
  if (!claims && claims.error().code != Code::kNotFound)
    facts->unread.push_back("ResourceClaims: " + claims.error().what);
  const auto now = std::chrono::duration_cast<std::chrono::seconds>(access.clock.wall_now().time_since_epoch()).count();
  facts->pods = pods_with_cards(access.api, all.pods, claims ? *claims : std::vector<std::string>(), now);
}

}  // namespace

Result<ClusterFacts> look_at_cluster(const ClusterAccess& access, const std::string& scheduler) {
  ClusterFacts facts;
  facts.namespace_name = access.namespace_name;
  CARVE_TRY(const auto version, access.api.get("/version"));
  facts.server = codec::parse_server_version(version);
  Look look(access, &facts);
  facts.agents = look.workload("daemonsets/carve-agent");
  facts.arbiters = look.workload("daemonsets/carve-arbiter");
  facts.control = look.workload("deployments/carve-control");
  facts.scheduler = look.workload("deployments/carve-scheduler");
  facts.control_wanted =
      facts.control ||
      look.object("/api/v1/namespaces/" + access.namespace_name + "/configmaps/carve-cluster").has_value();
  facts.own_scheduler = scheduler == "carve-scheduler";
  if (facts.control) look_at_leader(look, access.clock, &facts);
  look_at_admission(look, access.api, &facts);
  const auto all = read_all(access.api);
  if (!all && all.error().code != Code::kNotFound) return tl::unexpected(all.error());
  facts.crd = all.has_value();
  if (!all) return facts;
  if (!all->no_config_maps.empty()) facts.unread.push_back("ConfigMaps of kube-system: " + all->no_config_maps);
  look_at_nodes(access.api, *all, &facts);
  facts.cards = cards_of(*all);
  look_at_slices(access.api, &facts);
  look_at_pods(access, *all, &facts);
  const KnownCluster cluster(access, *all);
  facts.conflicts = cluster.model().conflicts();
  facts.waiting = waiting_of(access, *all, cluster);
  return facts;
}

}  // namespace carve::cli
