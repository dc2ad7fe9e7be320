#include "app/agent/compute_debt.h"

#include <algorithm>

namespace carve::agent {
namespace {

double seconds(Clock::Duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

double ComputeDebt::owed() const { return std::max({account_, leases_, 0.0}); }

ComputeDebt::Allowed ComputeDebt::allowed_in(const ComputeRound& round) {
  Allowed allowed;
  allowed.by_leases = std::max(round.guarantee, round.granted.value_or(round.charged.value_or(0)));
  allowed.excused = std::max(allowed.by_leases, round.granted.value_or(0) + round.drained);
  allowed.by_account = std::max(allowed.excused, round.charged.value_or(0));
  return allowed;
}

ComputeDebt::Allowed ComputeDebt::allowed_lately(const ComputeRound& round, Clock::Time now) {
  allowed_.emplace_back(now, allowed_in(round));
  while (now - allowed_.front().first > std::chrono::seconds(1)) allowed_.pop_front();
  Allowed most;
  for (const auto& [at, one] : allowed_) {
    most.by_leases = std::max(most.by_leases, one.by_leases);
    most.excused = std::max(most.excused, one.excused);
    most.by_account = std::max(most.by_account, one.by_account);
  }
  return most;
}

ComputeStep ComputeDebt::look(const ComputeRound& round, Clock::Time now, const ComputeBounds& bounds, double prior) {
  if (!seen_) account_ = leases_ = std::min(prior, seconds(bounds.most));
  const bool gap = !seen_ || now - last_ > std::chrono::seconds(1);
  const double passed = gap ? 0 : seconds(now - last_);
  const Allowed allowed = allowed_lately(round, now);
  seen_ = true;
  last_ = now;
  const auto grow = [&](double* debt, double limit, Clock::Duration most) {
    const double by = (round.used - limit - bounds.slack_points) / 100 * passed;
    *debt = std::clamp(*debt + by, 0.0, seconds(most));
    return by > 0;
  };
  // No neighbour misses card time: the use is no offence, and unused time reduces the debt.
  const auto shrink = [&](double* debt, double limit) {
    const double by = std::min(round.used - limit, 0.0) - bounds.slack_points;
    *debt = std::max(0.0, *debt + by / 100 * passed);
  };
  const bool beyond_account = grow(&account_, allowed.by_account, bounds.most);
  bool beyond_leases = false;
  bool beyond_excuses = false;
  if (round.starving) {
    beyond_leases = grow(&leases_, allowed.excused, bounds.most);
    beyond_excuses = grow(&overrun_, allowed.by_leases, bounds.overrun + bounds.most);
    grow(&taken_, allowed.excused, bounds.most);
  } else {
    shrink(&leases_, allowed.excused);
    shrink(&overrun_, allowed.by_leases);
    grow(&taken_, allowed.by_account, bounds.most);
  }
  certain_ = taken_ >= seconds(bounds.own) && ((beyond_account && account_ >= seconds(bounds.account)) ||
                                               (beyond_leases && leases_ >= seconds(bounds.leases)));
  if (certain_ && owed() >= seconds(bounds.kill)) return ComputeStep::kKill;
  if (certain_ && owed() >= seconds(bounds.revoke)) return ComputeStep::kRevoke;
  return certain_ || (beyond_excuses && overrun_ >= seconds(bounds.overrun)) ? ComputeStep::kFreeze
                                                                             : ComputeStep::kNone;
}

}  // namespace carve::agent
