#include "app/agent/offences.h"

namespace carve::agent {

void Offences::note(const std::string& user, Clock::Time now, const OffenceBounds& bounds) {
  if (user.empty()) return;
  const int before = count(user, now, bounds);
  past_[user] = {before + 1, now};
}

void Offences::renew(const std::string& user, Clock::Time now) {
  if (const auto found = past_.find(user); found != past_.end()) found->second.last = now;
}

int Offences::count(const std::string& user, Clock::Time now, const OffenceBounds& bounds) const {
  const auto found = past_.find(user);
  return found == past_.end() || now - found->second.last >= bounds.forgotten_after ? 0 : found->second.count;
}

double Offences::prior(const std::string& user, Clock::Time now, const OffenceBounds& bounds) const {
  return std::chrono::duration<double>(bounds.each).count() * count(user, now, bounds);
}

void Offences::forget(Clock::Time now, const OffenceBounds& bounds) {
  std::erase_if(past_, [&](const auto& one) { return now - one.second.last >= bounds.forgotten_after; });
}

}  // namespace carve::agent
