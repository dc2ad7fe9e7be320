#include "adapter/process/child_agent.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <csignal>

#include "adapter/process/packets.h"

namespace carve::process {
namespace {

using std::chrono::milliseconds;

TEST(Packets, ArriveCompletelyAndInOrderUntilTheEnd) {
  auto ends = packet_pair();
  ASSERT_TRUE(ends);
  auto& [a, b] = *ends;
  std::string got;
  EXPECT_EQ(receive_packet(b.get(), &got), Received::kNothing);
  const std::string large(100'000, 'x');
  ASSERT_TRUE(send_packet(a.get(), "one"));
  ASSERT_TRUE(send_packet(a.get(), large));
  EXPECT_EQ(send_packet(a.get(), "").error().code, Code::kInvalidArgument);
  a.reset();
  EXPECT_EQ(receive_packet(b.get(), &got), Received::kPacket);
  EXPECT_EQ(got, "one");
  EXPECT_EQ(receive_packet(b.get(), &got), Received::kPacket);
  EXPECT_EQ(got, large);
  EXPECT_EQ(receive_packet(b.get(), &got), Received::kEnd);
  EXPECT_EQ(send_packet(b.get(), "two").error().code, Code::kNotFound);
}

TEST(Packets, SendWaitsForAFullBufferOnlyUntilTheDeadline) {
  auto ends = packet_pair();
  ASSERT_TRUE(ends);
  const std::string large(50'000, 'x');
  Result<void> sent;
  for (int i = 0; i < 100 && sent; ++i) sent = send_packet(ends->first.get(), large, milliseconds(20));
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().code, Code::kUnavailable);
}

/// A shell instead of the agent. Its last two arguments are those that the keeper adds.
struct ChildAgentTest : testing::Test {
  static ChildAgent shell(const std::string& script) { return {"/bin/sh", {"-c", script, "agent"}}; }
  static std::optional<ProcessEnd> wait_end(ChildAgent& agent) {
    for (int i = 0; i < 500; ++i) {
      if (const auto end = agent.ended()) return end;
      ::poll(nullptr, 0, 10);
    }
    return std::nullopt;
  }
  /// Waits on handles(), like the keeper.
  static std::optional<std::string> wait_packet(ChildAgent& agent) {
    for (int i = 0; i < 500; ++i) {
      if (auto packet = agent.receive()) return packet;
      std::vector<pollfd> items;
      for (const int fd : agent.handles()) items.push_back({fd, POLLIN, 0});
      ::poll(items.data(), items.size(), 10);
    }
    return std::nullopt;
  }
};

TEST_F(ChildAgentTest, HasAConnectionAndTheArgumentsOfTheKeeper) {
  auto agent = shell(R"(printf '%s %s' "$1" "$2" >&3; head -c 5 <&3 >&3; exit 7)");
  EXPECT_FALSE(agent.send("no process"));
  EXPECT_FALSE(agent.receive());
  ASSERT_TRUE(agent.start(4));
  EXPECT_EQ(wait_packet(agent), "--kept-by=3 --crashes=4");
  EXPECT_TRUE(agent.send("hello"));
  EXPECT_EQ(wait_packet(agent), "hello");
  const auto end = wait_end(agent);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->code, 7);
  EXPECT_EQ(end->signal, 0);
  EXPECT_FALSE(agent.ended()) << "reported once";
}

TEST_F(ChildAgentTest, PacketsSentBeforeItsDeathCanBeReceived) {
  auto agent = shell("printf last >&3; kill -9 $$");
  ASSERT_TRUE(agent.start(0));
  const auto end = wait_end(agent);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->signal, SIGKILL);
  EXPECT_EQ(agent.receive(), "last");
  EXPECT_FALSE(agent.receive());
  EXPECT_TRUE(agent.handles().empty()) << "a closed connection would wake its reader forever";
  ASSERT_TRUE(agent.start(1));
  EXPECT_EQ(wait_packet(agent), "last");
}

TEST_F(ChildAgentTest, ReceivesSignals) {
  auto agent = shell("printf here >&3; exec sleep 100");
  ASSERT_TRUE(agent.start(0));
  EXPECT_EQ(wait_packet(agent), "here");
  agent.signal(SIGTERM);
  const auto end = wait_end(agent);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->signal, SIGTERM);
  agent.signal(SIGTERM);  // no process: ignored
}

TEST_F(ChildAgentTest, DiesWithItsKeeper) {
  pid_t pid = 0;
  {
    auto agent = shell("printf here >&3; exec sleep 100");
    ASSERT_TRUE(agent.start(0));
    EXPECT_EQ(wait_packet(agent), "here");
    pid = agent.pid();
  }
  EXPECT_NE(::kill(pid, 0), 0);
}

}  // namespace
}  // namespace carve::process
