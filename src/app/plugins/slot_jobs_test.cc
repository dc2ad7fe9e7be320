#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "app/plugins/testing/slot_node.h"
#include "codec/record.h"

// Jobs of several pods at the same time. The test decides when a job runs, and what happens inside its prepare().
namespace carve::plugins {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class SlotJobs : public SlotNode {
 protected:
  SlotJobs() {
    run_job = [this](std::function<void()> job) {
      jobs.push_back(std::move(job));
      return true;
    };
  }
  void TearDown() override {
    slices.during_prepare = {};
    run_all();  // the plugin's destructor waits for them
  }
  void run_next() {
    const auto job = std::move(jobs.front());
    jobs.pop_front();
    job();
  }
  void run_all() {
    while (!jobs.empty()) run_next();
  }
  /// Rounds with all their jobs, as often as a chain of changes needs.
  void settle() {
    for (int i = 0; i < 5; ++i) {
      clock.advance(milliseconds(500));
      plugin.step();
      run_all();
    }
  }
  void hear_bound(const std::string& uid) {
    hear(uid, "Pending", record_annotation(*codec::encode_record(*record_of(1, slices_of_pod(uid)))));
  }
  void hear_deleted(const std::string& uid) { pods.change({KubeChange::Kind::kDeleted, pod_here(uid, "Pending")}); }
  void start(const std::string& slot) {
    plugin.before_start({slot}, [this, slot](const Result<void>& said) { answers.insert_or_assign(slot, said); });
  }
  [[nodiscard]] bool started(const std::string& slot) const {
    const auto found = answers.find(slot);
    return found != answers.end() && found->second;
  }
  /// The pods that hold slices.
  [[nodiscard]] std::vector<std::string> holders() const {
    std::vector<std::string> uids;
    for (const auto& slice : slices.held()) uids.push_back(slice.owner.uid);
    return uids;
  }
  std::deque<std::function<void()>> jobs;
  std::map<std::string, Result<void>> answers;
};

TEST_F(SlotJobs, APodStartsWhileTheJobOfAnotherHasNotEnded) {
  for (const std::string uid : {"a", "b"}) {
    hear_bound(uid);
    allocate(uid, "slot-" + uid);
    start("slot-" + uid);
    clock.advance(milliseconds(1));
  }
  plugin.step();
  ASSERT_THAT(jobs, SizeIs(2));
  std::swap(jobs[0], jobs[1]);
  run_next();
  EXPECT_TRUE(started("slot-b")) << "answered by the job itself, not by a later round";
  EXPECT_FALSE(answers.contains("slot-a"));
  clock.advance(seconds(1));
  plugin.step();
  EXPECT_THAT(jobs, SizeIs(1)) << "a pod has one job at a time";
  run_all();
  EXPECT_TRUE(started("slot-a"));
  EXPECT_EQ(slices.prepares, 2);
}

TEST_F(SlotJobs, ThePodEndsDuringItsPrepare) {
  hear_bound("a");
  allocate("a", "slot-1");
  slices.during_prepare = [this](const PrepareRequest&) {
    hear_deleted("a");
    clock.advance(seconds(1));
    plugin.step();
    EXPECT_THAT(jobs, IsEmpty()) << "its end waits for its prepare()";
  };
  plugin.step();
  run_next();
  EXPECT_EQ(holders(), std::vector<std::string>{"a"});
  settle();
  EXPECT_THAT(slices.held(), IsEmpty());
  EXPECT_THAT(plugin.open().problems, IsEmpty());
  EXPECT_EQ(slices.prepares, 1);
}

TEST_F(SlotJobs, ItsSlotsAreAllocatedAgainDuringItsPrepare) {
  hear_bound("a");
  hear_bound("b");
  allocate("a", "slot-1");
  slices.during_prepare = [this](const PrepareRequest& request) {
    if (request.record.owner.uid != "a") return;
    clock.advance(seconds(1));
    kubelet.entries.clear();
    allocate("b", "slot-1");  // the API server has not reported the end of a
    start("slot-1");
    plugin.step();
  };
  plugin.step();
  run_next();
  settle();
  EXPECT_EQ(holders(), std::vector<std::string>{"b"});
  EXPECT_TRUE(started("slot-1"));
  EXPECT_EQ(slices.prepares, 2);
}

TEST_F(SlotJobs, SlotsThatAreAllocatedAgainBeforeItsJobRunsHoldNothing) {
  hear_bound("a");
  hear_bound("b");
  allocate("a", "slot-1");
  plugin.step();
  clock.advance(seconds(1));
  kubelet.entries.clear();
  allocate("b", "slot-1");
  plugin.step();
  run_all();
  EXPECT_EQ(holders(), std::vector<std::string>{"b"});
  EXPECT_EQ(slices.prepares, 1);
}

// Admission gives a container one slot per card, and one slot if it uses an ElasticGPUClaim: the claim may be for
// several cards, which admission does not know.
TEST_F(SlotJobs, TheNumberOfSlotsIsThatOfTheCardsExceptWithAnElasticClaim) {
  slices.put_cards(some_cards(2));
  auto two = slices_of_pod("a");
  two.push_back(two.front());
  two.back().card = slices.cards().cards.back().id;
  const auto record = record_annotation(*codec::encode_record(*record_of(1, two)));
  hear("a", "Pending", record);
  allocate("a", "slot-1");
  start("slot-1");
  settle();
  EXPECT_TRUE(slices.held().empty());
  EXPECT_FALSE(answers.contains("slot-1"));

  hear("a", "Pending", record.substr(0, record.size() - 1) + R"(,"egpuc.elasticgpu.io/main":"k"})");
  settle();
  EXPECT_THAT(slices.held(), SizeIs(2));
  EXPECT_TRUE(answers.at("slot-1"));
}

TEST_F(SlotJobs, TheContainersOfAPodArePreparedInTheOrderOfAllocate) {
  std::vector<Slice> all;
  std::vector<std::string> expected;
  for (int i = 0; i < 12; ++i) {
    auto one = slices_of_pod("a").front();
    one.part = "c" + std::to_string(i);
    expected.push_back("s/a/" + one.part);
    all.push_back(one);
  }
  hear("a", "Pending", record_annotation(*codec::encode_record(*record_of(1, all))));
  std::vector<std::string> prepared;
  slices.during_prepare = [&](const PrepareRequest& request) {
    prepared.push_back(request.label);
    if (prepared.size() > 1) return;
    for (int i = 6; i < 12; ++i) {  // the other half arrives while the job runs
      clock.advance(milliseconds(20));
      allocate("a", "slot-" + std::to_string(i), "c" + std::to_string(i));
    }
    plugin.step();
  };
  for (int i = 0; i < 6; ++i) {
    allocate("a", "slot-" + std::to_string(i), "c" + std::to_string(i));
    clock.advance(milliseconds(20));
  }
  plugin.step();
  EXPECT_THAT(jobs, SizeIs(1));
  run_all();
  EXPECT_EQ(prepared, expected);
}

TEST_F(SlotJobs, ACallThatOutwaitsThePrepareIsRefusedWithThatReason) {
  hear_bound("a");
  allocate("a", "slot-1");
  start("slot-1");
  slices.during_prepare = [this](const PrepareRequest&) {
    clock.advance(seconds(21));
    plugin.step();
  };
  plugin.step();
  run_next();
  ASSERT_TRUE(answers.contains("slot-1"));
  ASSERT_FALSE(answers.at("slot-1"));
  EXPECT_THAT(answers.at("slot-1").error().what,
              HasSubstr("the slices of pod s/a, container main are still being prepared"));
  start("slot-1");  // the kubelet retries
  EXPECT_TRUE(started("slot-1"));
}

TEST_F(SlotJobs, AnEndThatIsRefusedIsTriedAgainAndDelaysNoOtherPod) {
  hear_bound("a");
  allocate("a", "slot-1");
  plugin.step();
  run_all();
  slices.busy = {{OwnerKind::kPod, "a"}};
  hear_deleted("a");
  settle();
  EXPECT_GE(slices.refused_ends(), 2);
  hear_bound("b");
  allocate("b", "slot-2");
  clock.advance(seconds(1));
  plugin.step();
  std::reverse(jobs.begin(), jobs.end());
  run_next();
  EXPECT_FALSE(slices.behind(kubelet.entries.back().cdi.front()).empty());
  slices.busy.clear();
  settle();
  EXPECT_EQ(holders(), std::vector<std::string>{"b"});
}

TEST_F(SlotJobs, WorkersThatHaveStoppedAreAskedAgainInTheNextRound) {
  int asked = 0;
  run_job = [&](const std::function<void()>&) {
    ++asked;
    return false;
  };
  hear_bound("a");
  allocate("a", "slot-1");
  plugin.step();
  clock.advance(seconds(1));
  plugin.step();
  EXPECT_EQ(asked, 2);
  EXPECT_THAT(slices.held(), IsEmpty());
}

/// Everything at once, for ThreadSanitizer: rounds, jobs, reports of the API server and calls of the kubelet.
TEST_F(SlotJobs, PodsStartAndEndOnRealThreads) {
  constexpr int kPods = 24;
  std::mutex mutex;
  std::condition_variable_any posted;
  std::deque<std::function<void()>> queue;
  run_job = [&](std::function<void()> job) {
    {
      const std::lock_guard lock(mutex);
      queue.push_back(std::move(job));
    }
    posted.notify_one();
    return true;
  };
  const auto uid_of = [](int pod) { return "p" + std::to_string(pod); };
  for (int pod = 0; pod < kPods; ++pod) allocate(uid_of(pod), uid_of(pod));
  std::vector<std::jthread> workers;
  for (int i = 0; i < 4; ++i) {
    workers.emplace_back([&](const std::stop_token& stop) {
      std::unique_lock lock(mutex);
      while (posted.wait(lock, stop, [&] { return !queue.empty(); })) {
        const auto job = std::move(queue.front());
        queue.pop_front();
        lock.unlock();
        job();
        lock.lock();
      }
    });
  }
  std::atomic<int> good = 0;
  const auto until = [&](const std::function<bool()>& done) {
    for (int i = 0; i < 20'000 && !done(); ++i) {
      clock.advance(milliseconds(20));
      plugin.poke();
      std::this_thread::sleep_for(milliseconds(1));
    }
    return done();
  };
  {
    const std::jthread rounds([&](const std::stop_token& stop) { plugin.run(stop); });
    for (int pod = 0; pod < kPods; ++pod) {
      plugin.before_start({uid_of(pod)}, [&](const Result<void>& said) { good += said ? 1 : 0; });
      hear_bound(uid_of(pod));
      plugin.poke();
      if (pod % 4 == 3) hear_deleted(uid_of(pod - 2));
    }
    EXPECT_TRUE(until([&] { return good >= kPods - kPods / 4 && slices.held().size() == kPods - kPods / 4; }));
    for (int pod = 0; pod < kPods; ++pod) hear_deleted(uid_of(pod));
    EXPECT_TRUE(until([&] { return slices.held().empty(); }));
  }
}

}  // namespace
}  // namespace carve::plugins
