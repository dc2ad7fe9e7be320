#include "app/control/read_api.h"

#include <utility>

namespace carve::control {

codec::ClusterView view_of(const ClusterModel& model) {
  std::vector<codec::WaitingPod> waiting;
  for (const auto& pod : model.pods_where([](const KnownPod& one) { return one.waits(); })) {
    waiting.push_back({pod->object.ask.space, pod->object.ask.name, to_human(pod->parts), pod->nonsense});
  }
  return codec::cluster_view(model.gpu_objects(), std::move(waiting));
}

}  // namespace carve::control
