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

/// How the driver answered for one card when it was asked.
struct CardLook {
  bool listed = true;                     // false: the driver lists others, this one not
  bool lost = false;                      // it says so itself
  std::optional<std::uint32_t> recovery;  // its recommended action (0: none); nullopt: the driver tells none
};

/// What must outlive the process that saw it: a card that wants a reset does so until it had one.
struct HeldXid {
  std::uint32_t xid = 0;
  friend bool operator==(const HeldXid&, const HeldXid&) = default;
};

/// One card's state machine. XIDs make it worse by the policy, what the driver answers makes it worse or better:
///
///   healthy    takes new slices
///   unhealthy  an XID says so, or the driver recommends an action; heals when the driver recommends none and
///              - kUnhealthy: no further one came for heal_after
///              - kReset: the driver, having been asked for kSettle since, recommends nothing; a driver too old to
///                recommend leaves it so until the card was away and came back
///   lost       the driver says so, or lists it no more, or an XID did; heals when it answers again
///   unknown    never looked at, or the driver has not answered for kGrace
///
/// Pure: time goes in, never comes from here. Whoever runs on the card is not its business.
class CardHealth {
 public:
  /// So long the driver must be away before cards are in doubt: a worker that is started anew is no fault.
  static constexpr Clock::Duration kGrace = std::chrono::seconds(3);
  /// So long a reset-wanting card must be told fine; the recommendation may come a little after its XID.
  static constexpr Clock::Duration kSettle = std::chrono::seconds(5);
  /// An answer so soon after an XID may have been on its way before it.
  static constexpr Clock::Duration kRace = std::chrono::seconds(2);

  void saw_xid(std::uint32_t xid, const XidRow& row, Clock::Time now);
  void looked(const CardLook& look, Clock::Time now);
  /// The driver does not answer (`why`), since `since`. Empty `why`: it answers.
  void driver_away(const std::string& why, Clock::Time since);
  /// What an earlier life of this process knew.
  void restore(const HeldXid& held, const XidRow& row, Clock::Time now);

  [[nodiscard]] CardCondition condition(Clock::Time now) const;
  /// The same for the ledger: ok only when healthy, else with the reason in a person's words.
  [[nodiscard]] Health health(Clock::Time now) const;
  /// What has to be remembered; nullopt: nothing.
  [[nodiscard]] std::optional<HeldXid> held() const;
  /// XIDs so far, by code: also the ones that mean nothing for the card.
  [[nodiscard]] const std::map<std::uint32_t, std::uint64_t>& counts() const { return counts_; }

 private:
  struct Bad {
    std::uint32_t xid = 0;
    XidRow row;
    Clock::Time last;
    std::optional<Clock::Time> fine_since;  // the driver has recommended nothing since then
    bool was_away = false;
  };
  void settle(Clock::Time now);
  [[nodiscard]] bool over(Clock::Time now) const;

  std::map<std::uint32_t, std::uint64_t> counts_;
  std::optional<Bad> bad_;
  std::optional<CardLook> look_;
  std::string away_why_;
  Clock::Time away_since_{};
};

}  // namespace carve
