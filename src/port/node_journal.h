#pragma once

#include <vector>

#include "base/result.h"
#include "core/journal/journal.h"

namespace carve {

/// The node's journal. Not thread-safe: one call at a time (app/agent/journal_queue.h).
class NodeJournal {
 public:
  virtual ~NodeJournal() = default;
  /// Appends all events or none; durable on return. An error leaves the state unchanged.
  ///   errors  kResourceExhausted: disk full; kPermissionDenied: read-only; …
  virtual Result<void> append(const std::vector<JournalEvent>& events) = 0;
  [[nodiscard]] virtual const JournalState& state() const = 0;
};

}  // namespace carve
