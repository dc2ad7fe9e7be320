#include "app/agent/tolerance.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "app/agent/watchdog.h"

namespace carve::agent {
namespace {

Bytes sum_of(const std::vector<Bytes>& all) { return std::accumulate(all.begin(), all.end(), Bytes()); }

TEST(Tolerances, AreEqualPartsOfTheSpareMemoryUpToABound) {
  const ToleranceBounds bounds;
  EXPECT_TRUE(tolerances(Bytes::gib(1), {}, bounds).empty());
  EXPECT_EQ(tolerances(Bytes::gib(8), {Bytes(), Bytes()}, bounds), std::vector<Bytes>(2, Bytes::mib(256)));
  EXPECT_EQ(tolerances(Bytes::mib(100), {Bytes(), Bytes()}, bounds), std::vector<Bytes>(2, Bytes::mib(50)));
  EXPECT_EQ(tolerances(Bytes(), {Bytes(), Bytes::mib(1)}, bounds), std::vector<Bytes>(2, Bytes()));
}

/// What one slice does not need serves another, and the largest excess is the first that does not fit.
TEST(Tolerances, FollowTheNeed) {
  const ToleranceBounds bounds;
  const auto fits = tolerances(Bytes::mib(100), {Bytes::mib(90), Bytes()}, bounds);
  EXPECT_GE(fits[0], Bytes::mib(90));
  const auto too_much = tolerances(Bytes::mib(100), {Bytes::mib(90), Bytes::mib(20)}, bounds);
  EXPECT_LT(too_much[0], Bytes::mib(90));
  EXPECT_GE(too_much[1], Bytes::mib(20));
}

TEST(Tolerances, ASliceWithoutOneKeepsAPartOfItsLimitBack) {
  const ToleranceBounds bounds;
  EXPECT_EQ(kept_back(Bytes::mib(256), Bytes::gib(4), bounds), Bytes());
  EXPECT_EQ(kept_back(Bytes::mib(40), Bytes::gib(4), bounds), Bytes::mib(24));
  EXPECT_EQ(kept_back(Bytes(), Bytes::gib(4), bounds), Bytes::mib(64));
  EXPECT_EQ(kept_back(Bytes(), Bytes::mib(160), bounds), Bytes::mib(10));
}

/// Any card, any slices, any excess: what is promised and what is tolerated fit on the card together, and an excess
/// that fits into what is left of the card is tolerated.
TEST(Tolerances, PromisesAndTolerancesFitOnTheCard) {
  std::mt19937_64 random(20260411);
  const auto upto = [&](std::uint64_t most) {
    return Bytes(std::uniform_int_distribution<std::uint64_t>(0, most)(random));
  };
  for (int round = 0; round < 20000; ++round) {
    const Bytes card = Bytes::gib(1) + upto(Bytes::gib(140).count());
    const std::size_t count = 1 + upto(127).count();
    Bytes promised;
    std::vector<Bytes> excess;
    for (std::size_t i = 0; i < count; ++i) {
      promised += upto((card - promised).count() / (1 + upto(7).count()));
      excess.push_back(upto(round % 2 == 0 ? Bytes::mib(4).count() : Bytes::mib(400).count()));
    }
    if (round % 3 == 0) promised = card - upto(Bytes::mib(900).count());
    const ToleranceBounds bounds;
    const auto given = tolerances(card - promised, excess, bounds);
    ASSERT_LE(promised + sum_of(given), card) << "round " << round;
    const bool all_fit = sum_of(excess) <= card - promised;
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_LE(given[i], bounds.most);
      if (!all_fit || excess[i] > bounds.most) continue;
      ASSERT_GE(given[i], excess[i]) << "round " << round << ", slice " << i;
    }
  }
}

/// The same by what the watchdog does: rounds of random use; after a second, the memory of the slices that it has not
/// ended fits on the card together with every promise.
TEST(Tolerances, WhatDoesNotFitIsEnded) {
  std::mt19937_64 random(7);
  const auto upto = [&](std::uint64_t most) { return std::uniform_int_distribution<std::uint64_t>(0, most)(random); };
  int ended = 0;
  for (int round = 0; round < 500; ++round) {
    const Bytes card = Bytes::gib(16);
    const std::size_t count = 2 + upto(6);
    const Bytes spare = Bytes::mib(upto(400));
    std::vector<WatchedSlice> slices;
    std::vector<Sighting> seen;
    for (std::size_t i = 0; i < count; ++i) {
      Slice part;
      part.card = CardId("GPU-0");
      part.memory = Bytes((card - spare).count() / count);
      const auto pid = static_cast<std::int32_t>(i + 1);
      WatchedSlice one{std::to_string(i), false, {part}, {pid}, {part.memory}, {0}, true, {spare}};
      slices.push_back(one);
      seen.push_back({one.id, part.card, {pid, part.memory + Bytes::mib(upto(1) * upto(150)), 0}});
    }
    Watchdog dog;
    Clock::Time now{std::chrono::seconds(10)};
    for (int i = 0; i < 8; ++i) {
      for (const auto& breach : dog.judge(slices, seen, now)) {
        ended += static_cast<int>(std::erase_if(seen, [&](const Sighting& one) { return one.slice == breach.slice; }));
      }
      now += std::chrono::milliseconds(250);
    }
    Bytes excess;
    for (const auto& one : seen) excess += one.process.memory - slices[0].cards[0].memory;
    ASSERT_LE(excess, spare) << "round " << round;
  }
  EXPECT_GT(ended, 100) << "this test shows nothing";
}

}  // namespace
}  // namespace carve::agent
