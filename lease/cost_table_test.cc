#include "lease/cost_table.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>

namespace carve::lease {
namespace {

constexpr std::uint64_t kMost = (1ULL << 40U) - 1;

TEST(CostTable, UnknownWorkIsAssumedLong) {
  CostTable table;
  for (const std::uint64_t key : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}}) {
    EXPECT_FALSE(table.knows(key));
    EXPECT_EQ(table.estimate_ns(key), 2'000'000U);
  }
}

TEST(CostTable, TheFirstMeasurementCountsFullyAndLaterOnesAQuarter) {
  CostTable table;
  table.learn(7, 1'000);
  EXPECT_TRUE(table.knows(7));
  EXPECT_EQ(table.estimate_ns(7), 1'000U);
  table.learn(7, 2'000);
  EXPECT_EQ(table.estimate_ns(7), 750U + 500U);
  table.learn(7, 0);
  EXPECT_EQ(table.estimate_ns(7), 1'250U - 312U);
}

TEST(CostTable, EstimatesAreClampedToAnEntrysRange) {
  for (const auto& [measured, estimate] : {std::array{std::uint64_t{0}, std::uint64_t{1}},
                                           std::array{std::uint64_t{1}, std::uint64_t{1}},
                                           std::array{std::uint64_t{2}, std::uint64_t{2}},
                                           std::array{kMost - 1, kMost - 1}, std::array{kMost, kMost},
                                           std::array{kMost + 1, kMost}, std::array{~std::uint64_t{0}, kMost}}) {
    CostTable table;
    table.learn(3, measured);
    EXPECT_EQ(table.estimate_ns(3), estimate) << measured;
    EXPECT_TRUE(table.knows(3)) << measured;
  }
}

TEST(CostTable, AForgottenKeyIsUnknownAndOthersRemain) {
  CostTable table;
  table.learn(1, 10);
  table.learn(2, 20);
  table.forget(3);
  table.forget(1);
  EXPECT_FALSE(table.knows(1));
  EXPECT_EQ(table.estimate_ns(1), CostTable::kColdNs);
  EXPECT_EQ(table.estimate_ns(2), 20U);
}

/// Keys are made from addresses and sizes, that is from numbers that differ in a few bits.
TEST(CostTable, KeysAreNotConfusedAndMostHaveTheirOwnEntry) {
  for (const std::uint64_t step : {std::uint64_t{1}, std::uint64_t{16}, std::uint64_t{1} << 33U}) {
    auto table = std::make_unique<CostTable>();
    std::uint64_t known = 0;
    for (std::uint64_t i = 0; i < 256; ++i) table->learn(i * step, 10 + i);
    for (std::uint64_t i = 0; i < 256; ++i) {
      if (!table->knows(i * step)) continue;
      ++known;
      EXPECT_EQ(table->estimate_ns(i * step), 10 + i);
    }
    EXPECT_GT(known, 192U) << "step " << step;
  }
}

}  // namespace
}  // namespace carve::lease
