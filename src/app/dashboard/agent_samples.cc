#include "app/dashboard/agent_samples.h"

#include <algorithm>

namespace carve::dashboard {

AgentSamples::AgentSamples(Ask ask, Clock& clock) : ask_(std::move(ask)), clock_(clock), demand_(clock) {
  thread_ = Thread("agent-samples", [this](const std::stop_token& stop) { run(stop); });
}

std::shared_ptr<const AgentViews> AgentSamples::latest() {
  demand_.mark();
  const MutexLock lock(mutex_);
  return views_;
}

void AgentSamples::run(const std::stop_token& stop) {
  while (demand_.wait(stop)) {
    auto asked = ask_();
    std::size_t count = 0;
    if (asked) {
      auto views = std::make_shared<AgentViews>();
      for (auto& one : *asked) (*views)[one.node] = std::move(one);
      count = views->size();
      const MutexLock lock(mutex_);
      views_ = std::move(views);
    }
    // A round without an answer: the agents' pods cannot be listed. The old views are kept, and are asked again.
    const auto pause = std::max<Clock::Duration>(kFewest, std::chrono::seconds(1) * count / kAsksPerSecond);
    clock_.sleep_for(pause, stop);
  }
}

}  // namespace carve::dashboard
