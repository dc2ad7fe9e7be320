#include "app/node/cardless_pods.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "port/testing/fake_kube_api.h"

namespace carve::node {
namespace {

using ::testing::HasSubstr;

class CardlessPodsTest : public ::testing::Test {
 protected:
  CardlessPodsTest() {
    pod.namespace_name = "ml";
    pod.name = "p-n1";
    pod.uid = "u";
    pod.mirror = "m";
    pod.node = "n1";
    pod.asks_without_slots = "elasticgpu.io/gpu-memory";
  }
  /// The bodies of the events that were created.
  std::vector<std::string> events() {
    notices.flush();
    std::vector<std::string> bodies;
    for (const auto& write : kube.writes()) {
      if (write.verb == "create") bodies.push_back(write.body);
    }
    return bodies;
  }
  carve::testing::FakeKubeApi kube;
  ManualClock clock;
  Log log{[](std::string_view) {}};
  events::EventRecorder notices{kube, "n1", clock, log};
  CardlessPods pods{notices, clock};
  codec::NodePod pod;
};

TEST_F(CardlessPodsTest, AStaticPodWithoutSlotsGetsAnEventWithCauseAndFix) {
  pods.step({pod}, {});
  pods.step({pod}, {});
  const auto told = events();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_THAT(told[0], HasSubstr("\"reason\":\"NoCards\""));
  EXPECT_THAT(told[0], HasSubstr("requests elasticgpu.io/gpu-memory but no elasticgpu.io/slot"));
  EXPECT_THAT(told[0], HasSubstr("add the limit elasticgpu.io/slot"));
  clock.advance(std::chrono::hours(2));
  pods.step({pod}, {});
  EXPECT_EQ(events().size(), 2U) << "the API server has forgotten the first";
}

TEST_F(CardlessPodsTest, PodsOfAnotherPluginAndEndedPodsGetNone) {
  pods.step({pod}, {{"elasticgpu.io/gpu-memory", 4}});
  pod.ended = true;
  pods.step({pod}, {});
  pod = {};
  pods.step({pod}, {});
  EXPECT_TRUE(events().empty());
}

TEST_F(CardlessPodsTest, APodThatTheKubeletRejectedForASlotGetsCauseAndFixOnce) {
  pod = {};
  pod.namespace_name = "ml";
  pod.name = "p";
  pod.uid = "u";
  pod.node = "n1";
  pod.ended = true;
  pod.slot_rejected = "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices";
  pod.started = events::rfc3339(clock.wall_now());
  pods.step({pod}, {});
  clock.advance(CardlessPods::kTellAgain);
  pods.step({pod}, {});
  const auto told = events();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_THAT(told[0], HasSubstr("\"reason\":\"SlotUnavailable\""));
  EXPECT_THAT(told[0], HasSubstr("its device plugin was not registered"));
  EXPECT_THAT(told[0], HasSubstr("its controller creates another one"));
}

TEST_F(CardlessPodsTest, ARejectionThatAPreviousAgentReportedIsNotRepeated) {
  pod.ended = true;
  pod.slot_rejected = "no healthy devices";
  pod.started = events::rfc3339(clock.wall_now());
  clock.advance(CardlessPods::kRecent + std::chrono::seconds(1));
  pods.step({pod}, {});
  EXPECT_TRUE(events().empty());
}

}  // namespace
}  // namespace carve::node
