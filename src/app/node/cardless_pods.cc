#include "app/node/cardless_pods.h"

#include <fmt/format.h>

#include <set>

#include "codec/dialects/dialect.h"

namespace carve::node {

void CardlessPods::tell(const codec::NodePod& pod, const std::map<std::string, std::size_t>& plugins) {
  const auto now = clock_.now();
  if (const auto told = next_.find(pod.uid); told != next_.end() && now < told->second) return;
  if (!pod.slot_rejected.empty()) {
    next_[pod.uid] = Clock::Time::max();
    if (pod.started < events::rfc3339(clock_.wall_now() - kRecent)) return;
    notices_.warn(
        {"Pod", pod.namespace_name, pod.name, pod.uid, "SlotUnavailable",
         fmt::format("the kubelet rejected this pod because node {} had no {} at that moment: its device plugin "
                     "was not registered (the agent's container or the kubelet had just ended), or its cards "
                     "were unhealthy; a rejected pod stays Failed: its controller creates another one, a pod "
                     "without a controller has to be created again; see the events of the Node for the cause",
                     pod.node, codec::kSlots)});
    return;
  }
  if (pod.ended || pod.asks_without_slots.empty() || plugins.contains(pod.asks_without_slots)) return;
  next_[pod.uid] = now + kTellAgain;
  notices_.warn(
      {"Pod", pod.namespace_name, pod.name, pod.uid, "NoCards",
       fmt::format("this static pod requests {0} but no {1}, and runs without a card: admission, which adds {1} "
                   "to other pods, does not see static pods; add the limit {1} with the number of cards to the "
                   "container in the pod's file on node {2}",
                   pod.asks_without_slots, codec::kSlots, pod.node)},
      "static pod without slots");
}

void CardlessPods::step(const std::vector<codec::NodePod>& pods, const std::map<std::string, std::size_t>& plugins) {
  std::set<std::string> here;
  for (const auto& pod : pods) {
    here.insert(pod.uid);
    tell(pod, plugins);
  }
  std::erase_if(next_, [&](const auto& entry) { return !here.contains(entry.first); });
}

}  // namespace carve::node
