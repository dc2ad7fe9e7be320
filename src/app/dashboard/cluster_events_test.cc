#include "app/dashboard/cluster_events.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "codec/kube/event.h"
#include "port/testing/fake_kube_api.h"

namespace carve::dashboard {
namespace {

using ::testing::SizeIs;

std::string event(const std::string& component, const std::string& reason, const std::string& time) {
  codec::EventNote note;
  note.kind = "Pod";
  note.namespace_name = "team";
  note.name = "job";
  note.reason = reason;
  note.message = "what happened";
  return codec::encode_event(note, reason, "n1", component, {time, time, 1});
}

TEST(BoardEvents, ReadsAnEventAsItIsWritten) {
  const auto read = codec::parse_board_event(event("carve-agent", "SliceRefused", "2026-01-01T00:00:01Z"));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->kind, "SliceRefused");
  EXPECT_EQ(read->node, "n1");
  EXPECT_EQ(read->namespace_name, "team");
  EXPECT_EQ(read->slice, "Pod/job");
  EXPECT_EQ(read->text, "what happened");
  EXPECT_EQ(read->unix_ms, 1'767'225'601'000);
  EXPECT_FALSE(codec::parse_board_event("{}"));
  EXPECT_FALSE(codec::parse_board_event("no"));
}

// Only those who may see everything see an event about a Node: its namespace is nobody's.
TEST(BoardEvents, AnEventAboutANodeHasNoNamespace) {
  codec::EventNote note;
  note.kind = "Node";
  note.namespace_name = "default";
  note.name = "n1";
  note.reason = "CardUnhealthy";
  EXPECT_EQ(codec::parse_board_event(codec::encode_event(note, "a", "n1", "carve-agent", {}))->namespace_name, "");
}

class ClusterEventsTest : public ::testing::Test {
 protected:
  static constexpr std::chrono::seconds kPatience{20};
  /// The events of the board once there are so many, or those of the last look.
  std::vector<codec::BoardEvent> shown(std::size_t count) {
    codec::Board board;
    const auto end = std::chrono::steady_clock::now() + kPatience;
    do {
      events_.add(&board);
    } while (board.events.size() != count && std::chrono::steady_clock::now() < end);
    return board.events;
  }
  testing::FakeKubeApi api_;
  ManualClock clock_;
  ClusterEvents events_{api_, clock_};
};

TEST_F(ClusterEventsTest, FollowsOnlyCarvesOwnSortedByTime) {
  api_.put("/api/v1/namespaces/team/events/b", event("carve-control", "Second", "2026-01-01T00:00:02Z"));
  api_.put("/api/v1/namespaces/team/events/a", event("carve-agent", "First", "2026-01-01T00:00:01Z"));
  api_.put("/api/v1/namespaces/team/events/c", event("kubelet", "Other", "2026-01-01T00:00:03Z"));
  auto seen = shown(2);
  ASSERT_THAT(seen, SizeIs(2));
  EXPECT_EQ(seen[0].kind, "First");
  EXPECT_EQ(seen[1].kind, "Second");
  api_.put("/api/v1/namespaces/team/events/d", event("carve-agent", "Third", "2026-01-01T00:00:04Z"));
  EXPECT_EQ(shown(3).back().kind, "Third");
  api_.erase("/api/v1/namespaces/team/events/a");
  EXPECT_EQ(shown(2).front().kind, "Second");
  api_.set_away(true);
  EXPECT_THAT(shown(2), SizeIs(2)) << "what was known remains";
}

// The board is as old as the slowest of its sources, so none of them may wait for the API server.
TEST_F(ClusterEventsTest, DoesNotWaitForTheApiServer) {
  api_.set_stalled(true);
  codec::Board board;
  events_.add(&board);
  EXPECT_THAT(board.events, SizeIs(0));
  api_.put("/api/v1/namespaces/team/events/a", event("carve-agent", "First", "2026-01-01T00:00:01Z"));
  api_.set_stalled(false);
  EXPECT_THAT(shown(1), SizeIs(1));
}

TEST_F(ClusterEventsTest, ShowsTheNewestOfMany) {
  for (std::size_t at = 0; at < 3 * ClusterEvents::kMost; ++at) {
    const auto minute = at / 60 % 60;
    const auto time = fmt::format("2026-01-01T{:02}:{:02}:{:02}Z", at / 3600, minute, at % 60);
    api_.put(fmt::format("/api/v1/namespaces/team/events/e{}", at), event("carve-agent", fmt::format("R{}", at), time));
  }
  const auto seen = shown(ClusterEvents::kMost);
  ASSERT_THAT(seen, SizeIs(ClusterEvents::kMost));
  EXPECT_EQ(seen.front().kind, fmt::format("R{}", 2 * ClusterEvents::kMost));
  EXPECT_EQ(seen.back().kind, fmt::format("R{}", 3 * ClusterEvents::kMost - 1));
}

TEST_F(ClusterEventsTest, WatchesOnlyWhileACallerReads) {
  EXPECT_EQ(api_.calls("watch"), 0U) << "no caller yet";
  EXPECT_THAT(shown(0), SizeIs(0));
  ASSERT_TRUE(api_.wait_watches(2, kPatience));
  const auto began = api_.calls("watch");
  clock_.wait_for_sleepers(1);
  clock_.advance(ReaderDemand::kUnread);  // unread since: the watches end
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (api_.wait_watches(1, {}) && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  api_.put("/api/v1/namespaces/team/events/a", event("carve-agent", "First", "2026-01-01T00:00:01Z"));
  EXPECT_THAT(shown(1), SizeIs(1)) << "the next caller begins again";
  ASSERT_TRUE(api_.wait_watches(2, kPatience));
  EXPECT_EQ(api_.calls("watch"), 2 * began);
}

}  // namespace
}  // namespace carve::dashboard
