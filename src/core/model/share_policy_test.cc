#include "core/model/share_policy.h"

#include <gtest/gtest.h>

namespace carve {
namespace {

using Kind = SharePolicy::Kind;

Slice by_node(const char* card, std::uint32_t compute, const char* dialect = "qgpu") {
  Slice slice;
  slice.card = CardId(card);
  slice.compute = CoreShare(compute);
  slice.share = ShareClass::kNode;
  slice.dialect = dialect;
  return slice;
}

/// The class and the compute that the arbiter enforces, as "fixed 30".
std::string enforced(const Slice& slice, const SharePolicies& policies, const std::vector<Slice>& all) {
  const Slice made = ShareDivision(policies, all).enforced(slice);
  return std::string(to_string(made.share)) + " " + std::to_string(made.compute.hundredths());
}

TEST(SharePolicy, HasTheWordsOfQgpuAndTheNumbersOfCgpu) {
  for (const auto* word : {"fixed", "fixed-share", "fs", "3"}) EXPECT_EQ(share_policy_from(word)->kind, Kind::kFixed);
  for (const auto* word : {"burst", "burst-share", "bs", "2", "4"}) {
    EXPECT_EQ(share_policy_from(word)->kind, Kind::kBurst);
  }
  for (const auto* word : {"equal", "best-effort", "be", "1", "5"}) {
    EXPECT_EQ(share_policy_from(word)->kind, Kind::kEqual);
  }
  EXPECT_EQ(share_policy_from("even-16"), (SharePolicy{Kind::kEven, 16}));
  EXPECT_EQ(share_policy_from("0-16"), share_policy_from("even-16"));
  for (const auto* word : {"", "0", "6", "even", "even-", "even-0", "even-101", "even-1x", "even--1", "Fixed", "fs "}) {
    EXPECT_EQ(share_policy_from(word), std::nullopt) << word;
  }
  for (const auto* word : {"fixed", "burst", "equal", "even-1", "even-100"}) {
    EXPECT_EQ(to_string(*share_policy_from(word)), word);
  }
}

TEST(SharePolicies, TheMostSpecificOneApplies) {
  SharePolicies policies;
  EXPECT_EQ(policies.of(by_node("a", 30)), SharePolicy{}) << "burst";
  policies.dialects["qgpu"] = {Kind::kEqual, 0};
  EXPECT_EQ(policies.of(by_node("a", 30)).kind, Kind::kEqual);
  EXPECT_EQ(policies.of(by_node("a", 30, "cgpu")).kind, Kind::kBurst);
  policies.node = SharePolicy{Kind::kFixed, 0};
  EXPECT_EQ(policies.of(by_node("a", 30)).kind, Kind::kFixed);
  policies.cards[CardId("a")] = {Kind::kEven, 4};
  EXPECT_EQ(policies.of(by_node("a", 30)).kind, Kind::kEven);
  EXPECT_EQ(policies.of(by_node("b", 30)).kind, Kind::kFixed);
}

// The matrix of cGPU's and qGPU's policies for two slices of 30 and 60.
TEST(ShareDivision, EachPolicyHasOneMeaning) {
  const std::vector<Slice> all = {by_node("a", 30), by_node("a", 60)};
  const auto pair = [&](const char* word) {
    SharePolicies policies;
    policies.node = share_policy_from(word);
    return enforced(all[0], policies, all) + ", " + enforced(all[1], policies, all);
  };
  EXPECT_EQ(pair("fixed"), "fixed 30, fixed 60");
  EXPECT_EQ(pair("burst"), "burst 30, burst 60");
  EXPECT_EQ(pair("equal"), "burst 45, burst 45");
  EXPECT_EQ(pair("even-16"), "fixed 6, fixed 6");
}

TEST(ShareDivision, LeavesOtherClassesAndOtherCardsAlone) {
  Slice fixed = by_node("a", 40);
  fixed.share = ShareClass::kFixed;
  const std::vector<Slice> all = {by_node("a", 10), by_node("a", 20), fixed, by_node("b", 90)};
  SharePolicies policies;
  policies.node = SharePolicy{Kind::kEqual, 0};
  EXPECT_EQ(enforced(fixed, policies, all), "fixed 40");
  EXPECT_EQ(enforced(all[0], policies, all), "burst 15") << "the two have reserved 30 together";
  EXPECT_EQ(enforced(all[3], policies, all), "burst 90");
  EXPECT_EQ(enforced(by_node("a", 1), policies, {by_node("a", 1), by_node("a", 0)}), "burst 1") << "never 0";
}

}  // namespace
}  // namespace carve
