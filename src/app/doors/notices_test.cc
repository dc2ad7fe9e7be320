#include "app/doors/notices.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "port/testing/fake_kube_api.h"

namespace carve::doors {
namespace {

using std::chrono::milliseconds;

class NoticesTest : public ::testing::Test {
 protected:
  void tell(const std::string& uid) { notices.warn({"Pod", "s", uid, uid, "CardsAssigned", "on node n1", false}); }
  std::size_t written() { return kube.writes().size(); }

  carve::testing::FakeKubeApi kube;
  ManualClock clock;
  Log log{[](std::string_view) {}};
  Notices notices{kube, "", clock, log, "carve-control"};
  std::atomic<bool> busy = true;
};

TEST_F(NoticesTest, WhatIsToldWaitsForThoseWhoComeFirstButNotForEver) {
  notices.yield_to([this] { return busy.load(); });
  tell("a");
  notices.write_due();
  EXPECT_EQ(written(), 0U);
  clock.advance(Notices::kPatience - milliseconds(1));
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

TEST_F(NoticesTest, BeforeTheEndAllIsWritten) {
  notices.yield_to([] { return true; });
  tell("a");
  notices.flush();
  EXPECT_EQ(written(), 1U);
}

TEST_F(NoticesTest, TheWriterGoesOnWhenTheyAreDone) {
  notices.yield_to([this] { return busy.load(); });
  const std::jthread writer([this](const std::stop_token& stop) { notices.run(stop); });
  tell("a");
  busy = false;
  EXPECT_TRUE(kube.wait_writes(1, std::chrono::seconds(20)));
}

}  // namespace
}  // namespace carve::doors
