#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "base/mutex.h"
#include "port/node_journal.h"

namespace carve::agent {

/// The order of the node's journal. One caller at a time writes; the callers that arrive meanwhile share the next
/// transaction and its sync. A caller waits for at most the running sync and its own. Safe from any thread.
class JournalQueue {
 public:
  explicit JournalQueue(NodeJournal& journal) : journal_(journal) {}

  /// Appends the events as one transaction, all or none; durable on return. Owed events are written first.
  ///   errors  those of NodeJournal::append()
  Result<void> append(std::vector<JournalEvent> events) EXCLUDES(mutex_);
  /// Queues removals that the next append() or settle() writes first. They stay owed until they are written, so no
  /// later event reaches the journal before them. Events that are invalid by then (the owner holds nothing) are left
  /// out. No input or output.
  void owe(std::vector<JournalEvent> events) EXCLUDES(mutex_);
  /// Writes the owed events. Succeeds without input or output when nothing is owed.
  Result<void> settle() EXCLUDES(mutex_);
  [[nodiscard]] bool owes() const EXCLUDES(mutex_);
  /// The callers that wait for the next transaction. For tests and diagnosis.
  [[nodiscard]] std::size_t waiting() const EXCLUDES(mutex_);

 private:
  struct Ticket {
    std::vector<JournalEvent> events;
    bool done = false;
    Result<void> result = {};
  };
  [[nodiscard]] std::vector<Ticket*> next_batch() REQUIRES(mutex_);
  /// Returns the number of owed events that are settled. Called by one thread at a time, without the lock.
  std::size_t write(const std::vector<JournalEvent>& owed, const std::vector<Ticket*>& batch);
  [[nodiscard]] std::vector<JournalEvent> still_valid(const std::vector<JournalEvent>& owed) const;

  NodeJournal& journal_;  // used by the thread that set writing_
  mutable Mutex mutex_;
  Condition changed_;
  bool writing_ GUARDED_BY(mutex_) = false;
  std::deque<Ticket*> queue_ GUARDED_BY(mutex_);
  std::vector<JournalEvent> owed_ GUARDED_BY(mutex_);
};

}  // namespace carve::agent
