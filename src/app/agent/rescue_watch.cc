#include "app/agent/rescue_watch.h"

#include <fmt/core.h>

namespace carve::agent {

std::string RepeatedRescue::text(const RescueBounds& bounds) const {
  return fmt::format(
      "got {} leases out of turn on {} within {} s, because its work in flight did not end while it waited to launch "
      "more; the slice was charged for them",
      count, card.str(), std::chrono::duration_cast<std::chrono::seconds>(bounds.window).count());
}

std::vector<RepeatedRescue> RescueWatch::look(const std::vector<PageSlice>& pages, Clock::Time now) {
  std::vector<RepeatedRescue> repeated;
  for (const auto& slice : pages) {
    for (const auto& card : slice.cards) {
      const auto [at, fresh] = counted_.try_emplace({slice.id, card.card});
      Counted& one = at->second;
      const std::uint32_t before = fresh ? card.rescues : one.total;
      const std::uint32_t grown = card.rescues < before ? card.rescues : card.rescues - before;
      one.total = card.rescues;
      one.last_round = now;
      if (grown > 0) one.lately.emplace_back(now, grown);
      while (!one.lately.empty() && now - one.lately.front().first > bounds_.window) one.lately.pop_front();
      std::uint64_t count = 0;
      for (const auto& [when, by] : one.lately) count += by;
      if (grown == 0 || count < bounds_.repeated_at) continue;
      if (one.reported && now - one.reported_at < bounds_.again_after) continue;
      one.reported = true;
      one.reported_at = now;
      repeated.push_back({slice.id, card.card, count});
    }
  }
  std::erase_if(counted_, [&](const auto& one) { return one.second.last_round != now; });
  return repeated;
}

}  // namespace carve::agent
