#include "core/cluster/quota_book.h"

#include <gtest/gtest.h>

#include <random>

namespace carve {
namespace {

Card card(const std::string& id, const std::string& model, std::uint64_t gib) {
  Card made;
  made.id = CardId("GPU-" + id);
  made.vendor = "nvidia";
  made.model = model;
  made.memory = Bytes::gib(gib);
  return made;
}

Slice slice(const std::string& owner, const std::string& on, std::uint64_t gib, std::uint32_t cores,
            ShareClass share = ShareClass::kBurst) {
  Slice made;
  made.owner = {OwnerKind::kPod, owner};
  made.part = "main";
  made.card = CardId("GPU-" + on);
  made.memory = Bytes::gib(gib);
  made.compute = CoreShare(cores);
  made.share = share;
  return made;
}

NodeState node(const std::vector<Card>& cards, const std::vector<Slice>& slices) {
  NodeState made;
  for (const Card& one : cards) EXPECT_TRUE(made.ledger.put_card(one));
  for (const Slice& one : slices) EXPECT_TRUE(made.ledger.add({one}, Ledger::Admission::kNew));
  return made;
}

/// Owners are called "NAMESPACE-NUMBER".
std::string namespace_of(const Owner& owner) { return owner.uid.substr(0, owner.uid.rfind('-')); }

std::vector<PartRequest> fraction(std::uint64_t gib, std::uint32_t cores, std::uint32_t count = 1) {
  Request request;
  request.count = count;
  request.memory = MemoryAsk::of(Bytes::gib(gib));
  request.compute = CoreShare(cores);
  return {{"main", Phase::kRun, request}};
}

const Owner kNew{OwnerKind::kPod, "a-new"};

std::vector<std::string> models(const std::vector<BarredModel>& barred) {
  std::vector<std::string> names;
  for (const auto& one : barred) names.push_back(one.model);
  return names;
}

TEST(Quota, AFractionCountsWithTheLargerOfItsParts) {
  const Card a100 = card("0", "NVIDIA A100", 80);
  EXPECT_EQ(parts_taken(fraction(8, 30), a100), 30U);
  EXPECT_EQ(parts_taken(fraction(40, 30), a100), 50U);
  EXPECT_EQ(parts_taken(Holding(), card("0", "NVIDIA A100", 0)), 100U) << "a card whose size is unknown";
  EXPECT_EQ(parts_taken(fraction(40, 30, 3), a100), 150U) << "on each of three cards";
  EXPECT_EQ(parts_taken({{"main", Phase::kRun, whole_cards(2)}}, a100), 200U);
  auto alone = fraction(8, 30);
  alone[0].request.constraints.exclusive = true;
  EXPECT_EQ(parts_taken(alone, a100), 100U) << "no other owner can use the rest";
  auto best_effort = fraction(1, 90);
  best_effort[0].request.share = ShareClass::kBestEffort;
  EXPECT_EQ(parts_taken(best_effort, a100), 2U) << "1 of 80 GiB, rounded up: nothing of the compute is guaranteed";
  EXPECT_EQ(parts_taken(fraction(81, 1), a100), 0U) << "it does not fit on such a card";
  auto other_model = fraction(8, 30);
  other_model[0].request.constraints.model = "H200";
  EXPECT_EQ(parts_taken(other_model, a100), 0U);
}

TEST(Quota, InitContainersCountOnlyBeyondTheOthers) {
  const Card a100 = card("0", "NVIDIA A100", 80);
  auto parts = fraction(8, 30);
  parts.push_back(parts[0]);
  parts.push_back({"init", Phase::kInit, fraction(8, 50)[0].request});
  EXPECT_EQ(parts_taken(parts, a100), 60U);
  parts.push_back({"init-2", Phase::kInit, fraction(8, 90)[0].request});
  EXPECT_EQ(parts_taken(parts, a100), 90U);
}

TEST(Quota, CardsAreWrittenWithTheDecimalsThatTheyNeed) {
  EXPECT_EQ(to_human_cards(400), "4");
  EXPECT_EQ(to_human_cards(250), "2.5");
  EXPECT_EQ(to_human_cards(90), "0.9");
  EXPECT_EQ(to_human_cards(5), "0.05");
  EXPECT_EQ(to_human_cards(0), "0");
}

class QuotaBookTest : public ::testing::Test {
 protected:
  void put(const std::string& name, const NodeState& state) { book_.put(name, &state, namespace_of); }
  QuotaBook book_;
};

TEST_F(QuotaBookTest, TheFifthCardIsRefusedWithTheNumbers) {
  book_.set({{"a", {{"M40", 400}}}});
  std::vector<Card> cards;
  std::vector<Slice> held;
  for (int i = 0; i < 8; ++i) cards.push_back(card(std::to_string(i), "Tesla M40", 24));
  for (int i = 0; i < 4; ++i) {
    auto whole = slice("a-" + std::to_string(i), std::to_string(i), 24, 100);
    whole.whole = whole.exclusive = true;
    held.push_back(whole);
  }
  const std::vector<PartRequest> one = {{"main", Phase::kRun, whole_cards(1)}};
  put("n1", node(cards, {held.begin(), held.begin() + 3}));
  EXPECT_TRUE(book_.barred("a", kNew, one).empty());
  put("n1", node(cards, held));
  const auto barred = book_.barred("a", kNew, one);
  ASSERT_EQ(barred.size(), 1U);
  EXPECT_EQ(barred[0].model, "Tesla M40");
  EXPECT_EQ(barred[0].why, "quota of namespace a: 4 of 4 M40 cards in use, the pod requests 1");
  EXPECT_TRUE(book_.barred("b", kNew, one).empty()) << "another namespace";
  EXPECT_TRUE(book_.barred("a", held[0].owner, one).empty()) << "what the pod itself holds is for this request";
}

TEST_F(QuotaBookTest, AModelIsBarredAndTheOthersAreNot) {
  book_.set({{"a", {{"a100", 100}, {"", 300}}}});
  put("n1", node({card("0", "NVIDIA A100", 80), card("1", "NVIDIA H200", 141)}, {slice("a-1", "0", 8, 80)}));
  EXPECT_EQ(models(book_.barred("a", kNew, fraction(8, 30))), std::vector<std::string>{"NVIDIA A100"});
  EXPECT_TRUE(book_.barred("a", kNew, fraction(8, 20)).empty()) << "exactly the rest";
  EXPECT_EQ(models(book_.barred("a", kNew, fraction(8, 80, 3))).size(), 2U) << "more than three cards of any model";
}

TEST_F(QuotaBookTest, AnOwnerOfAnotherNamespaceDoesNotWrapTheSum) {
  book_.set({{"a", {{"", 100}}}, {"b", {{"", 100}}}});
  const auto others = slice("b-1", "0", 8, 60);
  put("n1", node({card("0", "NVIDIA A100", 80)}, {slice("a-1", "0", 8, 30), others}));
  EXPECT_TRUE(book_.barred("a", others.owner, fraction(8, 70)).empty());
}

TEST_F(QuotaBookTest, AQuotaOfZeroKeepsANamespaceOffAModel) {
  book_.set({{"a", {{"H200", 0}}}});
  put("n1", node({card("0", "NVIDIA H200", 141)}, {}));
  EXPECT_EQ(book_.barred("a", kNew, fraction(1, 0)).size(), 1U);
}

TEST_F(QuotaBookTest, ARemovedNodeAndAnUnknownOwnerCountForNothing) {
  book_.set({{"a", {{"", 100}}}});
  put("n1", node({card("0", "NVIDIA A100", 80)}, {slice("a-1", "0", 8, 60), slice("-2", "0", 8, 40)}));
  ASSERT_EQ(book_.uses().size(), 1U);
  EXPECT_EQ(book_.uses()[0].used, 60U);
  book_.put("n1", nullptr, namespace_of);
  EXPECT_EQ(book_.uses()[0].used, 0U);
  EXPECT_TRUE(book_.barred("a", kNew, fraction(8, 100)).empty());
}

TEST_F(QuotaBookTest, NodeByNodeItKnowsTheSameAsANewBook) {
  const Quotas quotas = {{"a", {{"A100", 150}, {"", 400}}}, {"b", {{"H200", 50}}}};
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 dice(seed);
    const auto roll = [&](unsigned below) { return std::uniform_int_distribution<unsigned>(0, below - 1)(dice); };
    QuotaBook book;
    book.set(quotas);
    std::map<std::string, NodeState> nodes;
    for (int step = 0; step < 30; ++step) {
      const std::string name = "n" + std::to_string(roll(3));
      if (roll(5) == 0) {
        nodes.erase(name);
        book.put(name, nullptr, namespace_of);
        continue;
      }
      std::vector<Card> cards;
      std::vector<Slice> slices;
      for (unsigned at = 0; at < 2; ++at) {
        const auto id = name + "-" + std::to_string(at);
        cards.push_back(card(id, roll(2) == 0 ? "NVIDIA A100" : "NVIDIA H200", roll(2) == 0 ? 80 : 141));
        for (unsigned held = roll(3); held > 0; --held) {
          const std::string owner = (roll(2) == 0 ? "a-" : "b-") + std::to_string(held) + std::to_string(roll(4));
          slices.push_back(slice(owner, id, 1 + roll(20), roll(30)));
        }
      }
      nodes[name] = NodeState();
      for (const Card& one : cards) ASSERT_TRUE(nodes[name].ledger.put_card(one));
      for (const Slice& one : slices) (void)nodes[name].ledger.add({one}, Ledger::Admission::kNew);
      book.put(name, &nodes[name], namespace_of);
    }
    QuotaBook fresh;
    fresh.set(quotas);
    for (const auto& [name, state] : nodes) fresh.put(name, &state, namespace_of);
    const auto uses = book.uses();
    const auto expected = fresh.uses();
    ASSERT_EQ(uses.size(), expected.size());
    for (std::size_t i = 0; i < uses.size(); ++i) ASSERT_EQ(uses[i].used, expected[i].used) << "seed " << seed;
    for (const char* name : {"a", "b"}) {
      const auto asked = fraction(1 + roll(80), roll(100), 1 + roll(3));
      ASSERT_EQ(book.barred(name, kNew, asked), fresh.barred(name, kNew, asked)) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace carve
