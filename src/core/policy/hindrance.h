#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/ledger/ledger.h"
#include "core/model/request.h"

namespace carve {

/// What keeps a pod from a node, as a class to count by; the sentence for a person is place()'s error.
enum class Hindrance : std::uint8_t {
  kMemory,             // too little is free
  kCompute,            // too little is free
  kSlices,             // the card has as many slices as a card can have
  kHeldAlone,          // somebody has the card alone
  kNotEmpty,           // the pod wants the card alone
  kUnhealthy,
  kCardClosed,         // nothing new is put there
  kTooSmall,           // the card's whole memory is less
  kModel,              // another model
  kNotNamed,           // the pod names other cards
  kTooFew,             // cards: fewer than it wants, or enough for each container and not for all
  kNoCard,             // none of ours on the node
  kAgentLeaving,       // the node is closed for a while
  kConflictingPlugin,  // the node is closed to the pod's dialect
};
inline constexpr std::size_t kHindrances = 14;

/// A word for each: label values of metrics.
inline constexpr std::array<std::string_view, kHindrances> kHindranceWords = {
    "memory",    "compute", "slices",    "held_alone", "not_empty", "unhealthy",     "card_closed",
    "too_small", "model",   "not_named", "too_few",    "no_card",   "agent_leaving", "conflicting_plugin"};

/// The same for a person, of a node, where there are too many of them to say how much is missing on each.
inline constexpr std::array<std::string_view, kHindrances> kHindranceTexts = {
    "no card has as much memory free",
    "no card has as much compute free",
    "its cards have as many slices as a card can have",
    "its cards are each held alone",
    "no card is empty",
    "its cards are unhealthy",
    "nothing new is put on its cards",
    "its cards have less memory",
    "its cards are of another model",
    "the pod names other cards",
    "too few cards are free",
    "no card of ours on it",
    "its agent is being replaced",
    "another device plugin serves what the pod asks for"};

/// What keeps a pod, for which place_pod() finds no room, from these cards: of the first container that too few cards
/// serve by themselves, the reason of the card that comes nearest.
///   cost    O(cards × containers)
[[nodiscard]] Hindrance hindrance_on(const Ledger& ledger, const std::vector<PartRequest>& parts);

}  // namespace carve
