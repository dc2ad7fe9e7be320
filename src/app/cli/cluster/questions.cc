#include "app/cli/cluster/questions.h"

#include "app/cli/cluster/claims.h"
#include "app/cli/cluster/objects.h"
#include "app/control/api/explain.h"
#include "app/control/state/pod_entry.h"
#include "app/control/api/read_api.h"
#include "codec/cluster/cluster_node.h"
#include "codec/cluster/notes.h"

namespace carve::cli {

Result<codec::ClusterView> ask_cluster(const ClusterAccess& access, const std::string& node) {
  CARVE_TRY(const auto all, read_all(access.api));
  auto cards = cards_of(all);
  if (!node.empty()) std::erase_if(cards, [&](const codec::GpuObject& gpu) { return gpu.node != node; });
  if (!node.empty() && cards.empty()) return fail(Code::kNotFound, "no card is known on node \"" + node + "\"");
  const KnownCluster cluster(access, all);
  control::add_unreported(cluster.model(), *cluster.model().snapshot(), &cards);
  cluster.add_claims(&cards);
  std::vector<codec::WaitingPod> waiting;
  if (node.empty()) waiting = waiting_of(access, all, cluster);
  auto view = codec::cluster_view(std::move(cards), std::move(waiting));
  view.unread = unread_of(all);
  return view;
}

Result<std::map<std::string, std::string>> ask_addresses(KubeApi& api) {
  CARVE_TRY(const auto nodes, api.list("/api/v1/nodes"));
  std::map<std::string, std::string> addresses;
  for (const auto& text : nodes) {
    if (auto node = codec::parse_cluster_node(text)) addresses[node->name] = std::move(node->address);
  }
  return addresses;
}

Result<codec::Explanation> ask_pod(const ClusterAccess& access, const std::string& namespace_name,
                                   const std::string& name) {
  const auto text = access.api.get(control::pod_path(namespace_name, name));
  if (!text && text.error().code == Code::kNotFound)
    return fail(Code::kNotFound, "no pod " + name + " in namespace " + namespace_name);
  if (!text) return tl::unexpected(text.error());
  CARVE_TRY(const auto pod, codec::parse_cluster_pod(*text));
  CARVE_TRY(const auto all, read_all(access.api));
  const KnownCluster cluster(access, all);
  auto said = control::explain(pod, cluster.requests(), cluster.model(), access.placement);
  if (said.nodes != 0) said.unread = unread_of(all);
  said.claims = claims_of_pod(access.api, *text);
  const auto elastic = elastic_claims_of_pod(access.api, pod.ask, access.dialects);
  said.claims.insert(said.claims.end(), elastic.begin(), elastic.end());
  // The events are optional: the rest of the explanation does not depend on them.
  if (const auto events = access.api.list("/api/v1/namespaces/" + namespace_name + "/events",
                                          {{"fieldSelector", "involvedObject.uid=" + pod.ask.uid}}))
    said.scheduler_says = codec::scheduler_word(*events);
  return said;
}

}  // namespace carve::cli
