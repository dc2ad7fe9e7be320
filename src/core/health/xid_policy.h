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
  kIgnore,       // informational, or the consequence of another XID: counted
  kApplication,  // an error of the application: counted and logged; the card is fine
  kUnhealthy,    // takes no new slice until no such XID has arrived for a while
  kReset,        // takes no new slice until it has been reset
  kLost,         // fallen off the bus; takes no new slice until it answers again
};
[[nodiscard]] const char* to_string(XidAction action);

inline constexpr std::uint32_t kMostXid = 999;

struct XidRow {
  XidAction action = XidAction::kUnhealthy;
  Clock::Duration heal_after = std::chrono::seconds(60);  // kUnhealthy: how long no such XID may arrive
  std::string meaning;                                    // "fallen off the bus"; may be empty
  friend bool operator==(const XidRow&, const XidRow&) = default;
};

/// XID → action. Every XID has a row: `other` applies to those without their own.
struct XidPolicy {
  std::map<std::uint32_t, XidRow> rows;
  XidRow other;

  [[nodiscard]] const XidRow& row(std::uint32_t xid) const;
  friend bool operator==(const XidPolicy&, const XidPolicy&) = default;
};

/// The built-in table: NVIDIA's XID catalogue by class. Where the vendor's device plugin and the catalogue differ (109
/// and 94), the table follows the catalogue.
[[nodiscard]] const XidPolicy& built_in_xid_policy();

/// "XID 79: fallen off the bus", "XID 58".
[[nodiscard]] std::string name_of_xid(std::uint32_t xid, const XidRow& row);

}  // namespace carve
