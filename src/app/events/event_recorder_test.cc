#include "app/events/event_recorder.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stop_token>
#include <thread>

#include "port/testing/fake_kube_api.h"
#include "port/testing/relayed_kube_api.h"

namespace carve::events {
namespace {

using std::chrono::milliseconds;

class NoticesTest : public ::testing::Test {
 protected:
  void tell(const std::string& uid) { notices.warn({"Pod", "s", uid, uid, "CardsAssigned", "on node n1", false}); }
  std::size_t written() { return kube.writes().size(); }

  carve::testing::FakeKubeApi kube;
  ManualClock clock;
  Log log{[](std::string_view) {}};
  EventRecorder notices{kube, "", clock, log, "carve-control"};
  std::atomic<bool> busy = true;
};

TEST_F(NoticesTest, YieldsToUrgentCallsForALimitedTime) {
  notices.yield_to([this] { return busy.load(); });
  tell("a");
  notices.write_due();
  EXPECT_EQ(written(), 0U);
  clock.advance(EventRecorder::kPatience - milliseconds(1));
  tell("b");
  notices.write_due();
  EXPECT_EQ(written(), 0U);
  clock.advance(milliseconds(1));
  notices.write_due();
  EXPECT_EQ(written(), 1U) << "the first has waited long enough, the second has not";
  busy = false;
  notices.write_due();
  EXPECT_EQ(written(), 2U);
}

// A hundred pods a second for ten seconds are nearly as many events as may wait: none of them may be lost.
TEST_F(NoticesTest, LosesNothingInALongBurst) {
  notices.yield_to([] { return true; });
  for (int i = 0; i < 3000; ++i) {
    tell("p" + std::to_string(i));
    notices.write_due();
  }
  EXPECT_GT(written(), 2000U);
  EXPECT_EQ(notices.dropped(), 0U);
  for (int i = 0; i < 2000; ++i) tell("q" + std::to_string(i));  // and nothing is written
  EXPECT_GT(notices.dropped(), 0U);
}

TEST_F(NoticesTest, FlushWritesEverything) {
  notices.yield_to([] { return true; });
  tell("a");
  notices.flush();
  EXPECT_EQ(written(), 1U);
}

TEST_F(NoticesTest, WritesPendingEventsWhenStopped) {
  notices.yield_to([] { return true; });
  tell("a");
  notices.post_later("claim", std::chrono::seconds(5), "condition",
                     [](KubeApi& api) -> Result<void> {
                       (void)api.create("/api/v1/namespaces/s/events", R"({"metadata":{"name":"later"}})");
                       return {};
                     });
  std::jthread writer([this](const std::stop_token& stop) { notices.run(stop); });
  writer.request_stop();
  writer.join();
  EXPECT_EQ(written(), 2U);
}

TEST_F(NoticesTest, DoesNotCallAServerAgainThatDidNotAnswerAtTheEnd) {
  std::stop_source end;
  notices.post("a", [&end](KubeApi&) -> Result<void> {
    end.request_stop();
    return fail(Code::kDeadlineExceeded, "no answer");
  });
  tell("b");
  notices.run(end.get_token());
  EXPECT_EQ(written(), 0U);
}

TEST_F(NoticesTest, DoesNotWaitAtTheEndForASlowOrAbsentServer) {
  /// Each write takes a second.
  struct Slow final : carve::testing::RelayedKubeApi {
    Slow(KubeApi& api, ManualClock& now) : RelayedKubeApi(api), clock(now) {}
    Result<std::string> create(const std::string& path, const std::string& body) override {
      clock.advance(std::chrono::seconds(1));
      return api_.create(path, body);
    }
    ManualClock& clock;
  };
  std::stop_source ended;
  ended.request_stop();
  Slow slow(kube, clock);
  EventRecorder late(slow, "", clock, log, "carve-control");
  for (const char* uid : {"a", "b", "c", "d"}) late.warn({"Pod", "s", uid, uid, "CardsAssigned", "x", false});
  late.warn({"Pod", "s", "e", "e", "NoCards", "x", true});
  late.run(ended.get_token());
  ASSERT_EQ(written(), 2U) << "as many as two seconds allow";
  EXPECT_NE(kube.writes()[0].body.find("NoCards"), std::string::npos) << "the Warning event first";
  kube.set_away(true);
  for (const char* uid : {"a", "b"}) tell(uid);
  const auto before = kube.calls("create");
  notices.run(ended.get_token());
  EXPECT_EQ(kube.calls("create"), before + 1);
}

TEST_F(NoticesTest, DropsNormalEventsFirstWhenTooManyWait) {
  notices.warn({"Pod", "s", "first", "first", "NoCards", "x", true});
  for (int i = 0; i < 3000; ++i) tell("p" + std::to_string(i));
  notices.flush();
  const auto writes = kube.writes();
  ASSERT_EQ(writes.size(), 1024U);
  EXPECT_NE(writes[0].body.find("NoCards"), std::string::npos);
  EXPECT_NE(writes[1023].body.find("p2999"), std::string::npos) << "of the Normal events the oldest are dropped";
  for (int i = 0; i < 1025; ++i) {
    const auto uid = "w" + std::to_string(i);
    notices.warn({"Pod", "s", uid, uid, "NoCards", "x", true});
  }
  tell("late");
  notices.flush();
  const auto all = kube.writes();
  ASSERT_EQ(all.size(), 2048U);
  EXPECT_NE(all.back().body.find("w1024"), std::string::npos) << "a Normal event replaces no Warning event";
}

TEST_F(NoticesTest, ContinuesWhenTheUrgentCallsAreDone) {
  notices.yield_to([this] { return busy.load(); });
  const std::jthread writer([this](const std::stop_token& stop) { notices.run(stop); });
  tell("a");
  busy = false;
  EXPECT_TRUE(kube.wait_writes(1, std::chrono::seconds(20)));
}

}  // namespace
}  // namespace carve::events
