#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace carve::control {

/// What is wrong with a pod that admission refuses, as a class to count by; the text is for whoever made it.
enum class AdmissionFault : std::uint8_t {
  kUnreadable,      // the review or its pod
  kRequest,         // amounts, units, limits and requests that differ, two spellings in one container
  kResourceName,    // a name below elasticgpu.io/ that means nothing, or one that nobody reads yet
  kSlots,           // slots without a request for cards
  kClaim,           // cards by a claim and by a name in one container
  kAnnotation,      // a placeholder, or a value that is no text
  kPlacement,       // a preference that nobody understands
  kVisibleDevices,  // NVIDIA_VISIBLE_DEVICES without a request
  kNotMutated,      // what the mutating webhook would have put right
};
inline constexpr std::size_t kAdmissionFaults = 9;
using AdmissionFaults = std::bitset<kAdmissionFaults>;

/// A word for each: label values of metrics.
inline constexpr std::array<std::string_view, kAdmissionFaults> kAdmissionFaultWords = {
    "unreadable", "request",   "resource_name",   "slots",   "claim",
    "annotation", "placement", "visible_devices", "not_mutated"};

}  // namespace carve::control
