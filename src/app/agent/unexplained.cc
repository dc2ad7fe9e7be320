#include "app/agent/unexplained.h"

#include <algorithm>

namespace carve {

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
  if (beyond <= bounds_.tolerance) {
    one.since.reset();
    one.told.reset();
    return std::nullopt;
  }
  if (!one.since) one.since = now;
  if (now - *one.since < bounds_.lasting) return std::nullopt;
  const bool report = !one.told || now - *one.told >= std::chrono::seconds(1);
  if (report) one.told = now;
  return Finding{beyond, report};
}

std::vector<CardHolder> suspects_among(const std::vector<CardHolder>& holders) {
  std::vector<CardHolder> suspects;
  std::copy_if(holders.begin(), holders.end(), std::back_inserter(suspects),
               [](const CardHolder& holder) { return !holder.listed; });
  const auto stranger = [](const CardHolder& holder) { return !holder.slice.empty() && !holder.registered; };
  if (std::any_of(suspects.begin(), suspects.end(), stranger))
    std::erase_if(suspects, [&](const CardHolder& holder) { return !stranger(holder); });
  return suspects;
}

}  // namespace carve
