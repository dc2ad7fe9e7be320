#include "app/agent/card_watch.h"

#include <fmt/format.h>

#include <algorithm>

namespace carve::agent {
namespace {

constexpr Clock::Duration kTellAgain = std::chrono::minutes(1);
constexpr std::size_t kMostTold = 1024;

const char* said_of(XidAction action) {
  switch (action) {
    case XidAction::kIgnore:
      return "counted only";
    case XidAction::kApplication:
      return "a program's own error, the card is fine";
    case XidAction::kUnhealthy:
      return "the card accepts no new slices until it has had no error for a while";
    case XidAction::kReset:
      return "the card accepts no new slices until it is reset";
    case XidAction::kLost:
      return "the card accepts no new slices until it answers again";
  }
  return "";
}

}  // namespace

void CardWatch::restore(const KnownCards& known, bool same_boot, Clock::Time now) {
  for (const auto& one : known.cards) {
    auto& card = cards_[one.card.id];
    if (one.held && same_boot) card.restore(*one.held, policy_.row(one.held->xid), now);
  }
}

void CardWatch::listed(const GpuInventory& inventory, Clock::Time now) {
  std::set<CardId> there;
  for (const auto& card : inventory.cards) {
    there.insert(card.id);
    // The first list counts as an answer. Later lists show only that the card exists; the usage shows its state.
    auto [it, fresh] = cards_.try_emplace(card.id);
    const bool unseen = it->second.condition(now) == CardCondition::kUnknown && !it->second.held();
    if (fresh || unseen) it->second.looked({true, false, std::nullopt}, now);
  }
  unlisted_.clear();
  for (auto& [id, card] : cards_) {
    if (there.count(id) != 0) continue;
    unlisted_.insert(id);
    card.looked({false, false, std::nullopt}, now);
  }
  for (const auto& id : inventory.unwatched) {
    if (unwatched_.count(id) == 0)
      news_.push_back({"card-unwatched", fmt::format("card {}: the driver reports no XIDs of it; only its "
                                                     "answers show its health",
                                                     id.str())});
  }
  unwatched_ = {inventory.unwatched.begin(), inventory.unwatched.end()};
}

void CardWatch::used(const std::vector<GpuUsage>& usage, Clock::Time now) {
  for (const auto& one : usage) {
    const auto found = cards_.find(one.card);
    if (found != cards_.end()) found->second.looked({true, one.lost, one.recovery}, now);
  }
}

void CardWatch::tell_xid(const GpuEvent& event, const XidRow& row, Clock::Time now) {
  const auto key = std::pair(event.card, event.xid);
  const auto last = xid_told_.find(key);
  if (row.action == XidAction::kIgnore || (last != xid_told_.end() && now - last->second < kTellAgain)) return;
  if (xid_told_.size() >= kMostTold) xid_told_.clear();
  xid_told_[key] = now;
  news_.push_back({"xid", fmt::format("card {}: {} ({})", event.card.str(), name_of_xid(event.xid, row),
                                      said_of(row.action)),
                   {}});
  if (row.action == XidAction::kApplication) news_.back().program = {event.card, name_of_xid(event.xid, row)};
}

void CardWatch::event(const GpuEvent& event, Clock::Time now) {
  const auto found = cards_.find(event.card);
  if (found == cards_.end()) return;
  const XidRow& row = policy_.row(event.xid);
  found->second.saw_xid(event.xid, row, now);
  tell_xid(event, row, now);
}

void CardWatch::driver(GpuState state, const std::string& reason, Clock::Time now) {
  const bool away = state != GpuState::kOk;
  const bool was_away = driver_ != GpuState::kOk;
  if (away != was_away || driver_since_ == Clock::Time{}) driver_since_ = now;
  driver_ = state;
  const std::string why = away ? fmt::format("the driver is {}: {}", to_string(state), reason) : std::string();
  for (auto& [id, card] : cards_) card.driver_away(why, driver_since_, driver_grace());
}

Clock::Duration CardWatch::driver_grace() const {
  return driver_ == GpuState::kHanging ? CardHealth::kHangingGrace : CardHealth::kAbsentGrace;
}

bool CardWatch::driver_is_away(Clock::Time now) const {
  return driver_ != GpuState::kOk && now - driver_since_ >= driver_grace();
}

std::map<CardId, Health> CardWatch::verdicts(Clock::Time now) {
  std::map<CardId, Health> all;
  for (const auto& [id, card] : cards_) {
    const auto condition = card.condition(now);
    all[id] = card.health(now);
    auto& told = told_[id];
    // An absent driver has its own news. A card is reported when its verdict changes, and when it is healthy again.
    if (condition == CardCondition::kUnknown || (told.first == condition && told.second == all[id].reason)) continue;
    const bool first_and_well = told.first == CardCondition::kUnknown && condition == CardCondition::kHealthy;
    told = {condition, all[id].reason};
    if (first_and_well) continue;
    news_.push_back({fmt::format("card-{}", to_string(condition)),
                     condition == CardCondition::kHealthy ? fmt::format("card {} is healthy again", id.str())
                                                          : fmt::format("card {}: {}", id.str(), all[id].reason)});
  }
  return all;
}

std::vector<CardNews> CardWatch::news(Clock::Time now) {
  static_cast<void>(verdicts(now));
  return std::exchange(news_, {});
}

bool CardWatch::any_lost(Clock::Time now) const {
  return std::any_of(cards_.begin(), cards_.end(),
                     [now](const auto& one) { return one.second.condition(now) == CardCondition::kLost; });
}

std::optional<HeldXid> CardWatch::held(const CardId& card) const {
  const auto found = cards_.find(card);
  return found != cards_.end() ? found->second.held() : std::nullopt;
}

CardXids CardWatch::xids(const CardId& card) const {
  const auto found = cards_.find(card);
  if (found == cards_.end()) return {};
  CardXids xids{found->second.counts(), found->second.last_xid(), ""};
  std::string& text = xids.remark;
  for (const auto& [xid, count] : xids.counts)
    text += fmt::format("{}{} ({})", text.empty() ? "XIDs so far: " : ", ", xid, count);
  if (unwatched_.count(card) != 0) text += std::string(text.empty() ? "" : "; ") + "the driver reports no XIDs of it";
  return xids;
}

}  // namespace carve::agent
