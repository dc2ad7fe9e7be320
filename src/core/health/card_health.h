#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "core/health/xid_policy.h"
#include "core/model/card.h"

namespace carve {

enum class CardCondition : std::uint8_t { kUnknown, kHealthy, kUnhealthy, kLost };
[[nodiscard]] const char* to_string(CardCondition condition);

/// The driver's answer about one card.
struct CardLook {
  bool listed = true;                     // false: the driver lists other cards, but not this one
  bool lost = false;                      // the driver reports the card as lost
  std::optional<std::uint32_t> recovery;  // the recommended recovery action (0: none); nullopt: not reported
};

/// The XID after which a card needs a reset. It must outlive the process that saw it, until the card was reset.
struct HeldXid {
  std::uint32_t xid = 0;
  friend bool operator==(const HeldXid&, const HeldXid&) = default;
};

/// The state machine of one card. XIDs make it worse, by the policy; the driver's answers make it worse or better:
///
///   healthy    takes new slices
///   unhealthy  an XID requires it, or the driver recommends an action. Recovers when the driver recommends none and
///              - kUnhealthy: no further such XID arrived for heal_after
///              - kReset: the driver has recommended nothing for kSettle. A driver that is too old to recommend
///                actions keeps the card unhealthy until the card was away and is back
///   lost       the driver reports it as lost or no longer lists it, or an XID requires it. Recovers when the card
///              answers again
///   unknown    never queried, or the driver has been away for its grace
///
/// Pure: the caller passes the time. The slices on the card have no influence.
class CardHealth {
 public:
  /// The driver must be absent for this time before its cards become unknown: a restarted worker is not a fault.
  static constexpr Clock::Duration kAbsentGrace = std::chrono::seconds(3);
  /// The same for a driver that does not answer in time. On an overloaded node one answer may be late, and the worker
  /// that is started instead may need 15 s to open every card. Unknown cards cost pods: the kubelet permanently rejects
  /// a pod for which it has no healthy slot.
  static constexpr Clock::Duration kHangingGrace = std::chrono::seconds(20);
  /// The driver must recommend nothing for this time before a card that needs a reset is healthy. The recommendation
  /// may arrive shortly after its XID.
  static constexpr Clock::Duration kSettle = std::chrono::seconds(5);
  /// An answer that arrives within this time after an XID may have been sent before it.
  static constexpr Clock::Duration kRace = std::chrono::seconds(2);

  void saw_xid(std::uint32_t xid, const XidRow& row, Clock::Time now);
  void looked(const CardLook& look, Clock::Time now);
  /// The driver does not answer (`why`), since `since`; after `grace` the card is unknown. Empty `why`: it answers.
  void driver_away(const std::string& why, Clock::Time since, Clock::Duration grace);
  /// What an earlier instance of this process knew.
  void restore(const HeldXid& held, const XidRow& row, Clock::Time now);

  [[nodiscard]] CardCondition condition(Clock::Time now) const;
  /// The same for the ledger: ok only when healthy, else with a readable reason.
  [[nodiscard]] Health health(Clock::Time now) const;
  /// What must be stored; nullopt: nothing.
  [[nodiscard]] std::optional<HeldXid> held() const;
  /// The number of XIDs so far, by code, including those that do not affect the card.
  [[nodiscard]] const std::map<std::uint32_t, std::uint64_t>& counts() const { return counts_; }
  /// The code of the latest one; 0: none.
  [[nodiscard]] std::uint32_t last_xid() const { return last_xid_; }

 private:
  struct Bad {
    std::uint32_t xid = 0;
    XidRow row;
    Clock::Time last = {};
    std::optional<Clock::Time> fine_since = {};  // the driver has recommended nothing since then
    bool was_away = false;
  };
  void settle(Clock::Time now);
  [[nodiscard]] bool over(Clock::Time now) const;

  std::map<std::uint32_t, std::uint64_t> counts_;
  std::uint32_t last_xid_ = 0;
  std::optional<Bad> bad_;
  std::optional<CardLook> look_;
  std::string away_why_;
  Clock::Time away_since_{};
  Clock::Duration away_grace_{};
};

}  // namespace carve
