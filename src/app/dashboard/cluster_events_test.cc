#include "app/dashboard/cluster_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST(ClusterEventsTest, ShowsOnlyCarvesOwnSortedByTimeAndReadsThemRarely) {
  testing::FakeKubeApi api;
  ManualClock clock;
  api.put("/api/v1/namespaces/team/events/b", event("carve-control", "Second", "2026-01-01T00:00:02Z"));
  api.put("/api/v1/namespaces/team/events/a", event("carve-agent", "First", "2026-01-01T00:00:01Z"));
  api.put("/api/v1/namespaces/team/events/c", event("kubelet", "Other", "2026-01-01T00:00:03Z"));
  ClusterEvents events(api, clock);
  codec::Board board;
  events.add(&board);
  ASSERT_THAT(board.events, SizeIs(2));
  EXPECT_EQ(board.events[0].kind, "First");
  EXPECT_EQ(board.events[1].kind, "Second");
  api.put("/api/v1/namespaces/team/events/d", event("carve-agent", "Third", "2026-01-01T00:00:04Z"));
  events.add(&board);
  EXPECT_THAT(board.events, SizeIs(2));
  clock.advance(ClusterEvents::kEvery);
  events.add(&board);
  EXPECT_THAT(board.events, SizeIs(3));
  api.fail_next({"list", "/events", Code::kUnavailable});
  clock.advance(ClusterEvents::kEvery);
  events.add(&board);
  EXPECT_THAT(board.events, SizeIs(3));
}

}  // namespace
}  // namespace carve::dashboard
