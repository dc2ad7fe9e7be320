// Tests that a new slice starts level with the working slices, regardless of slices that sleep or were removed.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "lease/arbiter.h"

namespace carve::lease {
namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kTick = kMs / 10;

/// A card with slices that work whenever they may and slices that sleep.
struct Card {
  Arbiter arbiter;
  std::vector<Observation> seen = std::vector<Observation>(kMaxSlices);
  std::vector<bool> works = std::vector<bool>(kMaxSlices);
  std::vector<std::uint64_t> had = std::vector<std::uint64_t>(kMaxSlices);
  std::uint64_t now = 0;

  std::size_t add(bool worker, std::uint32_t compute = 20) {
    const auto slice = static_cast<std::size_t>(
        arbiter.add({compute, abi::ShareClass::kBurst, abi::PriorityClass::kStandard}));
    works[slice] = worker;
    had[slice] = 0;
    return slice;
  }
  void play(std::uint64_t length) {
    for (const std::uint64_t end = now + length; now < end;) {
      now += kTick;
      for (std::size_t i = 0; i < works.size(); ++i) {
        if (!works[i]) continue;
        const bool runs = arbiter.grant(static_cast<int>(i)).mode != abi::LeaseMode::kBlocked;
        had[i] += runs ? kTick : 0;
        seen[i].edge_ns = runs != seen[i].busy ? now : seen[i].edge_ns;
        seen[i].want = !runs;
        seen[i].busy = runs;
        seen[i].busy_ns += runs ? kTick : 0;
      }
      arbiter.step(now, seen.data());
    }
  }
};

/// Plays the card's slices for one second, then adds a working slice. Returns how many of the next 72 ms it had the
/// card.
std::uint64_t had_by_newcomer(Card& card) {
  card.play(1'000 * kMs);
  const std::size_t newcomer = card.add(true);
  card.play(72 * kMs);
  return card.had[newcomer] / kMs;
}

TEST(ArbiterNewcomer, StartsLevelWithWorkingSlicesNotSleepingOnes) {
  for (const int sleeper : {0, 1, 2}) {
    Card card;
    for (int i = 0; i < 3; ++i) card.add(i != sleeper);
    EXPECT_NEAR(static_cast<double>(had_by_newcomer(card)), 24, 13) << "the sleeper is slice " << sleeper;
  }
}

TEST(ArbiterNewcomer, StartsLevelWithWorkingSlicesNotRemovedOnes) {
  for (const int removed : {0, 1, 2}) {
    Card card;
    for (int i = 0; i < 3; ++i) card.add(i != removed);
    card.add(false);
    card.play(kMs);
    card.arbiter.remove(removed);
    EXPECT_NEAR(static_cast<double>(had_by_newcomer(card)), 24, 13) << "slice " << removed << " was removed";
  }
}

TEST(ArbiterSleeper, DoesNotShortenTheLeasesOfOthers) {
  for (const std::size_t sleeper : {0U, 1U, 2U}) {
    Card card;
    for (std::size_t i = 0; i < 3; ++i) card.add(i != sleeper, i == sleeper ? 90 : 5);
    card.play(500 * kMs);
    const std::size_t worker = sleeper == 0 ? 1 : 0;
    const auto mode = [&] { return card.arbiter.grant(static_cast<int>(worker)).mode; };
    while (mode() != abi::LeaseMode::kBlocked && card.now < 1'000 * kMs) card.play(kTick);
    while (mode() == abi::LeaseMode::kBlocked && card.now < 1'000 * kMs) card.play(kTick);
    ASSERT_EQ(mode(), abi::LeaseMode::kLease);
    EXPECT_EQ(card.arbiter.grant(static_cast<int>(worker)).end_ns - card.now, Tuning{}.quantum) << sleeper;
  }
}

}  // namespace
}  // namespace carve::lease
