#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "app/agent/journal_queue.h"
#include "base/mutex.h"
#include "base/result.h"

namespace carve::agent {

/// Names that no other slice has had or will have, even after a reboot. Safe from any thread. No lock is held while the
/// journal writes.
class SliceNames {
 public:
  explicit SliceNames(JournalQueue& journal) : journal_(journal) {}

  /// At the start: the random number of this run, and the journal's counter.
  void restore(const JournalState& journal) EXCLUDES(mutex_);
  /// A name of a local slice: run-… or dev-… (`keep`). It is unique by the random number of this run. No input or
  /// output.
  [[nodiscard]] std::string next_local(bool keep) EXCLUDES(mutex_);
  /// A name for a device that is promised to the kubelet. Waits for the disk only if no name is left that is reserved
  /// in the journal.
  ///   errors  those of the journal
  Result<std::string> next_device() EXCLUDES(mutex_);
  /// Reserves a block of names in the journal if fewer than half a block is left.
  Result<void> set_aside() EXCLUDES(mutex_);
  /// Used while the journal cannot be written. Only 48 random bits make the name unique.
  [[nodiscard]] static std::string unwritten();

 private:
  std::optional<std::string> take() EXCLUDES(mutex_);

  JournalQueue& journal_;
  Mutex mutex_;
  Condition set_aside_;
  std::uint32_t run_number_ GUARDED_BY(mutex_) = 0;
  std::uint64_t next_local_ GUARDED_BY(mutex_) = 1;
  std::uint64_t next_device_ GUARDED_BY(mutex_) = 0;
  std::uint64_t reserved_until_ GUARDED_BY(mutex_) = 0;
  std::uint64_t counter_ GUARDED_BY(mutex_) = 0;  // as in the journal
  bool reserving_ GUARDED_BY(mutex_) = false;     // a thread writes the counter
};

}  // namespace carve::agent
