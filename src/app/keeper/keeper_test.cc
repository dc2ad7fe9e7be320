#include "app/keeper/keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "app/keeper/testing/fake_agent.h"

namespace carve::keeper {
namespace {

using codec::AskAlive;
using codec::AskStart;
using codec::TellListening;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Optional;

class KeeperTest : public testing::Test {
 protected:
  /// Starts the first agent, which then serves.
  void begin() {
    keeper.step();
    serve();
  }
  void serve() {
    agent.say(codec::SayServing{});
    agent.say(codec::SayList{true, {{"slot-0000", true}}});
    keeper.step();
  }
  /// Advances the clock in the steps that the keeper requests. The running agent answers AskAlive if `answers`.
  void pass(Clock::Duration time, bool answers = true) {
    const auto until = clock.now() + time;
    while (clock.now() < until && !keeper.over()) {
      if (answers && !agent.asked<AskAlive>().empty()) {
        agent.say(codec::AnswerAlive{agent.asked<AskAlive>().back().number});
        std::erase_if(agent.sent, [](const auto& word) { return std::holds_alternative<AskAlive>(word); });
      }
      const auto wait = keeper.step();
      clock.advance(std::clamp<Clock::Duration>(wait, milliseconds(1), until - clock.now()));
    }
    keeper.step();
  }
  std::shared_ptr<std::optional<Result<void>>> start(const std::string& slot) {
    auto got = std::make_shared<std::optional<Result<void>>>();
    plugin.before_start({slot}, [got](Result<void> answer) { *got = std::move(answer); });
    return got;
  }

  ManualClock clock;
  Log log{[](std::string_view) {}};
  FakeAgent agent;
  int opened = 0;
  int closed = 0;
  bool can_open = true;
  bool listening = true;
  bool stays = true;
  KeptDevicePlugin plugin{{clock, [] {}, [] {}}};
  Keeper keeper{{agent, plugin, clock, log,
                 [this]() -> Result<void> {
                   ++opened;
                   if (!can_open) return fail(Code::kInternal, "the test makes it fail");
                   return {};
                 },
                 [this] { ++closed; }, [this] { return listening; }, [this] { return stays; }}};
};

TEST_F(KeeperTest, OpensTheSocketWhenTheFirstAgentServes) {
  keeper.step();
  EXPECT_THAT(agent.starts, ElementsAre(0));
  pass(seconds(60));  // the agent waits for the journal of another agent
  EXPECT_EQ(opened, 0);
  EXPECT_THAT(agent.signals, IsEmpty());
  serve();
  EXPECT_EQ(opened, 1);
  EXPECT_EQ(plugin.list().size(), 1U);
  pass(seconds(60));
  EXPECT_EQ(opened, 1);
  EXPECT_FALSE(keeper.over());
}

TEST_F(KeeperTest, TellsTheAgentWhetherTheKubeletListens) {
  listening = false;
  begin();
  EXPECT_THAT(agent.asked<TellListening>(), ElementsAre(TellListening{false}));
  listening = true;
  pass(milliseconds(200));
  EXPECT_THAT(agent.asked<TellListening>(), ElementsAre(TellListening{false}, TellListening{true}));
}

TEST_F(KeeperTest, StartsAnotherAgentImmediatelyAfterACrashAndKeepsTheSocketOpen) {
  begin();
  const auto started = start("slot-0000");
  keeper.step();
  ASSERT_EQ(agent.asked<AskStart>().size(), 1U);
  agent.end({0, SIGSEGV});
  EXPECT_EQ(keeper.step(), Clock::Duration::zero());
  keeper.step();
  EXPECT_THAT(agent.starts, ElementsAre(0, 1));
  EXPECT_FALSE(*started);
  serve();
  ASSERT_EQ(agent.asked<AskStart>().size(), 1U);
  EXPECT_EQ(agent.asked<TellListening>().size(), 1U) << "each agent receives it";
  agent.say(codec::AnswerStart{agent.asked<AskStart>()[0].number});
  keeper.step();
  EXPECT_TRUE(*started && **started);
  EXPECT_EQ(opened, 1);
  EXPECT_EQ(closed, 0);
}

TEST_F(KeeperTest, StartsAnotherAgentAfterAChangeOfSettingsAndKeepsTheSocketOpen) {
  begin();
  for (int change = 0; change < 3; ++change) {
    const auto started = start("slot-0000");
    agent.end({kSettingsChanged, 0});
    keeper.step();
    keeper.step();
    EXPECT_TRUE(agent.lives) << "immediately, regardless of how often";
    serve();
    ASSERT_EQ(agent.asked<AskStart>().size(), 1U);
    agent.say(codec::AnswerStart{agent.asked<AskStart>()[0].number});
    keeper.step();
    EXPECT_TRUE(*started && **started);
  }
  EXPECT_THAT(agent.starts, ElementsAre(0, 0, 0, 0)) << "it is no crash";
  EXPECT_EQ(opened, 1);
  EXPECT_EQ(closed, 0);
  EXPECT_FALSE(keeper.over());
}

TEST_F(KeeperTest, EndsToBeStartedAgainWhenTheNewSettingsHaveNoSlots) {
  begin();
  stays = false;
  agent.end({kSettingsChanged, 0});
  keeper.step();
  EXPECT_THAT(keeper.over(), Optional(kSettingsChanged));
  EXPECT_EQ(closed, 1);
}

TEST_F(KeeperTest, AChangeOfSettingsDuringAStopEndsInOrder) {
  begin();
  keeper.stop();
  agent.end({kSettingsChanged, 0});
  keeper.step();
  EXPECT_THAT(keeper.over(), Optional(0));
}

TEST_F(KeeperTest, HandlesThePacketsThatAnAgentSentBeforeItDied) {
  begin();
  const auto started = start("slot-0000");
  keeper.step();
  agent.say(codec::AnswerStart{agent.asked<AskStart>()[0].number});
  agent.end({0, SIGKILL});
  keeper.step();
  EXPECT_TRUE(*started && **started);
}

TEST_F(KeeperTest, EndsWithAnAgentThatNeverServed) {
  keeper.step();
  agent.end({2, 0});
  keeper.step();
  EXPECT_THAT(keeper.over(), Optional(2));
  EXPECT_EQ(agent.starts.size(), 1U);
}

TEST_F(KeeperTest, GivesUpACrashLoopWithTheExitCodeOfTheAgent) {
  begin();
  agent.end({0, SIGSEGV});
  while (!keeper.over()) {
    pass(milliseconds(100));
    agent.end({0, SIGABRT});
    ASSERT_LT(agent.starts.size(), 200U);
  }
  EXPECT_THAT(keeper.over(), Optional(128 + SIGABRT));
  EXPECT_GT(agent.starts.size(), 10U);
  EXPECT_EQ(closed, 1);
  EXPECT_FALSE(plugin.allocate({"slot-0000"}));
}

TEST_F(KeeperTest, AFailedStartCountsAsACrash) {
  agent.cannot_start = true;
  keeper.step();
  EXPECT_THAT(keeper.over(), Optional(1));
}

TEST_F(KeeperTest, StopSignalsTheAgentAndEndsWithIt) {
  begin();
  keeper.stop();
  EXPECT_THAT(agent.signals, ElementsAre(SIGTERM));
  const auto started = start("slot-0000");
  keeper.step();
  EXPECT_EQ(agent.asked<AskStart>().size(), 1U) << "the agent serves until it has left";
  pass(seconds(12));
  EXPECT_EQ(closed, 0);
  agent.say(codec::SayLeft{});
  keeper.step();
  EXPECT_EQ(closed, 1);
  EXPECT_EQ(agent.asked<codec::TellClosed>().size(), 1U);
  EXPECT_TRUE(*started && !**started);
  EXPECT_FALSE(keeper.over());
  agent.end({0, 0});
  keeper.step();
  EXPECT_THAT(keeper.over(), Optional(0));
  EXPECT_EQ(agent.starts.size(), 1U);
}

TEST_F(KeeperTest, EndsWithAnAgentThatLeavesByItself) {
  begin();
  agent.say(codec::SayLeft{});
  agent.end({0, 0});
  keeper.step();
  EXPECT_THAT(keeper.over(), Optional(0));
  EXPECT_EQ(agent.starts.size(), 1U);
}

TEST_F(KeeperTest, DoesNotRestartAnAgentThatCrashesWhileStopping) {
  begin();
  keeper.stop();
  agent.end({0, SIGSEGV});
  keeper.step();
  EXPECT_THAT(keeper.over(), Optional(128 + SIGSEGV));
}

TEST_F(KeeperTest, StopBetweenTwoAgentsEndsImmediately) {
  begin();
  for (int i = 0; i < 2; ++i) {
    agent.end({0, SIGSEGV});
    keeper.step();
    if (i == 0) keeper.step();
  }
  ASSERT_FALSE(agent.lives);
  keeper.stop();
  EXPECT_THAT(keeper.over(), Optional(0));
  EXPECT_THAT(agent.signals, IsEmpty());
}

TEST_F(KeeperTest, KillsAnAgentThatHangsAndStartsAnother) {
  begin();
  pass(minutes(5));
  EXPECT_THAT(agent.signals, IsEmpty());
  pass(Keeper::kAskAlive + Keeper::kDeaf + seconds(1), false);
  EXPECT_THAT(agent.signals, ElementsAre(SIGKILL));
  EXPECT_THAT(agent.starts, ElementsAre(0, 1));
}

TEST_F(KeeperTest, FailsWhenTheSocketCannotBeOpened) {
  can_open = false;
  begin();
  EXPECT_THAT(agent.signals, ElementsAre(SIGTERM));
  agent.end({0, 0});
  keeper.step();
  EXPECT_THAT(keeper.over(), Optional(1));
}

TEST_F(KeeperTest, IgnoresPacketsThatCannotBeDecoded) {
  keeper.step();
  agent.say_nonsense();
  serve();
  EXPECT_EQ(opened, 1);
}

}  // namespace
}  // namespace carve::keeper
