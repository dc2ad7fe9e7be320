#include "app/agent/watchdog.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace carve::agent {

Watchdog::Sums Watchdog::sums_of(const std::vector<Sighting>& sightings) {
  Sums sums;
  for (const auto& s : sightings) {
    if (s.slice.empty()) continue;
    Sum& sum = sums[{s.slice, s.card}];
    if (s.process.memory != Bytes::max()) sum.memory += s.process.memory;
    sum.sm_percent += s.process.sm_percent;
    sum.pids.push_back(s.process.pid);
  }
  return sums;
}

const char* to_string(BreachKind kind) {
  switch (kind) {
    case BreachKind::kUnregistered:
      return "breach-unregistered";
    case BreachKind::kForeignCard:
      return "breach-card";
    case BreachKind::kMemory:
      return "breach-memory";
    case BreachKind::kMemoryBrief:
      return "breach-memory-brief";
    case BreachKind::kUnexplained:
      return "breach-unexplained";
    case BreachKind::kCompute:
      return "breach-compute";
  }
  return "breach";
}

bool Watchdog::lasted(const Key& key, Clock::Duration need, Clock::Time now) {
  auto [it, fresh] = strikes_.try_emplace(key, Strike{now, now, Clock::Time{}});
  Strike& strike = it->second;
  strike.last_round = now;
  if (now - strike.since < need) return false;
  if (strike.reported != Clock::Time{} && now - strike.reported < std::chrono::seconds(1)) return false;
  strike.reported = now;
  return true;
}

void Watchdog::judge_process(const WatchedSlice& slice, const Sighting& seen, Clock::Time now,
                             std::vector<Breach>* breaches) {
  const bool own_card = std::any_of(slice.cards.begin(), slice.cards.end(),
                                    [&](const Slice& card) { return card.card == seen.card; });
  const std::int32_t pid = seen.process.pid;
  if (own_card && (slice.whole || !slice.pages_known || slice.registered.count(pid) != 0)) return;
  const BreachKind kind = own_card ? BreachKind::kUnregistered : BreachKind::kForeignCard;
  if (!lasted({kind, slice.id, seen.card, pid}, bounds_.unregistered_for, now)) return;
  const Bytes memory = seen.process.memory;
  breaches->push_back(
      {kind,
       slice.id,
       seen.card,
       {pid},
       fmt::format("process {} holds {} on {}{}", pid, memory == Bytes::max() ? "memory" : to_human(memory),
                   seen.card.str(),
                   own_card ? " and bypasses the library" : ", which is not a card of its slice"),
       100,
       0});
}

void Watchdog::measure_margins(const std::vector<WatchedSlice>& slices, const Sums& sums) {
  struct OnCard {
    Bytes spare = Bytes::max();
    std::vector<std::pair<std::string, std::size_t>> of;
    std::vector<Bytes> excess;
    std::vector<Bytes> limits;
  };
  std::map<CardId, OnCard> cards;
  for (const auto& slice : slices) {
    for (std::size_t i = 0; i < slice.cards.size() && !slice.whole; ++i) {
      const Slice& card = slice.cards[i];
      const auto found = sums.find({slice.id, card.card});
      OnCard& on = cards[card.card];
      if (i < slice.spare.size()) on.spare = slice.spare[i];
      on.of.emplace_back(slice.id, i);
      on.excess.push_back((found == sums.end() ? Bytes() : found->second.memory) - card.memory);
      on.limits.push_back(card.memory);
    }
  }
  margins_.clear();
  beyond_.clear();
  for (const auto& [card, on] : cards) {
    const std::vector<Margin> of_card = margins(on.spare, on.excess, on.limits, bounds_.tolerance);
    for (std::size_t i = 0; i < of_card.size(); ++i) {
      margins_[on.of[i]] = of_card[i];
      beyond_[card] += std::min(on.excess[i], bounds_.tolerance.most);
    }
  }
}

Bytes Watchdog::kept_back(const std::string& slice, std::size_t index) const {
  const auto found = margins_.find({slice, index});
  return found == margins_.end() ? Bytes() : found->second.kept_back;
}

Bytes Watchdog::beyond_limits(const CardId& card) const {
  const auto found = beyond_.find(card);
  return found == beyond_.end() ? Bytes() : found->second;
}

void Watchdog::judge_memory(const WatchedSlice& slice, std::size_t index, const Sum& sum, Clock::Time now,
                            std::vector<Breach>* breaches) {
  const Slice& card = slice.cards[index];
  BreachHistory& history = histories_[{slice.id, card.card}];
  const auto report = [&](BreachKind kind, Bytes bytes, const std::string& more) {
    breaches->push_back({kind, slice.id, card.card, sum.pids,
                         fmt::format("{} {} on {}, its limit is {}{}", kind == BreachKind::kMemory ? "holds" : "held",
                                     to_human(bytes), card.card.str(), to_human(card.memory), more),
                         100, 0});
  };
  if (sum.memory <= card.memory + margins_[{slice.id, index}].tolerance) {
    if (std::exchange(history.over, false) && !history.reported)
      report(BreachKind::kMemoryBrief, history.most, fmt::format(" (briefly, {} times recently)", history.count));
    return;
  }
  if (!std::exchange(history.over, true)) {
    const auto forgiven = history.count == 0 ? 0 : (now - history.last) / bounds_.forgiven_after;
    history.count = 1 + static_cast<int>(std::max<std::int64_t>(0, history.count - forgiven));
    history.reported = false;
    history.most = Bytes();
  }
  history.last = now;
  history.most = std::max(history.most, sum.memory);
  const bool ends = history.count >= bounds_.ended_at;
  const Clock::Duration need = ends ? Clock::Duration(0) : bounds_.memory_for / (1 << (history.count - 1));
  if (!lasted({BreachKind::kMemory, slice.id, card.card, 0}, need, now)) return;
  history.reported = true;
  report(BreachKind::kMemory, sum.memory, ends ? fmt::format(" (breach number {})", history.count) : "");
  breaches->back().ends_slice = ends;
}

bool Watchdog::needs_frequent_rounds(Clock::Time now) const {
  return std::any_of(histories_.begin(), histories_.end(), [&](const auto& one) {
    return one.second.count > 0 && now - one.second.last < bounds_.forgiven_after * one.second.count;
  });
}

bool Watchdog::starves(const std::vector<WatchedSlice>& slices, const Sums& sums, const WatchedSlice& except,
                       const CardId& card, double points) {
  for (const auto& slice : slices) {
    if (&slice == &except || slice.whole || !slice.pages_known) continue;
    for (std::size_t i = 0; i < slice.cards.size(); ++i) {
      if (slice.cards[i].card != card) continue;
      const auto found = sums.find({slice.id, card});
      const double used = found == sums.end() ? 0 : found->second.sm_percent;
      const double granted = i < slice.granted_percent.size() ? slice.granted_percent[i].value_or(0) : 0;
      if (used + points < std::min<double>(granted, slice.cards[i].guarantee().hundredths())) return true;
    }
  }
  return false;
}

ComputeRound Watchdog::round_of(const WatchedSlice& slice, std::size_t index, const Sum& sum, bool starving) {
  const Slice& card = slice.cards[index];
  ComputeRound round;
  round.used = sum.sm_percent;
  round.starving = starving;
  if (slice.revoked) return round;
  round.guarantee = card.guarantee().hundredths();
  if (card.share == ShareClass::kFixed) return round;
  // A tenant can raise what is charged, but not beyond the ceiling of its slice.
  const double most = card.ceiling.hundredths();
  round.charged = std::min(most, index < slice.charged_percent.size() ? slice.charged_percent[index] : 0);
  if (index < slice.granted_percent.size()) round.granted = slice.granted_percent[index];
  if (index < slice.drained_percent.size()) round.drained = slice.drained_percent[index];
  return round;
}

Breach Watchdog::compute_breach(const WatchedSlice& slice, std::size_t index, const Sum& sum,
                                const ComputeRound& round, const Computing& one) {
  const Slice& card = slice.cards[index];
  Breach breach{BreachKind::kCompute, slice.id, card.card, sum.pids, {}, round.guarantee, one.peak};
  breach.step = one.reported;
  breach.text = fmt::format("uses {:.0f} % of {}, {} % allowed; the arbiter charged {:.0f} % and granted {}",
                            round.used, card.card.str(), card.compute.hundredths(), round.charged.value_or(0),
                            round.granted ? fmt::format("{:.0f} %", *round.granted) : "an unknown share");
  breach.certain = one.debt.certain();
  breach.text += breach.certain ? fmt::format("; its debt is {:.1f} s of card time", one.debt.owed())
                                : "; one long kernel explains it";
  if (round.starving) breach.text += "; a neighbour gets less than its guarantee";
  return breach;
}

void Watchdog::judge_compute(const WatchedSlice& slice, std::size_t index, const Sum& sum, bool starving,
                             Clock::Time now, std::vector<Breach>* breaches) {
  constexpr Clock::Duration kSecond = std::chrono::seconds(1);
  const ComputeRound round = round_of(slice, index, sum, starving);
  Computing& one = computing_[{slice.id, slice.cards[index].card}];
  const double prior = one.begun ? 0 : offences_.prior(slice.user, now, bounds_.offences);
  one.begun = true;
  if (round.used >= one.peak || now - one.peak_at > 2 * kSecond) {
    one.peak = round.used;
    one.peak_at = now;
  }
  const ComputeStep step = one.debt.look(round, now, bounds_.compute, prior);
  if (step == ComputeStep::kNone) return;
  if (one.debt.certain()) {
    if (!std::exchange(one.caught, true)) offences_.note(slice.user, now, bounds_.offences);
    offences_.renew(slice.user, now);
  }
  if (step <= one.reported && now - one.reported_at < kSecond) return;
  one.reported = step;
  one.reported_at = now;
  breaches->push_back(compute_breach(slice, index, sum, round, one));
}

std::vector<Breach> Watchdog::judge(const std::vector<WatchedSlice>& slices,
                                    const std::vector<Sighting>& sightings, Clock::Time now) {
  std::vector<Breach> breaches;
  std::map<std::string, const WatchedSlice*> by_id;
  for (const auto& slice : slices) by_id[slice.id] = &slice;
  for (const auto& seen : sightings) {
    if (const auto found = by_id.find(seen.slice); found != by_id.end())
      judge_process(*found->second, seen, now, &breaches);
  }
  const Sums sums = sums_of(sightings);
  measure_margins(slices, sums);
  for (const auto& slice : slices) {
    for (std::size_t i = 0; i < slice.cards.size() && !slice.whole; ++i) {
      const auto found = sums.find({slice.id, slice.cards[i].card});
      const Sum sum = found == sums.end() ? Sum() : found->second;
      judge_memory(slice, i, sum, now, &breaches);
      if (!slice.pages_known) continue;
      const bool starving = starves(slices, sums, slice, slice.cards[i].card, bounds_.compute.slack_points);
      judge_compute(slice, i, sum, starving, now, &breaches);
    }
  }
  // A breach that was not seen in this round starts again.
  std::erase_if(strikes_, [&](const auto& entry) { return entry.second.last_round != now; });
  std::erase_if(histories_, [&](const auto& entry) { return by_id.count(entry.first.first) == 0; });
  std::erase_if(computing_, [&](const auto& entry) { return by_id.count(entry.first.first) == 0; });
  offences_.forget(now, bounds_.offences);
  return breaches;
}

std::map<std::pair<std::string, std::size_t>, Bytes> Watchdog::overheads(
    const std::vector<WatchedSlice>& slices, const std::vector<Sighting>& sightings) {
  std::map<std::pair<std::string, std::size_t>, Bytes> result;
  const auto sums = sums_of(sightings);
  for (const auto& slice : slices) {
    for (std::size_t i = 0; i < slice.cards.size() && !slice.whole; ++i) {
      const auto found = sums.find({slice.id, slice.cards[i].card});
      const Bytes seen = found == sums.end() ? Bytes() : found->second.memory;
      const Bytes announced = i < slice.announced.size() ? slice.announced[i] : Bytes();
      result[{slice.id, i}] = seen - announced;
    }
  }
  return result;
}

}  // namespace carve::agent
