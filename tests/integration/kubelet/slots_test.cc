#include <gmock/gmock.h>
#include <sys/socket.h>

#include <future>

#include "base/fd.h"
#include "base/unix_address.h"
#include "tests/integration/kubelet/plugins_fixture.h"

namespace carve::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using Healthy = std::map<std::string, bool>;

std::size_t healthy_of(const Healthy& list) {
  return static_cast<std::size_t>(
      std::count_if(list.begin(), list.end(), [](const auto& one) { return one.second; }));
}

struct Slots : PluginsTest {};

TEST_F(Slots, SixtyFourSlotsPerCardFitIntoOneGrpcMessage) {
  start_all();
  EXPECT_TRUE(
      kubelet.wait_list([](const Healthy& list) { return list.size() == 1024 && healthy_of(list) == 1024; }));
  EXPECT_LT(kubelet.list_bytes(), 4U << 20U);
}

TEST_F(Slots, AWipedSocketIsRecreated) {
  start_all();
  const auto socket = kubelet.device_plugins() + "/carve-slots.sock";
  fs::remove(socket);
  EXPECT_TRUE(eventually([&] { return fs::exists(socket); }));
  // The whole folder too, as some installers do.
  kubelet.stop();
  fs::rename(kubelet.device_plugins(), kubelet.folder() + "/moved-away");
  fs::create_directories(kubelet.device_plugins());
  kubelet.start();
  EXPECT_LT(kubelet.list_after_start().count(), 5000);
}

TEST_F(Slots, ADeadAgentsSocketIsTakenOver) {
  const auto socket = kubelet.device_plugins() + "/carve-slots.sock";
  {
    const auto address = unix_address(socket);
    ASSERT_TRUE(address);
    const Fd left(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::bind(left.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address), 0);
  }
  ASSERT_TRUE(fs::exists(socket)) << "what a killed agent leaves";
  start_all();
  stop_agent();
  EXPECT_FALSE(fs::exists(socket));  // the agent removed its own socket
  start_agent();
  EXPECT_TRUE(eventually([&] { return fs::exists(socket); }));
}

TEST_F(Slots, AnUnhealthyCardRemovesItsSlotsUntilItRecovers) {
  start_all();
  auto a = pod("a", "u-a");
  api_has(a, record(a, {0}));
  kubelet.admit(&a);
  ASSERT_TRUE(kubelet.pre_start(a.containers[0]).ok());
  slices.set_health(3, {false, "XID 79"});
  EXPECT_TRUE(kubelet.wait_list([](const Healthy& list) { return healthy_of(list) == 1024 - 64; }));
  EXPECT_TRUE(kubelet.wait_list([&](const Healthy& list) { return list.at(a.containers[0].ids[0]); }));
  slices.set_health(3, {});
  EXPECT_TRUE(kubelet.wait_list([](const Healthy& list) { return healthy_of(list) == 1024; }));
}

TEST_F(Slots, WithEveryCardUnhealthyOnlyTheSlotsOfRunningPodsRemain) {
  start_all();
  auto living = pod("living", "u-living");
  auto refused = pod("refused", "u-refused");
  auto ended = pod("ended", "u-ended");
  api_has(living, record(living, {0}));
  api_has(refused, record(refused, {0}, Bytes::gib(2), "another"));
  api_has(ended, record(ended, {1}));
  for (auto* one : {&living, &refused, &ended}) kubelet.admit(one);
  ASSERT_TRUE(kubelet.pre_start(living.containers[0]).ok());
  ASSERT_TRUE(kubelet.pre_start(ended.containers[0]).ok());
  // The kubelet frees an ended pod's slots, also in its checkpoint, only when it next allocates some.
  api_deletes(refused);
  api_has(ended, record(ended, {1}), true);
  for (std::size_t card = 0; card < 16; ++card) slices.set_health(card, {false, "the driver is gone"});
  const auto only_the_living = [&](const Healthy& list) {
    return healthy_of(list) == 1 && list.at(living.containers[0].ids[0]);
  };
  EXPECT_TRUE(kubelet.wait_list(only_the_living));
  // The same for an agent that starts now and knows the other two pods only from the checkpoint.
  stop_agent();
  kube.replace_feed([objects = std::vector{pod_object(living, record(living, {0})),
                                           pod_object(ended, record(ended, {1}), true)}](const KubeSink& sink) {
    sink.replace(objects);
  });
  kubelet.hides = {"u-refused", "u-ended"};
  start_agent();
  EXPECT_TRUE(in_the_long_run([&] { return kubelet.wait_list(only_the_living, {}); }));
}

TEST_F(Slots, APodDeletedWhileTheAgentWasDownLeavesNothing) {
  start_all();
  auto a = pod("a", "u-a");
  auto b = pod("b", "u-b");
  api_has(a, record(a, {0}));
  api_has(b, record(b, {1}));
  kubelet.admit(&a);
  kubelet.admit(&b);
  ASSERT_TRUE(kubelet.pre_start(a.containers[0]).ok());
  ASSERT_TRUE(kubelet.pre_start(b.containers[0]).ok());
  stop_agent();
  kubelet.hides = {"u-a"};  // ended: still in the checkpoint, but not in PodResources
  kube.replace_feed([object = pod_object(b, record(b, {1}))](const KubeSink& sink) { sink.replace({object}); });
  start_agent();
  ASSERT_TRUE(kubelet.wait_list([](const Healthy& list) { return healthy_of(list) == 1024; }));
  EXPECT_TRUE(in_the_long_run([&] { return slices.held().size() == 1; }));
  EXPECT_EQ(behind(b.containers[0]), card(1));
}

TEST_F(Slots, APodUnknownToTheServerIsKeptWhileTheKubeletHasIt) {
  start_all();
  auto a = pod("a", "u-a");
  api_has(a, record(a, {0}));
  kubelet.admit(&a);
  ASSERT_TRUE(kubelet.pre_start(a.containers[0]).ok());
  stop_agent();
  kube.replace_feed([](const KubeSink& sink) { sink.replace({}); });
  start_agent();
  ASSERT_TRUE(kubelet.wait_list([](const Healthy& list) { return healthy_of(list) == 1024; }));
  // The test must last longer than one of the rounds in which the agent queries the kubelet, in real time.
  const auto rounds = std::chrono::steady_clock::now() + std::chrono::milliseconds(1500);
  EXPECT_TRUE(in_the_long_run([&] { return std::chrono::steady_clock::now() > rounds; }));
  EXPECT_EQ(behind(a.containers[0]), card(0));
}

TEST_F(Slots, TheSliceOfTheRecordAndItsEnd) {
  start_all();
  auto a = pod("a", "u-a", {"main", "side"});
  api_has(a, record(a, {5, 7}));
  kubelet.admit(&a);
  for (const auto& container : a.containers) ASSERT_TRUE(kubelet.pre_start(container).ok());
  EXPECT_EQ(behind(a.containers[0]), card(5));
  EXPECT_EQ(behind(a.containers[1]), card(7));
  EXPECT_EQ(slices.behind(a.containers[0].cdi)[0].memory, Bytes::gib(2));
  // A container that starts again finds everything in place, even while the API server is unreachable.
  kube.set_away(true);
  EXPECT_TRUE(kubelet.pre_start(a.containers[0]).ok());
  kube.set_away(false);
  // Deleted, but a process still runs: the slice stays until that process has exited.
  slices.busy = {{OwnerKind::kPod, "u-a"}};
  api_deletes(a);
  kubelet.forget(a);
  EXPECT_TRUE(in_the_long_run([&] { return slices.refused_ends() >= 2; }));
  EXPECT_EQ(slices.held().size(), 2U);
  slices.busy.clear();
  EXPECT_TRUE(eventually([&] { return slices.held().empty(); }));
}

TEST_F(Slots, ADialectsVariablesComeFromTheRecord) {
  start_all();
  auto a = pod("a", "u-a", {"main", "side"});
  api_has(a, record(a, {5, 5}, Bytes::gib(2), "", "gpushare"));
  auto b = pod("b", "u-b");
  api_has(b, record(b, {5}));
  kubelet.admit(&a);
  kubelet.admit(&b);
  for (const auto& container : a.containers) ASSERT_TRUE(kubelet.pre_start(container).ok());
  ASSERT_TRUE(kubelet.pre_start(b.containers[0]).ok());
  const std::map<std::string, std::string> promised = {
      {"ALIYUN_COM_GPU_MEM_CONTAINER", "2"}, {"ALIYUN_COM_GPU_MEM_DEV", "80"},
      {"ALIYUN_COM_GPU_MEM_IDX", "5"},       {"ALIYUN_COM_GPU_MEM_POD", "4"},
      {"ALIYUN_COM_GPU_VISIBLE_DEVICES", card(5).str()}};
  EXPECT_EQ(slices.environment_behind(a.containers[0].cdi), promised);
  EXPECT_EQ(slices.environment_behind(a.containers[1].cdi), promised);
  EXPECT_TRUE(slices.environment_behind(b.containers[0].cdi).empty());
}

TEST_F(Slots, EagerBindingNeedsNoPreStart) {
  start_all();
  auto a = pod("a", "u-a");
  api_has(a, record(a, {2}));
  kubelet.admit(&a);
  EXPECT_TRUE(eventually([&] { return behind(a.containers[0]) == card(2); }));
}

TEST_F(Slots, PodResourcesReplaceAMissingCheckpoint) {
  kubelet.write_checkpoint = false;
  start_all();
  auto a = pod("a", "u-a");
  auto b = pod("b", "u-b");
  api_has(a, record(a, {2}));
  api_has(b, record(b, {9}));
  kubelet.admit(&b);
  kubelet.admit(&a);
  ASSERT_TRUE(kubelet.pre_start(a.containers[0]).ok());
  ASSERT_TRUE(kubelet.pre_start(b.containers[0]).ok());
  EXPECT_EQ(behind(a.containers[0]), card(2));
  EXPECT_EQ(behind(b.containers[0]), card(9));
}

/// A pod with a prepare() that does not return until the test lets it go.
struct SlotsWithASlowPod : Slots {
  ~SlotsWithASlowPod() override { slices.let_go("u-slow"); }
  /// Starts the slow pod on card 3.
  void start_slow() {
    slices.hold("u-slow");
    api_has(slow, record(slow, {3}));
    kubelet.admit(&slow);
    ASSERT_TRUE(eventually([&] { return slices.waiting("u-slow") == 1; }));
  }
  std::future<grpc::Status> starting(const ScriptedKubelet::Container& container) {
    return std::async(std::launch::async, [this, container] { return kubelet.pre_start(container); });
  }
  /// Whether PreStartContainer is answered with success while the slow pod waits. Otherwise the slow pod goes on, so
  /// that the test ends.
  [[nodiscard]] bool starts(const ScriptedKubelet::Container& container) {
    auto answer = starting(container);
    const bool in_time = answer.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
    if (!in_time) slices.let_go("u-slow");
    return answer.get().ok() && in_time;
  }
  ScriptedKubelet::Pod slow = pod("slow", "u-slow");
};

TEST_F(SlotsWithASlowPod, OtherPodsStartAndEndMeanwhile) {
  start_all();
  start_slow();
  auto waits = starting(slow.containers[0]);
  for (int i = 0; i < 5; ++i) {
    auto other = pod(fmt::format("other-{}", i), fmt::format("u-{}", i), {"main", "side"});
    api_has(other, record(other, {1, 2}));
    kubelet.admit(&other);
    for (const auto& container : other.containers) ASSERT_TRUE(starts(container));
    EXPECT_EQ(behind(other.containers[0]), card(1));
    EXPECT_EQ(behind(other.containers[1]), card(2));
    api_deletes(other);
    kubelet.forget(other);
    EXPECT_TRUE(eventually([&] { return slices.held().empty(); }));
  }
  EXPECT_EQ(slices.waiting("u-slow"), 1U) << "one call at a time for one pod";
  slices.let_go("u-slow");
  EXPECT_TRUE(waits.get().ok());
  EXPECT_EQ(behind(slow.containers[0]), card(3));
}

TEST_F(SlotsWithASlowPod, ItsSlotsAreAllocatedToAnotherPodMeanwhile) {
  start_all();
  start_slow();
  kubelet.forget(slow);  // the API server does not report the end
  auto next = pod("next", "u-next");
  api_has(next, record(next, {3}, Bytes::gib(50)));
  next.containers[0].ids = slow.containers[0].ids;
  kubelet.admit(&next);
  ASSERT_TRUE(starts(next.containers[0]));
  slices.let_go("u-slow");
  EXPECT_TRUE(eventually([&] { return slices.waiting("u-slow") == 0 && slices.held().size() == 1; }));
  EXPECT_EQ(behind(next.containers[0]), card(3));
  EXPECT_TRUE(slices.behind(slow.containers[0].cdi).empty());
}

TEST_F(SlotsWithASlowPod, ItIsDeletedMeanwhile) {
  slow = pod("slow", "u-slow", {"main", "side"});
  start_all();
  slices.hold("u-slow");
  api_has(slow, record(slow, {3, 4}));
  kubelet.admit(&slow);
  ASSERT_TRUE(eventually([&] { return slices.waiting("u-slow") == 1; }));
  api_deletes(slow);
  auto next = pod("next", "u-next");
  api_has(next, record(next, {5}));
  kubelet.admit(&next);
  ASSERT_TRUE(starts(next.containers[0]));  // the agent has seen the deletion before
  slices.let_go("u-slow");
  EXPECT_TRUE(eventually([&] { return slices.waiting("u-slow") == 0 && slices.held().size() == 1; }));
  EXPECT_EQ(behind(next.containers[0]), card(5));
}

TEST_F(SlotsWithASlowPod, TheAgentEndsAfterIt) {
  start_all();
  start_slow();
  auto stopped = std::async(std::launch::async, [this] { stop_agent(); });
  EXPECT_EQ(stopped.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
  slices.let_go("u-slow");
  stopped.get();
  EXPECT_EQ(behind(slow.containers[0]), card(3));
}

TEST_F(Slots, TheFaultOfARecordIsReported) {
  start_all();
  struct Case {
    std::string record;
    const char* why;
  };
  auto base = pod("a", "u-0");
  int number = 0;
  for (const Case& one_case :
       std::vector<Case>{{"{}", "has no version"},
                         {record(base, {0}, Bytes::gib(500), "u-case"), "the card is full"},
                         {record(base, {0}, Bytes::gib(1), "u-other"), "is for pod u-other"}}) {
    const std::string& text = one_case.record;
    const char* why = one_case.why;
    auto one = pod("a", text.find("u-case") != std::string::npos ? "u-case" : fmt::format("u-{}", ++number));
    api_has(one, text);
    kubelet.admit(&one);
    auto asked = std::async(std::launch::async, [&] { return kubelet.pre_start(one.containers[0]); });
    ASSERT_TRUE(in_the_long_run([&] { return asked.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }));
    const auto status = asked.get();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(status.error_message(), HasSubstr(why));
    EXPECT_TRUE(slices.held().empty());
    EXPECT_TRUE(eventually([&] {
      const auto writes = kube.writes();
      return std::any_of(writes.begin(), writes.end(), [&](const auto& write) {
        return write.first == "create /api/v1/namespaces/ml/events" &&
               write.second.find(why) != std::string::npos;
      });
    }));
    api_deletes(one);
    kubelet.forget(one);
  }
}

}  // namespace
}  // namespace carve::test
