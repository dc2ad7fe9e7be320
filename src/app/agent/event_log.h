#pragma once

#include <deque>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "port/agent_api.h"

namespace carve::agent {

/// The last events for the administrator. Each is also logged. Safe from any thread.
class EventLog {
 public:
  EventLog(const Clock& clock, Log& log) : clock_(clock), log_(log) {}
  void note(const std::string& kind, const std::string& slice, const std::string& text) EXCLUDES(mutex_);
  /// At most 64, the newest last.
  [[nodiscard]] std::vector<EventView> events() const EXCLUDES(mutex_);

 private:
  const Clock& clock_;
  Log& log_;
  mutable Mutex mutex_;
  std::deque<EventView> events_ GUARDED_BY(mutex_);
};

}  // namespace carve::agent
