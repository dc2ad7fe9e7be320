#include "app/agent/watchdog.h"

#include <gtest/gtest.h>

namespace carve::agent {
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

TEST(Watchdog, AnObservationSeenOnceIsNoBreach) {
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

TEST(Watchdog, AnotherCardIsABreachDespiteAHello) {
  Watchdog dog;
  Clock::Time now{std::chrono::seconds(10)};
  const auto breaches =
      rounds(dog, slice(ShareClass::kBurst, 0), {{"s", CardId("GPU-1"), {1, Bytes::mib(1), 0}}}, 4, &now);
  ASSERT_EQ(breaches.size(), 1U);
  EXPECT_EQ(breaches[0].kind, BreachKind::kForeignCard);
}

TEST(Watchdog, WithoutThePagesOnlyMemoryAndCardsAreJudged) {
  Watchdog dog;
  Clock::Time now{std::chrono::seconds(10)};
  WatchedSlice watched = slice(ShareClass::kBurst, 0);
  watched.pages_known = false;
  const auto busy = GpuProcess{2, Bytes::gib(1), 99};  // never sent a hello, and uses more than it was granted
  EXPECT_TRUE(rounds(dog, watched, {{"s", CardId("GPU-0"), busy}}, 12, &now).empty());
  const auto breaches = rounds(
      dog, watched, {{"s", CardId("GPU-0"), {2, Bytes::gib(5), 0}}, {"s", CardId("GPU-1"), {3, Bytes::mib(1), 0}}}, 3,
      &now);
  ASSERT_EQ(breaches.size(), 2U);
  EXPECT_EQ(breaches[0].kind, BreachKind::kForeignCard);
  EXPECT_EQ(breaches[1].kind, BreachKind::kMemory);
  // A breach that was not judged meanwhile has not lasted: it starts again when the pages are back.
  EXPECT_TRUE(rounds(dog, slice(ShareClass::kBurst, 99), {{"s", CardId("GPU-0"), busy}}, 1, &now).empty());
}

/// The arbiter's figures of a slice of 30 next to a neighbour of 70, percent of the card since the previous round.
struct ArbiterFigures {
  double charged;
  double granted;
  std::string user = "user 1";
};

std::vector<Breach> compute_rounds(Watchdog& dog, const ArbiterFigures& figures, double used, double neighbour,
                                   int count, Clock::Time* now, const std::string& id = "s") {
  WatchedSlice one = slice(ShareClass::kBurst, figures.charged);
  one.id = id;
  one.granted_percent = {figures.granted};
  one.user = figures.user;
  WatchedSlice other = slice(ShareClass::kBurst, neighbour);
  other.id = "n";
  other.registered = {9};
  other.cards[0].compute = CoreShare(70);
  other.granted_percent = {100 - figures.granted};
  std::vector<Breach> all;
  for (int i = 0; i < count; ++i) {
    const auto breaches = dog.judge({one, other},
                                    {{id, CardId("GPU-0"), {1, Bytes::mib(1), static_cast<std::uint32_t>(used)}},
                                     {"n", CardId("GPU-0"), {9, Bytes::mib(1), static_cast<std::uint32_t>(neighbour)}}},
                                    *now);
    all.insert(all.end(), breaches.begin(), breaches.end());
    *now += milliseconds(250);
  }
  return all;
}

TEST(Watchdog, ComputeIsComparedWithTheArbitersFigures) {
  Watchdog dog;
  Clock::Time now{std::chrono::seconds(10)};
  // Honest: a slice may use a card that its neighbour leaves idle.
  EXPECT_TRUE(compute_rounds(dog, {98, 100}, 99, 0, 20, &now).empty());
  // The arbiter charged 10 and the driver reports 99. The earlier allowance applies for one more second.
  EXPECT_TRUE(compute_rounds(dog, {10, 30}, 99, 1, 3, &now).empty());
  EXPECT_FALSE(compute_rounds(dog, {10, 30}, 99, 1, 4, &now).empty());
}

/// The slice adds all that it takes to its busy_ns: the arbiter charges that, and the neighbour starves.
TEST(Watchdog, ASliceThatInflatesItsAccountIsCaughtByItsNeighboursStarvation) {
  Watchdog dog;
  Clock::Time now{std::chrono::seconds(10)};
  const auto breaches = compute_rounds(dog, {95, 2}, 95, 5, 5, &now);
  ASSERT_FALSE(breaches.empty());
  EXPECT_EQ(breaches[0].kind, BreachKind::kCompute);
  EXPECT_EQ(breaches[0].slice, "s") << "not the slice that starves";
  EXPECT_EQ(breaches[0].step, ComputeStep::kFreeze);
}

TEST(Watchdog, ASliceThatFreezingDoesNotStopGoesThroughAllSteps) {
  Watchdog dog;
  Clock::Time now{std::chrono::seconds(10)};
  std::vector<ComputeStep> steps;
  for (const auto& breach : compute_rounds(dog, {30, 30}, 99, 1, 40, &now)) {
    if (steps.empty() || steps.back() != breach.step) steps.push_back(breach.step);
  }
  EXPECT_EQ(steps, (std::vector<ComputeStep>{ComputeStep::kFreeze, ComputeStep::kRevoke, ComputeStep::kKill}));
}

/// A new slice every 8 seconds; each leaves soon after it was caught.
TEST(Watchdog, EarlierOffencesCountAgainstAUserThatReturns) {
  Watchdog dog;
  Clock::Time now{std::chrono::seconds(10)};
  ComputeStep most = ComputeStep::kNone;
  int slices = 0;
  for (; slices < 20 && most != ComputeStep::kKill; ++slices) {
    const std::string id = "s" + std::to_string(slices);
    for (const auto& breach : compute_rounds(dog, {30, 30}, 99, 1, 5, &now, id)) most = std::max(most, breach.step);
    for (int i = 0; i < 28; ++i, now += milliseconds(250)) dog.judge({}, {}, now);
  }
  EXPECT_EQ(slices, 4) << "frozen, frozen immediately, revoked, ended";
  // Another user begins without debt, and so does this user two minutes after the last offence.
  const auto other = compute_rounds(dog, {30, 30, "user 2"}, 99, 1, 5, &now, "o");
  ASSERT_FALSE(other.empty());
  EXPECT_EQ(other[0].step, ComputeStep::kFreeze);
  now += std::chrono::minutes(2);
  const auto again = compute_rounds(dog, {30, 30}, 99, 1, 5, &now, "late");
  ASSERT_FALSE(again.empty());
  EXPECT_EQ(again[0].step, ComputeStep::kFreeze);
}

/// The slice's library gets no lease any more: work that still runs bypasses it, and the guarantee allows nothing.
TEST(Watchdog, ARevokedSliceMayUseNothing) {
  Watchdog dog;
  Clock::Time now{std::chrono::seconds(10)};
  WatchedSlice revoked = slice(ShareClass::kBurst, 30);
  revoked.revoked = true;
  EXPECT_FALSE(rounds(dog, revoked, {{"s", CardId("GPU-0"), {1, Bytes::mib(1), 30}}}, 8, &now).empty());
}

/// The neighbour is granted little because it requests little, so it does not starve.
TEST(Watchdog, AnIdleNeighbourDoesNotStarve) {
  Watchdog dog;
  Clock::Time now{std::chrono::seconds(10)};
  EXPECT_TRUE(compute_rounds(dog, {95, 92}, 95, 2, 20, &now).empty());
}

TEST(Watchdog, FixedIsACapRegardlessOfTheAccount) {
  Watchdog other;
  Clock::Time now{std::chrono::seconds(10)};
  const std::vector<Sighting> all = {{"s", CardId("GPU-0"), {1, Bytes::mib(1), 99}}};
  EXPECT_FALSE(rounds(other, slice(ShareClass::kFixed, 98), all, 12, &now).empty());
  Watchdog third;
  EXPECT_TRUE(
      rounds(third, slice(ShareClass::kFixed, 30), {{"s", CardId("GPU-0"), {1, Bytes::mib(1), 40}}}, 20, &now)
          .empty());
}

/// A tenant that reports its use is charged for all of it. Above the ceiling that does not allow it.
TEST(Watchdog, ACeilingIsACapRegardlessOfWhatIsCharged) {
  const auto is_noticed = [](std::uint32_t ceiling, unsigned used) {
    Watchdog dog;
    Clock::Time now{std::chrono::seconds(10)};
    WatchedSlice capped = slice(ShareClass::kBurst, static_cast<double>(used));
    capped.cards[0].ceiling = CoreShare(ceiling);
    return !rounds(dog, capped, {{"s", CardId("GPU-0"), {1, Bytes::mib(1), used}}}, 20, &now).empty();
  };
  EXPECT_FALSE(is_noticed(100, 99));
  EXPECT_TRUE(is_noticed(60, 99));
  EXPECT_FALSE(is_noticed(60, 65)) << "the error of the driver's averages";
}

TEST(Watchdog, OverheadIsTheMemoryBeyondTheAnnouncedMemory) {
  const auto overheads =
      Watchdog::overheads({slice(ShareClass::kBurst, 0)}, {{"s", CardId("GPU-0"), {1, Bytes::mib(1500), 0}}});
  EXPECT_EQ(overheads.at({"s", 0}), Bytes::mib(1500) - Bytes::gib(1));
  EXPECT_EQ(Watchdog::overheads({slice(ShareClass::kBurst, 0)}, {}).at({"s", 0}), Bytes());
}

}  // namespace
}  // namespace carve::agent
