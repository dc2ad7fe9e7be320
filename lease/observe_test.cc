#include "lease/observe.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>

namespace carve::lease {
namespace {

constexpr std::uint64_t kLast = 1'000'000;
constexpr std::uint64_t kNow = 2'000'000;
constexpr std::uint32_t kEntries = abi::kAccountEntries;

struct Page {
  std::unique_ptr<abi::AccountPage> page = std::make_unique<abi::AccountPage>();
  abi::AccountEntry& entry(std::uint32_t number) { return page->entries[number]; }
  Observation seen(std::uint32_t entries = kEntries) { return observe(*page, entries, kLast, kNow); }
};

TEST(Observe, AnEmptyPageReportsNothing) {
  Page page;
  const Observation seen = page.seen();
  EXPECT_FALSE(seen.want || seen.busy);
  EXPECT_EQ(seen.inflight_ns + seen.edge_ns + seen.busy_ns, 0U);
}

TEST(Observe, TheProcessesOfASliceAreAddedUp) {
  Page page;
  for (const std::uint32_t number : {0U, 3U, kEntries - 1}) {
    page.entry(number).busy.raw = 1;
    page.entry(number).busy_ns.raw = 100 + number;
    page.entry(number).anchor_ns.raw = kNow;
    page.entry(number).inflight_ns.raw = 1'000;
  }
  page.entry(2).want.raw = 1;
  const Observation seen = page.seen();
  EXPECT_TRUE(seen.want && seen.busy);
  EXPECT_EQ(seen.busy_ns, 300U + 3 + kEntries - 1);
  EXPECT_EQ(seen.inflight_ns, 3'000U);
  EXPECT_EQ(seen.edge_ns, kNow);
}

TEST(Observe, TheLatestEdgeBetweenTwoStepsCounts) {
  for (const auto& [first, second, edge] : {std::array{kLast, kNow, kNow}, std::array{kNow, kLast, kNow},
                                            std::array{kLast, kLast - 1, kLast}, std::array{kNow + 1, kLast, kLast},
                                            std::array{kLast - 1, kNow + 1, std::uint64_t{0}},
                                            std::array{kLast + 5, kLast + 7, kLast + 7}}) {
    Page page;
    page.entry(0).anchor_ns.raw = first;
    page.entry(1).anchor_ns.raw = second;
    EXPECT_EQ(page.seen().edge_ns, edge) << first << ", " << second;
  }
}

TEST(Observe, ElapsedTimeReducesWorkInFlight) {
  const auto left = [](std::uint64_t launched, std::uint64_t anchor, bool busy = true) {
    Page page;
    page.entry(0).busy.raw = busy ? 1 : 0;
    page.entry(0).inflight_ns.raw = launched;
    page.entry(0).anchor_ns.raw = anchor;
    return page.seen().inflight_ns;
  };
  EXPECT_EQ(left(5'000, kNow), 5'000U);
  EXPECT_EQ(left(5'000, kNow - 1'000), 4'000U);
  EXPECT_EQ(left(5'000, kNow - 4'999), 1U);
  EXPECT_EQ(left(5'000, kNow - 5'000), 0U);
  EXPECT_EQ(left(5'000, kNow - 5'001), 1U);
  EXPECT_EQ(left(5'000, kNow - 7'000), 2'000U) << "late work may take as long again";
  EXPECT_EQ(left(5'000, kNow + 1), 5'000U) << "an anchor in the future subtracts nothing";
  EXPECT_EQ(left(5'000, kNow, false), 0U) << "nothing is busy";
}

TEST(Observe, WorkInFlightIsBounded) {
  EXPECT_EQ(kMostInflightNs, 1'000'000'000U);
  Page page;
  page.entry(0).busy.raw = 1;
  page.entry(0).anchor_ns.raw = kNow - 10;
  for (const auto& [launched, left] : {std::array{kMostInflightNs, kMostInflightNs - 10},
                                       std::array{kMostInflightNs + 1, kMostInflightNs - 10},
                                       std::array{~std::uint64_t{0}, kMostInflightNs - 10},
                                       std::array{kMostInflightNs - 1, kMostInflightNs - 11}}) {
    page.entry(0).inflight_ns.raw = launched;
    EXPECT_EQ(page.seen().inflight_ns, left) << launched;
  }
  page.entry(1).busy.raw = 1;
  page.entry(1).anchor_ns.raw = kNow;
  page.entry(1).inflight_ns.raw = 500;
  EXPECT_EQ(page.seen().inflight_ns, kMostInflightNs) << "the sum of two";
}

TEST(Observe, OnlyEntriesInUseAreRead) {
  Page page;
  page.entry(4).want.raw = 1;
  EXPECT_FALSE(page.seen(4).want);
  EXPECT_TRUE(page.seen(5).want);
  EXPECT_TRUE(page.seen(kEntries + 1).want) << "no more than a page has";
}

}  // namespace
}  // namespace carve::lease
