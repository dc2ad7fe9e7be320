#include "core/health/card_health.h"

#include <fmt/format.h>

namespace carve {
namespace {

constexpr std::size_t kMostCodes = 64;

/// NVML's recovery actions as text.
const char* words_of(std::uint32_t recovery) {
  switch (recovery) {
    case 1:
      return "a reset of the card";
    case 2:
      return "a reboot of the node";
    case 3:
      return "to drain its peers";
    case 4:
      return "to drain and reset it";
    case 5:
      return "to recover IMEX";
    default:
      return "an action that Carve does not know";
  }
}

}  // namespace

const char* to_string(CardCondition condition) {
  switch (condition) {
    case CardCondition::kUnknown:
      return "unknown";
    case CardCondition::kHealthy:
      return "healthy";
    case CardCondition::kUnhealthy:
      return "unhealthy";
    case CardCondition::kLost:
      return "lost";
  }
  return "?";
}

void CardHealth::saw_xid(std::uint32_t xid, const XidRow& row, Clock::Time now) {
  last_xid_ = xid;
  if (counts_.size() < kMostCodes || counts_.count(xid) != 0) ++counts_[xid];
  if (row.action < XidAction::kUnhealthy) return;
  // The worst XID so far decides how the card recovers; a lesser one only restarts the quiet time.
  if (!bad_ || row.action >= bad_->row.action) bad_ = Bad{.xid = xid, .row = row};
  bad_->last = now;
  bad_->fine_since.reset();
  bad_->was_away = false;
}

void CardHealth::looked(const CardLook& look, Clock::Time now) {
  look_ = look;
  if (!bad_) return;
  if (look.lost || !look.listed) {
    bad_->was_away = true;
    bad_->fine_since.reset();
  } else if (look.recovery.value_or(0) != 0 || now - bad_->last < kRace) {
    bad_->fine_since.reset();
  } else if (!bad_->fine_since) {
    bad_->fine_since = now;
  }
  settle(now);
}

void CardHealth::driver_away(const std::string& why, Clock::Time since, Clock::Duration grace) {
  away_why_ = why;
  away_since_ = since;
  away_grace_ = grace;
  // An answer is needed to show that the card is fine, so an absent driver resets the time.
  if (!why.empty() && bad_) bad_->fine_since.reset();
}

void CardHealth::restore(const HeldXid& held, const XidRow& row, Clock::Time now) {
  if (row.action < XidAction::kReset) return;  // the policy may have changed
  bad_ = Bad{.xid = held.xid, .row = row, .last = now};
}

bool CardHealth::over(Clock::Time now) const {
  if (!bad_->fine_since) return false;
  const auto fine = now - *bad_->fine_since;
  switch (bad_->row.action) {
    case XidAction::kLost:
      return true;
    case XidAction::kReset:
      return look_->recovery ? fine >= kSettle : bad_->was_away;
    default:
      return now - bad_->last >= bad_->row.heal_after;
  }
}

void CardHealth::settle(Clock::Time now) {
  if (bad_ && look_ && over(now)) bad_.reset();
}

CardCondition CardHealth::condition(Clock::Time now) const {
  if (look_ && (look_->lost || !look_->listed)) return CardCondition::kLost;
  if (bad_) return bad_->row.action == XidAction::kLost ? CardCondition::kLost : CardCondition::kUnhealthy;
  if (look_ && look_->recovery.value_or(0) != 0) return CardCondition::kUnhealthy;
  if (!look_ || (!away_why_.empty() && now - away_since_ >= away_grace_)) return CardCondition::kUnknown;
  return CardCondition::kHealthy;
}

Health CardHealth::health(Clock::Time now) const {
  const CardCondition what = condition(now);
  if (what == CardCondition::kHealthy) return {};
  const std::string advice = look_ && look_->recovery.value_or(0) != 0
                                 ? fmt::format("the driver recommends {}", words_of(*look_->recovery))
                                 : std::string();
  if (bad_) {
    const std::string name = name_of_xid(bad_->xid, bad_->row);
    if (!advice.empty()) return {false, fmt::format("{}; {}", name, advice)};
    return {false, bad_->row.action == XidAction::kReset ? name + "; it needs a reset" : name};
  }
  if (what == CardCondition::kLost)
    return {false, look_->lost ? "lost: the driver reports it as lost" : "lost: the driver does not list it any more"};
  if (!advice.empty()) return {false, advice};
  if (!away_why_.empty()) return {false, away_why_};
  return {false, "not seen yet: the driver has not answered since the agent started"};
}

std::optional<HeldXid> CardHealth::held() const {
  if (!bad_ || bad_->row.action < XidAction::kReset) return std::nullopt;
  return HeldXid{bad_->xid};
}

}  // namespace carve
