#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "app/plugins/testing/fake_node_slices.h"
#include "app/node/testing/reported_node.h"

// What the Node shows of its agent: that it is about to end, and that the next one serves.
namespace carve::node {
namespace {

using namespace std::chrono_literals;

class Presence : public ::testing::Test, protected ReportedNode {
 protected:
  ~Presence() override { watch.request_stop(); }
  void hear() {
    if (!watch.joinable())
      watch = std::jthread([this](const std::stop_token& stop) { report.run_node_watch(stop); });
    ASSERT_TRUE(kube.wait_watches(1, 5s));
  }
  void step() {
    clock.advance(200ms);
    report.step();
    EXPECT_TRUE(!watch.joinable() || kube.wait_watches(1, 5s));
  }
  /// The condition's status: "True", "False", or empty if it does not exist.
  std::string said() const {
    const auto all = ReportedNode::said();
    const auto found = all.find(std::string(codec::kAgentLeaving));
    return found == all.end() ? "" : found->second.on ? "True" : "False";
  }
  void an_earlier_agent_left() {
    kube.put(kPath, R"({"metadata":{"name":"n1","uid":"u"},"status":{"conditions":[)"
                    R"({"type":"GPUAgentLeaving","status":"True","reason":"AgentToldToEnd"}]}})");
  }

  plugins::FakeNodeSlices slices{plugins::some_cards(1)};
  bool serves = true;
  NodeReport report{"n1", [this] {
                      auto one = world(slices);
                      one.serves = [this] { return serves; };
                      return one;
                    }()};
  std::jthread watch;
};

TEST_F(Presence, IsNotWrittenByAnAgentThatNeverLeft) {
  hear();
  step();
  EXPECT_EQ(said(), "");
}

TEST_F(Presence, IsWrittenImmediatelyAndThenReportedAsAccepted) {
  hear();
  step();
  EXPECT_FALSE(report.said_leaving());
  report.leave();
  step();
  EXPECT_EQ(said(), "True");
  EXPECT_TRUE(report.said_leaving());
  for (int i = 0; i < 60; ++i) step();  // also through the full comparison
  EXPECT_EQ(said(), "True");
}

TEST_F(Presence, IsClearedByTheNextAgentOnlyWhenItServes) {
  an_earlier_agent_left();
  serves = false;
  hear();
  for (int i = 0; i < 60; ++i) step();
  EXPECT_EQ(said(), "True");
  serves = true;
  step();
  EXPECT_EQ(said(), "False");
}

TEST_F(Presence, IsClearedAgainWhenAnotherWriterSetsItWhileThisAgentServes) {
  hear();
  step();
  an_earlier_agent_left();
  hear();
  for (int i = 0; i < 60; ++i) step();
  EXPECT_EQ(said(), "False");
}

TEST_F(Presence, IsRetriedWhenTheApiServerDoesNotAnswer) {
  hear();
  step();
  report.leave();
  kube.fail_next({.verb = "patch", .path = kPath, .times = 2});
  step();
  EXPECT_FALSE(report.said_leaving());
  for (int i = 0; i < 10; ++i) step();
  EXPECT_TRUE(report.said_leaving());
  EXPECT_EQ(said(), "True");
}

/// The bodies of the events that were written.
std::vector<std::string> events_of(const carve::testing::FakeKubeApi& kube) {
  std::vector<std::string> found;
  for (const auto& write : kube.writes()) {
    if (write.path.find("/events") != std::string::npos) found.push_back(write.body);
  }
  return found;
}

TEST_F(Presence, ReportsAnAbsenceOfTheApiServerAsOneCountedEvent) {
  kube.answer("/version", "{}");
  hear();
  step();
  for (int time = 1; time <= 2; ++time) {
    kube.set_away(true);
    for (int i = 0; i < 300; ++i) {  // a minute
      clock.advance(200ms);
      report.step();
    }
    notices.flush();
    kube.set_away(false);
    hear();
    for (int i = 0; i < 110; ++i) step();
    notices.flush();
    const auto events = events_of(kube);
    ASSERT_EQ(events.size(), static_cast<std::size_t>(time));
    EXPECT_THAT(events.back(), ::testing::HasSubstr(R"("kind":"Node","namespace":"","name":"n1")"));
    EXPECT_THAT(events.back(), ::testing::ContainsRegex("API server did not answer this agent for [45][0-9] s"));
    EXPECT_THAT(events.back(), ::testing::HasSubstr(R"("count":)" + std::to_string(time)));
  }
}

TEST_F(Presence, ReportsNoShortFailureOfTheApiServer) {
  kube.answer("/version", "{}");
  hear();
  step();
  kube.fail_next({.verb = "get", .path = "/version", .times = 1});
  for (int i = 0; i < 300; ++i) step();
  notices.flush();
  EXPECT_EQ(events_of(kube).size(), 0U);
}

/// The Node's other writes succeed meanwhile. They do not end the failure of this one.
TEST_F(Presence, LogsAFailingAnnotationOnceWhileOtherWritesSucceed) {
  hear();
  Slice held;
  held.owner = {OwnerKind::kClaim, "u-1"};
  held.part = "main";
  held.card = slices.cards().cards[0].id;
  held.memory = Bytes::gib(1);
  held.compute = CoreShare(5);
  ASSERT_TRUE(slices.prepare({*record_of(0, {held}), held.part, "", "ml/p/main", {}}));
  for (int i = 0; i < 30; ++i) step();
  ASSERT_TRUE(slices.unprepare(held.owner));
  const auto failures = [this] {
    return std::count_if(logged.begin(), logged.end(), [](const std::string& line) {
      return line.find("Node annotation for waiting pods not written") != std::string::npos;
    });
  };
  kube.fail_next({.verb = "patch", .path = kPath, .times = 4});
  for (int i = 0; i < 30; ++i) step();
  EXPECT_EQ(failures(), 1) << "four attempts";
  EXPECT_NE(kube.object(kPath)->find(NodeStatus::kTouched), std::string::npos) << "the fifth succeeds";
}

TEST_F(Presence, ReportsCrashesOfPreviousAgentsOnce) {
  auto following = world(slices);
  following.crashes = 3;
  NodeReport next{"n1", std::move(following)};
  next.step();
  notices.flush();
  EXPECT_EQ(events_of(kube).size(), 0U) << "the Node is not known yet";
  const std::jthread watching([&](const std::stop_token& stop) { next.run_node_watch(stop); });
  ASSERT_TRUE(kube.wait_watches(1, 5s));
  for (int i = 0; i < 5; ++i) {
    clock.advance(200ms);
    next.step();
    ASSERT_TRUE(kube.wait_watches(1, 5s));
  }
  notices.flush();
  const auto events = events_of(kube);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_THAT(events[0], ::testing::HasSubstr("AgentCrashed"));
  EXPECT_THAT(events[0], ::testing::HasSubstr("crashes since its pod started: 3;"));
}

TEST_F(Presence, IsWrittenLaterWhenTheNodeIsNotKnownYet) {
  report.leave();
  step();
  EXPECT_FALSE(report.said_leaving());
  hear();
  for (int i = 0; i < 5; ++i) step();
  EXPECT_EQ(said(), "True");
}

}  // namespace
}  // namespace carve::node
