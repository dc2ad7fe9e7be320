#include <fmt/core.h>

#include <algorithm>

#include "app/agent/second_line.h"

// The search for the holder of memory that neither NVML nor the ledger explains: observe (ports), judge (unexplained.h,
// suspects.h), act.
namespace carve::agent {
namespace {

constexpr std::size_t kMostNamed = 8;

std::string names_of(const std::vector<CardHolder>& holders) {
  std::string text;
  for (std::size_t i = 0; i < holders.size(); ++i) {
    const CardHolder& holder = holders[i];
    if (i == kMostNamed) return text + fmt::format(", and {} more", holders.size() - i);
    const std::string where =
        holder.slice.empty() ? fmt::format("in no slice: {}, uid {}", holder.program, holder.uid) : holder.slice;
    text += fmt::format("{}{} ({})", i == 0 ? "" : ", ", holder.pid, where);
  }
  return text;
}

Breach breach_of(const CardId& card, Bytes bytes, const Suspicion& suspicion) {
  Breach breach;
  breach.kind = BreachKind::kUnexplained;
  breach.card = card;
  for (const auto& suspect : suspicion.suspects) breach.pids.push_back(suspect.pid);
  const std::string names = names_of(suspicion.suspects);
  breach.text = fmt::format("{} of {} are in use, explained neither by NVML nor by the ledger; suspects, which have "
                            "its device file open: {}",
                            to_human(bytes), card.str(), names.empty() ? "none visible" : names);
  if (!suspicion.others.empty()) breach.text += "; not suspected: " + names_of(suspicion.others);
  return breach;
}

}  // namespace

/// Reads the descriptors of the machine's processes; cost: see Processes::holders_of_card.
std::vector<CardHolder> SecondLine::holders_of_card(const CardId& card, const std::vector<Sighting>& sightings) {
  const int minor = store_.read([&](const SliceStore::State& state) {
    const CardState* found = state.ledger.find(card);
    return found != nullptr ? found->card.minor : -1;
  });
  std::map<std::int32_t, std::string> listed;
  for (const auto& seen : sightings) {
    if (seen.card == card) listed[seen.process.pid] = seen.slice;
  }
  std::vector<CardHolder> holders;
  for (const auto pid : minor < 0 ? std::vector<std::int32_t>() : world_.processes.holders_of_card(minor)) {
    CardHolder holder;
    holder.pid = pid;
    holder.listed = listed.count(pid) != 0;
    holder.slice = processes_.slice_on(processes_.slices_of(pid), card);
    if (holder.slice.empty()) {
      const auto facts = world_.processes.device_user(pid);
      holder.uid = facts.uid;
      holder.computes = facts.computes;
      holder.program = facts.program;
      const auto& trusted = config_.trusted_holders;
      holder.trusted =
          facts.uid < kFirstPersonalUid && std::find(trusted.begin(), trusted.end(), facts.program) != trusted.end();
    } else if (!holder.listed) {
      holder.inherited = std::any_of(listed.begin(), listed.end(), [&](const auto& one) {
        return one.second == holder.slice && world_.processes.only_inherited(pid, one.first);
      });
      const auto found = store_.find(holder.slice);
      if (found && found->local()) holder.slice_uid = found->uid;
    }
    holders.push_back(std::move(holder));
  }
  return holders;
}

void SecondLine::look_for_unexplained(const std::vector<GpuUsage>& usage, const std::vector<WatchedSlice>& watched,
                                      const std::vector<Sighting>& sightings) {
  const auto now = world_.clock.now();
  const bool ends = config_.on_memory == BreachAction::kKill;
  for (const auto& card : usage) {
    const auto explained = card.lost ? std::nullopt : explained_on(card.card, watched, sightings);
    if (!explained) continue;
    const Bytes spare = store_.read([&](const SliceStore::State& state) {
      const CardState* known = state.ledger.find(card.card);
      // On a card that one slice holds as a whole no neighbour loses memory.
      return known != nullptr && !known->use.exclusive ? known->free_memory() : Bytes::max();
    });
    const auto found = unexplained_.look({card.card, card.used, *explained, spare}, now);
    // Between two reports suspects are searched only to end a slice.
    if (!found || !(found->grew || found->report || (found->lasted && ends))) continue;
    const Suspicion suspicion = unexplained_.suspected(card.card, *found, holders_of_card(card.card, sightings), now);
    if (!found->lasted) continue;
    Breach breach = breach_of(card.card, found->bytes, suspicion);
    Accusations::Verdict verdict;
    if (ends) verdict = unexplained_.judge(card.card, *found, suspicion, now);
    breach.slice = ends ? verdict.slice : suspicion.slice;
    breach.ends_slice = verdict.whole;
    if (!verdict.cleared.empty()) {
      events_.note(
          to_string(BreachKind::kUnexplained), verdict.cleared,
          fmt::format("{} of {} are still in use after this slice was ended: it did not hold them; no slice "
                      "is ended until the memory is explained",
                      to_human(found->bytes), card.card.str()));
    }
    if (found->report || !breach.slice.empty()) act(breach);
  }
}

}  // namespace carve::agent
