#pragma once

#include <map>
#include <string>
#include <vector>

#include "app/agent/event_log.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "port/pages.h"

namespace carve::agent {

/// The arbiter as this agent sees it: the pages that the agent requested, and whether the arbiter answers. Safe from
/// any thread. While the arbiter is stopped, each call takes up to 2 s; it holds no lock meanwhile.
class ArbiterPages {
 public:
  struct State {
    bool asked = false;
    bool ok = false;
    std::string error;  // of the last list
    Code code = Code::kUnavailable;
    Clock::Time since{};  // the arbiter has answered since then
  };
  ArbiterPages(Pages& pages, const Clock& clock, EventLog& events) : pages_(pages), clock_(clock), events_(events) {}

  /// Requests the pages. The agent then keeps duplicates of their descriptors for a restarted arbiter.
  Result<void> put(const PageOrder& order) EXCLUDES(mutex_);
  /// Removes the pages permanently.
  Result<void> drop(const std::string& id) EXCLUDES(mutex_);
  /// Removes the pages of a slice that stays, so that they are requested again later.
  Result<void> revoke(const std::string& id) { return pages_.drop(id); }
  /// True if this agent requested the pages of this slice.
  [[nodiscard]] bool requested(const std::string& id) const EXCLUDES(mutex_);
  /// The same with exactly these limits and terms.
  [[nodiscard]] bool requested_as(const std::string& id, const std::vector<Slice>& slices) const EXCLUDES(mutex_);
  /// Reads the list and stores the result in state(). Reports an event if the arbiter went away or came back.
  Result<std::vector<PageSlice>> look() EXCLUDES(mutex_);
  /// Reads the list, without a change of state().
  Result<std::vector<PageSlice>> list() { return pages_.list(); }
  Result<void> set_overhead(const std::string& id, std::uint32_t card_index, Bytes overhead) {
    return pages_.set_overhead(id, card_index, overhead);
  }
  [[nodiscard]] State state() const EXCLUDES(mutex_);

 private:
  Pages& pages_;
  const Clock& clock_;
  EventLog& events_;
  mutable Mutex mutex_;
  State state_ GUARDED_BY(mutex_);
  std::map<std::string, std::vector<Slice>> requested_ GUARDED_BY(mutex_);  // by ID, as last requested
};

}  // namespace carve::agent
