#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace carve {

/// How a slice shares compute: a cap even on an idle card; a guarantee and what is idle; only what
/// is idle.
enum class ShareClass : std::uint8_t { kFixed, kBurst, kBestEffort };

/// Who goes first when slices compete.
enum class PriorityClass : std::uint8_t { kOnline, kStandard, kOffline };

/// When the part runs: init parts of a pod run one at a time, before all others.
enum class Phase : std::uint8_t { kRun, kInit };

/// The words that people write: fixed, burst, besteffort.
[[nodiscard]] std::string_view to_string(ShareClass value);
/// online, standard, offline.
[[nodiscard]] std::string_view to_string(PriorityClass value);
/// nullopt for any other word.
[[nodiscard]] std::optional<ShareClass> share_class_from(std::string_view word);
[[nodiscard]] std::optional<PriorityClass> priority_class_from(std::string_view word);

/// "fixed, burst or besteffort", for error texts and help.
inline constexpr std::string_view kShareClassWords = "fixed, burst or besteffort";
inline constexpr std::string_view kPriorityClassWords = "online, standard or offline";

}  // namespace carve
