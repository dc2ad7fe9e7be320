#include "app/agent/watchdog.h"

#include <gtest/gtest.h>

namespace carve {
namespace {

using std::chrono::milliseconds;

WatchedSlice slice(ShareClass share, double told) {
  Slice card;
  card.card = CardId("GPU-0");
  card.memory = Bytes::gib(4);
  card.compute = CoreShare(30);
  card.share = share;
  return {"s", false, {card}, {1}, {Bytes::gib(1)}, {told}, true, {}};
}

std::vector<Breach> rounds(Watchdog& dog, const WatchedSlice& watched, const std::vector<Sighting>& seen,
                           int count, Clock::Time* now) {
  std::vector<Breach> all;
  for (int i = 0; i < count; ++i) {
    const auto breaches = dog.judge({watched}, seen, *now);
    all.insert(all.end(), breaches.begin(), breaches.end());
    *now += milliseconds(250);
  }
  return all;
}

TEST(Watchdog, WhatIsSeenOnceIsNoBreach) {
  Watchdog dog;
  Clock::Time now{std::chrono::seconds(10)};
  const std::vector<Sighting> seen = {{"s", CardId("GPU-0"), {2, Bytes::mib(1), 0}}};
  EXPECT_TRUE(rounds(dog, slice(ShareClass::kBurst, 0), seen, 1, &now).empty());
  EXPECT_TRUE(rounds(dog, slice(ShareClass::kBurst, 0), {}, 1, &now).empty());
  EXPECT_TRUE(rounds(dog, slice(ShareClass::kBurst, 0), seen, 1, &now).empty());
  const auto breaches = rounds(dog, slice(ShareClass::kBurst, 0), seen, 1, &now);
  ASSERT_EQ(breaches.size(), 1U);
  EXPECT_EQ(breaches[0].kind, BreachKind::kUnregistered);
  EXPECT_EQ(breaches[0].pids, std::vector<std::int32_t>{2});
}

TEST(Watchdog, MemoryIsJudgedWithItsBound) {
  Watchdog dog;
  Clock::Time now{std::chrono::seconds(10)};
  const Bytes at_bound = Bytes::gib(4) + Bytes::mib(256);
  EXPECT_TRUE(
      rounds(dog, slice(ShareClass::kBurst, 0), {{"s", CardId("GPU-0"), {1, at_bound, 0}}}, 8, &now).empty());
  const auto breaches = rounds(dog, slice(ShareClass::kBurst, 0),
                               {{"s", CardId("GPU-0"), {1, at_bound + Bytes(1), 0}}}, 4, &now);
  ASSERT_EQ(breaches.size(), 1U);
  EXPECT_EQ(breaches[0].kind, BreachKind::kMemory);
}

TEST(Watchdog, AnotherCardIsABreachWhoeverSaidHello) {
  Watchdog dog;
  Clock::Time now{std::chrono::seconds(10)};
  const auto breaches =
      rounds(dog, slice(ShareClass::kBurst, 0), {{"s", CardId("GPU-1"), {1, Bytes::mib(1), 0}}}, 4, &now);
  ASSERT_EQ(breaches.size(), 1U);
  EXPECT_EQ(breaches[0].kind, BreachKind::kForeignCard);
}

TEST(Watchdog, WithoutThePagesWordOnlyMemoryAndCardsAreJudged) {
  Watchdog dog;
  Clock::Time now{std::chrono::seconds(10)};
  WatchedSlice watched = slice(ShareClass::kBurst, 0);
  watched.pages_known = false;
  const auto busy = GpuProcess{2, Bytes::gib(1), 99};  // never said hello, and uses what it was not given
  EXPECT_TRUE(rounds(dog, watched, {{"s", CardId("GPU-0"), busy}}, 12, &now).empty());
  const auto breaches = rounds(
      dog, watched, {{"s", CardId("GPU-0"), {2, Bytes::gib(5), 0}}, {"s", CardId("GPU-1"), {3, Bytes::mib(1), 0}}}, 3,
      &now);
  ASSERT_EQ(breaches.size(), 2U);
  EXPECT_EQ(breaches[0].kind, BreachKind::kForeignCard);
  EXPECT_EQ(breaches[1].kind, BreachKind::kMemory);
  // What was not judged meanwhile did not last: it is seen anew when the pages are back.
  EXPECT_TRUE(rounds(dog, slice(ShareClass::kBurst, 99), {{"s", CardId("GPU-0"), busy}}, 1, &now).empty());
}

TEST(Watchdog, ComputeIsHeldAgainstItsOwnAccount) {
  Watchdog dog;
  Clock::Time now{std::chrono::seconds(10)};
  const std::vector<Sighting> all = {{"s", CardId("GPU-0"), {1, Bytes::mib(1), 99}}};
  // Burst and honest: it may use an idle card.
  EXPECT_TRUE(rounds(dog, slice(ShareClass::kBurst, 98), all, 20, &now).empty());
  // It says 10 and uses 99.
  const auto lied = rounds(dog, slice(ShareClass::kBurst, 10), all, 12, &now);
  ASSERT_FALSE(lied.empty());
  EXPECT_EQ(lied[0].kind, BreachKind::kCompute);
  // Fixed: honest or not, 99 is not 30.
  Watchdog other;
  EXPECT_FALSE(rounds(other, slice(ShareClass::kFixed, 98), all, 12, &now).empty());
  Watchdog third;
  EXPECT_TRUE(
      rounds(third, slice(ShareClass::kFixed, 30), {{"s", CardId("GPU-0"), {1, Bytes::mib(1), 45}}}, 20, &now)
          .empty());
}

TEST(Watchdog, OverheadIsWhatTheDriverTookBeyondWhatWasAnnounced) {
  const auto overheads =
      Watchdog::overheads({slice(ShareClass::kBurst, 0)}, {{"s", CardId("GPU-0"), {1, Bytes::mib(1500), 0}}});
  EXPECT_EQ(overheads.at({"s", 0}), Bytes::mib(1500) - Bytes::gib(1));
  EXPECT_EQ(Watchdog::overheads({slice(ShareClass::kBurst, 0)}, {}).at({"s", 0}), Bytes());
}

}  // namespace
}  // namespace carve
