#include "app/agent/arbiter_pages.h"

namespace carve::agent {

Result<void> ArbiterPages::put(const PageOrder& order) {
  CARVE_TRY_VOID(pages_.put(order));
  const MutexLock lock(mutex_);
  requested_[order.id] = order.slices;
  return {};
}

Result<void> ArbiterPages::drop(const std::string& id) {
  {
    const MutexLock lock(mutex_);
    requested_.erase(id);
  }
  return pages_.drop(id);
}

bool ArbiterPages::requested(const std::string& id) const {
  const MutexLock lock(mutex_);
  return requested_.count(id) != 0;
}

bool ArbiterPages::requested_as(const std::string& id, const std::vector<Slice>& slices) const {
  const MutexLock lock(mutex_);
  const auto found = requested_.find(id);
  return found != requested_.end() && found->second == slices;
}

Result<std::vector<PageSlice>> ArbiterPages::look() {
  auto pages = pages_.list();
  const auto now = clock_.now();
  bool changed = false;
  {
    const MutexLock lock(mutex_);
    changed = state_.asked ? state_.ok != pages.has_value() : !pages.has_value();
    state_.asked = true;
    if (pages && (changed || state_.since == Clock::Time{})) state_.since = now;
    state_.ok = pages.has_value();
    state_.error = pages ? std::string() : pages.error().what;
    state_.code = pages ? Code::kUnknown : pages.error().code;
  }
  if (changed) {
    events_.note(pages ? "arbiter-back" : "arbiter-away", "",
                 pages ? std::string("the arbiter answers") : pages.error().what);
  }
  return pages;
}

ArbiterPages::State ArbiterPages::state() const {
  const MutexLock lock(mutex_);
  return state_;
}

}  // namespace carve::agent
