#include "app/dashboard/cluster_events.h"

#include <algorithm>
#include <utility>

namespace carve::dashboard {

Result<std::vector<codec::BoardEvent>> ClusterEvents::read() const {
  std::vector<codec::BoardEvent> events;
  for (const char* component : {"carve-agent", "carve-control"}) {
    CARVE_TRY(const auto texts, api_.list("/api/v1/events", {{"fieldSelector", std::string("source=") + component}}));
    for (const auto& text : texts) {
      if (auto event = codec::parse_board_event(text)) events.push_back(std::move(*event));
    }
  }
  std::sort(events.begin(), events.end(), codec::before);
  if (events.size() > kMost) events.erase(events.begin(), events.end() - static_cast<std::ptrdiff_t>(kMost));
  return events;
}

void ClusterEvents::add(codec::Board* board) {
  bool due = false;
  {
    const MutexLock lock(mutex_);
    due = clock_.now() >= next_;
    if (due) next_ = clock_.now() + kEvery;
  }
  auto events = due ? read() : Result<std::vector<codec::BoardEvent>>(fail(Code::kUnavailable, ""));
  const MutexLock lock(mutex_);
  if (events) last_ = std::move(*events);
  board->events = last_;
}

}  // namespace carve::dashboard
