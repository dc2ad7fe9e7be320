#include "lease/memory_account.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace carve::lease {
namespace {

constexpr std::uint64_t kGiB = 1ULL << 30;

struct Pages {
  std::unique_ptr<abi::GrantPage> grant = std::make_unique<abi::GrantPage>();
  std::unique_ptr<abi::AccountPage> account = std::make_unique<abi::AccountPage>();
  explicit Pages(std::uint64_t limit, std::uint32_t entries = 1) {
    grant->memory_limit.raw = limit;
    grant->high_entry.raw = entries;
  }
  MemoryAccount of(std::uint32_t entry) { return {*grant, *account, account->entries[entry]}; }
};

TEST(MemoryAccount, TheExactRemainderFitsAndOneByteMoreDoesNot) {
  Pages pages(kGiB);
  MemoryAccount account = pages.of(0);
  ASSERT_TRUE(account.reserve(kGiB - 100));
  EXPECT_FALSE(account.reserve(101));
  EXPECT_TRUE(account.reserve(100));
  EXPECT_FALSE(account.reserve(1));
  pages.account->entries[0].used_bytes.fetch_sub(kGiB);
  EXPECT_EQ(account.used(), 0U);
}

TEST(MemoryAccount, OtherProcessesBytesAndTheDriversOverheadCount) {
  Pages pages(kGiB, 2);
  ASSERT_TRUE(pages.of(0).reserve(kGiB / 2));
  pages.grant->overhead_bytes.raw = kGiB / 4;
  EXPECT_FALSE(pages.of(1).reserve(kGiB / 4 + 1));
  EXPECT_TRUE(pages.of(1).reserve(kGiB / 4));
}

TEST(MemoryAccount, AStockIsChargedAndNotInUse) {
  constexpr std::uint64_t kGranule = abi::kStockGranule;
  for (const std::uint32_t count : {abi::kStockEntries, std::uint32_t{3}}) {
    Pages pages(kGiB, 12);
    pages.grant->stock_first.raw = 2;
    pages.grant->stock_count.raw = count;
    pages.account->entries[0].used_bytes.raw = 100;
    pages.account->entries[2].used_bytes.raw = 5 * kGranule + 2;      // 5 granules announced, 2 of them stock
    pages.account->entries[1 + count].used_bytes.raw = kGranule + 1;  // all of it is stock
    pages.account->entries[2 + count].used_bytes.raw = 7;             // behind the stock entries
    MemoryAccount account = pages.of(0);
    EXPECT_EQ(account.charged(), 6 * kGranule + 107);
    EXPECT_EQ(account.used(), 3 * kGranule + 107);
    account.collect_stock();
    EXPECT_EQ(pages.account->entries[2].used_bytes.raw, 3 * kGranule);
    EXPECT_EQ(pages.account->entries[1 + count].used_bytes.raw, 0U);
    EXPECT_EQ(pages.account->entries[0].used_bytes.raw, 100U);
    EXPECT_EQ(account.charged(), account.used());
    EXPECT_EQ(account.used(), 3 * kGranule + 107);
  }
}

TEST(MemoryAccount, ABlockOfStockEntriesOutsideThePageCountsAsNone) {
  for (const auto& [first, count] : {std::pair{2U, abi::kStockEntries + 1}, {abi::kAccountEntries - 1, 2U}}) {
    Pages pages(kGiB, 4);
    pages.grant->stock_first.raw = first;
    pages.grant->stock_count.raw = count;
    pages.account->entries[2].used_bytes.raw = 7;
    EXPECT_EQ(pages.of(0).charged(), 7U) << first;
    EXPECT_EQ(pages.of(0).used(), 7U) << first;
  }
  Pages last(kGiB, abi::kAccountEntries);
  last.grant->stock_first.raw = abi::kAccountEntries - 2;
  last.grant->stock_count.raw = 2;
  last.account->entries[abi::kAccountEntries - 1].used_bytes.raw = abi::kStockGranule + 1;
  EXPECT_EQ(last.of(0).charged(), abi::kStockGranule);
  EXPECT_EQ(last.of(0).used(), 0U);
}

TEST(MemoryAccount, ARequestNearTheIntegerLimitDoesNotWrapAround) {
  Pages pages(kGiB);
  ASSERT_TRUE(pages.of(0).reserve(kGiB / 2));
  EXPECT_FALSE(pages.of(0).reserve(~std::uint64_t{0}));
  EXPECT_FALSE(pages.of(0).reserve(~std::uint64_t{0} - kGiB / 4));
  EXPECT_EQ(pages.of(0).used(), kGiB / 2);
}

TEST(MemoryAccount, OnlyAssignedEntriesCount) {
  Pages pages(kGiB, 3);
  for (const std::uint32_t entry : {0U, 1U, 2U, 3U, 1023U}) pages.account->entries[entry].used_bytes.raw = 1;
  EXPECT_EQ(pages.of(0).used(), 3U);
  EXPECT_EQ(pages.of(3).used(), 4U) << "the own entry counts, regardless of high_entry";
  struct {
    abi::AccountPage page;
    std::uint64_t behind[8];
  } memory;
  static_assert(sizeof memory == sizeof(abi::AccountPage) + 64);
  std::memset(&memory, 0, sizeof memory);
  memory.behind[0] = memory.behind[1] = memory.behind[2] = kGiB;
  for (const std::uint32_t entries : {1024U, 1025U, ~0U}) {
    pages.grant->high_entry.raw = entries;
    EXPECT_EQ(MemoryAccount(*pages.grant, memory.page, memory.page.entries[1023]).used(), 0U)
        << "the bytes behind the page";
  }
}

TEST(MemoryAccount, NoiseInAnotherEntryRefusesRatherThanGrants) {
  Pages pages(kGiB, 1);
  pages.grant->high_entry.raw = 0xffffffff;
  pages.account->entries[7].used_bytes.raw = ~std::uint64_t{0} - 5;
  EXPECT_FALSE(pages.of(0).reserve(6));
  EXPECT_FALSE(pages.of(0).reserve(1));
}

TEST(MemoryAccount, NoiseAndOverheadTogetherDoNotWrapAround) {
  Pages pages(kGiB, 3);
  pages.account->entries[1].used_bytes.raw = ~std::uint64_t{0};
  pages.account->entries[2].used_bytes.raw = 5;
  pages.grant->overhead_bytes.raw = 4096;
  EXPECT_FALSE(pages.of(0).reserve(4096));
}

TEST(MemoryAccount, TheAccountPagesHeaderHidesNoEntry) {
  Pages pages(kGiB, 1);
  pages.account->high_entry.raw = 0;
  ASSERT_TRUE(pages.of(0).reserve(kGiB));
  EXPECT_FALSE(pages.of(0).reserve(1));
}

// Threads represent processes: each has its own account entry on one mapping. The test compares with its own counter,
// which it raises after a grant and lowers before the release, so that the counter never exceeds the bytes really held.
TEST(MemoryAccount, SixtyFourRacersNeverHoldMoreThanTheLimit) {
  constexpr std::uint32_t kRacers = 64;
  constexpr std::uint64_t kLimit = 1000;
  constexpr int kRounds = 3000;
  Pages pages(kLimit, kRacers);
  std::atomic<std::uint64_t> held = 0;
  std::atomic<std::uint64_t> most = 0;
  std::atomic<std::uint64_t> refused = 0;
  std::vector<std::thread> racers;
  for (std::uint32_t i = 0; i < kRacers; ++i) {
    racers.emplace_back([&, i] {
      MemoryAccount account = pages.of(i);
      std::mt19937 random(i);
      for (int round = 0; round < kRounds; ++round) {
        const std::uint64_t bytes = 1 + random() % 300;
        if (!account.reserve(bytes)) {
          ++refused;
          continue;
        }
        const std::uint64_t now = held.fetch_add(bytes) + bytes;
        for (std::uint64_t before = most; now > before && !most.compare_exchange_weak(before, now);) {
        }
        if (random() % 4 == 0) std::this_thread::yield();
        held.fetch_sub(bytes);
        pages.account->entries[i].used_bytes.fetch_sub(bytes);
      }
    });
  }
  for (auto& racer : racers) racer.join();
  EXPECT_LE(most, kLimit);
  EXPECT_GT(refused, 0U) << "no request was refused: the race tested nothing";
  EXPECT_EQ(pages.of(0).used(), 0U);
}

}  // namespace
}  // namespace carve::lease
