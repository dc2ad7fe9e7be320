#include "core/health/xid_policy.h"

#include <fmt/format.h>

#include <array>

namespace carve {
namespace {

struct Range {
  std::uint32_t first;
  std::uint32_t last;
  XidAction action;
};

// Later rows win. NVLink errors (74, 144-150) take the whole card out of service: Carve cannot yet avoid only the links
// between cards.
constexpr std::array kRanges = {
    Range{8, 8, XidAction::kApplication},      Range{11, 11, XidAction::kApplication},
    Range{13, 13, XidAction::kApplication},    Range{25, 25, XidAction::kApplication},
    Range{31, 32, XidAction::kApplication},    Range{39, 41, XidAction::kApplication},
    Range{60, 60, XidAction::kApplication},    Range{68, 72, XidAction::kApplication},
    Range{75, 77, XidAction::kApplication},    Range{80, 80, XidAction::kApplication},
    Range{82, 86, XidAction::kApplication},    Range{88, 89, XidAction::kApplication},
    Range{94, 94, XidAction::kApplication},    Range{96, 105, XidAction::kApplication},
    Range{126, 135, XidAction::kApplication},  Range{139, 139, XidAction::kApplication},
    Range{14, 14, XidAction::kIgnore},         Range{37, 38, XidAction::kIgnore},
    Range{43, 45, XidAction::kIgnore},         Range{63, 63, XidAction::kIgnore},
    Range{66, 67, XidAction::kIgnore},         Range{92, 93, XidAction::kIgnore},
    Range{106, 107, XidAction::kIgnore},       Range{121, 121, XidAction::kIgnore},
    Range{137, 137, XidAction::kIgnore},       Range{141, 141, XidAction::kIgnore},
    Range{152, 154, XidAction::kIgnore},       Range{157, 157, XidAction::kIgnore},
    Range{161, 161, XidAction::kIgnore},       Range{46, 46, XidAction::kReset},
    Range{48, 48, XidAction::kReset},          Range{54, 54, XidAction::kReset},
    Range{62, 62, XidAction::kReset},          Range{64, 64, XidAction::kReset},
    Range{74, 74, XidAction::kReset},          Range{78, 78, XidAction::kReset},
    Range{95, 95, XidAction::kReset},          Range{109, 110, XidAction::kReset},
    Range{119, 120, XidAction::kReset},        Range{136, 136, XidAction::kReset},
    Range{140, 140, XidAction::kReset},        Range{143, 150, XidAction::kReset},
    Range{155, 156, XidAction::kReset},        Range{158, 158, XidAction::kReset},
    Range{162, 162, XidAction::kReset},        Range{79, 79, XidAction::kLost},
    Range{151, 151, XidAction::kLost},         Range{160, 160, XidAction::kLost},
};

struct Meaning {
  std::uint32_t xid;
  const char* text;
};
constexpr std::array kMeanings = {
    Meaning{13, "graphics engine exception"},
    Meaning{31, "memory page fault"},
    Meaning{43, "stopped processing"},
    Meaning{45, "channel ended after another error"},
    Meaning{46, "stopped processing"},
    Meaning{48, "double-bit ECC error"},
    Meaning{54, "power cable not connected"},
    Meaning{62, "micro-controller halt"},
    Meaning{63, "memory row remapped"},
    Meaning{64, "memory row could not be remapped"},
    Meaning{74, "NVLink error"},
    Meaning{78, "driver does not match the host's"},
    Meaning{79, "fallen off the bus"},
    Meaning{94, "contained ECC error"},
    Meaning{95, "uncontained ECC error"},
    Meaning{109, "context switch timeout"},
    Meaning{119, "GSP does not answer"},
    Meaning{120, "GSP error"},
    Meaning{140, "unrecovered ECC error"},
    Meaning{154, "recovery action changed"},
};

XidPolicy make_built_in() {
  XidPolicy policy;
  for (const Range& range : kRanges) {
    for (std::uint32_t xid = range.first; xid <= range.last; ++xid) policy.rows[xid].action = range.action;
  }
  for (const Meaning& meaning : kMeanings) policy.rows[meaning.xid].meaning = meaning.text;
  return policy;
}

}  // namespace

const char* to_string(XidAction action) {
  switch (action) {
    case XidAction::kIgnore:
      return "ignore";
    case XidAction::kApplication:
      return "application";
    case XidAction::kUnhealthy:
      return "unhealthy";
    case XidAction::kReset:
      return "reset";
    case XidAction::kLost:
      return "lost";
  }
  return "?";
}

const XidRow& XidPolicy::row(std::uint32_t xid) const {
  const auto found = rows.find(xid);
  return found != rows.end() ? found->second : other;
}

const XidPolicy& built_in_xid_policy() {
  static const XidPolicy policy = make_built_in();
  return policy;
}

std::string name_of_xid(std::uint32_t xid, const XidRow& row) {
  return row.meaning.empty() ? fmt::format("XID {}", xid) : fmt::format("XID {}: {}", xid, row.meaning);
}

}  // namespace carve
