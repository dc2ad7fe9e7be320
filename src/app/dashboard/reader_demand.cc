#include "app/dashboard/reader_demand.h"

namespace carve::dashboard {

void ReaderDemand::forget_if_unread() {
  if (clock_.now() - read_ >= kUnread) wanted_ = false;
}

void ReaderDemand::mark() {
  const MutexLock lock(mutex_);
  read_ = clock_.now();
  wanted_ = true;
  marked_.notify_one();
}

bool ReaderDemand::lasts() {
  const MutexLock lock(mutex_);
  forget_if_unread();
  return wanted_;
}

bool ReaderDemand::wait(const std::stop_token& stop) {
  MutexLock lock(mutex_);
  forget_if_unread();
  while (!wanted_ && !stop.stop_requested()) marked_.wait(lock, stop);
  return !stop.stop_requested();
}

}  // namespace carve::dashboard
