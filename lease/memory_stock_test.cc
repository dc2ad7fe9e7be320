// Built with the kill points of abi/cell.h: at each store of one process a test runs another process, or ends it.
#define CARVE_KILL_POINTS
#include "lease/memory_stock.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "lease/memory_account.h"

namespace {
/// Called before and after each store of this thread.
thread_local std::function<void()>* at_store = nullptr;
}  // namespace

extern "C" void carve_kill_point(const char* /*file*/, int /*line*/) {
  if (at_store != nullptr) (*at_store)();
}

namespace carve::lease {
namespace {

constexpr std::uint64_t kGranule = abi::kStockGranule;
constexpr std::uint32_t kFirst = 2;  // processes at 0 and 1, stock entries from here

/// A slice with stock entries and the threads that own them.
struct Slice {
  std::unique_ptr<abi::GrantPage> grant = std::make_unique<abi::GrantPage>();
  std::unique_ptr<abi::AccountPage> account = std::make_unique<abi::AccountPage>();
  std::array<MemoryStock, abi::kStockEntries> stocks{};

  explicit Slice(std::uint64_t granules, std::uint64_t bytes = 0) {
    grant->memory_limit.raw = granules * kGranule + bytes;
    grant->high_entry.raw = kFirst + abi::kStockEntries;
    grant->stock_first.raw = kFirst;
    grant->stock_count.raw = abi::kStockEntries;
  }
  abi::AccountEntry& entry(std::uint32_t thread) const { return account->entries[kFirst + thread]; }
  [[nodiscard]] MemoryAccount of(std::uint32_t entry) const { return {*grant, *account, account->entries[entry]}; }
  [[nodiscard]] std::uint64_t charged() const { return of(0).charged(); }
  [[nodiscard]] std::uint64_t used() const { return of(0).used(); }
  [[nodiscard]] std::uint64_t stock_of(std::uint32_t thread) const {
    return abi::stock_granules(entry(thread).used_bytes.load_relaxed());
  }
  bool allocate(std::uint32_t thread, std::uint64_t granules) {
    if (stocks[thread].take(entry(thread), granules, grant->stock_epoch.raw)) return true;
    if (!of(kFirst + thread).reserve(granules * kGranule)) return false;
    stocks[thread].reserved(granules, true, grant->stock_epoch.raw);
    return true;
  }
  void free(std::uint32_t thread, std::uint64_t granules) { stocks[thread].give(entry(thread), granules, true); }
  /// As the library does for a request that does not fit at first.
  bool insist(std::uint32_t entry, std::uint64_t bytes) {
    if (of(entry).reserve(bytes)) return true;
    of(entry).collect_stock();
    return of(entry).reserve(bytes);
  }
};

TEST(MemoryStock, AFreeLeavesItsGranulesToTheNextAllocation) {
  Slice slice(100);
  ASSERT_TRUE(slice.allocate(0, 3));
  slice.free(0, 3);
  EXPECT_EQ(slice.used(), 0U);
  EXPECT_EQ(slice.charged(), 3 * kGranule);
  EXPECT_TRUE(slice.stocks[0].take(slice.entry(0), 2, 0));
  EXPECT_EQ(slice.used(), 2 * kGranule);
  EXPECT_EQ(slice.charged(), 3 * kGranule) << "the announcement has not changed";
  EXPECT_FALSE(slice.stocks[0].take(slice.entry(0), 2, 0));
}

TEST(MemoryStock, TheStockIsBounded) {
  Slice slice(100);
  ASSERT_TRUE(slice.allocate(0, 40));
  for (int i = 0; i < 40; ++i) slice.free(0, 1);
  EXPECT_EQ(slice.stock_of(0), MemoryStock::kMost);
  EXPECT_EQ(slice.charged(), MemoryStock::kMost * kGranule);
}

TEST(MemoryStock, ARequestOfAnotherProcessGetsTheStockToTheLastByte) {
  Slice slice(20, 7);
  for (const std::uint32_t thread : {0U, 5U, 7U}) {
    ASSERT_TRUE(slice.allocate(thread, 6));
    slice.free(thread, 6);
  }
  ASSERT_EQ(slice.charged(), 18 * kGranule);
  EXPECT_FALSE(slice.of(1).reserve(20 * kGranule + 7));
  EXPECT_TRUE(slice.insist(1, 20 * kGranule + 7));
  EXPECT_FALSE(slice.insist(1, 1));
}

TEST(MemoryStock, AfterACollectionTheOwnerKeepsNoStockUntilThereIsRoom) {
  Slice slice(20);
  ASSERT_TRUE(slice.allocate(0, 8));
  slice.free(0, 4);
  ASSERT_TRUE(slice.insist(1, 16 * kGranule));
  EXPECT_EQ(slice.stock_of(0), 0U);
  slice.free(0, 2);
  EXPECT_EQ(slice.charged(), 18 * kGranule) << "withdrawn, not kept";
  ASSERT_TRUE(slice.allocate(0, 2));  // it fits: reserved(…, true)
  slice.free(0, 2);
  EXPECT_EQ(slice.stock_of(0), 2U);
}

TEST(MemoryStock, ALowerLimitInvalidatesEarlierStock) {
  Slice slice(20);
  ASSERT_TRUE(slice.allocate(0, 8));
  slice.free(0, 4);
  slice.grant->memory_limit.raw = 6 * kGranule;  // 4 are in use
  slice.grant->stock_epoch.raw = 1;
  EXPECT_FALSE(slice.allocate(0, 3));
  slice.of(0).collect_stock();
  EXPECT_FALSE(slice.allocate(0, 3));
  EXPECT_TRUE(slice.allocate(0, 2));
}

TEST(MemoryStock, WithoutPermissionAFreeWithdraws) {
  Slice slice(20);
  ASSERT_TRUE(slice.allocate(0, 8));
  slice.stocks[0].give(slice.entry(0), 8, false);
  EXPECT_EQ(slice.charged(), 0U);
}

TEST(MemoryStock, ALibraryOfAbi1CountsTheStock) {
  Slice slice(20);
  ASSERT_TRUE(slice.allocate(0, 8));
  slice.free(0, 3);
  slice.grant->stock_count.raw = 0;  // as that library reads the page
  EXPECT_GE(slice.charged(), 8 * kGranule);
  EXPECT_LE(slice.charged(), 8 * kGranule + abi::kStockEntries * MemoryStock::kMost);
}

TEST(MemoryStock, AStockThatAnotherProcessWroteIsNotUsed) {
  for (const std::uint64_t forged : {std::uint64_t{5}, 8 * kGranule + 5, 100 * kGranule + 5, ~std::uint64_t{0}}) {
    Slice slice(20);
    ASSERT_TRUE(slice.allocate(0, 8));
    slice.free(0, 2);
    slice.entry(0).used_bytes.raw = forged;
    EXPECT_FALSE(slice.stocks[0].take(slice.entry(0), 1, 0)) << forged;
    EXPECT_EQ(slice.stocks[0].held(), 6U);
  }
}

TEST(MemoryStock, BytesThatTheEntryNoLongerShowsAreMissing) {
  Slice slice(20);
  ASSERT_TRUE(slice.allocate(0, 8));
  EXPECT_EQ(slice.stocks[0].missing(slice.entry(0)), 0U);
  slice.entry(0).used_bytes.raw = 3 * kGranule + 2;
  EXPECT_EQ(slice.stocks[0].missing(slice.entry(0)), 5 * kGranule);
  slice.entry(0).used_bytes.raw = 0;
  EXPECT_EQ(slice.stocks[0].missing(slice.entry(0)), 8 * kGranule);
}

TEST(MemoryStock, AFreeRestoresAnOverwrittenEntry) {
  Slice slice(20);
  ASSERT_TRUE(slice.allocate(0, 8));
  slice.entry(0).used_bytes.raw = 5;
  slice.free(0, 3);
  EXPECT_EQ(slice.charged(), 5 * kGranule);
  slice.free(0, 5);
  EXPECT_EQ(slice.used(), 0U);
}

TEST(MemoryStock, ARefusalLeavesNoMoreAnnouncedThanIsInUse) {
  Slice slice(20);
  ASSERT_TRUE(slice.allocate(0, 8));
  slice.entry(0).used_bytes.raw = 0;
  for (const std::uint64_t granules : {4U, 6U, 6U}) {
    ASSERT_TRUE(slice.of(kFirst).reserve(granules * kGranule));
    slice.stocks[0].reserved(granules, true, 0);
    slice.stocks[0].disown(slice.entry(0), granules);
  }
  EXPECT_EQ(slice.charged(), 8 * kGranule);
  EXPECT_EQ(slice.stocks[0].missing(slice.entry(0)), 0U);
}

TEST(MemoryStock, AForgedStockNeitherAddsToTheUseNorWrapsAround) {
  Slice slice(20);
  slice.entry(3).used_bytes.raw = kGranule + 9;  // a stock larger than the announcement
  EXPECT_EQ(slice.used(), 0U);
  EXPECT_EQ(slice.charged(), kGranule);
  slice.of(1).collect_stock();
  EXPECT_EQ(slice.charged(), 0U);
  slice.entry(3).used_bytes.raw = ~std::uint64_t{0};
  EXPECT_FALSE(slice.of(1).reserve(1)) << "random values refuse and never grant";
}

TEST(MemoryStock, ABlockOutsideThePageIsNotRead) {
  Slice slice(20);
  slice.entry(0).used_bytes.raw = kGranule + 1;
  slice.grant->stock_first.raw = static_cast<std::uint32_t>(abi::kAccountEntries) - 1;
  EXPECT_EQ(slice.charged(), kGranule + 1);
  slice.grant->stock_first.raw = ~0U;
  EXPECT_EQ(slice.charged(), kGranule + 1);
  slice.grant->stock_first.raw = kFirst;
  slice.grant->stock_count.raw = ~0U;
  EXPECT_EQ(slice.charged(), kGranule + 1);
}

TEST(MemoryStock, ProcessesAfterTheBlockCount) {
  Slice slice(20);
  const std::uint32_t after = kFirst + abi::kStockEntries;
  slice.account->entries[after].used_bytes.raw = kGranule + 1;
  slice.account->entries[1].used_bytes.raw = 2;
  EXPECT_EQ(slice.used(), 2U) << "not assigned yet";
  slice.grant->high_entry.raw = after + 1;
  EXPECT_EQ(slice.used(), kGranule + 3);
}

// One process runs one operation, and another process runs a complete operation at one of its stores. The state
// afterwards must be the result of the two operations in one of the two orders.
TEST(MemoryStock, EveryOperationMayBeInterruptedAtEveryStoreByEveryOther) {
  struct Holder {
    std::uint64_t thread[2] = {4, 2};  // granules in use, by thread
    std::uint64_t process = 0;         // granules in use by the other process
  };
  using Operation = std::function<void(Slice&, Holder&)>;
  const auto allocation = [](std::uint32_t thread, std::uint64_t granules) -> Operation {
    return [=](Slice& slice, Holder& holder) {
      if (slice.allocate(thread, granules)) holder.thread[thread] += granules;
    };
  };
  const auto freeing = [](std::uint32_t thread, std::uint64_t granules) -> Operation {
    return [=](Slice& slice, Holder& holder) {
      holder.thread[thread] -= granules;
      slice.free(thread, granules);
    };
  };
  const auto insisting = [](std::uint64_t granules) -> Operation {
    return [=](Slice& slice, Holder& holder) {
      if (slice.insist(1, granules * kGranule)) holder.process += granules;
    };
  };
  const std::vector<Operation> of_thread = {allocation(0, 1), allocation(0, 2), allocation(0, 5), freeing(0, 1),
                                            freeing(0, 3)};
  const std::vector<Operation> of_others = {allocation(1, 1), allocation(1, 6), freeing(1, 2), insisting(1),
                                            insisting(3),     insisting(9),     insisting(30)};
  int cases = 0;
  for (const bool other_first : {false, true}) {
    const auto& firsts = other_first ? of_others : of_thread;
    const auto& seconds = other_first ? of_thread : of_others;
    for (const Operation& first : firsts) {
      for (const Operation& second : seconds) {
        for (int at = 0;; ++at) {
          Slice slice(16);
          Holder holder;
          ASSERT_TRUE(slice.allocate(0, 7) && slice.allocate(1, 3));
          slice.free(0, 3);
          slice.free(1, 1);
          ASSERT_EQ(slice.used(), 6 * kGranule);
          int passed = 0;
          bool interrupted = false;
          std::function<void()> hook = [&] {
            if (passed++ != at) return;
            interrupted = true;
            at_store = nullptr;
            second(slice, holder);
            at_store = &hook;
          };
          at_store = &hook;
          first(slice, holder);
          at_store = nullptr;
          if (!interrupted) break;
          ++cases;
          const std::uint64_t held = holder.thread[0] + holder.thread[1] + holder.process;
          EXPECT_LE(held, 16U);
          EXPECT_EQ(slice.used(), held * kGranule);
          EXPECT_EQ(slice.stocks[0].held(), holder.thread[0]);
          EXPECT_EQ(slice.stocks[1].held(), holder.thread[1]);
          EXPECT_EQ(slice.stocks[0].missing(slice.entry(0)), 0U);
          EXPECT_TRUE(slice.insist(1, (16 - held) * kGranule)) << "all that is not in use must be available";
          EXPECT_FALSE(slice.insist(1, 1));
        }
      }
    }
  }
  EXPECT_GE(cases, 190);
}

// A process that collects dies at a store. The stock of a thread is then either unchanged or free.
TEST(MemoryStock, ACollectorMayDieAtEveryStore) {
  struct Death {};
  for (int at = 0;; ++at) {
    Slice slice(40);
    for (const std::uint32_t thread : {0U, 1U, 2U}) {
      ASSERT_TRUE(slice.allocate(thread, 5));
      slice.free(thread, 3);
    }
    int passed = 0;
    bool died = false;
    std::function<void()> hook = [&] {
      if (passed++ == at) throw Death();
    };
    at_store = &hook;
    try {
      (void)slice.insist(1, 34 * kGranule);
    } catch (const Death&) {
      died = true;
    }
    at_store = nullptr;
    slice.account->entries[1].used_bytes.raw = 0;  // the arbiter
    EXPECT_EQ(slice.used(), 6 * kGranule) << at;
    for (const std::uint32_t thread : {0U, 1U, 2U}) EXPECT_TRUE(slice.allocate(thread, 3)) << at;
    EXPECT_EQ(slice.used(), 15 * kGranule) << at;
    EXPECT_TRUE(slice.insist(0, 25 * kGranule)) << at;
    if (!died) {
      EXPECT_GT(at, 8);
      break;
    }
  }
}

TEST(MemoryStock, RandomOperationsKeepTheSumsExact) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const std::uint64_t limit = 10 + random() % 200;
    Slice slice(limit);
    std::array<std::uint64_t, abi::kStockEntries> held{};
    std::uint64_t large = 0;
    for (int step = 0; step < 400; ++step) {
      const std::uint32_t thread = random() % abi::kStockEntries;
      const std::uint64_t granules = 1 + random() % 9;
      std::uint64_t all = large;
      for (const std::uint64_t each : held) all += each;
      switch (random() % 4) {
        case 0:
        case 1:
          if (slice.allocate(thread, granules)) held[thread] += granules;
          break;
        case 2:
          if (held[thread] >= granules) {
            held[thread] -= granules;
            slice.free(thread, granules);
          }
          break;
        default:
          if (random() % 2 == 0 && large != 0) {
            slice.account->entries[1].used_bytes.fetch_sub(large * kGranule);
            large = 0;
          } else if (large == 0) {
            const std::uint64_t wanted = random() % (limit + 2);
            ASSERT_EQ(slice.insist(1, wanted * kGranule), all + wanted <= limit) << seed << " step " << step;
            large = all + wanted <= limit ? wanted : 0;
          }
      }
      all = large;
      for (const std::uint64_t each : held) all += each;
      ASSERT_EQ(slice.used(), all * kGranule) << seed << " step " << step;
      ASSERT_LE(slice.charged(), limit * kGranule) << seed << " step " << step;
    }
  }
}

// Each thread has a stock entry, and two more processes ask for so much that they must collect. The test counts the
// held bytes itself: it adds them after a grant and subtracts them before a free.
TEST(MemoryStock, ThreadsAndCollectorsNeverHoldMoreThanTheLimit) {
  constexpr std::uint64_t kLimit = 120;
  constexpr int kRounds = 20'000;
  Slice slice(kLimit);
  std::atomic<std::uint64_t> held = 0;
  std::atomic<std::uint64_t> most = 0;
  std::atomic<int> collected = 0;
  std::atomic<int> from_stock = 0;
  const auto hold = [&](std::uint64_t granules) {
    const std::uint64_t now = held.fetch_add(granules) + granules;
    for (std::uint64_t before = most; now > before && !most.compare_exchange_weak(before, now);) {
    }
  };
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int round = 0; round < kRounds; ++round) {
        const std::uint64_t granules = 1 + random() % 8;
        const std::uint64_t stock = slice.stock_of(t);
        if (!slice.allocate(t, granules)) continue;
        from_stock += stock >= granules ? 1 : 0;
        hold(granules);
        if (random() % 64 == 0) std::this_thread::yield();
        held.fetch_sub(granules);
        slice.free(t, granules);
      }
    });
  }
  for (std::uint32_t p = 0; p < 2; ++p) {
    threads.emplace_back([&, p] {
      std::mt19937 random(100 + p);
      for (int round = 0; round < kRounds / 10; ++round) {
        const std::uint64_t granules = 30 + random() % 60;
        if (!slice.insist(p, granules * kGranule)) continue;
        ++collected;
        hold(granules);
        std::this_thread::yield();
        held.fetch_sub(granules);
        slice.account->entries[p].used_bytes.fetch_sub(granules * kGranule);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(most, kLimit);
  EXPECT_GT(collected, 0);
  EXPECT_GT(from_stock, 0);
  EXPECT_EQ(slice.used(), 0U);
  EXPECT_TRUE(slice.insist(0, kLimit * kGranule));
}

}  // namespace
}  // namespace carve::lease
