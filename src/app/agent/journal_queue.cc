#include "app/agent/journal_queue.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace carve::agent {
namespace {

constexpr std::size_t kMostTickets = 32;  // in one transaction: a line of the journal has a limit
constexpr std::size_t kMostOwed = 256;    // events in one transaction

/// The journal refused an event, so its file was not touched.
bool refused(const Error& error) {
  return error.code == Code::kInvalidArgument || error.code == Code::kNotFound || error.code == Code::kOutOfRange;
}

}  // namespace

Result<void> JournalQueue::append(std::vector<JournalEvent> events) {
  Ticket ticket{std::move(events)};
  MutexLock lock(mutex_);
  queue_.push_back(&ticket);
  while (!ticket.done) {
    if (writing_) {
      changed_.wait(lock);
      continue;
    }
    writing_ = true;
    const auto batch = next_batch();
    const auto owed = owed_;
    lock.unlock();
    const std::size_t settled = write(owed, batch);
    lock.lock();
    writing_ = false;
    owed_.erase(owed_.begin(), owed_.begin() + static_cast<std::ptrdiff_t>(settled));
    for (Ticket* one : batch) one->done = true;
    changed_.notify_all();
  }
  return ticket.result;
}

void JournalQueue::owe(std::vector<JournalEvent> events) {
  const MutexLock lock(mutex_);
  owed_.insert(owed_.end(), std::make_move_iterator(events.begin()), std::make_move_iterator(events.end()));
}

Result<void> JournalQueue::settle() {
  if (!owes()) return {};
  return append({});
}

bool JournalQueue::owes() const {
  const MutexLock lock(mutex_);
  return !owed_.empty();
}

std::size_t JournalQueue::waiting() const {
  const MutexLock lock(mutex_);
  return queue_.size();
}

std::vector<JournalQueue::Ticket*> JournalQueue::next_batch() {
  const auto end = queue_.begin() + static_cast<std::ptrdiff_t>(std::min(kMostTickets, queue_.size()));
  std::vector<Ticket*> batch(queue_.begin(), end);
  queue_.erase(queue_.begin(), end);
  return batch;
}

std::vector<JournalEvent> JournalQueue::still_valid(const std::vector<JournalEvent>& owed) const {
  std::vector<JournalEvent> valid;
  if (owed.empty()) return valid;
  JournalState state = journal_.state();
  for (const auto& event : owed) {
    const auto* drop = std::get_if<DropNote>(&event);
    if (drop != nullptr && state.notes.count(drop->slice) == 0) continue;  // deleted already
    if (apply_event(state, event)) valid.push_back(event);
  }
  return valid;
}

std::size_t JournalQueue::write(const std::vector<JournalEvent>& owed, const std::vector<Ticket*>& batch) {
  const auto commit = [this](const std::vector<JournalEvent>& events) {
    return events.empty() ? Result<void>() : journal_.append(events);
  };
  std::vector<JournalEvent> first = still_valid(owed);
  while (first.size() > kMostOwed) {
    const auto end = first.begin() + static_cast<std::ptrdiff_t>(kMostOwed);
    if (auto written = commit({first.begin(), end}); !written) {
      for (Ticket* one : batch) one->result = written;
      return 0;  // the next attempt leaves the written events out as invalid
    }
    first.erase(first.begin(), end);
  }
  std::vector<JournalEvent> all = first;
  for (const Ticket* one : batch) all.insert(all.end(), one->events.begin(), one->events.end());
  auto written = commit(all);
  if (written || batch.size() == 1 || !refused(written.error())) {
    for (Ticket* one : batch) one->result = written;
    return written ? owed.size() : 0;
  }
  // One caller's events were refused: the others are written without them.
  bool settled = first.empty();
  for (Ticket* one : batch) {
    all = settled ? std::vector<JournalEvent>() : first;
    all.insert(all.end(), one->events.begin(), one->events.end());
    one->result = commit(all);
    settled = settled || one->result.has_value();
  }
  return settled ? owed.size() : 0;
}

}  // namespace carve::agent
