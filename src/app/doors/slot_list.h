#pragma once

#include <set>
#include <string>
#include <vector>

#include "port/gpu.h"
#include "port/kubelet.h"

namespace carve::doors {

inline constexpr std::size_t kSlotsPerCard = 64;
inline constexpr std::size_t kMaxSlots = 1024;
inline constexpr const char* kSlotResource = "elasticgpu.io/slot";

/// The slots that this node offers: a constant number, and as many unhealthy free ones as unhealthy cards
/// stand for. Which ones stays as it is as long as it can, so that the kubelet is told as little as possible.
/// One thread at a time.
class SlotList {
 public:
  /// True: the list is another one now. `used`: slots that containers hold; they are never taken out.
  /// A card that is not listed any more counts as unhealthy: totals are never reduced while we run.
  bool update(const GpuInventory& cards, const std::set<std::string>& used);
  [[nodiscard]] const std::vector<SlotDevice>& devices() const { return devices_; }

 private:
  std::size_t cards_ = 0;
  std::vector<SlotDevice> devices_;
};

/// "slot-0007"
[[nodiscard]] std::string slot_id(std::size_t number);
/// The same slots in one order, so that two lists of them compare.
[[nodiscard]] std::vector<std::string> sorted(std::vector<std::string> slots);

}  // namespace carve::doors
