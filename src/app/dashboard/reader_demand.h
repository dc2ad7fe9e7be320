#pragma once

#include <stop_token>

#include "base/clock.h"
#include "base/mutex.h"

namespace carve::dashboard {

/// Whether a caller reads what a thread provides, so that the thread works only then. Safe from any thread.
class ReaderDemand {
 public:
  explicit ReaderDemand(const Clock& clock) : clock_(clock) {}

  /// A caller reads now.
  void mark() EXCLUDES(mutex_);

  /// For the thread: false: no caller has read for kUnread.
  [[nodiscard]] bool lasts() EXCLUDES(mutex_);

  /// For the thread: waits until a caller reads, if none has for kUnread. False: the stop was requested.
  [[nodiscard]] bool wait(const std::stop_token& stop) EXCLUDES(mutex_);

  static constexpr std::chrono::seconds kUnread{30};

 private:
  void forget_if_unread() REQUIRES(mutex_);

  const Clock& clock_;
  Mutex mutex_;
  Clock::Time read_ GUARDED_BY(mutex_){};
  bool wanted_ GUARDED_BY(mutex_) = false;
  StopCondition marked_;
};

}  // namespace carve::dashboard
