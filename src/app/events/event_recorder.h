#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <stop_token>
#include <string>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "codec/kube/event.h"
#include "port/kube_api.h"

namespace carve::events {

/// Writes events and claims' conditions to the API server. It writes in the background, one after the other, so that a
/// slow or absent API server never delays a container. A repeated event of the same object is counted in the existing
/// event, with at most one write in ten seconds. At most 1,024 writes wait. Then the oldest is dropped: first events of
/// type Normal, then all others.
class EventRecorder {
 public:
  /// `busy`: as in yield_to().
  EventRecorder(KubeApi& api, std::string node, const Clock& clock, Log& log, std::string component = "carve-agent",
                std::function<bool()> busy = {})
      : api_(api),
        node_(std::move(node)),
        component_(std::move(component)),
        clock_(clock),
        log_(log),
        busy_(std::move(busy)) {}

  /// Records an Event on an object. `same`: the key by which it counts as a repetition of an earlier event; its
  /// message then replaces the message of that event. Empty: the message is the key.
  void warn(codec::EventNote note, const std::string& same = {});
  /// Records a refused start for the Node's condition, even if its pod is not known. `key`: what was to start; repeated
  /// refusals of one key count once. `text`: cause and fix.
  void refused(const std::string& key, std::string text);
  /// Removes the refusal: it has started, or it has ended.
  void settled(const std::string& key);
  /// The current refusals in one sentence; empty: none. A refusal expires six minutes after its last repetition. At
  /// most 1,024 are counted.
  [[nodiscard]] std::string refusals();
  /// Queues any other write. Its failure is logged.
  void post(std::string what, std::function<Result<void>(KubeApi&)> write);
  /// The same after a delay. For writes that no client waits for: they should not load the API server while the
  /// container that they describe is created. `key`: the object of the write; a later write with the same key replaces
  /// it.
  void post_later(const std::string& key, Clock::Duration after, std::string what,
                  std::function<Result<void>(KubeApi&)> write);
  /// Drops the delayed write of this key, because it is no longer true.
  void drop_later(const std::string& key);
  /// While `busy` returns true, writes wait, because other calls to the API server are more urgent. A write waits at
  /// most kPatience, and only while the queue is less than half full. Call it before run().
  static constexpr Clock::Duration kPatience = std::chrono::seconds(10);
  void yield_to(std::function<bool()> busy) { busy_ = std::move(busy); }
  /// Writes until `stop`. Then it writes the rest of the queue, Warning events first, as long as the API server
  /// answers. After kLast it starts no more writes.
  static constexpr Clock::Duration kLast = std::chrono::seconds(2);
  void run(const std::stop_token& stop);
  /// Writes what is due, on the calling thread, until `stop`.
  void write_due(const std::stop_token& stop = {});
  /// Writes the whole queue, on the calling thread (tests; before the end).
  void flush();
  /// The number of writes that were dropped because too many waited.
  [[nodiscard]] std::uint64_t dropped() const;

 private:
  struct Job {
    std::string what;
    std::function<Result<void>(KubeApi&)> write;
    bool minor = false;  // an event of type Normal
    Clock::Time since{};
  };
  /// An event that the API server has, or will have soon.
  struct RecordedEvent {
    codec::EventNote note;
    std::string name;   // of the event
    std::string since;  // time of its first occurrence
    int count = 0;
    int written = 0;  // the count that the server has, or will have soon
    Clock::Time last{};
    Clock::Time last_written{};
  };
  struct Refusal {
    std::string text;
    Clock::Time first{};
    Clock::Time last{};
  };
  struct Later {
    Job job;
    Clock::Time due{};
  };
  bool take(Job* job, bool at_once);
  /// Writes one job after the other while there are any and `go_on` accepts the result of the previous write.
  void write(bool at_once, const std::function<bool(const Result<void>& last)>& go_on);
  void write_last();
  [[nodiscard]] bool yields() const REQUIRES(mutex_);
  [[nodiscard]] Clock::Time earliest_due() const REQUIRES(mutex_);  // the earliest due time of later_
  void queue_due(Clock::Time now) REQUIRES(mutex_);
  void write_count(RecordedEvent* recorded, Clock::Time now) REQUIRES(mutex_);
  void queue_counts(Clock::Duration gap);
  void push(Job job) REQUIRES(mutex_);

  KubeApi& api_;
  std::string node_;
  std::string component_;
  const Clock& clock_;
  Log& log_;
  mutable Mutex mutex_;
  StopCondition changed_;
  StopCondition pause_;  // never notified, unlike changed_, which every job notifies
  std::function<bool()> busy_;
  std::deque<Job> jobs_ GUARDED_BY(mutex_);
  std::map<std::string, Later> later_ GUARDED_BY(mutex_);  // by key
  std::map<std::string, RecordedEvent> recorded_ GUARDED_BY(mutex_);
  std::map<std::string, Refusal> refusals_ GUARDED_BY(mutex_);  // by key
  std::uint64_t number_ GUARDED_BY(mutex_) = 0;
  std::uint64_t dropped_ GUARDED_BY(mutex_) = 0;
  // Of the writing thread, one at a time.
  Result<void> last_;
  Clock::Time last_at_{};
};

/// "2026-01-01T00:00:00Z"
[[nodiscard]] std::string rfc3339(Clock::WallTime time);

}  // namespace carve::events
