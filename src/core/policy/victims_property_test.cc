// The victims for a pod on random machines, compared with every possible set: they are enough, each of them is
// necessary, all have a lower priority than the pod, they violate a budget only if every set does, and no other set is
// cheaper.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <set>

#include "core/policy/victims.h"

namespace carve {
namespace {

template <class T>
T pick(T low, T high) {
  return *rc::gen::resize(100, rc::gen::inRange<T>(low, high + 1));
}

const Owner kPod{OwnerKind::kPod, "preemptor"};

struct Case {
  Ledger ledger;
  LinkMatrix links;
  std::vector<Holder> holders;  // all owners with slices; some have the pod's priority or a higher one
  std::vector<std::int64_t> allowed;
  std::vector<PartRequest> parts;
  std::int32_t priority = 5;
};

Request arbitrary_request(std::uint32_t most_cards) {
  Request request = whole_cards(pick<std::uint32_t>(1, most_cards));
  if (pick(0, 3) == 0) return request;
  request = Request{};
  request.count = pick<std::uint32_t>(1, most_cards);
  request.share = *rc::gen::element(ShareClass::kFixed, ShareClass::kBurst, ShareClass::kBestEffort);
  request.memory = MemoryAsk::of(Bytes::gib(pick<std::uint64_t>(1, 8)));
  request.compute = CoreShare(pick(1U, 60U));
  request.constraints.exclusive = pick(0, 7) == 7;
  return request;
}

PartRequest part(const std::string& name, const Request& request) { return {name, Phase::kRun, request, ""}; }

Case arbitrary_case(int most_holders) {
  Case made;
  std::vector<CardId> ids;
  const int cards = pick(1, 3);
  for (int i = 0; i < cards; ++i) {
    Card card;
    card.id = CardId("GPU-" + std::to_string(i));
    card.model = "NVIDIA T4";
    card.memory = Bytes::gib(8);
    card.health.ok = pick(0, 9) != 9;
    ids.push_back(card.id);
    RC_ASSERT(made.ledger.put_card(card).has_value());
  }
  made.links = LinkMatrix(ids);
  const auto budgets = pick<std::size_t>(0, 2);
  for (std::size_t i = 0; i < budgets; ++i) made.allowed.push_back(pick(-1, 2));
  const int holders = pick(1, most_holders);
  for (int i = 0; i < holders; ++i) {
    Holder holder{{OwnerKind::kPod, "h" + std::to_string(i)}, pick(0, 6), pick(0, 9), {}};
    for (std::size_t budget = 0; budget < budgets; ++budget) {
      if (pick(0, 3) == 0) holder.budgets.push_back(budget);
    }
    const std::vector<PartRequest> asks{part("c", arbitrary_request(2))};
    const auto placed = place_pod(made.ledger, made.links, holder.owner, asks, kPolicies[pick<std::size_t>(0, 1)]);
    if (!placed) continue;
    RC_ASSERT(made.ledger.add(*placed).has_value());
    made.holders.push_back(holder);
  }
  const int parts = pick(1, 2);
  for (int i = 0; i < parts; ++i) made.parts.push_back(part("p" + std::to_string(i), arbitrary_request(2)));
  return made;
}

bool fits_without(const Case& made, const std::vector<const Holder*>& gone) {
  Ledger rest = made.ledger;
  for (const Holder* one : gone) rest.remove_owner(one->owner);
  const auto placed = place_pod(rest, made.links, kPod, made.parts, kPolicies[0]);
  if (placed) RC_ASSERT(rest.add(*placed).has_value());
  return placed.has_value();
}

std::optional<VictimPlan> chosen(const Case& made) {
  return choose_victims(made.ledger, made.links, kPod, made.parts, kPolicies[0], made.priority, made.holders,
                        made.allowed);
}

/// The cheapest set of lower priority that makes room, found by trying all sets by bit masks.
std::optional<VictimCost> cheapest(const Case& made) {
  std::vector<const Holder*> may;
  for (const Holder& holder : made.holders) {
    if (holder.priority < made.priority) may.push_back(&holder);
  }
  std::optional<VictimCost> best;
  for (unsigned mask = 1; mask < 1U << may.size(); ++mask) {
    std::vector<const Holder*> gone;
    for (std::size_t i = 0; i < may.size(); ++i) {
      if ((mask >> i & 1) != 0) gone.push_back(may[i]);
    }
    const auto cost = cost_of(gone, made.allowed);
    if ((!best || cost < *best) && fits_without(made, gone)) best = cost;
  }
  return best;
}

void assert_sound(const Case& made, const VictimPlan& plan) {
  std::vector<const Holder*> gone;
  std::set<Owner> distinct;
  for (const Holder& victim : plan.victims) {
    RC_ASSERT(victim.priority < made.priority);
    RC_ASSERT(std::find(made.holders.begin(), made.holders.end(), victim) != made.holders.end());
    RC_ASSERT(distinct.insert(victim.owner).second);
    gone.push_back(&victim);
  }
  Ledger rest = made.ledger;
  for (const Holder* one : gone) rest.remove_owner(one->owner);
  RC_ASSERT(rest.add(plan.slices).has_value());
  RC_ASSERT(rest.audit().has_value());
  for (std::size_t i = 0; i < gone.size(); ++i) {
    auto fewer = gone;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    RC_ASSERT(!fits_without(made, fewer));
  }
  if (!gone.empty()) RC_ASSERT(plan.cost == cost_of(gone, made.allowed));
}

RC_GTEST_PROP(Victims, AreTheCheapestSetThatMakesRoom, ()) {
  const Case made = arbitrary_case(7);
  const auto plan = chosen(made);
  const bool fits = fits_without(made, {});
  const auto best = cheapest(made);
  RC_CLASSIFY(fits, "fits without victims");
  RC_CLASSIFY(!fits && best.has_value(), "needs victims");
  RC_CLASSIFY(!fits && !best, "no victims help");
  RC_ASSERT(plan.has_value() == (fits || best.has_value()));
  if (!plan) return;
  assert_sound(made, *plan);
  RC_ASSERT(plan->victims.empty() == fits);
  if (!fits) RC_ASSERT(plan->cost == *best);
}

/// With more owners than can be tried exhaustively, the victims may cost more than the best set, but they are still
/// enough and necessary.
RC_GTEST_PROP(Victims, AreEnoughAndNecessaryAmongMany, ()) {
  Case made = arbitrary_case(1);
  for (const Holder& holder : made.holders) made.ledger.remove_owner(holder.owner);
  made.holders.clear();
  for (int i = 0; i < 24; ++i) {
    Holder holder{{OwnerKind::kPod, "h" + std::to_string(i)}, pick(0, 6), pick(0, 9), {}};
    Request request;
    request.memory = MemoryAsk::of(Bytes::gib(pick<std::uint64_t>(1, 2)));
    request.compute = CoreShare(1);
    const auto placed = place_pod(made.ledger, made.links, holder.owner, {part("c", request)}, kPolicies[1]);
    if (!placed) continue;
    RC_ASSERT(made.ledger.add(*placed).has_value());
    made.holders.push_back(holder);
  }
  std::vector<const Holder*> lower;
  for (const Holder& holder : made.holders) {
    if (holder.priority < made.priority) lower.push_back(&holder);
  }
  const auto plan = chosen(made);
  RC_CLASSIFY(plan && lower.size() > 10, "more than can be tried exhaustively");
  RC_ASSERT(plan.has_value() == (fits_without(made, {}) || fits_without(made, lower)));
  if (plan) assert_sound(made, *plan);
}

TEST(Victims, TheFewestOfTheLowestPriorityAreEvictedAndBudgetsAreKept) {
  Ledger ledger;
  Card card;
  card.id = CardId("GPU-0");
  card.model = "NVIDIA T4";
  card.memory = Bytes::gib(8);
  ASSERT_TRUE(ledger.put_card(card));
  std::vector<Holder> holders;
  for (const auto& [uid, gib, priority] :
       {std::tuple<const char*, int, int>{"small", 1, 0}, {"large", 4, 0}, {"dear", 3, 3}}) {
    holders.push_back({{OwnerKind::kPod, uid}, priority, 0, {}});
    Slice slice{holders.back().owner, "c", card.id, Bytes::gib(static_cast<std::uint64_t>(gib)), CoreShare(1)};
    ASSERT_TRUE(ledger.add({slice}));
  }
  Request request;
  request.memory = MemoryAsk::of(Bytes::gib(3));
  request.compute = CoreShare(1);
  const auto went = [&](const std::vector<std::int64_t>& allowed, std::int32_t priority) {
    std::string names;
    const auto plan = choose_victims(ledger, {}, kPod, {part("c", request)}, kPolicies[0], priority, holders, allowed);
    for (const Holder& victim : plan ? plan->victims : std::vector<Holder>()) names += victim.owner.uid + " ";
    return plan ? names + std::to_string(plan->cost.violations) : std::string("none");
  };
  EXPECT_EQ(went({}, 5), "large 0");
  EXPECT_EQ(went({}, 0), "none") << "the same priority";
  holders[1].budgets = {0};
  EXPECT_EQ(went({1}, 5), "large 0") << "the budget allows one";
  EXPECT_EQ(went({0}, 5), "dear 0");
  EXPECT_EQ(went({0}, 3), "large 1") << "no other victim helps: its budget is violated, and the cost reports it";
  holders[1].budgets = {1'000'000};
  EXPECT_EQ(went({0}, 5), "large 0") << "a budget that is not in the list covers no pod";
}

TEST(Victims, TheCostOfASetFollowsFromItsMembers) {
  const auto holder = [](std::int32_t priority, std::int64_t started, std::vector<std::size_t> budgets = {}) {
    return Holder{{OwnerKind::kPod, std::to_string(priority) + "-" + std::to_string(started)}, priority, started,
                  std::move(budgets)};
  };
  const auto cost = [](const std::vector<Holder>& victims, const std::vector<std::int64_t>& allowed = {}) {
    std::vector<const Holder*> all;
    for (const Holder& one : victims) all.push_back(&one);
    return cost_of(all, allowed);
  };
  constexpr std::int64_t kLift = std::int64_t{INT32_MAX} + 1;
  EXPECT_EQ(cost({holder(3, 5)}), (VictimCost{0, 3, 3 + kLift, 1, -5}));
  for (const bool turned : {false, true}) {
    std::vector<Holder> three = {holder(3, 9), holder(3, 5), holder(1, 2)};
    if (turned) std::reverse(three.begin(), three.end());
    EXPECT_EQ(cost(three), (VictimCost{0, 3, 7 + 3 * kLift, 3, -5})) << "the earliest start among the highest priority";
  }
  EXPECT_EQ(cost({holder(INT32_MIN, 7)}), (VictimCost{0, INT32_MIN, 0, 1, -7}));
  EXPECT_EQ(cost({holder(1, 1, {0}), holder(1, 2, {0, 1})}, {1, 0}).violations, 2U);
  EXPECT_EQ(cost({holder(1, 1, {0}), holder(1, 2, {0, 1})}, {2, 1}).violations, 0U);
  EXPECT_EQ(cost({holder(1, 1, {0}), holder(1, 2, {0, 1})}, {-3, 5}).violations, 2U) << "a negative value counts as 0";
}

// A search that first spares the oldest or the largest owner finds two victims here. Only the search over all sets
// finds the single victim.
TEST(Victims, OneVictimSufficesWhereSparingByAgeAndBySizeWouldTakeTwo) {
  Ledger ledger;
  Card card;
  card.id = CardId("GPU-0");
  card.model = "NVIDIA T4";
  card.memory = Bytes::gib(16);
  ASSERT_TRUE(ledger.put_card(card));
  std::vector<Holder> holders;
  for (const auto& [uid, gib, compute, started] :
       {std::tuple{"old", 1U, 50U, 0}, std::tuple{"young", 2U, 25U, 1}, std::tuple{"youngest", 2U, 25U, 2}}) {
    holders.push_back({{OwnerKind::kPod, uid}, 0, started, {}});
    ASSERT_TRUE(ledger.add({Slice{holders.back().owner, "c", card.id, Bytes::gib(gib), CoreShare(compute)}}));
  }
  Request request;
  request.memory = MemoryAsk::of(Bytes::gib(1));
  request.compute = CoreShare(50);
  const auto plan = choose_victims(ledger, {}, kPod, {part("c", request)}, kPolicies[0], 5, holders, {});
  ASSERT_TRUE(plan);
  ASSERT_EQ(plan->victims.size(), 1U);
  EXPECT_EQ(plan->victims.front().owner.uid, "old");
}

}  // namespace
}  // namespace carve
