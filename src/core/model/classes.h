#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace carve {

/// How a slice shares compute. kFixed: capped, even on an idle card. kBurst: a guarantee plus idle compute.
/// kBestEffort: idle compute only. kNode: its compute is set aside, and the policy of the node says how it is enforced
/// (share_policy.h).
enum class ShareClass : std::uint8_t { kFixed, kBurst, kBestEffort, kNode };

/// Whether a slice of this class may have a limit of compute of its own. Otherwise its cores (kFixed) or the policy of
/// the node (kNode) are the limit.
[[nodiscard]] constexpr bool may_have_ceiling(ShareClass share) {
  return share == ShareClass::kBurst || share == ShareClass::kBestEffort;
}

/// Which slice goes first when slices compete.
enum class PriorityClass : std::uint8_t { kOnline, kStandard, kOffline };

/// When the part runs: the init parts of a pod run one at a time, before all other parts.
enum class Phase : std::uint8_t { kRun, kInit };

/// The words that users write: fixed, burst, besteffort, node.
[[nodiscard]] std::string_view to_string(ShareClass value);
/// online, standard, offline.
[[nodiscard]] std::string_view to_string(PriorityClass value);
/// nullopt for any other word.
[[nodiscard]] std::optional<ShareClass> share_class_from(std::string_view word);
[[nodiscard]] std::optional<PriorityClass> priority_class_from(std::string_view word);

/// For error texts and help.
inline constexpr std::string_view kShareClassWords = "fixed, burst, besteffort or node";
inline constexpr std::string_view kLocalShareClassWords = "fixed, burst or besteffort";  // on a machine without a Node
inline constexpr std::string_view kPriorityClassWords = "online, standard or offline";

}  // namespace carve
