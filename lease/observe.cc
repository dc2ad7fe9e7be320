#include "lease/observe.h"

namespace carve::lease {

Observation observe(const abi::AccountPage& page, std::uint32_t slots, std::uint64_t last, std::uint64_t now) {
  Observation all;
  if (slots > abi::kAccountSlots) slots = abi::kAccountSlots;
  for (std::uint32_t i = 0; i < slots; ++i) {
    const abi::AccountSlot& slot = page.slots[i];
    all.want = all.want || slot.want.load_acquire() != 0;
    all.busy_ns += slot.busy_ns.load_acquire();  // differences count, so wrapping around does no harm
    const std::uint64_t anchor = slot.anchor_ns.load_relaxed();
    if (anchor >= last && anchor <= now && anchor > all.edge_ns) all.edge_ns = anchor;
    if (slot.busy.load_acquire() == 0) continue;
    all.busy = true;
    // What was launched, less the time that has passed since the card began on it.
    std::uint64_t left = slot.inflight_ns.load_relaxed();
    if (left > kMostInflightNs) left = kMostInflightNs;
    const std::uint64_t passed = anchor <= now ? now - anchor : 0;
    all.inflight_ns += left > passed ? left - passed : 0;
  }
  if (all.inflight_ns > kMostInflightNs) all.inflight_ns = kMostInflightNs;
  return all;
}

}  // namespace carve::lease
