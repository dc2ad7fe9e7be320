#include "lease/coverage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace carve::lease {
namespace {

TEST(Coverage, CountsEachMomentOnce) {
  Coverage covered;
  EXPECT_EQ(covered.add(10, 20), 10U);
  EXPECT_EQ(covered.add(10, 20), 0U);
  EXPECT_EQ(covered.add(12, 13), 0U);
  EXPECT_EQ(covered.add(5, 12), 5U);
  EXPECT_EQ(covered.add(18, 21), 1U);
  EXPECT_EQ(covered.add(21, 22), 1U) << "the end is exclusive";
  EXPECT_EQ(covered.add(30, 30), 0U);
  EXPECT_EQ(covered.add(31, 30), 0U);
  EXPECT_EQ(covered.add(0, 40), 23U) << "all but [5, 22)";
}

TEST(Coverage, AgreesWithAListOfMoments) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 300; ++round) {
    Coverage covered;
    std::vector<bool> moments(60);
    // 60 moments have at most 30 separate intervals, so nothing is forgotten.
    for (int i = 0; i < 40; ++i) {
      const std::uint64_t begin = random() % moments.size();
      const std::uint64_t end = begin + random() % 4;
      std::uint64_t fresh = 0;
      for (std::uint64_t at = begin; at < end && at < moments.size(); ++at) {
        fresh += moments[at] ? 0 : 1;
        moments[at] = true;
      }
      ASSERT_EQ(covered.add(begin, std::min<std::uint64_t>(end, moments.size())), fresh) << round << ", " << i;
    }
  }
}

TEST(Coverage, ForgetsTheOldestGapFirstAndCountsItAsCovered) {
  Coverage covered;
  std::vector<std::uint64_t> order;
  for (std::uint64_t i = 0; i < Coverage::kIntervals; ++i) order.push_back((i * 7 + 3) % Coverage::kIntervals);
  for (const std::uint64_t i : order) ASSERT_EQ(covered.add(100 * i + 50, 100 * i + 60), 10U);
  const std::uint64_t next = 100 * Coverage::kIntervals + 50;
  ASSERT_EQ(covered.add(next, next + 10), 10U) << "one more than it remembers";
  EXPECT_EQ(covered.add(0, 60), 0U) << "the gap before the oldest interval is forgotten";
  EXPECT_EQ(covered.add(55, 65), 5U) << "what follows that interval is not";
  EXPECT_EQ(covered.add(150, 160), 0U) << "the second oldest is remembered";
  EXPECT_EQ(covered.add(next, next + 10), 0U);
}

}  // namespace
}  // namespace carve::lease
