// The arbiter's inputs and decisions, recorded in real time and replayed through the same lease/ files. The same inputs
// must give the same decisions; otherwise the exact bench proves nothing about the production code.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "arbiter/trace.h"
#include "tests/isolation/arbiter_process.h"
#include "tests/isolation/slice_fixture.h"

namespace carve::isolation {
namespace {

constexpr std::uint64_t kDecisions = 10'000;

class TraceTest : public SliceTest {
 protected:
  void TearDown() override {
    for (const pid_t pid : running_) stop(pid);
    std::remove(file().c_str());
    SliceTest::TearDown();
  }
  static std::string prefix() { return "/tmp/carve-trace-" + std::to_string(getpid()); }
  static std::string file() { return prefix() + "." + card_uuid(); }

  void run(const std::string& slice, const std::vector<std::string>& flags) {
    running_.push_back(spin_in(slice, flags));
  }
  void stop_first() {
    stop(running_.front());
    running_.erase(running_.begin());
  }
  static void sleep_s(int seconds) { std::this_thread::sleep_for(std::chrono::seconds(seconds)); }

 private:
  static void stop(pid_t pid) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  std::vector<pid_t> running_;
};

TEST_F(TraceTest, TheSameInputsGiveTheSameDecisions) {
  {
    ArbiterProcess arbiter(prefix());
    ASSERT_EQ(arbiter.put("burst", card_of(1024 * kMiB, 20, abi::ShareClass::kBurst)), "");
    ASSERT_EQ(arbiter.put("fixed", card_of(1024 * kMiB, 30, abi::ShareClass::kFixed)), "");
    const auto online = card_of(1024 * kMiB, 30, abi::ShareClass::kBurst, abi::PriorityClass::kOnline);
    ASSERT_EQ(arbiter.put("online", online), "");
    ASSERT_EQ(arbiter.put("rest", card_of(1024 * kMiB, 0, abi::ShareClass::kBestEffort)), "");
    run("rest", {"--kernel-us", "500", "--sync"});
    run("burst", {"--kernel-us", "500"});
    run("fixed", {"--kernel-us", "1000", "--sync"});
    run("online", {"--kernel-us", "300", "--sync", "--pause-us", "4000"});
    sleep_s(10);
    // Terms change, a client dies, a slice is deleted and another gets its number: all of this is input.
    ASSERT_EQ(arbiter.put("burst", card_of(1024 * kMiB, 40, abi::ShareClass::kBurst)), "");
    stop_first();
    sleep_s(1);
    ASSERT_EQ(arbiter.drop("rest"), "");
    ASSERT_EQ(arbiter.put("late", card_of(1024 * kMiB, 10, abi::ShareClass::kBurst)), "");
    run("late", {"--kernel-us", "500", "--graph", "--depth", "4"});
    sleep_s(5);
  }  // killed: the trace may end within a record
  const Result<arbiter::Replayed> again = arbiter::replay(file());
  ASSERT_TRUE(again) << again.error().what;
  std::printf("  %llu steps, %llu decisions, %llu of them changed a grant, %d slices; %llu differ in the replay\n",
              static_cast<unsigned long long>(again->steps), static_cast<unsigned long long>(again->decisions),
              static_cast<unsigned long long>(again->changes), again->most_slices,
              static_cast<unsigned long long>(again->differ));
  EXPECT_GE(again->decisions, kDecisions);
  EXPECT_GE(again->most_slices, 4);
  EXPECT_GE(again->changes, kDecisions / 10) << "there were too few decisions: the recording proves nothing";
  EXPECT_EQ(again->differ, 0U);

  // The comparison can fail: one time of one step is altered. Not every step makes a decision, but one of twenty in a
  // row does.
  for (std::uint64_t tenth = 2; tenth <= 8; tenth += 3) {
    const auto from = static_cast<std::int64_t>(again->steps / 10 * tenth);
    std::uint64_t differ = 0;
    for (std::int64_t step = from; step < from + 20 && differ == 0; ++step) {
      const Result<arbiter::Replayed> altered = arbiter::replay(file(), step);
      ASSERT_TRUE(altered) << altered.error().what;
      differ = altered->differ;
    }
    EXPECT_GT(differ, 0U) << "steps from " << from << " were altered and nothing differed";
  }
}

}  // namespace
}  // namespace carve::isolation
