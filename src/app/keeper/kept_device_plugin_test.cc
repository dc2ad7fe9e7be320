#include "app/keeper/kept_device_plugin.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

namespace carve::keeper {
namespace {

using codec::AskAllocate;
using codec::AskStart;
using std::chrono::seconds;

class KeptDevicePluginTest : public testing::Test {
 protected:
  KeptDevicePlugin::Send to(std::vector<codec::KeeperWord>* agent) {
    return [this, agent](const codec::KeeperWord& word) {
      if (reads) agent->push_back(word);
      return reads;
    };
  }
  /// The kubelet's Allocate, on its own thread. Returns when the plugin has the call.
  std::future<Result<std::string>> allocate(const std::string& slot) {
    const auto before = plugin.waiting();
    auto answer = std::async(std::launch::async, [this, slot] { return plugin.allocate({slot}); });
    while (plugin.waiting() == before) std::this_thread::yield();
    return answer;
  }
  std::shared_ptr<std::optional<Result<void>>> start(const std::string& slot) {
    auto got = std::make_shared<std::optional<Result<void>>>();
    plugin.before_start({slot}, [got](Result<void> answer) { *got = std::move(answer); });
    return got;
  }
  static std::vector<codec::KeptSlot> two(bool healthy) { return {{"slot-0000", healthy}, {"slot-0001", healthy}}; }
  [[nodiscard]] std::size_t healthy() const {
    std::size_t count = 0;
    for (const auto& slot : plugin.list()) count += slot.healthy ? 1U : 0U;
    return count;
  }

  ManualClock clock;
  int changes = 0;
  bool reads = true;
  std::vector<codec::KeeperWord> first;
  std::vector<codec::KeeperWord> second;
  KeptDevicePlugin plugin{{clock, [this] { ++changes; }, [] {}}};
};

TEST_F(KeptDevicePluginTest, SendsACallToTheAgentOnceAndReturnsItsAnswer) {
  plugin.attach(to(&first));
  auto asked = allocate("slot-0001");
  plugin.tick();
  plugin.tick();
  ASSERT_EQ(first, (std::vector<codec::KeeperWord>{AskAllocate{1, {"slot-0001"}}}));
  plugin.heard(codec::AnswerAllocated{1, "a=1"});
  EXPECT_EQ(asked.get(), "a=1");
  const auto started = start("slot-0001");
  plugin.tick();
  ASSERT_EQ(first.size(), 2U);
  EXPECT_EQ(first[1], codec::KeeperWord(AskStart{2, {"slot-0001"}}));
  EXPECT_FALSE(*started);
  plugin.heard(codec::AnswerStart{2});
  ASSERT_TRUE(*started);
  EXPECT_TRUE(**started);
  EXPECT_EQ(plugin.waiting(), 0U);
}

TEST_F(KeptDevicePluginTest, ReturnsTheRefusalOfTheAgent) {
  plugin.attach(to(&first));
  auto asked = allocate("slot-0001");
  const auto started = start("slot-0001");
  plugin.tick();
  plugin.heard(codec::AnswerRefused{1, Code::kInternal, "the journal"});
  plugin.heard(codec::AnswerRefused{2, Code::kNotFound, "no record"});
  EXPECT_EQ(asked.get().error().what, "the journal");
  EXPECT_EQ((*started)->error().code, Code::kNotFound);
}

TEST_F(KeptDevicePluginTest, SendsCallsThatADeadAgentDidNotAnswerToTheNextAgent) {
  plugin.attach(to(&first));
  auto asked = allocate("slot-0001");
  plugin.tick();
  plugin.detach();
  const auto started = start("slot-0002");
  plugin.tick();
  EXPECT_EQ(first.size(), 1U);
  clock.advance(seconds(5));
  plugin.attach(to(&second));
  EXPECT_EQ(second, (std::vector<codec::KeeperWord>{AskAllocate{1, {"slot-0001"}}, AskStart{2, {"slot-0002"}}}));
  plugin.heard(codec::AnswerAllocated{1, "a=2"});
  plugin.heard(codec::AnswerStart{2});
  EXPECT_EQ(asked.get(), "a=2");
  EXPECT_TRUE(**started);
}

TEST_F(KeptDevicePluginTest, RetriesWhenTheAgentDoesNotRead) {
  plugin.attach(to(&first));
  reads = false;
  const auto started = start("slot-0002");
  EXPECT_LE(plugin.tick(), seconds(1));
  EXPECT_TRUE(first.empty());
  reads = true;
  plugin.tick();
  EXPECT_EQ(first.size(), 1U);
}

TEST_F(KeptDevicePluginTest, RefusesCallsThatNoAgentAnswersInTime) {
  plugin.attach(to(&first));
  plugin.detach();
  auto asked = allocate("slot-0001");
  const auto started = start("slot-0001");
  clock.advance(KeptDevicePlugin::kStartWithin);
  EXPECT_EQ(plugin.tick(), KeptDevicePlugin::kAllocateWithin - KeptDevicePlugin::kStartWithin);
  ASSERT_TRUE(*started);
  EXPECT_EQ((*started)->error().code, Code::kUnavailable);
  EXPECT_EQ(plugin.waiting(), 1U);
  clock.advance(seconds(2));
  plugin.tick();
  EXPECT_EQ(asked.get().error().code, Code::kUnavailable);
  plugin.attach(to(&second));
  EXPECT_TRUE(second.empty()) << "no call waits any more";
  plugin.heard(codec::AnswerAllocated{1, "late"});
}

TEST_F(KeptDevicePluginTest, RejectsStringsThatAreNotSlotNames) {
  plugin.attach(to(&first));
  EXPECT_EQ(plugin.allocate({"slot\n2"}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(plugin.allocate({}).error().code, Code::kInvalidArgument);
  EXPECT_EQ((*start(""))->error().code, Code::kInvalidArgument);
  plugin.tick();
  EXPECT_TRUE(first.empty());
}

TEST_F(KeptDevicePluginTest, KeepsTheListWhenTheAgentEnds) {
  plugin.attach(to(&first));
  plugin.heard(codec::SayList{true, two(true)});
  EXPECT_EQ(changes, 1);
  plugin.heard(codec::SayList{true, two(true)});
  EXPECT_EQ(changes, 1) << "the list is the same";
  plugin.detach();
  EXPECT_EQ(healthy(), 2U);
  // The next agent has not queried its cards yet.
  plugin.attach(to(&second));
  plugin.heard(codec::SayList{false, two(false)});
  EXPECT_EQ(healthy(), 2U);
  plugin.heard(codec::SayList{true, two(true)});
  EXPECT_EQ(changes, 1);
  plugin.heard(codec::SayList{true, {{"slot-0000", true}, {"slot-0001", false}}});
  EXPECT_EQ(changes, 2);
  EXPECT_EQ(healthy(), 1U);
}

TEST_F(KeptDevicePluginTest, AdoptsTheListOfTheFirstAgentAsItIs) {
  plugin.attach(to(&first));
  plugin.heard(codec::SayList{false, two(false)});
  EXPECT_EQ(plugin.list().size(), 2U);
  EXPECT_EQ(healthy(), 0U);
  plugin.heard(codec::SayList{true, two(true)});
  EXPECT_EQ(healthy(), 2U);
}

TEST_F(KeptDevicePluginTest, DropsTheInheritedListAfterAWhile) {
  plugin.attach(to(&first));
  plugin.heard(codec::SayList{true, two(true)});
  plugin.detach();
  plugin.attach(to(&second));
  plugin.heard(codec::SayList{false, two(false)});
  clock.advance(KeptDevicePlugin::kInherited - seconds(1));
  EXPECT_EQ(plugin.tick(), seconds(1));
  EXPECT_EQ(healthy(), 2U);
  clock.advance(seconds(1));
  plugin.tick();
  EXPECT_EQ(healthy(), 0U);
}

TEST_F(KeptDevicePluginTest, ListsSlotsAsUnhealthyWhileNoAgentServes) {
  plugin.attach(to(&first));
  plugin.heard(codec::SayList{true, two(true)});
  plugin.detach();
  clock.advance(KeptDevicePlugin::kAwayFor - seconds(1));
  EXPECT_EQ(plugin.tick(), seconds(1));
  EXPECT_EQ(healthy(), 2U);
  clock.advance(seconds(1));
  plugin.tick();
  EXPECT_EQ(healthy(), 0U);
  EXPECT_EQ(changes, 2);
  plugin.tick();
  EXPECT_EQ(changes, 2);
  plugin.attach(to(&second));
  EXPECT_EQ(healthy(), 2U);
  EXPECT_EQ(changes, 3);
}

TEST_F(KeptDevicePluginTest, AClosedPluginRefusesAllCalls) {
  plugin.attach(to(&first));
  auto asked = allocate("slot-0001");
  const auto started = start("slot-0001");
  plugin.close("it ends");
  EXPECT_EQ(asked.get().error().what, "it ends");
  EXPECT_EQ((*started)->error().what, "it ends");
  EXPECT_EQ(plugin.allocate({"slot-0002"}).error().what, "it ends");
  EXPECT_EQ((*start("slot-0002"))->error().what, "it ends");
}

}  // namespace
}  // namespace carve::keeper
