#include "app/dashboard/cluster_events.h"

#include <algorithm>
#include <utility>

#include "codec/kube/event.h"

namespace carve::dashboard {
namespace {

using codec::BoardEvent;

/// Removes the oldest until `most` are left.
void keep_newest(std::map<std::string, BoardEvent>* events, std::size_t most) {
  if (events->size() <= most) return;
  std::vector<const BoardEvent*> sorted;
  sorted.reserve(events->size());
  for (const auto& row : *events) sorted.push_back(&row.second);
  const auto first = sorted.end() - static_cast<std::ptrdiff_t>(most);
  std::nth_element(sorted.begin(), first, sorted.end(), [](const auto* a, const auto* b) { return before(*a, *b); });
  const BoardEvent oldest = **first;
  std::erase_if(*events, [&](const auto& row) { return before(row.second, oldest); });
}

}  // namespace

ClusterEvents::ClusterEvents(KubeApi& api, Clock& clock) : api_(api), clock_(clock), demand_(clock) {
  thread_ = Thread("board-events", [this](const std::stop_token& stop) {
    while (demand_.wait(stop)) watch_until_unread(stop);
  });
}

void ClusterEvents::replace(std::size_t component, const std::vector<std::string>& objects) {
  Events events;
  for (const auto& text : objects) {
    if (auto event = codec::parse_board_event(text)) events[codec::uid_of(text)] = std::move(*event);
    if (events.size() > 2 * kMost) keep_newest(&events, kMost);
  }
  const MutexLock lock(mutex_);
  events_[component] = std::move(events);
}

void ClusterEvents::change(std::size_t component, const KubeChange& change) {
  const auto uid = codec::uid_of(change.object);
  auto event = codec::parse_board_event(change.object);
  const MutexLock lock(mutex_);
  Events& events = events_[component];
  if (change.kind == KubeChange::Kind::kDeleted || !event) {
    events.erase(uid);
    return;
  }
  events[uid] = std::move(*event);
  if (events.size() > 2 * kMost) keep_newest(&events, kMost);
}

void ClusterEvents::watch_until_unread(const std::stop_token& stop) {
  std::vector<Thread> watches;  // they end, and are joined, at the end of this call
  for (std::size_t at = 0; at < kComponents.size(); ++at) {
    watches.emplace_back("watch-events", [this, at](const std::stop_token& end) {
      const KubeSink sink = {[this, at](const std::vector<std::string>& objects) { replace(at, objects); },
                             [this, at](const KubeChange& one) { change(at, one); },
                             [](const Error&) {}};  // the events of before remain
      api_.watch("/api/v1/events", {{"fieldSelector", std::string("source=") + kComponents[at]}}, sink, end);
    });
  }
  while (clock_.sleep_for(ReaderDemand::kUnread, stop) && demand_.lasts()) {
  }
}

void ClusterEvents::add(codec::Board* board) {
  demand_.mark();
  const MutexLock lock(mutex_);
  board->events.clear();
  for (const Events& events : events_) {
    for (const auto& row : events) board->events.push_back(row.second);
  }
  std::sort(board->events.begin(), board->events.end(), codec::before);
  if (board->events.size() > kMost)
    board->events.erase(board->events.begin(), board->events.end() - static_cast<std::ptrdiff_t>(kMost));
}

}  // namespace carve::dashboard
