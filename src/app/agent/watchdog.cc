#include "app/agent/watchdog.h"

#include <fmt/core.h>

#include <algorithm>

namespace carve {
namespace {

/// What NVML says of one slice on one card, all its processes together.
struct Sum {
  Bytes memory;
  double sm_percent = 0;
  std::vector<std::int32_t> pids;
};

using Sums = std::map<std::pair<std::string, std::string>, Sum>;

Sums sums_of(const std::vector<Sighting>& sightings) {
  Sums sums;
  for (const auto& s : sightings) {
    if (s.slice.empty()) continue;
    Sum& sum = sums[{s.slice, s.card.str()}];
    if (s.process.memory != Bytes::max()) sum.memory += s.process.memory;
    sum.sm_percent += s.process.sm_percent;
    sum.pids.push_back(s.process.pid);
  }
  return sums;
}

}  // namespace

const char* to_string(BreachKind kind) {
  switch (kind) {
    case BreachKind::kUnregistered:
      return "breach-unregistered";
    case BreachKind::kForeignCard:
      return "breach-card";
    case BreachKind::kMemory:
      return "breach-memory";
    case BreachKind::kCompute:
      return "breach-compute";
  }
  return "breach";
}

bool Watchdog::convicted(const Key& key) const {
  const auto found = strikes_.find(key);
  return found != strikes_.end() && found->second.reported != Clock::Time{};
}

bool Watchdog::lasted(const Key& key, Clock::Duration need, Clock::Time now) {
  auto [it, fresh] = strikes_.try_emplace(key, Strike{now, now, Clock::Time{}, 0});
  Strike& strike = it->second;
  strike.last_round = now;
  if (now - strike.since < need) return false;
  if (strike.reported != Clock::Time{} && now - strike.reported < std::chrono::seconds(1)) return false;
  strike.reported = now;
  return true;
}

std::vector<Breach> Watchdog::judge(const std::vector<WatchedSlice>& slices,
                                    const std::vector<Sighting>& sightings, Clock::Time now) {
  std::vector<Breach> breaches;
  std::map<std::string, const WatchedSlice*> by_id;
  for (const auto& slice : slices) by_id[slice.id] = &slice;
  for (const auto& s : sightings) {
    const auto found = by_id.find(s.slice);
    if (found == by_id.end()) continue;
    const WatchedSlice& slice = *found->second;
    const bool own_card = std::any_of(slice.cards.begin(), slice.cards.end(),
                                      [&](const Slice& card) { return card.card == s.card; });
    if (own_card && (slice.whole || slice.registered.count(s.process.pid) != 0)) continue;
    const BreachKind kind = own_card ? BreachKind::kUnregistered : BreachKind::kForeignCard;
    if (!lasted({kind, s.slice, s.card, s.process.pid}, bounds_.unregistered_for, now)) continue;
    breaches.push_back(
        {kind,
         s.slice,
         s.card,
         {s.process.pid},
         fmt::format("process {} holds {} on {} {}", s.process.pid,
                     s.process.memory == Bytes::max() ? "memory" : to_human(s.process.memory), s.card.str(),
                     own_card ? "without going through the library" : "which is not a card of its slice"),
         100,
         0});
  }
  const auto sums = sums_of(sightings);
  for (const auto& slice : slices) {
    for (std::size_t i = 0; i < slice.cards.size() && !slice.whole; ++i) {
      const Slice& card = slice.cards[i];
      const auto found = sums.find({slice.id, card.card.str()});
      if (found == sums.end()) continue;
      const Sum& sum = found->second;
      const Bytes bound = card.memory + bounds_.per_process * sum.pids.size();
      if (sum.memory > bound &&
          lasted({BreachKind::kMemory, slice.id, card.card, 0}, bounds_.memory_for, now)) {
        breaches.push_back({BreachKind::kMemory, slice.id, card.card, sum.pids,
                            fmt::format("holds {} on {}, its limit is {}", to_human(sum.memory),
                                        card.card.str(), to_human(card.memory)),
                            100, 0});
      }
      const double told = i < slice.delivered_percent.size() ? slice.delivered_percent[i] : 0;
      const double allowed = card.share == ShareClass::kFixed
                                 ? std::min<double>(card.compute.hundredths(), std::max(told, 1.0))
                                 : std::max(told, static_cast<double>(card.guarantee().hundredths()));
      const Key key{BreachKind::kCompute, slice.id, card.card, 0};
      const double points = convicted(key) ? bounds_.compute_points_again : bounds_.compute_points;
      if (sum.sm_percent <= allowed + points) continue;
      const bool breach = lasted(key, bounds_.compute_for, now);
      // After a freeze the driver's average still has some of it: the most that was seen is what it uses.
      double& most = strikes_.at(key).seen;
      most = std::max(most, sum.sm_percent);
      if (breach) {
        breaches.push_back({BreachKind::kCompute, slice.id, card.card, sum.pids,
                            fmt::format("uses {:.0f} % of {}, {:.0f} % by its own account, {} allowed",
                                        sum.sm_percent, card.card.str(), told, card.compute.hundredths()),
                            static_cast<double>(card.compute.hundredths()), most});
      }
    }
  }
  // What was not seen in this round starts anew.
  std::erase_if(strikes_, [&](const auto& entry) {
    const bool frozen = std::get<0>(entry.first) == BreachKind::kCompute && convicted(entry.first);
    return now - entry.second.last_round > (frozen ? bounds_.compute_forgiven_after : Clock::Duration::zero());
  });
  return breaches;
}

std::map<std::pair<std::string, std::size_t>, Bytes> Watchdog::overheads(
    const std::vector<WatchedSlice>& slices, const std::vector<Sighting>& sightings) {
  std::map<std::pair<std::string, std::size_t>, Bytes> result;
  const auto sums = sums_of(sightings);
  for (const auto& slice : slices) {
    for (std::size_t i = 0; i < slice.cards.size() && !slice.whole; ++i) {
      const auto found = sums.find({slice.id, slice.cards[i].card.str()});
      const Bytes seen = found == sums.end() ? Bytes() : found->second.memory;
      const Bytes announced = i < slice.announced.size() ? slice.announced[i] : Bytes();
      result[{slice.id, i}] = seen - announced;
    }
  }
  return result;
}

}  // namespace carve
