#include "app/agent/library_links.h"

namespace carve::agent {

void LibraryLinks::make(const std::string& driver_version) {
  constexpr Clock::Duration kAgain = std::chrono::seconds(30);
  if (!config_.library_error.empty() || !world_.prepare_links) return;
  {
    const MutexLock lock(mutex_);
    const auto now = world_.clock.now();
    if (!error_.empty() && version_ == driver_version && now - tried_ < kAgain) return;
    version_ = driver_version;
    tried_ = now;
  }
  const auto made = world_.prepare_links(driver_version);
  const MutexLock lock(mutex_);
  error_ = made ? std::string() : made.error().what;
}

std::string LibraryLinks::error() const {
  if (!config_.library_error.empty()) return config_.library_error;
  const MutexLock lock(mutex_);
  return error_;
}

bool LibraryLinks::failed() const {
  const MutexLock lock(mutex_);
  return !error_.empty();
}

}  // namespace carve::agent
