// Decisions of placement and preemption on record, see base/testing/decisions.h. The other tests of this folder check
// rules.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "base/testing/decisions.h"
#include "core/policy/node_policy.h"
#include "core/policy/place_pod.h"
#include "core/policy/quota.h"
#include "core/policy/victims.h"
#include "core/testing/pseudorandom.h"

namespace carve {
namespace {

// By name: a new policy changes no decision of these.
constexpr std::array kPolicyNames = {"binpack", "spread"};

/// One machine on which pods come and go.
class Machine {
 public:
  Machine(std::uint64_t seed, std::size_t cards) : numbers_(seed) {
    std::vector<CardId> ids;
    for (std::size_t i = 0; i < cards; ++i) {
      const Card card = pseudorandom_card("GPU-" + std::to_string(i), numbers_);
      ids.push_back(card.id);
      EXPECT_TRUE(ledger_.put_card(card).has_value());
    }
    links_ = LinkMatrix(ids);
    for (std::size_t a = 0; a < cards; ++a) {
      for (std::size_t b = 0; b < a; ++b) {
        const auto level = static_cast<LinkLevel>(numbers_.below(7));
        const auto lanes = static_cast<std::uint8_t>(level == LinkLevel::kNvLink ? 1 + numbers_.below(12) : 0);
        links_.set(ids[a], ids[b], {level, lanes});
      }
    }
  }

  void play(int pods, Decisions& decisions) {
    for (int i = 0; i < pods; ++i) {
      change_card();
      place_next("pod-" + std::to_string(i), decisions);
      if (!holders_.empty() && numbers_.one_of(4)) end_pod(numbers_.below(holders_.size()));
    }
  }

 private:
  void change_card() {
    if (!numbers_.one_of(10)) return;
    const std::vector<CardState>& cards = ledger_.cards();
    Card card = cards[numbers_.below(cards.size())].card;
    switch (numbers_.below(4)) {
      case 0: card.health.ok = !card.health.ok; break;
      case 1: card.mode = static_cast<CardMode>(numbers_.below(3)); break;
      case 2: card.closed = card.closed.empty() ? "it is drained" : ""; break;
      default: ledger_.set_beyond(card.id, Bytes::mib(numbers_.below(500)));
    }
    static_cast<void>(ledger_.put_card(card));  // refused while slices of the other mode are on it
  }

  void place_next(const std::string& name, Decisions& decisions) {
    const Owner owner{OwnerKind::kPod, name};
    std::vector<PartRequest> parts = pseudorandom_pod(numbers_);
    for (PartRequest& part : parts) {
      if (!numbers_.one_of(5)) continue;  // it names three cards, one of which may not exist
      for (int i = 0; i < 3; ++i) {
        const std::uint64_t card = numbers_.below(ledger_.cards().size() + 1);
        part.request.constraints.cards.emplace_back("GPU-" + std::to_string(card));
      }
    }
    const PolicyRow& policy = **policy_named(kPolicyNames[numbers_.below(kPolicyNames.size())]);
    const auto priority = static_cast<std::int32_t>(numbers_.below(5));
    for (const CardState& state : ledger_.cards()) decisions.add({parts_taken(parts, state.card)});
    const auto placed = place_pod(ledger_, links_, owner, parts, policy);
    if (placed) {
      record(*placed, decisions);
      if (ledger_.add(*placed).has_value()) holders_.push_back(holder(owner, priority));
      return;
    }
    decisions.add(placed.error().what);
    const std::vector<std::int64_t> allowed = {static_cast<std::int64_t>(numbers_.below(2)), -1};
    const auto plan = choose_victims(ledger_, links_, owner, parts, policy, priority + 1, holders_, allowed);
    if (!plan) return decisions.add("no victims");
    for (const Holder& victim : plan->victims) decisions.add(victim.owner.uid);
    decisions.add({plan->cost.violations, static_cast<std::uint64_t>(plan->cost.highest),
                   static_cast<std::uint64_t>(plan->cost.sum), plan->cost.count,
                   static_cast<std::uint64_t>(plan->cost.early)});
    record(plan->slices, decisions);
  }

  Holder holder(const Owner& owner, std::int32_t priority) {
    Holder holder{owner, priority, static_cast<std::int64_t>(numbers_.below(20)), {}};
    for (std::size_t budget = 0; budget < 2; ++budget) {
      if (numbers_.one_of(4)) holder.budgets.push_back(budget);
    }
    return holder;
  }

  void end_pod(std::size_t at) {
    ledger_.remove_owner(holders_[at].owner);
    holders_.erase(holders_.begin() + static_cast<std::ptrdiff_t>(at));
  }

  void record(const std::vector<Slice>& slices, Decisions& decisions) {
    for (const Slice& slice : slices) {
      decisions.add(slice.part + " on " + slice.card.str());
      decisions.add({slice.memory.count(), slice.compute.hundredths(), slice.whole ? 1U : 0U});
    }
    const Leftover left = leftover_of(ledger_, slices);
    decisions.add({static_cast<std::uint64_t>(left.cards), static_cast<std::uint64_t>(left.node), left.owners,
                   left.mixed ? 1U : 0U});
    for (const char* name : kPolicyNames) {
      decisions.add({static_cast<std::uint64_t>(score_of(*node_policy_named(name), left))});
    }
  }

  Numbers numbers_;
  Ledger ledger_;
  LinkMatrix links_;
  std::vector<Holder> holders_;
};

TEST(PlacementDecisions, AreThoseOnRecord) {
  const struct {
    std::size_t cards;
    int pods;
    std::uint64_t sum;
  } scenes[] = {
      {1, 200, 0x19a7864b23e95285ULL},
      {4, 150, 0xba5418b3e812c815ULL},
      {8, 80, 0x122cd3e8faf80b00ULL},
      {16, 30, 0x454413a21f4a4bd7ULL},
      {18, 30, 0x21340d4efcf44c87ULL}};
  for (const auto& [cards, pods, sum] : scenes) {
    Decisions decisions("placement-" + std::to_string(cards));
    Machine(cards, cards).play(pods, decisions);
    EXPECT_EQ(decisions.sum(), sum) << "with " << cards << " cards; see base/testing/decisions.h";
  }
}

}  // namespace
}  // namespace carve
