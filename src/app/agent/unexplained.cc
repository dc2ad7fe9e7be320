#include "app/agent/unexplained.h"

#include <algorithm>

namespace carve::agent {

std::optional<Bytes> explained_on(const CardId& card, const std::vector<WatchedSlice>& slices,
                                  const std::vector<Sighting>& sightings) {
  Bytes foreign;
  std::map<std::string, Bytes> listed;
  for (const auto& seen : sightings) {
    if (seen.card != card) continue;
    if (seen.process.memory == Bytes::max()) return std::nullopt;
    (seen.slice.empty() ? foreign : listed[seen.slice]) += seen.process.memory;
  }
  for (const auto& slice : slices) {
    for (std::size_t i = 0; i < slice.cards.size(); ++i) {
      if (slice.cards[i].card != card) continue;
      if (slice.whole || !slice.pages_known) return std::nullopt;
      const Bytes announced = i < slice.announced.size() ? slice.announced[i] : Bytes();
      Bytes& of_slice = listed[slice.id];
      of_slice = std::max(of_slice, std::min(announced, slice.cards[i].memory));
    }
  }
  Bytes sum = foreign;
  for (const auto& [id, bytes] : listed) sum += bytes;
  return sum;
}

std::optional<UnexplainedMemory::Finding> UnexplainedMemory::look(const CardMemory& seen, Clock::Time now) {
  Case& one = cases_[seen.card];
  const Bytes unexplained = seen.used - seen.explained;
  one.baseline = std::min({one.baseline, unexplained, bounds_.most_baseline});
  const Bytes beyond = unexplained - one.baseline;
  if (beyond <= std::clamp(seen.spare, bounds_.least_tolerance, bounds_.most_tolerance)) {
    one.since.reset();
    one.told.reset();
    one.level = Bytes();
    one.at_growth.clear();
    one.accusations.over();
    return std::nullopt;
  }
  Finding finding{beyond};
  if (!one.since) one.since = now;
  one.level = std::min(one.level, beyond);
  finding.grew = beyond - one.level > bounds_.growth;
  if (finding.grew) one.level = beyond;
  finding.lasted = now - *one.since >= bounds_.lasting;
  finding.report = finding.lasted && (!one.told || now - *one.told >= std::chrono::seconds(1));
  if (finding.report) one.told = now;
  return finding;
}

Suspicion UnexplainedMemory::suspected(const CardId& card, const Finding& finding,
                                       const std::vector<CardHolder>& holders, Clock::Time now) {
  Case& one = cases_[card];
  if (finding.grew) one.at_growth.merge(parties_at_growth(holders));
  return suspicion_of(holders, one.at_growth, one.accusations.strict(now));
}

Accusations::Verdict UnexplainedMemory::judge(const CardId& card, const Finding& finding, const Suspicion& suspicion,
                                              Clock::Time now) {
  return cases_[card].accusations.judge(suspicion, finding.bytes, now);
}

}  // namespace carve::agent
