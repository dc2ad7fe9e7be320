#include "app/keeper/kept_door.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

namespace carve::keeper {
namespace {

using codec::AskAllocate;
using codec::AskStart;
using std::chrono::seconds;

class KeptDoorTest : public testing::Test {
 protected:
  KeptDoor::Send to(std::vector<codec::KeeperWord>* agent) {
    return [this, agent](const codec::KeeperWord& word) {
      if (reads) agent->push_back(word);
      return reads;
    };
  }
  /// The kubelet's Allocate, on its own thread. Returns when the door has the call.
  std::future<Result<std::string>> allocate(const std::string& slot) {
    const auto before = door.waiting();
    auto answer = std::async(std::launch::async, [this, slot] { return door.allocate({slot}); });
    while (door.waiting() == before) std::this_thread::yield();
    return answer;
  }
  std::shared_ptr<std::optional<Result<void>>> start(const std::string& slot) {
    auto got = std::make_shared<std::optional<Result<void>>>();
    door.before_start({slot}, [got](Result<void> answer) { *got = std::move(answer); });
    return got;
  }
  static std::vector<codec::KeptSlot> two(bool healthy) { return {{"slot-0000", healthy}, {"slot-0001", healthy}}; }
  [[nodiscard]] std::size_t healthy() const {
    std::size_t count = 0;
    for (const auto& slot : door.list()) count += slot.healthy ? 1U : 0U;
    return count;
  }

  ManualClock clock;
  int changes = 0;
  bool reads = true;
  std::vector<codec::KeeperWord> first;
  std::vector<codec::KeeperWord> second;
  KeptDoor door{{clock, [this] { ++changes; }, [] {}}};
};

TEST_F(KeptDoorTest, SendsACallToTheAgentOnceAndReturnsItsAnswer) {
  door.attach(to(&first));
  auto asked = allocate("slot-0001");
  door.tick();
  door.tick();
  ASSERT_EQ(first, (std::vector<codec::KeeperWord>{AskAllocate{1, {"slot-0001"}}}));
  door.heard(codec::AnswerAllocated{1, "a=1"});
  EXPECT_EQ(asked.get(), "a=1");
  const auto started = start("slot-0001");
  door.tick();
  ASSERT_EQ(first.size(), 2U);
  EXPECT_EQ(first[1], codec::KeeperWord(AskStart{2, {"slot-0001"}}));
  EXPECT_FALSE(*started);
  door.heard(codec::AnswerStart{2});
  ASSERT_TRUE(*started);
  EXPECT_TRUE(**started);
  EXPECT_EQ(door.waiting(), 0U);
}

TEST_F(KeptDoorTest, ReturnsTheRefusalOfTheAgent) {
  door.attach(to(&first));
  auto asked = allocate("slot-0001");
  const auto started = start("slot-0001");
  door.tick();
  door.heard(codec::AnswerRefused{1, Code::kInternal, "the journal"});
  door.heard(codec::AnswerRefused{2, Code::kNotFound, "no record"});
  EXPECT_EQ(asked.get().error().what, "the journal");
  EXPECT_EQ((*started)->error().code, Code::kNotFound);
}

TEST_F(KeptDoorTest, SendsCallsThatADeadAgentDidNotAnswerToTheNextAgent) {
  door.attach(to(&first));
  auto asked = allocate("slot-0001");
  door.tick();
  door.detach();
  const auto started = start("slot-0002");
  door.tick();
  EXPECT_EQ(first.size(), 1U);
  clock.advance(seconds(5));
  door.attach(to(&second));
  EXPECT_EQ(second, (std::vector<codec::KeeperWord>{AskAllocate{1, {"slot-0001"}}, AskStart{2, {"slot-0002"}}}));
  door.heard(codec::AnswerAllocated{1, "a=2"});
  door.heard(codec::AnswerStart{2});
  EXPECT_EQ(asked.get(), "a=2");
  EXPECT_TRUE(**started);
}

TEST_F(KeptDoorTest, RetriesWhenTheAgentDoesNotRead) {
  door.attach(to(&first));
  reads = false;
  const auto started = start("slot-0002");
  EXPECT_LE(door.tick(), seconds(1));
  EXPECT_TRUE(first.empty());
  reads = true;
  door.tick();
  EXPECT_EQ(first.size(), 1U);
}

TEST_F(KeptDoorTest, RefusesCallsThatNoAgentAnswersInTime) {
  door.attach(to(&first));
  door.detach();
  auto asked = allocate("slot-0001");
  const auto started = start("slot-0001");
  clock.advance(KeptDoor::kStartWithin);
  EXPECT_EQ(door.tick(), KeptDoor::kAllocateWithin - KeptDoor::kStartWithin);
  ASSERT_TRUE(*started);
  EXPECT_EQ((*started)->error().code, Code::kUnavailable);
  EXPECT_EQ(door.waiting(), 1U);
  clock.advance(seconds(2));
  door.tick();
  EXPECT_EQ(asked.get().error().code, Code::kUnavailable);
  door.attach(to(&second));
  EXPECT_TRUE(second.empty()) << "no call waits any more";
  door.heard(codec::AnswerAllocated{1, "late"});
}

TEST_F(KeptDoorTest, RejectsStringsThatAreNotSlotNames) {
  door.attach(to(&first));
  EXPECT_EQ(door.allocate({"slot\n2"}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(door.allocate({}).error().code, Code::kInvalidArgument);
  EXPECT_EQ((*start(""))->error().code, Code::kInvalidArgument);
  door.tick();
  EXPECT_TRUE(first.empty());
}

TEST_F(KeptDoorTest, KeepsTheListWhenTheAgentEnds) {
  door.attach(to(&first));
  door.heard(codec::SayList{true, two(true)});
  EXPECT_EQ(changes, 1);
  door.heard(codec::SayList{true, two(true)});
  EXPECT_EQ(changes, 1) << "the list is the same";
  door.detach();
  EXPECT_EQ(healthy(), 2U);
  // The next agent has not queried its cards yet.
  door.attach(to(&second));
  door.heard(codec::SayList{false, two(false)});
  EXPECT_EQ(healthy(), 2U);
  door.heard(codec::SayList{true, two(true)});
  EXPECT_EQ(changes, 1);
  door.heard(codec::SayList{true, {{"slot-0000", true}, {"slot-0001", false}}});
  EXPECT_EQ(changes, 2);
  EXPECT_EQ(healthy(), 1U);
}

TEST_F(KeptDoorTest, AdoptsTheListOfTheFirstAgentAsItIs) {
  door.attach(to(&first));
  door.heard(codec::SayList{false, two(false)});
  EXPECT_EQ(door.list().size(), 2U);
  EXPECT_EQ(healthy(), 0U);
  door.heard(codec::SayList{true, two(true)});
  EXPECT_EQ(healthy(), 2U);
}

TEST_F(KeptDoorTest, DropsTheInheritedListAfterAWhile) {
  door.attach(to(&first));
  door.heard(codec::SayList{true, two(true)});
  door.detach();
  door.attach(to(&second));
  door.heard(codec::SayList{false, two(false)});
  clock.advance(KeptDoor::kInherited - seconds(1));
  EXPECT_EQ(door.tick(), seconds(1));
  EXPECT_EQ(healthy(), 2U);
  clock.advance(seconds(1));
  door.tick();
  EXPECT_EQ(healthy(), 0U);
}

TEST_F(KeptDoorTest, ListsSlotsAsUnhealthyWhileNoAgentServes) {
  door.attach(to(&first));
  door.heard(codec::SayList{true, two(true)});
  door.detach();
  clock.advance(KeptDoor::kAwayFor - seconds(1));
  EXPECT_EQ(door.tick(), seconds(1));
  EXPECT_EQ(healthy(), 2U);
  clock.advance(seconds(1));
  door.tick();
  EXPECT_EQ(healthy(), 0U);
  EXPECT_EQ(changes, 2);
  door.tick();
  EXPECT_EQ(changes, 2);
  door.attach(to(&second));
  EXPECT_EQ(healthy(), 2U);
  EXPECT_EQ(changes, 3);
}

TEST_F(KeptDoorTest, AClosedDoorRefusesAllCalls) {
  door.attach(to(&first));
  auto asked = allocate("slot-0001");
  const auto started = start("slot-0001");
  door.close("it ends");
  EXPECT_EQ(asked.get().error().what, "it ends");
  EXPECT_EQ((*started)->error().what, "it ends");
  EXPECT_EQ(door.allocate({"slot-0002"}).error().what, "it ends");
  EXPECT_EQ((*start("slot-0002"))->error().what, "it ends");
}

}  // namespace
}  // namespace carve::keeper
