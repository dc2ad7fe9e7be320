#include "app/agent/suspects.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace carve::agent {

bool is_bystander(const CardHolder& holder) {
  return holder.slice.empty() && (holder.trusted || (holder.uid < kFirstPersonalUid && !holder.computes));
}

std::string party_of(const CardHolder& holder) {
  if (!holder.slice.empty()) return "slice " + holder.slice;
  if (holder.uid >= kFirstPersonalUid) return "user " + std::to_string(holder.uid);
  return "process " + std::to_string(holder.pid);
}

std::set<std::string> parties_at_growth(const std::vector<CardHolder>& holders) {
  std::set<std::string> parties;
  for (const auto& holder : holders) {
    if (!holder.listed) parties.insert(party_of(holder));
  }
  return parties;
}

namespace {

/// Moves the holders for which `condition` is true from one list to the end of the other.
template <class Condition>
void move_if(std::vector<CardHolder>& from, std::vector<CardHolder>& to, const Condition& condition) {
  const auto rest = std::stable_partition(from.begin(), from.end(), [&](const auto& one) { return !condition(one); });
  to.insert(to.end(), rest, from.end());
  from.erase(rest, from.end());
}

}  // namespace

Suspicion suspicion_of(const std::vector<CardHolder>& holders, const std::set<std::string>& at_growth, bool strict) {
  Suspicion found;
  std::copy_if(holders.begin(), holders.end(), std::back_inserter(found.suspects),
               [](const CardHolder& holder) { return !holder.listed; });
  move_if(found.suspects, found.others, [&](const auto& holder) { return at_growth.count(party_of(holder)) == 0; });
  const auto inherited = [](const CardHolder& holder) { return holder.inherited; };
  if (!strict) {
    move_if(found.suspects, found.others, is_bystander);
    if (!std::all_of(found.suspects.begin(), found.suspects.end(), inherited))
      move_if(found.suspects, found.others, inherited);
  }
  std::set<std::string> slices;
  std::uint32_t user = 0;
  for (const auto& suspect : found.suspects) {
    if (suspect.slice.empty()) continue;
    slices.insert(suspect.slice);
    user = suspect.slice_uid;
  }
  if (slices.size() != 1) return found;
  const auto shield = [&](const auto& holder) { return holder.slice.empty() && user != 0 && holder.uid == user; };
  move_if(found.suspects, found.others, shield);
  const bool alone = std::none_of(found.suspects.begin(), found.suspects.end(),
                                  [](const auto& holder) { return holder.slice.empty(); });
  const bool only_inherited = std::all_of(found.suspects.begin(), found.suspects.end(), inherited);
  if (alone && (strict || !only_inherited)) found.slice = *slices.begin();
  return found;
}

Accusations::Verdict Accusations::judge(const Suspicion& suspicion, Bytes unexplained, Clock::Time now) {
  Verdict verdict;
  if (gave_up_) return verdict;
  if (!accused_.empty()) {
    const auto& suspects = suspicion.suspects;
    const bool present = std::any_of(suspects.begin(), suspects.end(),
                                     [&](const CardHolder& suspect) { return suspect.slice == accused_; });
    if (present) last_seen_ = now;
    if (!present && now - last_seen_ < bounds_.frees_within) return verdict;
    if (!present && unexplained + bounds_.least_freed > held_) {
      verdict.cleared = std::exchange(accused_, {});
      gave_up_ = true;
      strict_until_ = now + bounds_.strict_for;
      return verdict;
    }
    if (!present) accused_.clear();  // it held a part of the memory, and another party holds the rest
  }
  if (suspicion.slice.empty()) return verdict;
  verdict.slice = suspicion.slice;
  if (accused_ != suspicion.slice) {
    held_ = Bytes();
    ended_.clear();
  }
  const bool again = !ended_.empty();
  for (const auto& suspect : suspicion.suspects) {
    const bool is_new = ended_.insert(suspect.pid).second;
    if (again && is_new) verdict.whole = true;
  }
  held_ = std::max(held_, unexplained);
  accused_ = suspicion.slice;
  last_seen_ = now;
  return verdict;
}

void Accusations::over() {
  accused_.clear();
  gave_up_ = false;
}

}  // namespace carve::agent
