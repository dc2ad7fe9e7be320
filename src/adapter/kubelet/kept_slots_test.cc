#include "adapter/kubelet/kept_slots.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <thread>

#include "adapter/process/packets.h"

// The agent's end of the connection to its keeper; the test acts as the keeper.
namespace carve::kubelet {
namespace {

using codec::AgentWord;
using codec::KeeperWord;
using codec::KeptSlot;

class SomeSlots final : public SlotCalls {
 public:
  [[nodiscard]] std::vector<SlotDevice> list() const override {
    const std::lock_guard lock(mutex_);
    return list_;
  }
  Result<std::string> allocate(const std::vector<std::string>& slots) override {
    if (slots.front() == "full") return fail(Code::kUnavailable, "the disk\nis full");
    return "device-of-" + slots.front();
  }
  void before_start(const std::vector<std::string>& slots, Answer answer) override {
    if (slots.front() == "full") return answer(fail(Code::kAborted, "not yours"));
    answer({});
  }
  void set(std::vector<SlotDevice> list) {
    const std::lock_guard lock(mutex_);
    list_ = std::move(list);
  }

 private:
  mutable std::mutex mutex_;
  std::vector<SlotDevice> list_{{"slot-0000", true}};
};

class KeptSlotsTest : public testing::Test {
 protected:
  void SetUp() override {
    auto ends = process::packet_pair();
    ASSERT_TRUE(ends);
    keeper = std::move(ends->first);
    auto opened = KeptSlots::open(ends->second.release(), {slots, [this] { return settled.load(); }, log});
    ASSERT_TRUE(opened);
    plugin = std::move(*opened);
    running = std::jthread([this](const std::stop_token& stop) { plugin->run(stop); });
  }
  void TearDown() override {
    running = std::jthread();
    plugin.reset();
  }
  /// The next packet; waits at most ten seconds.
  AgentWord heard() {
    std::string packet;
    for (int i = 0; i < 1000; ++i) {
      if (process::receive_packet(keeper.get(), &packet) == process::Received::kPacket)
        return codec::decode_agent_word(packet).value();
      pollfd item = {keeper.get(), POLLIN, 0};
      ::poll(&item, 1, 10);
    }
    ADD_FAILURE() << "no packet";
    return codec::SayLeft{};
  }
  void ask(const KeeperWord& word) const { ASSERT_TRUE(process::send_packet(keeper.get(), codec::encode(word))); }
  void begun() {
    EXPECT_EQ(heard(), AgentWord(codec::SayServing{}));
    EXPECT_EQ(heard(), AgentWord(codec::SayList{true, {{"slot-0000", true}}}));
  }

  SomeSlots slots;
  std::atomic<bool> settled = true;
  Log log{[](std::string_view) {}};
  Fd keeper;
  std::unique_ptr<KeptSlots> plugin;
  std::jthread running;
};

TEST_F(KeptSlotsTest, AnswersTheKeepersCalls) {
  begun();
  ask(codec::AskAllocate{1, {"slot-0000"}});
  EXPECT_EQ(heard(), AgentWord(codec::AnswerAllocated{1, "device-of-slot-0000"}));
  ask(codec::AskAllocate{2, {"full"}});
  EXPECT_EQ(heard(), AgentWord(codec::AnswerRefused{2, Code::kUnavailable, "the disk\nis full"}));
  ask(codec::AskStart{3, {"slot-0000"}});
  EXPECT_EQ(heard(), AgentWord(codec::AnswerStart{3}));
  ask(codec::AskStart{4, {"full"}});
  EXPECT_EQ(heard(), AgentWord(codec::AnswerRefused{4, Code::kAborted, "not yours"}));
  ask(codec::AskAlive{9});
  EXPECT_EQ(heard(), AgentWord(codec::AnswerAlive{9}));
}

TEST_F(KeptSlotsTest, SendsTheListOnlyWhenItHasChanged) {
  begun();
  plugin->changed();  // it has not
  slots.set({{"slot-0000", false}});
  plugin->changed();
  EXPECT_EQ(heard(), AgentWord(codec::SayList{true, {{"slot-0000", false}}}));
}

TEST_F(KeptSlotsTest, SendsTheListAgainWhenItIsSettled) {
  begun();
  settled = false;
  plugin->changed();
  EXPECT_EQ(heard(), AgentWord(codec::SayList{false, {{"slot-0000", true}}}));
  settled = true;
  EXPECT_EQ(heard(), AgentWord(codec::SayList{true, {{"slot-0000", true}}}));
}

TEST_F(KeptSlotsTest, KnowsWhetherTheKubeletListens) {
  begun();
  EXPECT_FALSE(plugin->listening());
  for (const bool listening : {true, false}) {
    ask(codec::TellListening{listening});
    ask(codec::AskAlive{1});
    EXPECT_EQ(heard(), AgentWord(codec::AnswerAlive{1}));
    EXPECT_EQ(plugin->listening(), listening);
  }
}

TEST_F(KeptSlotsTest, LeaveReturnsWhenTheKeeperHasClosedTheSocket) {
  begun();
  std::atomic<bool> left = false;
  const std::jthread leaving([&] {
    plugin->leave();
    left = true;
  });
  EXPECT_EQ(heard(), AgentWord(codec::SayLeft{}));
  ask(codec::AskAlive{1});
  EXPECT_EQ(heard(), AgentWord(codec::AnswerAlive{1})) << "the agent serves until the socket is closed";
  EXPECT_FALSE(left);
  ask(codec::TellClosed{});
  for (int i = 0; i < 200 && !left; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(left);
}

TEST_F(KeptSlotsTest, SurvivesInvalidPacketsAndTheEndOfTheKeeper) {
  begun();
  ASSERT_TRUE(process::send_packet(keeper.get(), "nonsense"));
  ask(codec::AskAlive{1});
  EXPECT_EQ(heard(), AgentWord(codec::AnswerAlive{1}));
  keeper.reset();
  plugin->leave();  // returns immediately
}

}  // namespace
}  // namespace carve::kubelet
