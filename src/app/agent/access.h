#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "port/agent_api.h"

namespace carve {

/// The number of slices that an ordinary user may have at the same time when the row has no max-slices.
inline constexpr std::uint32_t kUsualMostSlices = 32;
/// The default number of each card's kMaxSlicesPerCard slices that only root may take.
inline constexpr std::uint32_t kUsualSlicesForRoot = 16;

/// One row of who may ask for what; the first row that matches the caller decides. A row without uid and gid
/// matches everybody.
struct AccessRule {
  std::optional<std::uint32_t> uid;
  std::optional<std::uint32_t> gid;
  bool allow = true;
  // Ceilings of one request, and of all the user's slices together. Absent: no ceiling.
  std::optional<std::uint32_t> max_cards;
  std::optional<Bytes> max_memory;           // of each card
  std::optional<std::uint32_t> max_compute;  // 1/100 of each card
  std::optional<std::uint32_t> max_slices;   // living at once; absent: kUsualMostSlices
  bool online = true;                        // may ask for priority online
  std::string text;                          // as it stands in the configuration, for refusals
};

/// Whether this caller may have this request while holding `living` slices. Root always may.
///   errors  kPermissionDenied, with who, what and the row that says so
[[nodiscard]] Result<void> check_access(const std::vector<AccessRule>& rules, const Caller& caller,
                                        const Request& request, std::uint32_t living);

/// Root, or the slice's own user.
[[nodiscard]] Result<void> check_owner(const Caller& caller, std::uint32_t slice_uid,
                                       const std::string& slice);

}  // namespace carve
