#pragma once

#include <string>
#include <vector>

#include "app/agent/event_log.h"
#include "base/mutex.h"
#include "port/card_files.h"

namespace carve::agent {

/// Keeps the cards' device files closed, if they belong to Carve (own-devices = on).
class CardFileGuard {
 public:
  CardFileGuard(CardFiles* files, EventLog& events) : files_(files), events_(events) {}
  /// Closes the files again, and reports an event if another program opened them. One caller at a time: restore(), then
  /// the health thread.
  void close(const std::vector<int>& minors) EXCLUDES(mutex_);
  /// Why a file cannot be closed; empty: all are closed. Safe from any thread.
  [[nodiscard]] std::string error() const EXCLUDES(mutex_);

 private:
  CardFiles* files_;  // nullptr: the files do not belong to Carve
  EventLog& events_;
  mutable Mutex mutex_;
  std::string error_ GUARDED_BY(mutex_);
};

}  // namespace carve::agent
