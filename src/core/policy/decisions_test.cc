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

namespace carve {
namespace {

// By name: a new policy changes no decision of these.
constexpr std::array kPolicyNames = {"binpack", "spread"};
constexpr std::array kModels = {"NVIDIA T4", "NVIDIA A100-SXM4-40GB", "NVIDIA H200"};

/// One machine on which pods come and go.
class Machine {
 public:
  Machine(std::uint64_t seed, std::size_t cards) : numbers_(seed) {
    std::vector<CardId> ids;
    for (std::size_t i = 0; i < cards; ++i) {
      Card card;
      card.id = CardId("GPU-" + std::to_string(i));
      card.model = kModels[numbers_.below(numbers_.one_of(3) ? kModels.size() : 1)];
      card.memory = Bytes::gib(8 + 8 * numbers_.below(3));
      card.numa_node = static_cast<int>(numbers_.below(2));
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

  Request request() {
    Request request = whole_cards(static_cast<std::uint32_t>(1 + numbers_.below(3)));
    if (!numbers_.one_of(5)) {
      constexpr std::array kShares = {ShareClass::kFixed, ShareClass::kBurst, ShareClass::kBurst,
                                      ShareClass::kBestEffort};
      request = Request{};
      request.count = numbers_.one_of(4) ? 2 : 1;
      request.share = kShares[numbers_.below(kShares.size())];
      request.memory = numbers_.one_of(3) ? MemoryAsk::of_percent(static_cast<std::uint32_t>(1 + numbers_.below(60)))
                                          : MemoryAsk::of(Bytes::mib(1 + numbers_.below(7'000)));
      const auto cores = static_cast<std::uint32_t>(1 + numbers_.below(50));
      request.compute = numbers_.one_of(8) ? ComputeAsk::of_tflops(2 * cores) : ComputeAsk(CoreShare(cores));
      request.constraints.exclusive = numbers_.one_of(12);
    }
    request.priority = static_cast<PriorityClass>(numbers_.below(3));
    if (numbers_.one_of(6)) request.constraints.model = "t4";
    return request;
  }

  std::vector<PartRequest> pod() {
    std::vector<PartRequest> parts;
    const std::uint64_t many = numbers_.one_of(3) ? 1 + numbers_.below(3) : 1;
    const std::string together = numbers_.one_of(6) ? "pair" : "";
    for (std::uint64_t i = 0; i < many; ++i) {
      parts.push_back({"c" + std::to_string(i), i == 0 && many > 1 && numbers_.one_of(2) ? Phase::kInit : Phase::kRun,
                       i > 0 && !together.empty() ? parts[0].request : request(), together});
    }
    return parts;
  }

  void place_next(const std::string& name, Decisions& decisions) {
    const Owner owner{OwnerKind::kPod, name};
    const std::vector<PartRequest> parts = pod();
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

struct OnRecord {
  std::size_t cards;
  int pods;
  std::uint64_t sum;
};

/// For the test's name, which must not change with the sum.
void PrintTo(const OnRecord& one, std::ostream* out) { *out << one.cards; }

class PlacementDecisions : public testing::TestWithParam<OnRecord> {};

TEST_P(PlacementDecisions, AreThoseOnRecord) {
  const std::size_t cards = GetParam().cards;
  Decisions decisions("placement-" + std::to_string(cards));
  Machine(cards, cards).play(GetParam().pods, decisions);
  EXPECT_EQ(decisions.sum(), GetParam().sum) << "other decisions; see base/testing/decisions.h";
}

INSTANTIATE_TEST_SUITE_P(Cards, PlacementDecisions,
                         testing::Values(OnRecord{1, 200, 0x22573a53dd6eaf26ULL},
                                         OnRecord{4, 150, 0x4a521099aa72c3c3ULL},
                                         OnRecord{8, 80, 0xaa7a86ccc934df60ULL},
                                         OnRecord{18, 30, 0xad9397e9e955686dULL}),
                         [](const auto& one) { return "With" + std::to_string(one.param.cards); });

}  // namespace
}  // namespace carve
