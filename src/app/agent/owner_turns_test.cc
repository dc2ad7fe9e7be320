#include "app/agent/owner_turns.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>
#include <vector>

namespace carve::agent {
namespace {

const Owner kA{OwnerKind::kClaim, "a"};
const Owner kB{OwnerKind::kClaim, "b"};

TEST(OwnerTurns, DifferentOwnersDoNotWaitForEachOther) {
  OwnerTurns turns;
  const auto a = turns.take(kA);
  const auto b = turns.take(kB);
  EXPECT_EQ(a.owner(), kA);
  EXPECT_EQ(b.owner(), kB);
}

TEST(OwnerTurns, ASecondCallerOfOneOwnerWaits) {
  OwnerTurns turns;
  {
    const auto a = turns.take(kA);
    EXPECT_FALSE(turns.try_take(kA));
    EXPECT_TRUE(turns.try_take(kB));
  }
  EXPECT_TRUE(turns.try_take(kA)) << "the turn has ended";
  EXPECT_TRUE(turns.try_take(kB));
}

TEST(OwnerTurns, CallersOfOneOwnerGetTheirTurnsInTheOrderOfArrival) {
  OwnerTurns turns;
  std::vector<std::uint64_t> order;
  std::vector<std::jthread> callers;
  {
    const auto first = turns.take(kA);
    for (std::uint64_t i = 0; i < 8; ++i) {
      callers.emplace_back([&, i] {
        const auto turn = turns.take(kA);
        order.push_back(i);
      });
      while (turns.waiting(kA) != i + 1) std::this_thread::yield();
    }
    EXPECT_TRUE(order.empty());
  }
  callers.clear();
  EXPECT_EQ(order, (std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(turns.waiting(kA), 0U);
}

}  // namespace
}  // namespace carve::agent
