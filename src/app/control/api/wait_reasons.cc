#include "app/control/api/wait_reasons.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "app/control/api/read_api.h"

namespace carve::control {

codec::ClusterView WaitReasons::view(const ClusterModel& model, const ClaimBook& claims, const PlacementRules& rules) {
  const auto cluster = model.snapshot();
  const auto pods = model.waiting();
  std::map<std::string, Known> known;
  {
    const MutexLock lock(mutex_);
    known = known_;
  }
  std::map<std::string, Known> kept;  // without the pods that wait no more
  std::vector<std::pair<Clock::Time, ClusterModel::Pod>> order;
  for (const auto& pod : pods) {
    const auto found = known.find(pod->object.ask.uid);
    if (found != known.end()) kept.insert(*found);
    order.emplace_back(found == known.end() ? Clock::Time::min() : found->second.at, pod);
  }
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  const std::size_t nodes = std::max<std::size_t>(1, cluster->size());
  const std::size_t most = std::max<std::size_t>(1, kNodesPerCall / nodes);
  for (std::size_t at = 0; at < order.size() && at < most; ++at) {
    const auto& pod = *order[at].second;
    kept[pod.object.ask.uid] = {why_it_waits(pod, model, *cluster, rules), clock_.now()};
  }
  std::map<std::pair<std::string, std::string>, std::string> by_name;
  for (const auto& pod : pods) {
    const auto found = kept.find(pod->object.ask.uid);
    if (found != kept.end()) by_name[{pod->object.ask.namespace_name, pod->object.ask.name}] = found->second.why;
  }
  auto view = view_of(model, claims);
  for (auto& pod : view.waiting) {
    const auto found = by_name.find({pod.namespace_name, pod.name});
    if (found != by_name.end()) pod.why = found->second;
  }
  const MutexLock lock(mutex_);
  known_ = std::move(kept);
  return view;
}

}  // namespace carve::control
