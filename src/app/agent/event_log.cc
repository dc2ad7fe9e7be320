#include "app/agent/event_log.h"

#include <chrono>

namespace carve::agent {
namespace {
constexpr std::size_t kMaxEvents = 64;
}  // namespace

void EventLog::note(const std::string& kind, const std::string& slice, const std::string& text) {
  const auto wall = std::chrono::duration_cast<std::chrono::milliseconds>(clock_.wall_now().time_since_epoch());
  {
    const MutexLock lock(mutex_);
    events_.push_back({wall.count(), kind, slice, text});
    while (events_.size() > kMaxEvents) events_.pop_front();
  }
  log_.warn("event", {{"kind", kind}, {"slice", slice}, {"text", text}});
}

std::vector<EventView> EventLog::events() const {
  const MutexLock lock(mutex_);
  return {events_.begin(), events_.end()};
}

}  // namespace carve::agent
