#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/ledger/ledger.h"
#include "core/model/request.h"

namespace carve {

/// Why a pod does not fit on a node, as a class for counting. The error of place() is the sentence for users.
enum class UnschedulableReason : std::uint8_t {
  kMemory,             // too little free memory
  kCompute,            // too little free compute
  kSlices,             // the card has as many slices as a card can have
  kHeldAlone,          // another owner holds the card exclusively
  kNotEmpty,           // the pod requests the card exclusively, and it has slices
  kUnhealthy,
  kCardClosed,         // takes no new slice
  kCardMode,           // the card's mode does not permit such requests
  kQuota,              // the quota of the pod's namespace is used up
  kTooSmall,           // the card's total memory is too small
  kTooSlow,            // the card does not have the requested FP32 rate
  kModel,              // another model is requested
  kNotNamed,           // the pod names other cards
  kTooFew,             // fewer cards than requested, or enough for each container but not for all together
  kNoCard,             // the node has no card managed by Carve
  kAgentLeaving,       // the node is closed for a while
  kConflictingPlugin,  // the node is closed to the pod's dialect
};
inline constexpr std::size_t kUnschedulableReasons = 17;

/// One word for each: label values of metrics.
inline constexpr std::array<std::string_view, kUnschedulableReasons> kUnschedulableWords = {
    "memory",  "compute", "slices",    "held_alone", "not_empty", "unhealthy", "card_closed", "card_mode",
    "quota",   "too_small", "too_slow", "model",     "not_named", "too_few",   "no_card",     "agent_leaving",
    "conflicting_plugin"};

/// A short text for each, about a node. It is used where there are too many nodes to report the missing amounts.
inline constexpr std::array<std::string_view, kUnschedulableReasons> kUnschedulableTexts = {
    "no card has enough free memory",
    "no card has enough free compute",
    "its cards have as many slices as a card can have",
    "each of its cards is held exclusively",
    "no card is empty",
    "its cards are unhealthy",
    "its cards are closed to new slices",
    "the mode of its cards does not permit such requests",
    "the quota of the pod's namespace is used up",
    "its cards are smaller than the requested memory",
    "its cards are slower than the requested TFLOPS",
    "its cards are of another model",
    "the pod names other cards",
    "too few cards are free",
    "no card managed by Carve",
    "its agent is being replaced",
    "another device plugin serves the resource that the pod requests"};

/// Why place_pod() finds no room for a pod on these cards. For the first container that too few cards serve by
/// themselves, it is the reason of the card that comes nearest to serving it.
///   cost    O(cards × containers)
[[nodiscard]] UnschedulableReason unschedulable_reason_on(const Ledger& ledger, const std::vector<PartRequest>& parts);

}  // namespace carve
