#include "app/cli/cluster/questions.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/control/cluster_model.h"
#include "app/control/explain.h"
#include "codec/cluster/notes.h"
#include "core/cluster/cluster.h"

namespace carve::cli {
namespace {

struct Objects {
  std::vector<std::string> nodes;
  std::vector<std::string> gpus;
  std::vector<std::string> pods;
};

Result<Objects> read_all(KubeApi& api) {
  Objects all;
  auto gpus = api.list("/apis/elasticgpu.io/v1alpha1/gpus");
  if (!gpus && gpus.error().code == Code::kNotFound)
    return fail(Code::kNotFound, "this cluster knows no GPU objects: Carve is not installed (deploy/crds)");
  if (!gpus) return fail_in("GPU objects", gpus.error());
  all.gpus = std::move(*gpus);
  CARVE_TRY(all.nodes, api.list("/api/v1/nodes"));
  CARVE_TRY(all.pods, api.list("/api/v1/pods"));
  return all;
}

std::shared_ptr<const ClusterState> state_of(const ClusterAccess& access, const Objects& all) {
  control::ClusterModel model(access.dialects, access.clock, access.log);
  model.nodes().replace(all.nodes);
  model.gpus().replace(all.gpus);
  model.pods().replace(all.pods);
  return model.snapshot();
}

std::string why_of(const codec::Explanation& said) {
  if (!said.wrong.empty()) return said.wrong;
  if (!said.fits.empty()) return fmt::format("fits on {}; it waits for something else", said.fits.front());
  if (said.refused.empty()) return "no node has cards";
  return explain(said.refused, said.refused.size());
}

std::vector<codec::WaitingPod> waiting_of(const ClusterAccess& access, const Objects& all) {
  std::vector<codec::WaitingPod> waiting;
  const auto state = state_of(access, all);
  for (const auto& text : all.pods) {
    const auto pod = codec::parse_cluster_pod(text);
    if (!pod || !pod->node.empty() || pod->ended) continue;
    const auto said = control::explain(*pod, access.dialects, *state, access.policy);
    if (said.asks.empty() && said.wrong.empty()) continue;
    waiting.push_back({said.space, said.name, to_human(said.asks), why_of(said)});
  }
  return waiting;
}

}  // namespace

Result<codec::ClusterView> ask_cluster(const ClusterAccess& access, const std::string& node) {
  CARVE_TRY(const auto all, read_all(access.api));
  std::vector<codec::GpuObject> cards;
  for (const auto& text : all.gpus) {
    std::size_t odd = 0;
    CARVE_TRY(auto gpu, codec::parse_gpu_object(text, &odd));
    if (node.empty() || gpu.node == node) cards.push_back(std::move(gpu));
  }
  if (!node.empty() && cards.empty()) return fail(Code::kNotFound, "no card is known on a node \"" + node + "\"");
  std::vector<codec::WaitingPod> waiting;
  if (node.empty()) waiting = waiting_of(access, all);
  return codec::cluster_view(std::move(cards), std::move(waiting));
}

Result<codec::Explanation> ask_pod(const ClusterAccess& access, const std::string& space, const std::string& name) {
  const std::string path = "/api/v1/namespaces/" + space + "/pods/" + name;
  const auto text = access.api.get(path);
  if (!text && text.error().code == Code::kNotFound)
    return fail(Code::kNotFound, "no pod " + name + " in namespace " + space);
  if (!text) return tl::unexpected(text.error());
  CARVE_TRY(const auto pod, codec::parse_cluster_pod(*text));
  CARVE_TRY(const auto all, read_all(access.api));
  auto said = control::explain(pod, access.dialects, *state_of(access, all), access.policy);
  // Events are nobody's truth: without them the rest stands.
  if (const auto events = access.api.list("/api/v1/namespaces/" + space + "/events",
                                          {{"fieldSelector", "involvedObject.uid=" + pod.ask.uid}}))
    said.scheduler_says = codec::scheduler_word(*events);
  return said;
}

}  // namespace carve::cli
