#include "lease/observe.h"

namespace carve::lease {

Observation observe(const abi::AccountPage& page, std::uint32_t entries, std::uint64_t last, std::uint64_t now) {
  constexpr std::uint64_t kNone = ~std::uint64_t{0};
  Observation all;
  std::uint64_t inflight = 0;
  std::uint64_t progress = 0;   // when the card last made observed progress with the work in flight
  std::uint64_t first = kNone;  // since the previous step: the first edge of the busy entries; below, the last of all
  std::uint64_t last_edge = 0;
  if (entries > abi::kAccountEntries) entries = abi::kAccountEntries;
  for (std::uint32_t i = 0; i < entries; ++i) {
    const abi::AccountEntry& entry = page.entries[i];
    all.want = all.want || entry.want.load_acquire() != 0;
    all.busy_ns += entry.busy_ns.load_acquire();  // only differences count, so wrapping around is harmless
    const std::uint64_t anchor = entry.anchor_ns.load_relaxed();
    const bool recent = anchor >= last && anchor <= now;
    if (recent && anchor > last_edge) last_edge = anchor;
    if (entry.busy.load_acquire() == 0) continue;
    all.busy = true;
    ++all.processes;
    if (recent && anchor < first) first = anchor;
    if (anchor <= now && anchor > progress) progress = anchor;
    const std::uint64_t launched = entry.inflight_ns.load_relaxed();
    inflight += launched < kMostInflightNs ? launched : kMostInflightNs;
  }
  all.edge_ns = !all.busy ? last_edge : first == kNone ? 0 : first;
  if (!all.busy) return all;
  // The launched work, less the time that has passed since the card began it. Late work takes longer than expected, and
  // the estimate is that it still takes as long as it is late.
  const std::uint64_t passed = progress == 0 ? 0 : now - progress;
  const std::uint64_t left = inflight > passed ? inflight - passed : passed - inflight;
  all.inflight_ns = left < kMostInflightNs ? left : kMostInflightNs;
  return all;
}

}  // namespace carve::lease
