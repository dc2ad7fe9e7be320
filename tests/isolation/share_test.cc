// Shares of a card in real time: the real library, the real arbiter, the simulated driver's own windows.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <numeric>
#include <ostream>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "tests/isolation/arbiter_process.h"
#include "tests/isolation/slice_fixture.h"

namespace carve::isolation {
namespace {

constexpr double kPerSecond = 5;     // points in every 1 s window: 3 by the rule, 2 for two loaded cores
constexpr double kPerTen = 3.5;      // points in every 10 s window
constexpr double kAlone = 3.5;       // points in every 1 s window of a cap, without another slice

/// The processor time that the host takes from this virtual machine, sampled every 50 ms.
class HostWatch {
 public:
  HostWatch() : thread_([this](const std::stop_token& stop) { run(stop); }) {}

  /// The most that the host took in any `ms` since then, in percent of all processors; in a shorter time: of that time.
  [[nodiscard]] double most(std::uint64_t since_ns, unsigned ms) const {
    const std::lock_guard lock(mutex_);
    double most = 0;
    std::size_t from = 0;
    while (from < looks_.size() && looks_[from].at_ns < since_ns) ++from;
    const std::size_t first = from;
    for (std::size_t to = from; to < looks_.size(); ++to) {
      while (looks_[to].at_ns - looks_[from].at_ns > std::uint64_t{ms} * 1'000'000) ++from;
      const double all = looks_[to].all - looks_[from].all;
      const bool whole = from > first || to + 1 == looks_.size();
      if (whole && all > 0) most = std::max(most, 100 * (looks_[to].stolen - looks_[from].stolen) / all);
    }
    return most;
  }

 private:
  struct Look {
    std::uint64_t at_ns;
    double stolen;  // ticks since the machine's start
    double all;
  };
  static Look now() {
    std::ifstream stat("/proc/stat");
    std::string cpu;
    stat >> cpu;
    std::vector<double> ticks(8);  // user nice system idle iowait irq softirq steal
    for (double& one : ticks) stat >> one;
    return {driver_now_ns(), ticks[7], std::accumulate(ticks.begin(), ticks.end(), 0.0)};
  }
  void run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      {
        const std::lock_guard lock(mutex_);
        looks_.push_back(now());
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }

  mutable std::mutex mutex_;
  std::vector<Look> looks_;
  std::jthread thread_;
};

class Share : public SliceTest {
 protected:
  static void stop(pid_t pid) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }

  /// Starts a program in slice "one" with 30 of the card, of that class, and one in slice "other" with 70 and burst.
  /// Both launch kernels of 0.5 ms. Returns two seconds later, when the shares are steady.
  static void spin_at_30_and_70(ArbiterProcess& arbiter, abi::ShareClass of_one, pid_t* one, pid_t* other) {
    ASSERT_EQ(arbiter.put("one", card_of(1024 * kMiB, 30, of_one)), "");
    ASSERT_EQ(arbiter.put("other", card_of(1024 * kMiB, 70, abi::ShareClass::kBurst)), "");
    *one = spin_in("one", {"--kernel-us", "500"});
    *other = spin_in("other", {"--kernel-us", "500"});
    std::this_thread::sleep_for(std::chrono::seconds(2));
  }

  /// Checks the delivered share of each process in percent, per window of `ms`, of the time after `since_ns`. When the
  /// host takes processor time away, a program that launches one kernel after the other is late: for each percent taken
  /// in the worst such window the bound grows by one point, and the test prints that.
  void expect_shares(const std::vector<std::pair<pid_t, double>>& wanted, std::uint64_t since_ns, double points,
                     unsigned ms, std::size_t at_least) const {
    const double stolen = taken(since_ns, ms);
    for (const auto& [pid, target] : wanted) {
      const std::vector<double> got = delivered(pid, since_ns, ms);
      ASSERT_GE(got.size(), at_least);
      double worst = 0;
      double sum = 0;
      for (const double share : got) {
        worst = std::max(worst, std::abs(share - target));
        sum += share;
      }
      std::printf("  wanted %5.1f %%: mean %5.1f over %zu windows of %u ms, worst window off by %.1f points\n", target,
                  sum / static_cast<double>(got.size()), got.size(), ms, worst);
      EXPECT_LE(worst, points + stolen);
    }
  }

  [[nodiscard]] double taken(std::uint64_t since_ns, unsigned ms) const {
    const double stolen = host_.most(since_ns, ms);
    if (stolen >= 0.1) std::printf("  the host took at most %.1f %% of the processors in %u ms\n", stolen, ms);
    return stolen;
  }

 private:
  HostWatch host_;
};

struct Pair {
  const char* name;  // name of the test
  std::vector<std::string> one, other;
  std::uint32_t share_one, share_other;
};

std::ostream& operator<<(std::ostream& out, const Pair& pair) { return out << pair.name; }

class TwoSlices : public Share, public ::testing::WithParamInterface<Pair> {};

TEST_P(TwoSlices, GetTheirShares) {
  const Pair& now = GetParam();
  ArbiterProcess arbiter;
  ASSERT_EQ(arbiter.put("one", card_of(1024 * kMiB, now.share_one, abi::ShareClass::kBurst)), "");
  ASSERT_EQ(arbiter.put("other", card_of(1024 * kMiB, now.share_other, abi::ShareClass::kBurst)), "");
  const pid_t one = spin_in("one", now.one);
  const pid_t other = spin_in("other", now.other);
  std::this_thread::sleep_for(std::chrono::seconds(2));
  const std::uint64_t since = driver_now_ns();
  std::this_thread::sleep_for(std::chrono::milliseconds(11'100));
  const std::vector<std::pair<pid_t, double>> wanted = {{one, now.share_one}, {other, now.share_other}};
  expect_shares(wanted, since, kPerSecond, 1000, 9);
  expect_shares(wanted, since, kPerTen, 5000, 1);
  stop(one);
  stop(other);
}

INSTANTIATE_TEST_SUITE_P(
    Share, TwoSlices,
    ::testing::Values(Pair{"HalfMs30And70", {"--kernel-us", "500"}, {"--kernel-us", "500"}, 30, 70},
                      Pair{"HalfMs10And90", {"--kernel-us", "500"}, {"--kernel-us", "500"}, 10, 90},
                      Pair{"FiveMsAgainstHalfMs", {"--kernel-us", "5000"}, {"--kernel-us", "500"}, 50, 50},
                      Pair{"FiveMs30And70", {"--kernel-us", "5000"}, {"--kernel-us", "5000"}, 30, 70},
                      // A sync loop leaves the card idle between its kernels (2 % alone, without the library). It can
                      // get its share of a busy card, but no more than its own loop requests.
                      Pair{"SyncLoopAgainstGraphs", {"--kernel-us", "1000", "--sync"},
                           {"--kernel-us", "500", "--graph", "--depth", "8"}, 30, 70}),
    [](const ::testing::TestParamInfo<Pair>& pair) { return std::string(pair.param.name); });

// A slice counts as one, regardless of the number of its processes: its neighbour keeps its share.
struct Many {
  const char* name;  // name of the test
  int processes;
  std::vector<std::string> work;
};

std::ostream& operator<<(std::ostream& out, const Many& many) { return out << many.name; }

class ManyProcesses : public Share, public ::testing::WithParamInterface<Many> {};

TEST_P(ManyProcesses, CountAsOneSlice) {
  ArbiterProcess arbiter;
  ASSERT_EQ(arbiter.put("many", card_of(4096 * kMiB, 30, abi::ShareClass::kBurst)), "");
  ASSERT_EQ(arbiter.put("other", card_of(1024 * kMiB, 70, abi::ShareClass::kBurst)), "");
  std::vector<pid_t> many;
  for (int i = 0; i < GetParam().processes; ++i) many.push_back(spin_in("many", GetParam().work));
  const pid_t other = spin_in("other", {"--kernel-us", "500"});
  std::this_thread::sleep_for(std::chrono::seconds(3));
  const std::uint64_t since = driver_now_ns();
  std::this_thread::sleep_for(std::chrono::milliseconds(5'100));
  const double stolen = taken(since, 5000);
  const auto mean = [since](pid_t pid) {
    const std::vector<double> got = delivered(pid, since, 1000);
    return got.empty() ? 0.0 : std::accumulate(got.begin(), got.end(), 0.0) / static_cast<double>(got.size());
  };
  const double neighbour = mean(other);
  double all = 0;
  for (const pid_t pid : many) {
    all += mean(pid);
    stop(pid);
  }
  stop(other);
  std::printf("  the neighbour of 70: %.1f %%, the slice of 30: %.1f %%\n", neighbour, all);
  EXPECT_GE(neighbour, 70 - kPerSecond - stolen);
  EXPECT_LE(all, 30 + kPerSecond + stolen);
  EXPECT_GE(all, 20 - stolen);
}

INSTANTIATE_TEST_SUITE_P(Share, ManyProcesses,
                         ::testing::Values(Many{"Of20MsKernels", 16, {"--kernel-us", "20000", "--depth", "2"}},
                                           Many{"OfSyncLoops", 8, {"--kernel-us", "1000", "--sync"}}),
                         [](const ::testing::TestParamInfo<Many>& many) { return std::string(many.param.name); });

// Ten slices that request the card all the time get a tenth each.
TEST_F(Share, TenEqualSlicesGetATenthEach) {
  constexpr int kSlices = 10;
  ArbiterProcess arbiter;
  std::vector<std::pair<pid_t, double>> wanted;
  for (int i = 0; i < kSlices; ++i) {
    const std::string name = "tenth" + std::to_string(i);
    ASSERT_EQ(arbiter.put(name, card_of(512 * kMiB, 100 / kSlices, abi::ShareClass::kBurst)), "");
    wanted.emplace_back(spin_in(name, {"--kernel-us", "500"}), 100.0 / kSlices);
  }
  std::this_thread::sleep_for(std::chrono::seconds(2));
  const std::uint64_t since = driver_now_ns();
  std::this_thread::sleep_for(std::chrono::milliseconds(11'100));
  expect_shares(wanted, since, kPerSecond, 1000, 9);
  expect_shares(wanted, since, kPerTen, 5000, 1);
  for (const auto& [pid, share] : wanted) {
    stop(pid);
  }
}

TEST_F(Share, ACapHoldsOnAnIdleCardAndABurstDoesNot) {
  ArbiterProcess arbiter;
  ASSERT_EQ(arbiter.put("fixed", card_of(1024 * kMiB, 30, abi::ShareClass::kFixed)), "");
  const pid_t fixed = spin_in("fixed", {"--kernel-us", "500"});
  std::this_thread::sleep_for(std::chrono::seconds(2));
  std::uint64_t since = driver_now_ns();
  std::this_thread::sleep_for(std::chrono::milliseconds(5'100));
  expect_shares({{fixed, 30}}, since, kAlone, 1000, 4);
  stop(fixed);
  ASSERT_EQ(arbiter.put("burst", card_of(1024 * kMiB, 30, abi::ShareClass::kBurst)), "");
  const pid_t burst = spin_in("burst", {"--kernel-us", "500"});
  std::this_thread::sleep_for(std::chrono::seconds(1));
  since = driver_now_ns();
  std::this_thread::sleep_for(std::chrono::milliseconds(3'100));
  const std::vector<double> got = delivered(burst, since, 1000);
  ASSERT_FALSE(got.empty());
  const double stolen = taken(since, 1000);
  for (const double share : got) {
    EXPECT_GE(share, 96 - stolen);
  }
  stop(burst);
}

// What vCUDA's users set as vcuda-core-limit: 30 are guaranteed, and at most 60 are used. Another slice with a
// guarantee of 20 gets the rest.
TEST_F(Share, ACeilingHoldsOnAnIdleCardAndBesideASmallerSlice) {
  ArbiterProcess arbiter;
  abi::ControlCard card = card_of(1024 * kMiB, 30, abi::ShareClass::kBurst);
  card.ceiling = 60;
  ASSERT_EQ(arbiter.put("capped", card), "");
  const pid_t capped = spin_in("capped", {"--kernel-us", "500"});
  std::this_thread::sleep_for(std::chrono::seconds(2));
  std::uint64_t since = driver_now_ns();
  std::this_thread::sleep_for(std::chrono::milliseconds(5'100));
  expect_shares({{capped, 60}}, since, kAlone, 1000, 4);

  ASSERT_EQ(arbiter.put("other", card_of(1024 * kMiB, 20, abi::ShareClass::kBurst)), "");
  const pid_t other = spin_in("other", {"--kernel-us", "500"});
  std::this_thread::sleep_for(std::chrono::seconds(2));
  since = driver_now_ns();
  std::this_thread::sleep_for(std::chrono::milliseconds(5'100));
  expect_shares({{capped, 60}, {other, 40}}, since, kPerSecond, 1000, 4);
  stop(capped);
  stop(other);
}

TEST_F(Share, AStoppedArbiterLeavesTheLastRatesInForce) {
  ArbiterProcess arbiter;
  pid_t one = -1;
  pid_t other = -1;
  ASSERT_NO_FATAL_FAILURE(spin_at_30_and_70(arbiter, abi::ShareClass::kBurst, &one, &other));
  kill(arbiter.pid(), SIGSTOP);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  std::uint64_t since = driver_now_ns();
  std::this_thread::sleep_for(std::chrono::milliseconds(5'100));
  // Each slice continues on its own, at most at its rate. They overlap on the card now: it is full and switches between
  // them.
  const double stolen = taken(since, 1000);
  for (const auto& [pid, rate] : {std::pair{one, 30.0}, std::pair{other, 70.0}}) {
    for (const double share : delivered(pid, since, 1000)) {
      std::printf("  arbiter stopped, rate %.0f %%: %.1f\n", rate, share);
      EXPECT_LE(share, rate + kPerSecond);
      EXPECT_GE(share, rate * 2 / 3 - stolen);
    }
  }
  kill(arbiter.pid(), SIGCONT);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  since = driver_now_ns();
  std::this_thread::sleep_for(std::chrono::milliseconds(5'100));
  std::printf("arbiter back\n");
  expect_shares({{one, 30}, {other, 70}}, since, kPerSecond, 1000, 4);
  stop(one);
  stop(other);
}

// As when the DaemonSet's pod is replaced: SIGTERM, a second without an arbiter, and the next one finds the slices by
// their processes.
TEST_F(Share, AReplacedArbiterLeavesNoPause) {
  ArbiterProcess arbiter;
  pid_t one = -1;
  pid_t other = -1;
  ASSERT_NO_FATAL_FAILURE(spin_at_30_and_70(arbiter, abi::ShareClass::kFixed, &one, &other));
  const std::uint64_t since = driver_now_ns();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  arbiter.stop();
  std::this_thread::sleep_for(std::chrono::milliseconds(1'000));
  arbiter.start();
  std::this_thread::sleep_for(std::chrono::milliseconds(1'000));
  const std::vector<double> first = delivered(one, since, 50);
  const std::vector<double> second = delivered(other, since, 50);
  ASSERT_GE(std::min(first.size(), second.size()), 40U);
  int idle = 0;
  for (std::size_t i = 0; i < std::min(first.size(), second.size()); ++i) {
    if (first[i] + second[i] >= 50) continue;
    std::printf("  %zu ms: %.1f + %.1f\n", 50 * i, first[i], second[i]);
    ++idle;
  }
  EXPECT_LE(idle, 1) << "windows of 50 ms in which the card was mostly idle";
  stop(one);
  stop(other);
}

}  // namespace
}  // namespace carve::isolation
