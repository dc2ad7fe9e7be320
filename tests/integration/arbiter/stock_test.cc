#include <algorithm>

#include "tests/integration/arbiter/fixture.h"

// The stock entries of a slice (abi/page.h): the arbiter sets them aside, counts them and frees them.
namespace carve::arbiter_test {
namespace {

constexpr std::uint64_t kGranule = abi::kStockGranule;

class StockEntries : public ArbiterTest {
 protected:
  /// Asks for stock entries and waits for them.
  static bool ask(RawCard& card) {
    card.account->stock_wanted.store_release(1);
    return eventually([&] { return card.grant->stock_count.load_acquire() != 0; });
  }
  static abi::AccountEntry& entry(RawCard& card, std::uint32_t which) {
    return card.account->entries[card.grant->stock_first.load_relaxed() + which];
  }
  /// Takes a stock entry for the process of this account entry, as its library does.
  static bool take(RawCard& card, std::uint32_t which, std::uint32_t owner, std::uint64_t word) {
    if (!entry(card, which).instance.compare_exchange(0, owner + 1)) return false;
    entry(card, which).used_bytes.store_seq_cst(word);
    return true;
  }
};

TEST_F(StockEntries, AreSetAsideWhenAProcessAsksAndNoProcessGetsThem) {
  put(order("s", 50, ShareClass::kBurst, 2));
  RawClient first = connect("s");
  EXPECT_FALSE(eventually([&] { return first.card().grant->stock_count.load_acquire() != 0; }, 500 * kMs));
  ASSERT_TRUE(ask(first.cards[1]));
  ASSERT_TRUE(eventually([&] { return first.cards[0].grant->stock_count.load_acquire() != 0; })) << "on every card";
  const std::uint32_t begin = first.card().grant->stock_first.load_relaxed();
  const std::uint32_t end = begin + first.card().grant->stock_count.load_relaxed();
  EXPECT_EQ(end - begin, abi::kStockEntries);
  EXPECT_EQ(first.cards[1].grant->stock_first.load_relaxed(), begin);
  EXPECT_GE(first.card().grant->high_entry.load_relaxed(), end) << "the sum of every library must contain them";
  std::vector<RawClient> others;
  for (int i = 0; i < 12; ++i) {
    others.push_back(connect("s"));
    EXPECT_TRUE(others.back().welcome.entry < begin || others.back().welcome.entry >= end);
  }
}

TEST_F(StockEntries, AreAnnouncedWithoutTheirStockAndFreedWithTheirProcess) {
  put(order("s"));
  RawClient watcher = connect("s");
  ASSERT_TRUE(ask(watcher.card()));
  ASSERT_TRUE(take(watcher.card(), 0, watcher.welcome.entry, 5 * kGranule | 2));
  EXPECT_EQ(listed("s")->cards[0].announced, Bytes(3 * kGranule));
  Child child([&] {
    auto mine = hello(runtime_, "s");
    if (!mine || !take(mine->card(), 1, mine->welcome.entry, 7 * kGranule | 3)) _exit(1);
    mine->card().entry->used_bytes.store_seq_cst(1);
  });
  ASSERT_TRUE(child.wait_ready());
  EXPECT_EQ(listed("s")->cards[0].announced, Bytes(7 * kGranule + 1));
  EXPECT_EQ(listed("s")->processes.size(), 2U);
  child.kill();
  EXPECT_TRUE(eventually([&] { return listed("s")->cards[0].announced == Bytes(3 * kGranule); }));
  EXPECT_TRUE(eventually([&] { return entry(watcher.card(), 1).instance.load_acquire() == 0; }));
  EXPECT_EQ(entry(watcher.card(), 1).used_bytes.load_relaxed(), 0U);
  EXPECT_EQ(entry(watcher.card(), 0).used_bytes.load_relaxed(), 5 * kGranule + 2) << "of a living process";
}

TEST_F(StockEntries, AForgedStockHidesNoMemory) {
  put(order("s"));
  RawClient client = connect("s");
  ASSERT_TRUE(ask(client.card()));
  ASSERT_TRUE(take(client.card(), 0, client.welcome.entry, 2 * kGranule | 1000));
  ASSERT_TRUE(take(client.card(), 1, client.welcome.entry, 3 * kGranule));
  EXPECT_EQ(listed("s")->cards[0].announced, Bytes(3 * kGranule)) << "it does not lower what other entries announce";
}

TEST_F(StockEntries, OutliveTheArbiter) {
  put(order("s"));
  RawClient watcher = connect("s");
  ASSERT_TRUE(ask(watcher.card()));
  const std::uint32_t begin = watcher.card().grant->stock_first.load_relaxed();
  ASSERT_TRUE(take(watcher.card(), 0, watcher.welcome.entry, 5 * kGranule | 2));
  Child child([&] {
    auto mine = hello(runtime_, "s");
    if (!mine || !take(mine->card(), 1, mine->welcome.entry, 7 * kGranule)) _exit(1);
  });
  ASSERT_TRUE(child.wait_ready());
  arbiter_->kill();
  child.kill();
  arbiter_->start();
  ASSERT_TRUE(eventually([&] { return listed("s").has_value(); }));
  EXPECT_TRUE(eventually([&] { return listed("s")->cards[0].announced == Bytes(3 * kGranule); }));
  EXPECT_EQ(watcher.card().grant->stock_first.load_relaxed(), begin);
  EXPECT_EQ(watcher.card().grant->stock_count.load_relaxed(), abi::kStockEntries);
  EXPECT_EQ(entry(watcher.card(), 1).instance.load_relaxed(), 0U) << "its process died while no arbiter ran";
  RawClient late = connect("s");
  EXPECT_TRUE(late.welcome.entry < begin || late.welcome.entry >= begin + abi::kStockEntries);
}

TEST_F(StockEntries, ALibraryOfAbi1EndsTheStock) {
  put(order("s"));
  RawClient client = connect("s");
  ASSERT_TRUE(ask(client.card()));
  ASSERT_TRUE(take(client.card(), 0, client.welcome.entry, 5 * kGranule | 2));
  const auto old = hello(runtime_, "s", abi::LibraryKind::kCuda, abi::kStockAbi - 1);
  ASSERT_TRUE(old && old->welcome.status == abi::WelcomeStatus::kOk);
  EXPECT_NE(client.card().grant->stock_off.load_relaxed(), 0U);
  EXPECT_EQ(entry(client.card(), 0).used_bytes.load_seq_cst(), 3 * kGranule);
  entry(client.card(), 0).used_bytes.store_seq_cst(5 * kGranule | 2);  // a free that had not seen it
  EXPECT_TRUE(eventually([&] { return entry(client.card(), 0).used_bytes.load_seq_cst() == 3 * kGranule; }));
  arbiter_->kill();
  arbiter_->start();
  ASSERT_TRUE(eventually([&] { return listed("s").has_value(); }));
  EXPECT_NE(client.card().grant->stock_off.load_relaxed(), 0U) << "that library still runs";
}

TEST_F(StockEntries, ASliceWithALibraryOfAbi1GetsNone) {
  put(order("s"));
  const auto old = hello(runtime_, "s", abi::LibraryKind::kCuda, abi::kStockAbi - 1);
  ASSERT_TRUE(old.has_value());
  RawClient client = connect("s");
  client.card().account->stock_wanted.store_release(1);
  EXPECT_FALSE(eventually([&] { return client.card().grant->stock_count.load_acquire() != 0; }, 600 * kMs));
}

}  // namespace
}  // namespace carve::arbiter_test
