#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"

namespace carve {

/// What an XID says about its card.
enum class XidAction : std::uint8_t {
  kIgnore,       // for information, or the follow-up of another one: counted
  kApplication,  // a program's own error: counted and told, the card is fine
  kUnhealthy,    // takes nothing new until it has been quiet for a while
  kReset,        // takes nothing new until it has been reset
  kLost,         // it has fallen off the bus; until it answers again
};
[[nodiscard]] const char* to_string(XidAction action);

inline constexpr std::uint32_t kMostXid = 999;

struct XidRow {
  XidAction action = XidAction::kUnhealthy;
  Clock::Duration heal_after = std::chrono::seconds(60);  // kUnhealthy: how long it has to be quiet
  std::string meaning;                                    // "fallen off the bus"; may be empty
  friend bool operator==(const XidRow&, const XidRow&) = default;
};

/// XID → what is done. Every XID has a row: `other` where no own one stands.
struct XidPolicy {
  std::map<std::uint32_t, XidRow> rows;
  XidRow other;

  [[nodiscard]] const XidRow& row(std::uint32_t xid) const;
  friend bool operator==(const XidPolicy&, const XidPolicy&) = default;
};

/// The table that is built in: NVIDIA's XID catalogue by class. Where the vendor's device plugin and the catalogue
/// differ (109 and 94), the catalogue holds.
[[nodiscard]] const XidPolicy& built_in_xid_policy();

/// "XID 79: fallen off the bus", "XID 58".
[[nodiscard]] std::string name_of_xid(std::uint32_t xid, const XidRow& row);

}  // namespace carve
