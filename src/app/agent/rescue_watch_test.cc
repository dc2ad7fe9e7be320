#include "app/agent/rescue_watch.h"

#include <gtest/gtest.h>

namespace carve::agent {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

PageSlice slice(const std::string& id, std::uint32_t rescues, const std::string& card = "GPU-0") {
  PageSlice one;
  one.id = id;
  one.cards.emplace_back().card = CardId(card);
  one.cards.back().rescues = rescues;
  return one;
}

TEST(RescueWatch, TwoRescuesAreNotReportedAndAThirdIs) {
  RescueWatch watch;
  Clock::Time now{seconds(10)};
  for (std::uint32_t rescues = 0; rescues < 3; ++rescues, now += milliseconds(250))
    EXPECT_TRUE(watch.look({slice("s", rescues), slice("honest", 0)}, now).empty()) << rescues;
  const auto repeated = watch.look({slice("s", 3), slice("honest", 0)}, now);
  ASSERT_EQ(repeated.size(), 1U);
  EXPECT_EQ(repeated[0].slice, "s");
  EXPECT_EQ(repeated[0].card, CardId("GPU-0"));
  EXPECT_EQ(repeated[0].count, 3U);
  EXPECT_NE(repeated[0].text().find("got 3 leases out of turn on GPU-0 within 30 s"), std::string::npos)
      << repeated[0].text();
}

TEST(RescueWatch, RescuesThatAreFarApartAreNotReported) {
  RescueWatch watch;
  Clock::Time now{seconds(10)};
  for (std::uint32_t rescues = 0; rescues < 20; ++rescues, now += seconds(16))
    EXPECT_TRUE(watch.look({slice("s", rescues)}, now).empty()) << rescues;
}

/// When slices of a higher priority class compete with the slice, the pause between its rescue leases grows to 6.4 s:
/// the arbiter then gives at most nine a minute.
TEST(RescueWatch, ASliceThatHangsPermanentlyIsReportedOnceAMinute) {
  RescueWatch watch;
  Clock::Time now{seconds(10)};
  std::vector<Clock::Time> reported;
  for (int round = 0; round < 5 * 60 * 4; ++round, now += milliseconds(250)) {
    if (!watch.look({slice("s", static_cast<std::uint32_t>(round / 26))}, now).empty()) reported.push_back(now);
  }
  ASSERT_EQ(reported.size(), 5U);
  for (std::size_t i = 1; i < reported.size(); ++i) {
    EXPECT_GE(reported[i] - reported[i - 1], seconds(60));
    EXPECT_LE(reported[i] - reported[i - 1], seconds(67));
  }
}

TEST(RescueWatch, RescuesBeforeTheFirstRoundAreNotCounted) {
  RescueWatch watch;
  Clock::Time now{seconds(10)};
  EXPECT_TRUE(watch.look({slice("s", 100)}, now).empty());
  EXPECT_TRUE(watch.look({slice("s", 102)}, now += seconds(1)).empty());
  EXPECT_EQ(watch.look({slice("s", 103)}, now += seconds(1)).size(), 1U);
}

TEST(RescueWatch, TheCounterOfARestartedArbiterBeginsAtZero) {
  RescueWatch watch;
  Clock::Time now{seconds(10)};
  EXPECT_TRUE(watch.look({slice("s", 100)}, now).empty());
  EXPECT_TRUE(watch.look({slice("s", 2)}, now += seconds(1)).empty());
  const auto repeated = watch.look({slice("s", 3)}, now += seconds(1));
  ASSERT_EQ(repeated.size(), 1U);
  EXPECT_EQ(repeated[0].count, 3U);
}

TEST(RescueWatch, CardsAreCountedSeparatelyAndASliceThatEndedIsForgotten) {
  RescueWatch watch;
  Clock::Time now{seconds(10)};
  PageSlice both = slice("s", 0);
  both.cards.push_back(slice("s", 0, "GPU-1").cards[0]);
  EXPECT_TRUE(watch.look({both}, now).empty());
  both.cards[0].rescues = both.cards[1].rescues = 2;
  EXPECT_TRUE(watch.look({both}, now += seconds(1)).empty()) << "four, but two on each card";
  EXPECT_TRUE(watch.look({}, now += seconds(1)).empty());
  both.cards[1].rescues = 3;
  EXPECT_TRUE(watch.look({both}, now += seconds(1)).empty()) << "a new slice with the same id";
}

}  // namespace
}  // namespace carve::agent
