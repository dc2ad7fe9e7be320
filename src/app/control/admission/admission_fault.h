#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace carve::control {

/// Classes of faults for which admission refuses a pod, for counting. The refusal's text is for the pod's author.
enum class AdmissionFault : std::uint8_t {
  kUnreadable,      // the review or its pod
  kRequest,         // amounts, units, limits and requests that differ, two spellings in one container
  kResourceName,    // an unknown name below elasticgpu.io/, or a name that Carve does not read yet
  kSlots,           // slots without a request for cards
  kClaim,           // cards by a claim and by a name in one container
  kAnnotation,      // a placeholder, or a value that is not a string
  kPlacement,       // a preference that cannot be parsed
  kVisibleDevices,  // NVIDIA_VISIBLE_DEVICES without a request
  kNotMutated,      // what the mutating webhook would have corrected
};
inline constexpr std::size_t kAdmissionFaults = 9;
using AdmissionFaults = std::bitset<kAdmissionFaults>;

/// A word for each: label values of metrics.
inline constexpr std::array<std::string_view, kAdmissionFaults> kAdmissionFaultWords = {
    "unreadable", "request",   "resource_name",   "slots",   "claim",
    "annotation", "placement", "visible_devices", "not_mutated"};

}  // namespace carve::control
