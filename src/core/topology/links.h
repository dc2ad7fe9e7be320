#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/model/card.h"

namespace carve {

/// How two cards reach each other; a larger value is a closer link. The words are those of `nvidia-smi topo -m`.
enum class LinkLevel : std::uint8_t {
  kUnknown = 0,
  kSystem = 1,       // SYS: across NUMA nodes
  kNumaNode = 2,     // NODE: across host bridges of one NUMA node
  kHostBridge = 3,   // PHB: one host bridge
  kMultiSwitch = 4,  // PXB: several PCIe switches
  kSwitch = 5,       // NV#: linked directly or through NVSwitch
  kNvLink = 6,       // NV#: linked directly or through NVSwitch
};
[[nodiscard]] std::string_view to_string(LinkLevel level);  // SYS, NODE, PHB, PXB, PIX, NVLINK, ?

struct Link {
  LinkLevel level = LinkLevel::kUnknown;
  std::uint8_t lanes = 0;  // NVLinks between the two; 0 below kNvLink
  friend auto operator<=>(const Link&, const Link&) = default;
};

/// The link of every pair of cards on one machine, by CardId. Plain data; a link that was not set is kUnknown.
class LinkMatrix {
 public:
  LinkMatrix() = default;
  explicit LinkMatrix(std::vector<CardId> cards);

  /// Sets the link in both directions; ignored when a card is not in the matrix or both are the same.
  void set(const CardId& a, const CardId& b, Link link);
  /// kUnknown for cards that are not in the matrix, and between a card and itself.
  [[nodiscard]] Link between(const CardId& a, const CardId& b) const;
  [[nodiscard]] const std::vector<CardId>& cards() const { return cards_; }  // sorted
  friend bool operator==(const LinkMatrix&, const LinkMatrix&) = default;

 private:
  [[nodiscard]] std::size_t index(const CardId& card) const;  // cards_.size() when not in the matrix
  std::vector<CardId> cards_;
  std::vector<Link> links_;  // row by row
};

/// How well a set of cards is connected: first by its worst pair, then by all pairs together. Larger is better; only
/// sets of the same size can be compared.
struct Connection {
  LinkLevel worst = LinkLevel::kNvLink;
  std::uint32_t weight = 0;
  friend auto operator<=>(const Connection&, const Connection&) = default;
};
/// The weight of one link: the level first, then the number of lanes.
[[nodiscard]] constexpr std::uint32_t weight_of(Link link) {
  return static_cast<std::uint32_t>(link.level) * 32 + link.lanes;
}

}  // namespace carve
