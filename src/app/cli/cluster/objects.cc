#include "app/cli/cluster/objects.h"

#include <fmt/format.h>

#include "app/control/explain.h"
#include "core/cluster/cluster.h"

namespace carve::cli {
namespace {

std::string why_of(const codec::Explanation& said) {
  if (!said.wrong.empty()) return said.wrong;
  if (!said.fits.empty()) return fmt::format("fits on {}; it waits for something else", said.fits.front());
  if (said.refused.empty()) return "no node has cards";
  return explain(said.refused, said.refused.size());
}

}  // namespace

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

std::unique_ptr<control::ClusterModel> model_of(const ClusterAccess& access, const Objects& all) {
  auto model = std::make_unique<control::ClusterModel>(access.dialects, access.clock, access.log);
  model->nodes().replace(all.nodes);
  model->gpus().replace(all.gpus);
  model->pods().replace(all.pods);
  return model;
}

std::vector<codec::WaitingPod> waiting_of(const ClusterAccess& access, const Objects& all,
                                          const ClusterState& state) {
  std::vector<codec::WaitingPod> waiting;
  for (const auto& text : all.pods) {
    const auto pod = codec::parse_cluster_pod(text);
    if (!pod || !pod->node.empty() || pod->ended || !codec::carries_slots(pod->ask)) continue;
    const auto said = control::explain(*pod, access.dialects, state, access.placement);
    if (said.asks.empty() && said.wrong.empty()) continue;
    waiting.push_back({said.space, said.name, to_human(said.asks), why_of(said)});
  }
  return waiting;
}

}  // namespace carve::cli
