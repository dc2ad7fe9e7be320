#include "core/cluster/proposal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace carve {
namespace {

using ::testing::ElementsAre;

const Owner kPod{OwnerKind::kPod, "pod"};

Owner owner(const std::string& uid) { return {OwnerKind::kPod, uid}; }

class ProposalTest : public testing::Test {
 protected:
  ProposalTest() {
    for (const auto* id : {"GPU-0", "GPU-1"}) {
      Card card;
      card.id = CardId(id);
      card.memory = Bytes::gib(16);
      EXPECT_TRUE(node.ledger.put_card(card));
    }
  }
  void holds(const std::string& uid, const std::string& card, std::uint64_t gib, std::int32_t priority = 0,
             std::vector<std::size_t> budgets = {}) {
    ASSERT_TRUE(node.ledger.add({Slice{owner(uid), "c", CardId(card), Bytes::gib(gib), CoreShare(1)}}));
    candidates.holders["n"].push_back({owner(uid), priority, 0, std::move(budgets)});
  }
  ProposalAnswer correct(std::uint64_t gib, const std::vector<Owner>& proposed, std::uint32_t cards = 1) {
    Request request;
    request.count = cards;
    request.memory = MemoryAsk::of(Bytes::gib(gib));
    request.compute = CoreShare(1);
    return correct_proposal(node, "n", kPod, {{"c", Phase::kRun, request, ""}}, 10, kPolicies[0], proposed, candidates);
  }
  NodeState node;
  PreemptionCandidates candidates;
};

TEST_F(ProposalTest, AProposalThatFreesEnoughCardsStands) {
  holds("a", "GPU-0", 16);
  holds("b", "GPU-1", 8);
  EXPECT_EQ(correct(8, {owner("cpu")}).verdict, ProposalVerdict::kAccepted) << "there is room without victims";
  EXPECT_EQ(correct(16, {owner("a"), owner("cpu")}).verdict, ProposalVerdict::kAccepted)
      << "room after the victims are gone";
  candidates.going = {owner("b")};
  EXPECT_EQ(correct(16, {owner("cpu")}).verdict, ProposalVerdict::kAccepted) << "another pod terminates already";
  node.reserved = {kPod};
  EXPECT_EQ(correct(17, {}).verdict, ProposalVerdict::kAccepted) << "its capacity is set aside";
  node.closed = "its agent is being replaced";
  EXPECT_EQ(correct(8, {owner("cpu")}).verdict, ProposalVerdict::kHopeless);
  node.closed = "";
  node.closed_to = {{"native", "another device plugin serves its name"}};
  EXPECT_EQ(correct(8, {owner("cpu")}).verdict, ProposalVerdict::kHopeless);
}

TEST_F(ProposalTest, OnlyTheVictimsThatTheCardsNeedAreEvictedFirst) {
  holds("a", "GPU-0", 16);
  holds("b", "GPU-1", 16, 20);
  const auto answer = correct(8, {owner("cpu")});
  EXPECT_EQ(answer.verdict, ProposalVerdict::kOtherVictims);
  EXPECT_THAT(answer.victims, ElementsAre(owner("a"))) << "the other victim is decided after this one is gone";
}

TEST_F(ProposalTest, ProposedOwnersWhoseCardsAreNeededAreEvictedToo) {
  holds("a", "GPU-0", 16);
  holds("b", "GPU-1", 16);
  EXPECT_THAT(correct(16, {owner("b"), owner("cpu")}, 2).victims, ElementsAre(owner("a"), owner("b")));
}

// kube-scheduler treats the first victim of a node as its most important one.
TEST_F(ProposalTest, TheMostImportantVictimIsListedFirst) {
  holds("a", "GPU-0", 16, 1);
  holds("b", "GPU-1", 16, 5);
  EXPECT_THAT(correct(16, {owner("cpu")}, 2).victims, ElementsAre(owner("b"), owner("a")));
}

TEST_F(ProposalTest, NoPodIsEvictedWhereCardsCannotBecomeFree) {
  holds("a", "GPU-0", 16, 10);
  holds("b", "GPU-1", 16, 11);
  EXPECT_EQ(correct(8, {owner("cpu")}).verdict, ProposalVerdict::kHopeless) << "pods of equal priority stay";
  EXPECT_EQ(correct(17, {owner("a"), owner("b")}).verdict, ProposalVerdict::kHopeless) << "no card is large enough";
}

TEST_F(ProposalTest, ABudgetProtectsVictimsThatOnlyTheCardsNeed) {
  holds("a", "GPU-0", 16, 0, {0});
  holds("b", "GPU-1", 16, 5, {1});
  candidates.allowed = {0, 1};
  EXPECT_THAT(correct(16, {owner("cpu")}).victims, ElementsAre(owner("b")));
  candidates.allowed = {0, 0};
  EXPECT_EQ(correct(16, {owner("cpu")}).verdict, ProposalVerdict::kHopeless);
  EXPECT_EQ(correct(16, {owner("a")}).verdict, ProposalVerdict::kAccepted)
      << "kube-scheduler's own choice is not checked";
}

TEST_F(ProposalTest, ABudgetThatIsNotInTheListCoversNoPod) {
  holds("a", "GPU-0", 16, 0, {1'000'000});
  holds("b", "GPU-1", 16, 0, {1'000'000});
  EXPECT_THAT(correct(16, {owner("a"), owner("cpu")}, 2).victims, ElementsAre(owner("a"), owner("b")));
}

TEST_F(ProposalTest, ProposedVictimsCountAgainstTheirBudgets) {
  holds("a", "GPU-0", 16, 0, {0});
  holds("b", "GPU-1", 16, 0, {0});
  candidates.allowed = {1};
  EXPECT_EQ(correct(16, {owner("a"), owner("cpu")}, 2).verdict, ProposalVerdict::kHopeless);
  candidates.allowed = {2};
  EXPECT_THAT(correct(16, {owner("a"), owner("cpu")}, 2).victims, ElementsAre(owner("a"), owner("b")));
}

// The budget allows one eviction, which kube-scheduler uses for a. So the second card is that of c, although b is less
// important.
TEST_F(ProposalTest, ABudgetThatTheProposalUsesUpLeadsToOtherVictims) {
  Card third;
  third.id = CardId("GPU-2");
  third.memory = Bytes::gib(16);
  ASSERT_TRUE(node.ledger.put_card(third));
  holds("a", "GPU-0", 16, 0, {0});
  holds("b", "GPU-1", 16, 0, {0});
  holds("c", "GPU-2", 16, 5);
  candidates.allowed = {1};
  EXPECT_THAT(correct(16, {owner("a"), owner("cpu")}, 2).victims, ElementsAre(owner("c"), owner("a")));
}

TEST_F(ProposalTest, CapacityThatIsReservedForAnotherPodIsNotUsed) {
  holds("a", "GPU-0", 16);
  holds("b", "GPU-1", 16, 20);
  const Slice kept{owner("first"), "c", CardId("GPU-0"), Bytes::gib(16), CoreShare(1)};
  node.reservations = {{kept.owner, 10, {kept}, {owner("a")}}};
  EXPECT_EQ(correct(8, {owner("cpu")}).verdict, ProposalVerdict::kHopeless);
}

struct Case {
  NodeState node;
  PreemptionCandidates candidates;
  std::vector<PartRequest> parts;
  std::vector<Owner> proposed;

  [[nodiscard]] bool fits_without(const std::vector<Owner>& gone) const {
    Ledger rest = node.ledger;
    for (const Owner& one : candidates.going) rest.remove_owner(one);
    for (const Owner& one : gone) rest.remove_owner(one);
    return place_pod(rest, node.links, kPod, parts, kPolicies[0]).has_value();
  }
};

Request arbitrary_request(std::mt19937& random) {
  Request request;
  if (random() % 3 == 0) return whole_cards(1 + static_cast<std::uint32_t>(random() % 2));
  request.count = 1 + static_cast<std::uint32_t>(random() % 2);
  request.memory = MemoryAsk::of(Bytes::gib(1 + random() % 8));
  request.compute = CoreShare(1 + static_cast<std::uint32_t>(random() % 60));
  return request;
}

Case arbitrary_case(unsigned seed) {
  std::mt19937 random(seed);
  Case made;
  const auto cards = 1 + random() % 3;
  for (unsigned i = 0; i < cards; ++i) {
    Card card;
    card.id = CardId("GPU-" + std::to_string(i));
    card.memory = Bytes::gib(8);
    EXPECT_TRUE(made.node.ledger.put_card(card));
  }
  if (random() % 2 == 0) made.candidates.allowed = {static_cast<std::int64_t>(random() % 3)};
  for (unsigned i = 0; i < 7; ++i) {
    Holder holder{owner("h" + std::to_string(i)), static_cast<std::int32_t>(random() % 7),
                  static_cast<std::int64_t>(random() % 5), {}};
    const auto placed = place_pod(made.node.ledger, made.node.links, holder.owner,
                                  {{"c", Phase::kRun, arbitrary_request(random), ""}}, kPolicies[random() % 2]);
    if (!placed) continue;
    EXPECT_TRUE(made.node.ledger.add(*placed));
    if (random() % 8 == 0) {
      made.candidates.going.insert(holder.owner);
      continue;
    }
    if (!made.candidates.allowed.empty() && random() % 3 == 0) holder.budgets = {0};
    if (holder.priority < 5 && random() % 3 == 0) made.proposed.push_back(holder.owner);
    made.candidates.holders["n"].push_back(holder);
  }
  made.proposed.push_back(owner("cpu"));
  made.parts = {{"c", Phase::kRun, arbitrary_request(random), ""}};
  return made;
}

TEST(ProposalProperty, VictimsAreEnoughAndNecessaryAndStayWithinBudgets) {
  int verdicts[3] = {};
  for (unsigned seed = 0; seed < 4000; ++seed) {
    const Case made = arbitrary_case(seed);
    const auto answer =
        correct_proposal(made.node, "n", kPod, made.parts, 5, kPolicies[0], made.proposed, made.candidates);
    ++verdicts[static_cast<int>(answer.verdict)];
    const auto there = made.candidates.holders.find("n");
    std::vector<Holder> known;
    if (there != made.candidates.holders.end()) known = there->second;
    if (answer.verdict == ProposalVerdict::kAccepted) {
      ASSERT_TRUE(made.fits_without(made.proposed)) << "seed " << seed;
      continue;
    }
    ASSERT_FALSE(made.fits_without(made.proposed)) << "seed " << seed;
    if (answer.verdict == ProposalVerdict::kHopeless) {
      auto all = made.proposed;
      for (const Holder& one : known) {
        if (one.priority < 5) all.push_back(one.owner);
      }
      ASSERT_TRUE(!made.fits_without(all) || !made.candidates.allowed.empty()) << "seed " << seed;
      continue;
    }
    ASSERT_TRUE(made.fits_without(answer.victims)) << "seed " << seed;
    std::vector<const Holder*> victims;
    for (const Owner& victim : answer.victims) {
      const auto holder =
          std::find_if(known.begin(), known.end(), [&](const Holder& one) { return one.owner == victim; });
      ASSERT_NE(holder, known.end()) << "seed " << seed << ": " << victim.uid << " terminates already, or is unknown";
      ASSERT_LT(holder->priority, 5) << "seed " << seed;
      victims.push_back(&*holder);
      auto others = answer.victims;
      others.erase(std::find(others.begin(), others.end(), victim));
      ASSERT_FALSE(made.fits_without(others)) << "seed " << seed << ": " << victim.uid << " is a needless victim";
    }
    ASSERT_EQ(cost_of(victims, made.candidates.allowed).violations, 0U) << "seed " << seed;
  }
  for (const int count : verdicts) EXPECT_GT(count, 200) << "too few cases of this answer";
}

}  // namespace
}  // namespace carve
