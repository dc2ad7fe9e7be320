#include "app/agent/owner_turns.h"

namespace carve::agent {

OwnerTurns::Turn OwnerTurns::take(const Owner& owner) {
  MutexLock lock(mutex_);
  Line& line = lines_[owner];  // stays until its last caller has ended
  const std::uint64_t ticket = line.next++;
  while (line.now != ticket) changed_.wait(lock);
  return {this, owner};
}

std::optional<OwnerTurns::Turn> OwnerTurns::try_take(const Owner& owner) {
  const MutexLock lock(mutex_);
  if (lines_.count(owner) != 0) return std::nullopt;
  ++lines_[owner].next;
  return Turn(this, owner);
}

std::uint64_t OwnerTurns::waiting(const Owner& owner) const {
  const MutexLock lock(mutex_);
  const auto found = lines_.find(owner);
  return found == lines_.end() ? 0 : found->second.next - found->second.now - 1;
}

void OwnerTurns::end(const Owner& owner) {
  const MutexLock lock(mutex_);
  const auto found = lines_.find(owner);
  ++found->second.now;
  if (found->second.now == found->second.next) {
    lines_.erase(found);
  } else {
    changed_.notify_all();
  }
}

}  // namespace carve::agent
