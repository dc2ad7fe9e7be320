// Slots with a keeper: the kubelet talks to one process while agents start and end. The keeper's part is the real one
// (src/cmd/keep_agent), with the scripted kubelet; the agents are the kubelet plugins as the agent wires them.
#include <gmock/gmock.h>

#include <filesystem>
#include <future>
#include <random>

#include "app/keeper/kept_device_plugin.h"
#include "cmd/keep_agent.h"
#include "tests/integration/kubelet/plugins_fixture.h"
#include "tests/integration/kubelet/thread_agent.h"

namespace carve::test {
namespace {

namespace fs = std::filesystem;
using Healthy = std::map<std::string, bool>;
using std::chrono::milliseconds;
using std::chrono::seconds;

struct Kept : PluginsTest {
  Kept() : PluginsTest(4), stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~Kept() override { end(); }

  void start_keeper() {
    keeper_ = std::async(std::launch::async, [this] {
      const auto code = cmd::keep_agent(
          options(), agent, [] { return true; }, stop_.get(), clock, log);
      return code ? *code : -1;
    });
  }
  void start_kept() {
    kubelet.start();
    start_keeper();
    kubelet.list_after_start();
    ASSERT_TRUE(kubelet.wait_list(all_well));
    heard_ = kubelet.lists().size();
  }
  void tell_to_end() const {
    const std::uint64_t one = 1;
    ASSERT_EQ(::write(stop_.get(), &one, sizeof(one)), 8);
  }
  /// The keeper's exit code.
  int end() {
    if (!keeper_.valid()) return code_;
    tell_to_end();
    return code_ = keeper_.get();
  }
  static bool all_well(const Healthy& list) {
    return list.size() == 256 && std::all_of(list.begin(), list.end(), [](const auto& one) { return one.second; });
  }
  /// Since start_kept() the kubelet has seen all slots as healthy, all the time. A bad card comes last, and the kubelet
  /// receives it after everything that was sent before.
  void expect_all_was_well() {
    const auto of_one_card = [](const Healthy& list) {
      return std::count_if(list.begin(), list.end(), [](const auto& one) { return !one.second; }) == 64;
    };
    slices.set_health(0, {false, "XID 79"});
    ASSERT_TRUE(kubelet.wait_list(of_one_card));
    const auto lists = kubelet.lists();
    for (auto at = heard_; at < lists.size(); ++at) {
      EXPECT_TRUE(all_well(lists[at]) || of_one_card(lists[at])) << "list " << at << " of " << lists.size();
    }
  }
  /// The agent has died and the next one is held back, so the admission waits.
  std::future<void> admission_between_agents(ScriptedKubelet::Pod* pod) {
    agent.held = true;
    agent.kill();
    auto admitted = std::async(std::launch::async, [this, pod] { kubelet.admit(pod); });
    EXPECT_TRUE(waits(admitted));
    return admitted;
  }
  std::future<grpc::Status> starting(const ScriptedKubelet::Container& container) {
    return std::async(std::launch::async, [this, container] { return kubelet.pre_start(container); });
  }
  template <class T>
  static bool waits(const std::future<T>& answer, milliseconds time = milliseconds(150)) {
    return answer.wait_for(time) == std::future_status::timeout;
  }
  /// A kubelet's checkpoint has 256 slots: pods that are over release theirs.
  void over(const ScriptedKubelet::Pod& one) {
    api_deletes(one);
    kubelet.forget(one);
  }

  ThreadAgent agent{[this](int line, std::uint64_t crashes, const std::stop_token& stop) {
    auto with = options();
    with.kept_by = line;
    with.crashes = crashes;
    with.starts_again = [this] { return agent.exits_with == kSettingsChanged; };
    const auto done = cmd::run_plugins(with, slices, kube, clock, log, stop);
    if (!done) ADD_FAILURE() << done.error().what;
  }};

 private:
  Fd stop_;
  std::size_t heard_ = 0;  // number of lists when all slots were first healthy
  std::future<int> keeper_;
  int code_ = -1;
};

TEST_F(Kept, ServesAsAnAgentWithoutAKeeperDoes) {
  start_kept();
  auto a = pod("a", "u-a", {"main", "side"});
  api_has(a, record(a, {1, 2}));
  kubelet.admit(&a);
  for (const auto& container : a.containers) ASSERT_TRUE(kubelet.pre_start(container).ok());
  EXPECT_EQ(behind(a.containers[0]), card(1));
  EXPECT_EQ(behind(a.containers[1]), card(2));
  slices.set_health(3, {false, "XID 79"});
  EXPECT_TRUE(kubelet.wait_list([](const Healthy& list) {
    return std::count_if(list.begin(), list.end(), [](const auto& one) { return !one.second; }) == 64;
  }));
  slices.set_health(3, {});
  EXPECT_TRUE(kubelet.wait_list(all_well));
  const auto socket = kubelet.device_plugins() + "/carve-slots.sock";
  EXPECT_EQ(fs::status(socket).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(end(), 0);
  EXPECT_FALSE(fs::exists(socket));
  EXPECT_EQ(agent.starts(), 1);
}

TEST_F(Kept, ACrashIsNotSeenByTheKubelet) {
  start_kept();
  agent.kill();
  ASSERT_TRUE(eventually([&] { return agent.starts() == 2; }));
  expect_all_was_well();
  EXPECT_EQ(agent.starts(), 2);
}

TEST_F(Kept, AChangeOfSettingsIsNotSeenByTheKubelet) {
  start_kept();
  agent.exits_with = kSettingsChanged;
  for (int change = 1; change <= 3; ++change) {
    agent.signal(SIGTERM);
    ASSERT_TRUE(eventually([&] { return agent.starts() == change + 1; }));
    auto a = pod("a" + std::to_string(change), "u-" + std::to_string(change));
    api_has(a, record(a, {2}));
    ASSERT_NO_THROW(kubelet.admit(&a)) << "the call waits for the next agent";
    ASSERT_TRUE(kubelet.pre_start(a.containers[0]).ok());
    EXPECT_EQ(behind(a.containers[0]), card(2));
    over(a);
  }
  auto late = pod("late", "u-late");  // its record arrives after the next change
  api_has(late, "");
  kubelet.admit(&late);
  auto started = starting(late.containers[0]);
  EXPECT_TRUE(waits(started));
  agent.signal(SIGTERM);
  ASSERT_TRUE(eventually([&] { return agent.starts() == 5; }));
  EXPECT_TRUE(waits(started)) << "a start that no agent has answered yet waits for the next one";
  api_has(late, record(late, {1}));
  EXPECT_TRUE(started.get().ok());
  expect_all_was_well();
  EXPECT_FALSE(logged("this agent ends before a pod has started"));
  agent.exits_with = 0;
  EXPECT_EQ(end(), 0);
}

TEST_F(Kept, AnAgentThatHasNotQueriedItsCardsYetRemovesNoSlots) {
  start_kept();
  slices.set_gpu(GpuState::kStarting);
  for (std::size_t one = 0; one < 4; ++one) slices.set_health(one, {false, "not asked yet"});
  agent.kill();  // its last check may report that, so it must be dead first
  ASSERT_TRUE(eventually([&] { return agent.starts() == 2; }));
  auto a = pod("a", "u-a");
  api_has(a, record(a, {2}));
  ASSERT_NO_THROW(kubelet.admit(&a)) << "the agent answers, so it has sent its list";
  slices.set_gpu(GpuState::kOk);
  for (std::size_t one = 0; one < 4; ++one) slices.set_health(one, {});
  ASSERT_TRUE(kubelet.pre_start(a.containers[0]).ok());
  expect_all_was_well();
}

TEST_F(Kept, AllocateWaitsForTheNextAgent) {
  start_kept();
  auto a = pod("a", "u-a");
  api_has(a, record(a, {2}));
  auto admitted = admission_between_agents(&a);
  agent.held = false;
  ASSERT_NO_THROW(admitted.get());
  ASSERT_TRUE(kubelet.pre_start(a.containers[0]).ok());
  EXPECT_EQ(behind(a.containers[0]), card(2));
}

TEST_F(Kept, APodThatWaitsForItsRecordKeepsWaitingAtTheNextAgent) {
  start_kept();
  auto a = pod("a", "u-a");
  kubelet.admit(&a);
  auto started = starting(a.containers[0]);
  EXPECT_TRUE(waits(started));
  agent.kill();
  EXPECT_TRUE(waits(started));
  api_has(a, record(a, {3}));
  EXPECT_TRUE(started.get().ok());
  EXPECT_EQ(behind(a.containers[0]), card(3));
}

TEST_F(Kept, TwoAgentsAnswerForTheContainersOfOnePod) {
  start_kept();
  auto a = pod("a", "u-a", {"main", "side"});
  api_has(a, record(a, {1, 2}));
  kubelet.allocate(&a, a.containers.data());
  agent.kill();
  ASSERT_TRUE(eventually([&] { return agent.starts() == 2; }));
  kubelet.allocate(&a, &a.containers[1]);
  kubelet.remember(a);
  for (const auto& container : a.containers) ASSERT_TRUE(kubelet.pre_start(container).ok());
  EXPECT_EQ(behind(a.containers[0]), card(1));
  EXPECT_EQ(behind(a.containers[1]), card(2));
}

TEST_F(Kept, AKubeletThatStartsWithoutAnAgentGetsTheListImmediately) {
  start_kept();
  agent.held = true;
  agent.kill();
  kubelet.stop();
  kubelet.start();
  EXPECT_LE(kubelet.list_after_start().count(), 200);
  EXPECT_TRUE(kubelet.wait_list(all_well));
}

TEST_F(Kept, PatienceIsBounded) {
  start_kept();
  auto a = pod("a", "u-a");
  api_has(a, record(a, {2}));
  auto admitted = admission_between_agents(&a);
  clock.jump(keeper::KeptDevicePlugin::kAwayFor + seconds(1));
  EXPECT_TRUE(kubelet.wait_list([](const Healthy& list) { return !list.empty() && !list.begin()->second; }))
      << "no pod is sent to a node if its agent does not come back";
  clock.jump(keeper::KeptDevicePlugin::kAllocateWithin);
  EXPECT_THROW(admitted.get(), std::runtime_error);
  agent.held = false;
  EXPECT_TRUE(kubelet.wait_list(all_well)) << "and it recovers";
}

TEST_F(Kept, TheKeeperStopsBetweenTwoAgents) {
  start_kept();
  auto a = pod("a", "u-a");
  auto admitted = admission_between_agents(&a);
  EXPECT_EQ(end(), 0);
  ASSERT_FALSE(waits(admitted, seconds(10))) << "no process is left to answer";
  EXPECT_THROW(admitted.get(), std::runtime_error);
  EXPECT_FALSE(fs::exists(kubelet.device_plugins() + "/carve-slots.sock"));
}

TEST_F(Kept, TheKeeperStopsWhileTheNextAgentStarts) {
  start_kept();
  auto a = pod("a", "u-a");
  auto admitted = admission_between_agents(&a);
  agent.held = false;
  EXPECT_EQ(end(), 0);
  ASSERT_FALSE(waits(admitted, seconds(10))) << "no process is left to answer";
  try {
    admitted.get();  // it served the call before the stop
    EXPECT_FALSE(a.containers[0].cdi.empty());
  } catch (const std::runtime_error&) {  // it was stopped before it served the call
  }
  EXPECT_FALSE(fs::exists(kubelet.device_plugins() + "/carve-slots.sock"));
}

TEST_F(Kept, AnAgentThatNeverServedEndsItsKeeper) {
  kubelet.start();
  agent.held = true;
  start_keeper();
  ASSERT_TRUE(eventually([&] { return agent.starts() == 1; }));
  agent.kill();
  EXPECT_EQ(end(), 128 + SIGKILL);
  EXPECT_EQ(agent.starts(), 1);
}

TEST_F(Kept, TwentyFiveCrashesWhilePodsStart) {
  start_kept();
  const auto seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 dice(seed);
  constexpr int kKills = 25;
  constexpr int kPods = 11;  // on a slow machine it takes more kills until so many have started
  std::atomic<int> kills = 0;
  std::atomic<int> pods = 0;
  auto killer = std::async(std::launch::async, [&] {
    while (kills < kKills || (pods < kPods && kills < 10 * kKills)) {
      std::this_thread::sleep_for(milliseconds(dice() % 60));
      const int before = agent.starts();
      agent.kill();
      ++kills;
      if (!eventually([&] { return agent.starts() > before; })) return;
    }
  });
  for (; killer.wait_for(milliseconds(0)) != std::future_status::ready; ++pods) {
    const int number = pods;
    auto one = pod(fmt::format("p{}", number), fmt::format("u-{}", number), {"main", "side"});
    api_has(one, record(one, {number % 4, (number + 1) % 4}));
    ASSERT_NO_THROW(kubelet.admit(&one)) << "pod " << number << " after " << kills << " kills";
    for (const auto& container : one.containers) {
      const auto status = kubelet.pre_start(container);
      ASSERT_TRUE(status.ok()) << status.error_message();
    }
    EXPECT_EQ(behind(one.containers[0]), card(number % 4));
    EXPECT_EQ(behind(one.containers[1]), card((number + 1) % 4));
    over(one);
  }
  killer.get();
  EXPECT_GE(kills, kKills);
  std::printf("%d kills, %d pods of two containers\n", kills.load(), pods.load());
  EXPECT_GE(pods, kPods);
  EXPECT_TRUE(eventually([&] { return slices.held().empty(); }));
  expect_all_was_well();
}

}  // namespace
}  // namespace carve::test
