// Invariants of the arbiter under random tenants: slices of every class arrive and leave, and their pages have random
// contents.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "lease/arbiter.h"

namespace carve::lease {
namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kExact = 200;  // ns; the arbiter rounds tokens to whole nanoseconds

class Random {
 public:
  explicit Random(std::uint64_t seed) : random_(seed) {}
  std::uint64_t below(std::uint64_t end) { return random_() % end; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }

 private:
  std::mt19937_64 random_;
};

/// A card with up to six slices and the contents of their pages.
struct Play {
  explicit Play(std::uint64_t seed) : random(seed) {}

  void come_and_go() {
    if (random.one_in(20) && slices.size() < 6) {
      const auto share = static_cast<abi::ShareClass>(random.below(3));
      const auto compute =
          share == abi::ShareClass::kBestEffort ? 0U : 1 + static_cast<std::uint32_t>(random.below(100));
      const auto ceiling =
          std::max(random.one_in(2) ? 100 : compute + static_cast<std::uint32_t>(random.below(101 - compute)), 1U);
      slices.push_back(arbiter.add({compute, share, static_cast<abi::PriorityClass>(random.below(3)), ceiling}));
      capped[slices.back()] = share == abi::ShareClass::kFixed || ceiling < 100;
      seen[static_cast<std::size_t>(slices.back())] = {};
    }
    if (random.one_in(60) && !slices.empty()) {
      const auto gone = slices.begin() + static_cast<std::ptrdiff_t>(random.below(slices.size()));
      arbiter.remove(*gone);
      slices.erase(gone);
    }
  }

  void say_something() {
    for (const int slice : slices) {
      if (random.one_in(3)) continue;
      Observation& page = seen[static_cast<std::size_t>(slice)];
      const bool busy = random.one_in(2) && (granted(slice) || random.one_in(8));
      if (busy != page.busy) page.edge_ns = random.one_in(4) ? 0 : now;
      page.want = random.one_in(2);
      page.busy = busy;
      page.inflight_ns = busy ? random.below(8 * kMs) : 0;
      page.busy_ns += random.one_in(2) ? random.below(2 * kMs) : 0;
    }
  }

  void step(std::uint64_t at) { arbiter.step(now = at, seen.data()); }
  [[nodiscard]] bool granted(int slice) const { return arbiter.grant(slice).mode != abi::LeaseMode::kBlocked; }
  [[nodiscard]] std::vector<abi::LeaseMode> modes(const Arbiter& of) const {
    std::vector<abi::LeaseMode> all;
    for (const int slice : slices) all.push_back(of.grant(slice).mode);
    return all;
  }

  Random random;
  Arbiter arbiter;
  std::vector<int> slices;
  std::map<int, bool> capped;  // may wait for tokens
  std::vector<Observation> seen = std::vector<Observation>(kMaxSlices);
  std::uint64_t now = kMs;
};

TEST(ArbiterProperty, NothingChangesBeforeTheDueStep) {
  std::size_t compared = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Play play(seed);
    for (int round = 0; round < 1'000; ++round) {
      play.come_and_go();
      play.say_something();
      play.step(play.now + play.random.below(3 * kMs));
      const std::uint64_t due = play.arbiter.next_step_ns();
      ASSERT_GT(due, play.now);
      if (play.random.one_in(2) || due <= play.now + kExact) continue;
      Arbiter other = play.arbiter;
      const std::uint64_t early = due == kNever ? play.now + 10'000 * kMs : due - kExact;
      other.step(early, play.seen.data());
      ASSERT_EQ(play.modes(other), play.modes(play.arbiter)) << "seed " << seed << ", round " << round << ", due in "
                                                             << due - play.now << " ns";
      ++compared;
    }
  }
  EXPECT_GT(compared, 1'000U);
}

TEST(ArbiterProperty, AtMostOneSliceHasTheCardAndNoneWaitsForAFreeCard) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Play play(seed);
    std::vector<std::uint64_t> came(kMaxSlices);
    for (int round = 0; round < 1'000; ++round) {
      const std::vector<int> before = play.slices;
      play.come_and_go();
      for (const int slice : play.slices) {
        if (std::find(before.begin(), before.end(), slice) == before.end())
          came[static_cast<std::size_t>(slice)] = play.now;
      }
      play.say_something();
      play.step(play.now + play.random.below(3 * kMs));
      int granted = 0, waiting = 0, working = 0;
      for (const int slice : play.slices) {
        const Observation& page = play.seen[static_cast<std::size_t>(slice)];
        granted += play.granted(slice) ? 1 : 0;
        working += page.busy && page.inflight_ns > Tuning{}.early_handoff ? 1 : 0;
        waiting += page.want && !play.capped[slice] ? 1 : 0;
        ASSERT_LE(play.arbiter.charged_ns(slice), play.now - came[static_cast<std::size_t>(slice)]);
      }
      ASSERT_LE(granted, 1);
      ASSERT_TRUE(waiting == 0 || granted == 1 || working > 0) << "seed " << seed << ", round " << round;
    }
    // All slices become silent: no step is due any more, and the next slice gets the card without asking.
    for (auto& page : play.seen) page = {.busy_ns = page.busy_ns};
    for (const std::uint64_t end = play.now + 1'000 * kMs; play.arbiter.next_step_ns() != kNever && play.now < end;)
      play.step(std::max(play.now, play.arbiter.next_step_ns()));
    ASSERT_EQ(play.arbiter.next_step_ns(), kNever);
    // The last page contents of removed slices do not count.
    for (auto& page : play.seen) page.want = true;
    play.step(play.now + 1);
    while (!play.slices.empty()) {
      play.arbiter.remove(play.slices.back());
      play.slices.pop_back();
    }
    const int last = play.arbiter.add({});
    play.seen[static_cast<std::size_t>(last)] = {};
    play.step(play.now + 1);
    ASSERT_EQ(play.arbiter.grant(last).mode, abi::LeaseMode::kSolo);
    ASSERT_EQ(play.arbiter.next_step_ns(), kNever) << "seed " << seed;
  }
}

}  // namespace
}  // namespace carve::lease
