#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/model/card.h"

namespace carve::codec {

/// By this label of a Node an administrator sets the mode of its cards: any, shared or exclusive.
inline constexpr std::string_view kCardMode = "elasticgpu.io/card-mode";
/// An annotation for single cards: "0=exclusive,GPU-5e3a…=shared". It overrides the label.
inline constexpr std::string_view kCardModes = "elasticgpu.io/card-modes";
/// An annotation: with "true", control evicts pods from cards with a mode that does not permit them.
inline constexpr std::string_view kCardModeDrain = "elasticgpu.io/card-mode-drain";
/// The labels by which cGPU's and Rancher's users choose the mode of a node. They apply where kCardMode is absent.
inline constexpr std::string_view kAckSchedule = "ack.node.gpu.schedule";
inline constexpr std::string_view kRancherType = "gpu.cattle.io/type";
inline constexpr std::string_view kRancherShared = "share";  // a value of kRancherType

/// The modes that a Node states for its cards.
struct CardModes {
  CardMode all = CardMode::kAny;
  std::vector<std::pair<std::string, CardMode>> cards = {};  // by UUID or index; the last one applies
  bool drains = false;
  std::string refused = {};  // every illegal value with what is legal, which counts as absent; empty: none

  /// `index` is the card's place in the driver's list.
  [[nodiscard]] CardMode of(const CardId& card, std::size_t index) const;
  friend bool operator==(const CardModes&, const CardModes&) = default;
};

using NodeTexts = std::map<std::string, std::string>;
/// Reads the labels and annotations of a Node. Names of cards that do not exist are no fault: a card may be missing
/// now.
///   source  of the foreign labels: spec: systems.md R4 and R6
[[nodiscard]] CardModes card_modes_of(const NodeTexts& labels, const NodeTexts& annotations);
/// The Node has Rancher's label for shared cards.
[[nodiscard]] bool is_shared_by_rancher(const NodeTexts& labels);

}  // namespace carve::codec
