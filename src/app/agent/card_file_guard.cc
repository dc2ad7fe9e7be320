#include "app/agent/card_file_guard.h"

namespace carve::agent {

void CardFileGuard::close(const std::vector<int>& minors) {
  if (files_ == nullptr) return;
  const auto changed = files_->own(minors);
  const std::string error = changed ? std::string() : changed.error().what;
  bool news = false;
  {
    const MutexLock lock(mutex_);
    news = error != error_;
    error_ = error;
  }
  if (news && !error.empty()) events_.note("device-file", "", error);
  for (const auto& path : changed ? *changed : std::vector<std::string>()) {
    events_.note("device-file", "", path + " had a wrong owner or mode and was closed again (see `carve doctor`)");
  }
}

std::string CardFileGuard::error() const {
  const MutexLock lock(mutex_);
  return error_;
}

}  // namespace carve::agent
