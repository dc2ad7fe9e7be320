#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "app/events/event_recorder.h"
#include "base/clock.h"
#include "codec/kubelet/node_pod.h"

namespace carve::node {

/// Reports pods of this node that are without the cards that they request, although no refusal of this agent says so:
///   - static pods without slots. The kubelet counts the resource names, admission does not see static pods, and only
///     slots make the kubelet ask for cards. They run without a card.
///   - pods that the kubelet rejected because no slot was available at that moment, for example because the agent's
///     container had been killed. They stay Failed.
/// One thread.
class CardlessPods {
 public:
  /// How often the event of a static pod is repeated, because an API server forgets events after an hour.
  static constexpr Clock::Duration kTellAgain = std::chrono::minutes(20);
  /// Older rejections were reported by a previous agent.
  static constexpr Clock::Duration kRecent = std::chrono::minutes(10);

  CardlessPods(events::EventRecorder& notices, const Clock& clock) : notices_(notices), clock_(clock) {}
  /// `plugins`: the resource names that other device plugins of this node serve; static pods that request one of them
  /// are not reported.
  void step(const std::vector<codec::NodePod>& pods, const std::map<std::string, std::size_t>& plugins);

 private:
  void tell(const codec::NodePod& pod, const std::map<std::string, std::size_t>& plugins);

  events::EventRecorder& notices_;
  const Clock& clock_;
  std::map<std::string, Clock::Time> next_;  // by the UID of a reported pod: when to report it again
};

}  // namespace carve::node
