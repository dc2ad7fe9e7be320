#include "app/control/read_api.h"

#include <utility>

namespace carve::control {

codec::ClusterView view_of(const ClusterModel& model) {
  std::vector<codec::WaitingPod> waiting;
  for (const auto& pod : model.pods_where([](const KnownPod& one) { return one.waits(); })) {
    codec::WaitingPod row{pod->object.ask.space, pod->object.ask.name, {}, pod->nonsense};
    for (const auto& part : pod->parts)
      row.asks += (row.asks.empty() ? "" : "; ") + part.part + ": " + to_human(part.request);
    waiting.push_back(std::move(row));
  }
  return codec::cluster_view(model.gpu_objects(), std::move(waiting));
}

}  // namespace carve::control
