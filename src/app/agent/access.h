#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "port/agent_api.h"

namespace carve::agent {

/// The number of slices that an ordinary user may have at the same time when the row has no max-slices.
inline constexpr std::uint32_t kUsualMostSlices = 32;
/// The default number of each card's kMaxSlicesPerCard slices that only root may take.
inline constexpr std::uint32_t kUsualSlicesForRoot = 16;

/// One row of the access rules. The first row that matches the caller decides. A row without uid and gid matches every
/// caller.
struct AccessRule {
  std::optional<std::uint32_t> uid;
  std::optional<std::uint32_t> gid;
  bool allow = true;
  // Ceilings of one request, and of all slices of the user together. Absent: no ceiling.
  std::optional<std::uint32_t> max_cards;
  std::optional<Bytes> max_memory;           // of each card
  std::optional<std::uint32_t> max_compute;  // 1/100 of each card
  std::optional<std::uint32_t> max_slices;   // at the same time; absent: kUsualMostSlices
  bool online = true;                        // may request priority online
  std::string text;                          // the row as spelled in the configuration, for refusals
};

/// Checks whether this caller may have this request while it has `living` slices. Root may have every request.
///   errors  kPermissionDenied, with the user, the request and the row that decided
[[nodiscard]] Result<void> check_access(const std::vector<AccessRule>& rules, const Caller& caller,
                                        const Request& request, std::uint32_t living);

/// Succeeds for root and for the slice's own user.
[[nodiscard]] Result<void> check_owner(const Caller& caller, std::uint32_t slice_uid,
                                       const std::string& slice);

}  // namespace carve::agent
