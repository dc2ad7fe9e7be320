#include "preload/table.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace carve::preload {
namespace {

Entry entry_of(std::uint64_t key, std::uint64_t bytes) { return {key, bytes, 0, 0, Kind::kLinear, 0, 1}; }

TEST(Table, BehavesAsAMapOverARandomHistory) {
  for (const unsigned seed : {1U, 2U, 3U}) {
    std::mt19937_64 random(seed);
    // Zeroed memory is an empty table, like after a fork.
    auto table = std::unique_ptr<Table<4>>(new Table<4>());
    std::map<std::uint64_t, std::uint64_t> model;
    for (int step = 0; step < 200'000; ++step) {
      // Few distinct keys in clusters, so that probes collide and gaps are closed.
      const std::uint64_t key = 0x7000'0000'0000 + (random() % 4000) * 0x200000;
      const auto known = model.find(key);
      if (random() % 2 == 0) {
        if (known == model.end()) {
          ASSERT_TRUE(table->insert(entry_of(key, static_cast<std::uint64_t>(step) + 1)));
          model[key] = static_cast<std::uint64_t>(step) + 1;
        }
      } else {
        Entry out{};
        ASSERT_EQ(table->take(key, out), known != model.end()) << "seed " << seed << " step " << step;
        if (known != model.end()) {
          ASSERT_EQ(out.bytes, known->second);
          model.erase(known);
        }
      }
    }
    std::uint64_t sum = 0;
    std::uint64_t wanted = 0;
    for (const auto& [key, bytes] : model) {
      wanted += bytes;
    }
    table->take_all([](const Entry&) { return true; }, [&](const Entry& entry) { sum += entry.bytes; });
    EXPECT_EQ(sum, wanted) << "seed " << seed;
    for (const auto& [key, bytes] : model) {
      Entry out{};
      EXPECT_FALSE(table->take(key, out));
    }
  }
}

TEST(Table, ManyThreadsLoseNothing) {
  auto table = std::unique_ptr<Table<64>>(new Table<64>());
  std::vector<std::thread> threads;
  for (std::uint64_t t = 1; t <= 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 1; i <= 20'000; ++i) {
        ASSERT_TRUE(table->insert(entry_of(t << 40 | i << 9, i)));
        if (i % 3 == 0) {
          Entry out{};
          ASSERT_TRUE(table->take(t << 40 | i << 9, out));
          ASSERT_EQ(out.bytes, i);
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  std::uint64_t left = 0;
  table->take_all([](const Entry&) { return true; }, [&](const Entry&) { ++left; });
  EXPECT_EQ(left, 4U * (20'000 - 6'666));
}

TEST(Table, UpdateCanRemove) {
  auto table = std::unique_ptr<Table<4>>(new Table<4>());
  ASSERT_TRUE(table->insert(entry_of(42, 7)));
  EXPECT_TRUE(table->update(42, [](Entry& entry) { return ++entry.references == 2; }));
  EXPECT_TRUE(table->update(42, [](Entry&) { return false; }));
  EXPECT_FALSE(table->update(42, [](Entry&) { return true; }));
}

}  // namespace
}  // namespace carve::preload
