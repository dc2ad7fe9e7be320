#pragma once

#include <functional>
#include <initializer_list>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"

namespace carve::control {

class ChangeQueue;

/// The consumers of changes also look at everything this often. So a change that no feed published is only delayed.
inline constexpr Clock::Duration kResync = std::chrono::seconds(10);

/// What changed since a consumer last took its changes.
struct Changes {
  std::set<std::string> pods;   // UIDs: the pod waits or is unplaced (PodEntry), or was until now; or a filter call
                                // found no node for it
  std::set<std::string> nodes;  // names: the node's ledger is another one, or the node was added or removed
  bool all = false;             // anything may have changed: the first lists arrived, or this replica leads from now on
  [[nodiscard]] bool empty() const { return pods.empty() && nodes.empty() && !all; }
};

/// The source of changes. Each published change is added to the queue of each consumer. Publishing never waits for a
/// consumer. Safe from any thread; must outlive the queues that receive from it.
class ChangeFeed {
 public:
  void pod(const std::string& uid) const;
  void node(const std::string& name) const;
  void all() const;

 private:
  friend class ChangeQueue;
  mutable Mutex mutex_;
  mutable std::vector<ChangeQueue*> queues_ GUARDED_BY(mutex_);
};

/// The work queue of one consumer. A name that is added again before the consumer took it is one entry, so a slow
/// consumer takes the current state once. Safe from any thread; one thread consumes.
class ChangeQueue {
 public:
  /// After a change, the time until the consumer takes it: the changes of a burst are taken together.
  static constexpr Clock::Duration kGather = std::chrono::milliseconds(10);

  /// Receives from these feeds.
  explicit ChangeQueue(std::initializer_list<const ChangeFeed*> feeds);
  ~ChangeQueue();
  ChangeQueue(const ChangeQueue&) = delete;
  ChangeQueue& operator=(const ChangeQueue&) = delete;

  void add_pod(const std::string& uid) EXCLUDES(mutex_);
  void add_node(const std::string& name) EXCLUDES(mutex_);
  void add_all() EXCLUDES(mutex_);
  /// Removes and returns what was added. Does not wait.
  [[nodiscard]] Changes take() EXCLUDES(mutex_);
  /// Calls `step` at the start, after each change, and at the time that its last call returned, until `stop`. The
  /// thread sleeps in between, at least for `gather`.
  void run(Clock& clock, const std::stop_token& stop, const std::function<Clock::Time()>& step,
           Clock::Duration gather = kGather) EXCLUDES(mutex_);

 private:
  /// Waits for a change, `until` or `stop`.
  void wait(Clock& clock, Clock::Time until, const std::stop_token& stop) EXCLUDES(mutex_);

  const std::vector<const ChangeFeed*> feeds_;
  Mutex mutex_;
  StopCondition changed_;
  Changes changes_ GUARDED_BY(mutex_);
};

}  // namespace carve::control
