#include "core/health/card_health.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

namespace carve {
namespace {

using std::chrono::seconds;

TEST(CardConditions, HaveNames) {
  using enum CardCondition;
  EXPECT_STREQ(to_string(kUnknown), "unknown");
  EXPECT_STREQ(to_string(kHealthy), "healthy");
  EXPECT_STREQ(to_string(kUnhealthy), "unhealthy");
  EXPECT_STREQ(to_string(kLost), "lost");
}

class CardHealthTest : public testing::Test {
 protected:
  void xid(std::uint32_t code) { card.saw_xid(code, built_in_xid_policy().row(code), now); }
  void look(std::optional<std::uint32_t> recovery = 0, bool lost = false, bool listed = true) {
    card.looked({listed, lost, recovery}, now);
  }
  /// Advances by this number of seconds and polls the driver once in each of them.
  void pass(int count, std::optional<std::uint32_t> recovery = 0) {
    for (int i = 0; i < count; ++i) {
      now += seconds(1);
      look(recovery);
    }
  }
  CardCondition condition() const { return card.condition(now); }
  std::string reason() const { return card.health(now).reason; }

  CardHealth card;
  Clock::Time now{seconds(100)};
};

TEST_F(CardHealthTest, IsUnknownUntilTheDriverAnswers) {
  EXPECT_EQ(condition(), CardCondition::kUnknown);
  EXPECT_FALSE(card.health(now).ok);
  look();
  EXPECT_EQ(condition(), CardCondition::kHealthy);
  EXPECT_EQ(card.health(now), Health{});
}

TEST_F(CardHealthTest, AnApplicationErrorIsOnlyCounted) {
  look();
  for (const std::uint32_t code : {13U, 31U, 43U, 45U, 63U, 94U, 31U}) xid(code);
  EXPECT_EQ(condition(), CardCondition::kHealthy);
  EXPECT_EQ(card.counts().at(31), 2U);
  EXPECT_EQ(card.counts().at(45), 1U);
}

TEST_F(CardHealthTest, AnUnexpectedXidRecoversAfterAQuietTime) {
  look();
  xid(58);
  EXPECT_EQ(reason(), "XID 58");
  pass(59);
  EXPECT_EQ(condition(), CardCondition::kUnhealthy);
  xid(58);
  pass(59);
  EXPECT_EQ(condition(), CardCondition::kUnhealthy) << "the second XID restarts the time";
  pass(1);
  EXPECT_EQ(condition(), CardCondition::kHealthy);
}

TEST_F(CardHealthTest, OnlyTheDriversAnswerShowsThatACardWasReset) {
  look();
  xid(48);
  EXPECT_EQ(reason(), "XID 48: double-bit ECC error; it needs a reset");
  pass(3600, 1);
  EXPECT_EQ(reason(), "XID 48: double-bit ECC error; the driver recommends a reset of the card");
  EXPECT_EQ(card.held(), HeldXid{48});
  pass(5, 0);
  EXPECT_EQ(condition(), CardCondition::kUnhealthy) << "not before kSettle";
  pass(3, 0);
  EXPECT_EQ(condition(), CardCondition::kHealthy);
  EXPECT_EQ(card.held(), std::nullopt);
}

TEST_F(CardHealthTest, ADriverWithoutRecommendationsShowsAResetByBeingAway) {
  look(std::nullopt);
  xid(64);
  pass(7200, std::nullopt);
  EXPECT_EQ(condition(), CardCondition::kUnhealthy);
  now += seconds(1);
  look(std::nullopt, false, false);
  EXPECT_EQ(condition(), CardCondition::kLost);
  pass(1, std::nullopt);
  EXPECT_EQ(condition(), CardCondition::kHealthy) << "away and back: it was reset";
}

TEST_F(CardHealthTest, ALostCardStaysLostUntilItAnswers) {
  look();
  xid(79);
  EXPECT_EQ(condition(), CardCondition::kLost);
  now += seconds(1);
  look();  // an answer that was sent before the XID
  EXPECT_EQ(reason(), "XID 79: fallen off the bus");
  now += seconds(1);
  look(std::nullopt, true);
  EXPECT_EQ(condition(), CardCondition::kLost);
  pass(2);
  EXPECT_EQ(condition(), CardCondition::kHealthy);
}

TEST_F(CardHealthTest, TheDriversAnswerIsEnoughWithoutAnyXid) {
  look(2);
  EXPECT_EQ(reason(), "the driver recommends a reboot of the node");
  look(0, true);
  EXPECT_EQ(reason(), "lost: the driver reports it as lost");
  look(0, false, false);
  EXPECT_EQ(condition(), CardCondition::kLost);
  look();
  EXPECT_EQ(condition(), CardCondition::kHealthy);
}

TEST_F(CardHealthTest, AnAbsentDriverMakesTheCardUnknownAfterAWhile) {
  look();
  card.driver_away("no NVML", now, seconds(3));
  now += seconds(2);
  EXPECT_EQ(condition(), CardCondition::kHealthy) << "a restarted worker";
  now += seconds(1);
  EXPECT_EQ(condition(), CardCondition::kUnknown);
  EXPECT_EQ(reason(), "no NVML");
  card.driver_away("", now, {});
  EXPECT_EQ(condition(), CardCondition::kHealthy);
}

TEST_F(CardHealthTest, TheTimeWithoutARecommendationBeginsAgainAfterAnAbsentDriver) {
  look();
  xid(48);
  pass(1, 1);
  pass(4);
  card.driver_away("no NVML", now, seconds(3));
  pass(4);
  card.driver_away("", now, {});
  EXPECT_EQ(condition(), CardCondition::kUnhealthy) << "four seconds are less than kSettle";
  pass(2);
  EXPECT_EQ(condition(), CardCondition::kHealthy);
}

/// The agent was restarted. A driver that recommends nothing shows a reset only by being away and back.
TEST_F(CardHealthTest, AfterARestartAResetHasToBeSeenAsWell) {
  card.restore({48}, built_in_xid_policy().row(48), now);
  pass(7200, std::nullopt);
  EXPECT_EQ(condition(), CardCondition::kUnhealthy);
  now += seconds(1);
  look(std::nullopt, false, false);
  pass(1, std::nullopt);
  EXPECT_EQ(condition(), CardCondition::kHealthy);
}

TEST_F(CardHealthTest, TheNeedForAResetOutlivesTheProcess) {
  card.restore({48}, built_in_xid_policy().row(48), now);
  EXPECT_EQ(condition(), CardCondition::kUnhealthy);
  pass(10, 1);
  EXPECT_EQ(condition(), CardCondition::kUnhealthy);
  pass(8);
  EXPECT_EQ(condition(), CardCondition::kHealthy);
  card.restore({13}, built_in_xid_policy().row(13), now);
  EXPECT_EQ(condition(), CardCondition::kHealthy) << "the policy has changed meanwhile";
}

TEST(XidPolicy, TheTableMatchesTheClassesOfTheCatalogue) {
  const auto& policy = built_in_xid_policy();
  const std::map<XidAction, std::vector<std::uint32_t>> expected = {
      {XidAction::kApplication, {8,   11,  13,  25,  31,  32,  39,  40,  41,  60,  68,  69,  70,  71,
                                 72,  75,  76,  77,  80,  82,  83,  84,  85,  86,  88,  89,  94,  96,
                                 97,  98,  99,  100, 101, 102, 103, 104, 105, 126, 127, 128, 129, 130,
                                 131, 132, 133, 134, 135, 139}},
      {XidAction::kReset, {46,  48,  54,  62,  64,  74,  78,  95,  109, 110, 119, 120, 136,
                           140, 143, 144, 145, 146, 147, 148, 149, 150, 155, 156, 158, 162}},
      {XidAction::kLost, {79, 151, 160}},
      {XidAction::kIgnore, {14,  37,  38,  43,  44,  45,  63,  66,  67,  92, 93,
                           106, 107, 121, 137, 141, 152, 153, 154, 157, 161}}};
  std::map<XidAction, std::vector<std::uint32_t>> found;
  for (std::uint32_t xid = 1; xid <= kMostXid; ++xid) {
    if (policy.row(xid).action != XidAction::kUnhealthy) found[policy.row(xid).action].push_back(xid);
  }
  EXPECT_EQ(found, expected);
}

TEST(XidPolicy, TheseXidsHaveATextOfTheirOwn) {
  std::vector<std::uint32_t> named;
  for (const auto& [xid, row] : built_in_xid_policy().rows) {
    if (!row.meaning.empty()) named.push_back(xid);
  }
  EXPECT_EQ(named, (std::vector<std::uint32_t>{13, 31, 43, 45, 46, 48,  54,  62,  63,  64,
                                               74, 78, 79, 94, 95, 109, 119, 120, 140, 154}));
}

TEST_F(CardHealthTest, CountsAtMostSixtyFourCodes) {
  for (std::uint32_t code = 1; code <= 70; ++code) xid(code);
  EXPECT_EQ(card.counts().size(), 64U);
  xid(64);
  xid(65);
  EXPECT_EQ(card.counts().at(64), 2U);
  EXPECT_FALSE(card.counts().contains(65));
}

TEST_F(CardHealthTest, EveryRecommendationHasAText) {
  std::set<std::string> words;
  for (std::uint32_t recovery = 1; recovery <= 6; ++recovery) {
    look(recovery);
    EXPECT_EQ(condition(), CardCondition::kUnhealthy);
    words.insert(reason());
  }
  EXPECT_EQ(words.size(), 6U);
  look(77);
  EXPECT_EQ(reason(), "the driver recommends an action that Carve does not know");
}

}  // namespace
}  // namespace carve
