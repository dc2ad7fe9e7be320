// The identity races that every design must survive, replayed with a scripted kubelet. Where an older design's Allocate
// refused, PreStartContainer refuses here. The truth is the card behind the CDI name that the kubelet got for the
// container, compared with the card that the test wrote into that pod's record.
#include <gmock/gmock.h>

#include <future>

#include "tests/integration/kubelet/plugins_fixture.h"

namespace carve::test {
namespace {

using testing::HasSubstr;

struct Races : PluginsTest {
  /// A PreStartContainer call that is still in progress.
  std::future<grpc::Status> starting(const ScriptedKubelet::Container& container) {
    return std::async(std::launch::async, [this, container] { return kubelet.pre_start(container); });
  }
  static bool waits(const std::future<grpc::Status>& answer) {
    return answer.wait_for(std::chrono::milliseconds(150)) == std::future_status::timeout;
  }
};

TEST_F(Races, Ra1_EqualPodsAreAllocatedInTheOtherOrder) {
  start_all();
  auto a = pod("a", "u-a");
  auto b = pod("b", "u-b");
  api_has(a, record(a, {1}));
  api_has(b, record(b, {2}));
  kubelet.allocate(&b, b.containers.data());
  kubelet.allocate(&a, a.containers.data());
  kubelet.remember(a);
  kubelet.remember(b);
  ASSERT_TRUE(kubelet.pre_start(a.containers[0]).ok());
  ASSERT_TRUE(kubelet.pre_start(b.containers[0]).ok());
  EXPECT_EQ(behind(a.containers[0]), card(1));
  EXPECT_EQ(behind(b.containers[0]), card(2));
}

TEST_F(Races, Ra2_APendingPodIsDeletedThenOneOfTheSameSizeArrives) {
  start_all();
  auto a = pod("a", "u-a");
  api_has(a, record(a, {1}));
  api_deletes(a);
  auto c = pod("c", "u-c");
  api_has(c, record(c, {2}));
  kubelet.admit(&c);
  ASSERT_TRUE(kubelet.pre_start(c.containers[0]).ok());
  EXPECT_EQ(behind(c.containers[0]), card(2));
  EXPECT_EQ(slices.held().size(), 1U);
}

TEST_F(Races, Ra4_TheAgentDiesAfterItsAnswerThenAnotherAllocates) {
  start_all();
  auto a = pod("a", "u-a");
  kubelet.admit(&a);  // the server has not reported it: nothing can be bound yet
  stop_agent();
  EXPECT_TRUE(slices.held().empty());
  auto b = pod("b", "u-b");
  start_agent();
  ASSERT_TRUE(kubelet.wait_list([](const auto& list) { return !list.empty() && list.begin()->second; }));
  api_has(b, record(b, {2}));
  kubelet.admit(&b);
  api_has(a, record(a, {1}));
  ASSERT_TRUE(kubelet.pre_start(b.containers[0]).ok());
  ASSERT_TRUE(kubelet.pre_start(a.containers[0]).ok());
  EXPECT_EQ(behind(a.containers[0]), card(1));
  EXPECT_EQ(behind(b.containers[0]), card(2));
}

TEST_F(Races, Ra5_AnUnplacedPodIsRefusedWithTheCause) {
  start_all();
  auto other = pod("other", "u-o");
  api_has(other, record(other, {3}));
  kubelet.admit(&other);
  auto foreign = pod("foreign", "u-f");
  api_has(foreign, "");
  kubelet.admit(&foreign);
  auto answer = starting(foreign.containers[0]);
  ASSERT_TRUE(waits(answer));
  clock.jump(std::chrono::seconds(21));
  const auto status = answer.get();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.error_message(),
              HasSubstr("pod ml/foreign has no record (annotation carve.elasticgpu.io/record)"));
  EXPECT_TRUE(slices.behind(foreign.containers[0].cdi).empty());
  // Control places it with a patch: the kubelet's next attempt succeeds.
  api_has(foreign, record(foreign, {4}));
  EXPECT_TRUE(kubelet.pre_start(foreign.containers[0]).ok());
  EXPECT_EQ(behind(foreign.containers[0]), card(4));
}

TEST_F(Races, Ra6_TheWatchIsBehind) {
  start_all();
  auto a = pod("a", "u-a");
  kubelet.admit(&a);
  auto answer = starting(a.containers[0]);
  ASSERT_TRUE(waits(answer));
  api_has(a, record(a, {6}));
  EXPECT_TRUE(answer.get().ok());
  EXPECT_EQ(behind(a.containers[0]), card(6));
}

TEST_F(Races, Ra6_WithoutAWatchEventTheServerIsQueriedOnce) {
  start_all();
  auto a = pod("a", "u-a");
  const auto object = pod_object(a, record(a, {6}));
  kube.put("/api/v1/pods/a", object);  // listed, but no watch event is ever sent
  kubelet.admit(&a);
  auto answer = starting(a.containers[0]);
  ASSERT_TRUE(waits(answer));
  clock.jump(std::chrono::seconds(18));
  EXPECT_TRUE(answer.get().ok());
  EXPECT_EQ(behind(a.containers[0]), card(6));
}

TEST_F(Races, Ra7_InitAndTwoContainersOfEqualSizeShareASlot) {
  start_all();
  auto a = pod("a", "u-a", {"init", "one", "two"});
  api_has(a, record(a, {1, 1, 2}));
  kubelet.admit(&a);
  ASSERT_EQ(a.containers[0].ids, a.containers[1].ids);  // IDs that the init container handed on
  ASSERT_NE(a.containers[0].cdi, a.containers[1].cdi);
  for (const auto& container : a.containers) ASSERT_TRUE(kubelet.pre_start(container).ok());
  EXPECT_EQ(behind(a.containers[0]), card(1));
  EXPECT_EQ(behind(a.containers[1]), card(1));
  EXPECT_EQ(behind(a.containers[2]), card(2));
  EXPECT_EQ(slices.behind(a.containers[0].cdi)[0].phase, Phase::kInit);
  EXPECT_EQ(slices.behind(a.containers[1].cdi)[0].part, "one");
}

TEST_F(Races, Ra7_WithoutTheCheckpointNothingIsGuessed) {
  kubelet.write_checkpoint = false;
  start_all();
  auto a = pod("a", "u-a", {"init", "one"});
  api_has(a, record(a, {1, 2}));
  kubelet.admit(&a);
  auto answer = starting(a.containers[0]);
  ASSERT_TRUE(waits(answer));
  clock.jump(std::chrono::seconds(21));
  EXPECT_FALSE(answer.get().ok());
  EXPECT_TRUE(slices.held().empty());
}

TEST_F(Races, Ra8_CallsOfTwoPodsInterleaved) {
  start_all();
  auto a = pod("a", "u-a", {"one", "two"});
  auto b = pod("b", "u-b", {"one", "two"});
  api_has(a, record(a, {1, 2}));
  api_has(b, record(b, {3, 4}));
  kubelet.allocate(&a, &a.containers[0]);
  kubelet.allocate(&b, &b.containers[1]);
  kubelet.allocate(&b, &b.containers[0]);
  kubelet.allocate(&a, &a.containers[1]);
  kubelet.remember(b);
  kubelet.remember(a);
  for (const auto* one : {&a, &b}) {
    for (const auto& container : one->containers) ASSERT_TRUE(kubelet.pre_start(container).ok());
  }
  EXPECT_EQ(behind(a.containers[0]), card(1));
  EXPECT_EQ(behind(a.containers[1]), card(2));
  EXPECT_EQ(behind(b.containers[0]), card(3));
  EXPECT_EQ(behind(b.containers[1]), card(4));
}

TEST_F(Races, Ra9_TheAgentRestartsBetweenAllocateAndTheStart) {
  start_all();
  auto a = pod("a", "u-a");
  api_has(a, record(a, {1}));
  kubelet.admit(&a);
  ASSERT_TRUE(eventually([&] { return behind(a.containers[0]) == card(1); }));
  stop_agent();
  kube.set_away(true);  // a prepared container needs no API server
  start_agent();
  ASSERT_TRUE(kubelet.wait_list([](const auto& list) { return !list.empty() && list.begin()->second; }));
  EXPECT_TRUE(kubelet.pre_start(a.containers[0]).ok());
  EXPECT_EQ(behind(a.containers[0]), card(1));
}

TEST_F(Races, Ra10_TheSameNameAgainWithAnotherUid) {
  start_all();
  auto old = pod("a", "u-1");
  api_has(old, record(old, {1}));
  kubelet.admit(&old);
  ASSERT_TRUE(kubelet.pre_start(old.containers[0]).ok());
  kubelet.forget(old);
  // The kubelet has the new pod; the watch still shows the old one, with the old one's record.
  auto fresh = pod("a", "u-2");
  kubelet.admit(&fresh);
  auto answer = starting(fresh.containers[0]);
  ASSERT_TRUE(waits(answer));
  EXPECT_TRUE(slices.behind(fresh.containers[0].cdi).empty());
  api_deletes(old);
  // A copied annotation that names the old UID belongs to no pod.
  api_has(fresh, record(fresh, {1}, Bytes::gib(2), "u-1"));
  ASSERT_TRUE(waits(answer));
  api_has(fresh, record(fresh, {5}));
  EXPECT_TRUE(answer.get().ok());
  EXPECT_EQ(behind(fresh.containers[0]), card(5));
}

TEST_F(Races, Ra10_ByPodResourcesTheNameAloneIsNotEnough) {
  kubelet.write_checkpoint = false;
  start_all();
  auto old = pod("a", "u-1");
  auto fresh = pod("a", "u-2");
  api_has(old, record(old, {1}));
  api_has(fresh, record(fresh, {5}));  // both pods are known for a moment: which one is it?
  kubelet.admit(&fresh);
  auto answer = starting(fresh.containers[0]);
  ASSERT_TRUE(waits(answer));
  api_deletes(old);
  EXPECT_TRUE(answer.get().ok());
  EXPECT_EQ(behind(fresh.containers[0]), card(5));
}

TEST_F(Races, Ra11_FiveHundredPodsStartConcurrently) {
  start_all();
  std::vector<ScriptedKubelet::Pod> pods;
  std::vector<int> cards;
  // Pods on the same card (about 31 of them) differ in size: a foreign slice shows by its size when not by its card.
  const auto size_of = [](std::size_t i) { return Bytes::mib(1024 + i); };
  for (std::size_t i = 0; i < 500; ++i) {
    pods.push_back(pod(fmt::format("p{}", i), fmt::format("u-{}", i)));
    cards.push_back(static_cast<int>((i * 7 + i / 16) % 16));
    // Every third record arrives after the kubelet's Allocate.
    if (i % 3 != 0) api_has(pods.back(), record(pods.back(), {cards.back()}, size_of(i)));
  }
  std::vector<std::future<grpc::Status>> answers;
  std::vector<double> millis(pods.size());
  for (std::size_t i = 0; i < pods.size(); ++i) {
    kubelet.admit(&pods[i]);
    answers.push_back(std::async(std::launch::async, [&, i] {
      const auto begin = std::chrono::steady_clock::now();
      auto status = kubelet.pre_start(pods[i].containers[0]);
      millis[i] = ScriptedKubelet::Millis(std::chrono::steady_clock::now() - begin).count();
      return status;
    }));
    if (i % 3 == 0) api_has(pods[i], record(pods[i], {cards[i]}, size_of(i)));
  }
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < pods.size(); ++i) {
    const auto status = answers[i].get();
    ASSERT_TRUE(status.ok()) << i << " " << status.error_message();
    const auto found = slices.behind(pods[i].containers[0].cdi);
    wrong += found.size() == 1 && found[0].card == card(cards[i]) && found[0].memory == size_of(i) ? 0 : 1;
  }
  EXPECT_EQ(wrong, 0U);
  std::sort(millis.begin(), millis.end());
  std::printf("500 pods at once: PreStartContainer median %.1f ms, worst %.1f ms\n", millis[250],
              millis.back());
}

}  // namespace
}  // namespace carve::test
