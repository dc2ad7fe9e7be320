#include "lease/observe.h"

namespace carve::lease {

Observation observe(const abi::AccountPage& page, std::uint32_t slots, std::uint64_t last, std::uint64_t now) {
  constexpr std::uint64_t kNone = ~std::uint64_t{0};
  Observation all;
  std::uint64_t inflight = 0;
  std::uint64_t progress = 0;   // when the card was last seen to get on with what is in flight
  std::uint64_t first = kNone;  // edges since the step before: the first one of what works, the last one of all
  std::uint64_t last_edge = 0;
  if (slots > abi::kAccountSlots) slots = abi::kAccountSlots;
  for (std::uint32_t i = 0; i < slots; ++i) {
    const abi::AccountSlot& slot = page.slots[i];
    all.want = all.want || slot.want.load_acquire() != 0;
    all.busy_ns += slot.busy_ns.load_acquire();  // differences count, so wrapping around does no harm
    const std::uint64_t anchor = slot.anchor_ns.load_relaxed();
    const bool recent = anchor >= last && anchor <= now;
    if (recent && anchor > last_edge) last_edge = anchor;
    if (slot.busy.load_acquire() == 0) continue;
    all.busy = true;
    ++all.processes;
    if (recent && anchor < first) first = anchor;
    if (anchor <= now && anchor > progress) progress = anchor;
    const std::uint64_t launched = slot.inflight_ns.load_relaxed();
    inflight += launched < kMostInflightNs ? launched : kMostInflightNs;
  }
  all.edge_ns = !all.busy ? last_edge : first == kNone ? 0 : first;
  if (!all.busy) return all;
  // What was launched, less the time that has passed since the card began on it. What is late lasts longer than was
  // expected: it may well last for as long again.
  const std::uint64_t passed = progress == 0 ? 0 : now - progress;
  const std::uint64_t left = inflight > passed ? inflight - passed : passed - inflight;
  all.inflight_ns = left < kMostInflightNs ? left : kMostInflightNs;
  return all;
}

}  // namespace carve::lease
