#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <stop_token>
#include <string>

#include "base/clock.h"
#include "base/log.h"
#include "codec/dra/event.h"
#include "port/kube_api.h"

namespace carve::doors {

/// What is told to people through the API server: events and claims' conditions. Written behind the
/// doors' back, one after the other, so that an API server that is slow or away never holds a
/// container up. What is said again about the same object is counted in the event that stands
/// already, at most one write in ten seconds each. At most 1,024 wait; then the oldest is dropped,
/// of those that tell of no trouble as long as there are any.
class EventRecorder {
 public:
  EventRecorder(KubeApi& api, std::string node, const Clock& clock, Log& log, std::string component = "carve-agent")
      : api_(api), node_(std::move(node)), component_(std::move(component)), clock_(clock), log_(log) {}

  /// An Event on an object. `same`: what makes it the same event as an earlier one, whose message it then replaces;
  /// empty: its message.
  void warn(codec::EventNote note, const std::string& same = {});
  /// A start that was refused, told on the Node whether or not somebody is known whose it is. `who`: what would start,
  /// once in the sum however often it is refused; `text`: cause and fix.
  void refused(const std::string& who, std::string text);
  /// It started after all, or is over.
  void settled(const std::string& who);
  /// The refusals that stand (six minutes after their last time at most), in one sentence; empty: none. At most
  /// 1,024 are counted.
  [[nodiscard]] std::string refusals();
  /// Anything else to be written; its failure is logged.
  void post(std::string what, std::function<Result<void>(KubeApi&)> write);
  /// The same when `after` has passed: what nobody waits for should not cost the API server its time while the
  /// container that it tells of is being made. `key`: what it is about; a later one of the same key takes its place.
  void post_later(const std::string& key, Clock::Duration after, std::string what,
                  std::function<Result<void>(KubeApi&)> write);
  /// What was to be written later about this is not true any more.
  void drop_later(const std::string& key);
  /// While `busy` says yes what is to be written waits, each for kPatience at most and while fewer than half of those
  /// that may wait do: the API server's time is for what somebody waits for. Before run().
  static constexpr Clock::Duration kPatience = std::chrono::seconds(10);
  void yield_to(std::function<bool()> busy) { busy_ = std::move(busy); }
  /// Until `stop`. What waits then is written before it returns, what tells of trouble first, as long as the server
  /// answers: after kLast nothing more is begun.
  static constexpr Clock::Duration kLast = std::chrono::seconds(2);
  void run(const std::stop_token& stop);
  /// Writes what is due, on this thread, until `stop`.
  void write_due(const std::stop_token& stop = {});
  /// Writes all that waits, on this thread (tests; before the end).
  void flush();
  /// EventRecorder that were never written, because too many waited.
  [[nodiscard]] std::uint64_t dropped() const;

 private:
  struct Job {
    std::string what;
    std::function<Result<void>(KubeApi&)> write;
    bool minor = false;  // an event that all is well
    Clock::Time since{};
  };
  /// An event that stands.
  struct Told {
    codec::EventNote note;
    std::string name;   // of the event
    std::string since;  // its first time
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
  /// One after the other as long as there are any, and `go_on` says so of what became of the one before.
  void write(bool at_once, const std::function<bool(const Result<void>& last)>& go_on);
  void write_last();
  [[nodiscard]] bool yields() const;  // under the lock
  [[nodiscard]] Clock::Time soonest() const;  // of what waits for its time; under the lock
  void ripen(Clock::Time now);                // under the lock
  void write_count(Told* told, Clock::Time now);  // under the lock
  void settle_counts(Clock::Duration gap);
  void push(Job job);  // under the lock

  KubeApi& api_;
  std::string node_;
  std::string component_;
  const Clock& clock_;
  Log& log_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::condition_variable_any pause_;  // nobody wakes it
  std::function<bool()> busy_;
  std::deque<Job> jobs_;
  std::map<std::string, Later> later_;  // by key
  std::map<std::string, Told> told_;
  std::map<std::string, Refusal> refusals_;  // by who
  std::uint64_t number_ = 0;
  std::uint64_t dropped_ = 0;
  // Of whoever writes, one at a time.
  Result<void> last_;
  Clock::Time last_at_{};
};

/// "2026-01-01T00:00:00Z"
[[nodiscard]] std::string rfc3339(Clock::WallTime time);

}  // namespace carve::doors
