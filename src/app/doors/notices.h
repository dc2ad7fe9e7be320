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

/// What is told to people through the API server: events and claims' conditions. Written behind the doors'
/// back, one after the other, so that an API server that is slow or away never holds a container up. The same
/// event about the same object is written once in five minutes. At most 1,024 wait; then the oldest is
/// dropped.
class Notices {
 public:
  Notices(KubeApi& api, std::string node, const Clock& clock, Log& log)
      : api_(api), node_(std::move(node)), clock_(clock), log_(log) {}

  /// A Warning on an object.
  void warn(codec::EventNote note);
  /// Anything else to be written; its failure is logged.
  void post(std::string what, std::function<Result<void>(KubeApi&)> write);
  /// Until `stop`.
  void run(const std::stop_token& stop);
  /// Writes all that waits, on this thread (tests; before the end).
  void flush();

 private:
  struct Job {
    std::string what;
    std::function<Result<void>(KubeApi&)> write;
  };
  bool take(Job* job);

  KubeApi& api_;
  std::string node_;
  const Clock& clock_;
  Log& log_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Job> jobs_;
  std::map<std::string, Clock::Time> told_;
  std::uint64_t number_ = 0;
  std::uint64_t dropped_ = 0;
};

/// "2026-01-01T00:00:00Z"
[[nodiscard]] std::string rfc3339(Clock::WallTime time);

}  // namespace carve::doors
