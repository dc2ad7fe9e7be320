#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/health/known_cards.h"
#include "port/gpu.h"
#include "port/node_slices.h"

namespace carve::agent {

/// An event of a card that is reported to the administrator.
struct CardNews {
  std::string kind;  // xid, card-unhealthy, card-lost, card-healthy, card-unwatched
  std::string text;
  std::optional<ProgramError> program = {};  // set if a program caused the error, not the card
};

/// The XIDs of one card since the agent started.
struct CardXids {
  std::map<std::uint32_t, std::uint64_t> counts;  // by code
  std::uint32_t last = 0;                         // 0: none
  std::string remark;  // "XIDs so far: 31 (2), 63 (1)"; empty: none, and the card's events are watched
};

/// The health of all cards. Takes what the driver lists, answers and reports; returns verdicts and news. Not
/// thread-safe. Time is a parameter.
class CardWatch {
 public:
  explicit CardWatch(XidPolicy policy) : policy_(std::move(policy)) {}

  /// What an earlier agent knew: the cards, and the cards that need a reset.
  void restore(const KnownCards& known, bool same_boot, Clock::Time now);
  /// The driver's list of cards. Known cards that are missing from it are lost.
  void listed(const GpuInventory& inventory, Clock::Time now);
  void used(const std::vector<GpuUsage>& usage, Clock::Time now);
  void event(const GpuEvent& event, Clock::Time now);
  void driver(GpuState state, const std::string& reason, Clock::Time now);
  void forget(const CardId& card) { cards_.erase(card); }

  /// The current verdict on each card.
  [[nodiscard]] std::map<CardId, Health> verdicts(Clock::Time now);
  /// The news since the last call, changes of verdicts included. A repeated XID is reported once a minute.
  [[nodiscard]] std::vector<CardNews> news(Clock::Time now);
  /// True if the driver has not answered for so long that its cards are unknown (CardHealth).
  [[nodiscard]] bool driver_is_away(Clock::Time now) const;
  /// True if a card is lost: the driver's library may have to be reopened before it lists the card again.
  [[nodiscard]] bool any_lost(Clock::Time now) const;
  [[nodiscard]] bool any_unlisted() const { return !unlisted_.empty(); }
  /// The XID after which the card needs a reset; nullopt: none.
  [[nodiscard]] std::optional<HeldXid> held(const CardId& card) const;
  [[nodiscard]] CardXids xids(const CardId& card) const;

 private:
  void tell_xid(const GpuEvent& event, const XidRow& row, Clock::Time now);
  [[nodiscard]] Clock::Duration driver_grace() const;

  XidPolicy policy_;
  std::map<CardId, CardHealth> cards_;
  std::set<CardId> unlisted_;
  std::set<CardId> unwatched_;
  std::map<CardId, std::pair<CardCondition, std::string>> told_;
  std::map<std::pair<CardId, std::uint32_t>, Clock::Time> xid_told_;
  std::vector<CardNews> news_;
  GpuState driver_ = GpuState::kStarting;
  Clock::Time driver_since_{};
};

}  // namespace carve::agent
