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

namespace carve {

/// Something about a card that a person should know of.
struct CardNews {
  std::string kind;  // xid, card-unhealthy, card-lost, card-healthy, card-unwatched
  std::string text;
  std::optional<ProgramError> program = {};  // it is a program's own error
};

/// All cards' health: what the driver lists, answers and reports goes in, verdicts and news come out. A value, with
/// one user at a time; time is a parameter.
class CardWatch {
 public:
  explicit CardWatch(XidPolicy policy) : policy_(std::move(policy)) {}

  /// What an earlier life of the agent knew: the cards, and which of them want a reset.
  void restore(const KnownCards& known, bool same_boot, Clock::Time now);
  /// A list of the driver's. Cards that are known and not in it are lost.
  void listed(const GpuInventory& inventory, Clock::Time now);
  void used(const std::vector<GpuUsage>& usage, Clock::Time now);
  void event(const GpuEvent& event, Clock::Time now);
  void driver(GpuState state, const std::string& reason, Clock::Time now);
  void forget(const CardId& card) { cards_.erase(card); }

  /// Every card's verdict now.
  [[nodiscard]] std::map<CardId, Health> verdicts(Clock::Time now);
  /// What is new since the last call, verdicts included; a repeated XID once a minute.
  [[nodiscard]] std::vector<CardNews> news(Clock::Time now);
  /// A card is lost: the driver's library may have to be opened anew to see it again.
  [[nodiscard]] bool any_lost(Clock::Time now) const;
  [[nodiscard]] bool any_unlisted() const { return !unlisted_.empty(); }
  [[nodiscard]] std::optional<HeldXid> held(const CardId& card) const;
  /// "XIDs so far: 31 (2), 63 (1)"; empty: none, and it is watched.
  [[nodiscard]] std::string remark(const CardId& card) const;

 private:
  void tell_xid(const GpuEvent& event, const XidRow& row, Clock::Time now);

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

/// What the agent keeps of its cards beside the ledger. Under its state's lock where nothing else is said.
struct CardBooks {
  explicit CardBooks(XidPolicy policy) : watch(std::move(policy)) {}
  CardWatch watch;
  bool driver_known = false;         // the inventory is the driver's own word, not remembered
  std::set<CardId> from_other_boot;  // remembered, and not seen in this boot
  std::set<CardId> stand_ins;        // nothing but a slice's word for them: not published
  Clock::Time save_not_before{};
  KnownCards saved;         // the health thread's own
  Clock::Time listed_at{};
  Clock::Time renewed_at{};  // the watching thread's own
};

}  // namespace carve
