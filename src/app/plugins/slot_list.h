#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "port/gpu.h"
#include "port/kubelet.h"

namespace carve::plugins {

inline constexpr std::size_t kSlotsPerCard = 64;
inline constexpr std::size_t kMaxSlots = 1024;
inline constexpr const char* kSlotResource = "elasticgpu.io/slot";
/// The slots of a node with this number of cards.
constexpr std::size_t slots_of(std::size_t cards) { return std::min(cards * kSlotsPerCard, kMaxSlots); }

/// The slots that this node offers. Their number is constant. As many free slots are unhealthy as the unhealthy cards
/// have. Slots keep their health as long as possible, so that the kubelet gets few updates. One thread at a time.
class SlotList {
 public:
  /// True: the list changed. `used`: slots of containers; they are never made unhealthy. A card that is no longer
  /// listed counts as unhealthy: the number of slots never decreases while the agent runs.
  bool update(const GpuInventory& cards, const std::set<std::string>& used);
  [[nodiscard]] const std::vector<SlotDevice>& devices() const { return devices_; }

 private:
  std::size_t cards_ = 0;
  std::vector<SlotDevice> devices_;
};

/// "slot-0007"
[[nodiscard]] std::string slot_id(std::size_t number);
/// The slots in ascending order, so that two lists compare equal.
[[nodiscard]] std::vector<std::string> sorted(std::vector<std::string> slots);

}  // namespace carve::plugins
