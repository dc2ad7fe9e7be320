#include "app/node/share_policies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "app/node/testing/reported_node.h"
#include "app/plugins/testing/fake_node_slices.h"

namespace carve::node {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

std::string policies_on(const std::map<std::string, std::string>& labels, const std::string& annotation = {}) {
  codec::NodeObject node;
  node.labels = labels;
  if (!annotation.empty()) node.annotations[std::string(kCardSharePolicies)] = annotation;
  std::vector<Card> cards(2);
  cards[0].id = CardId("GPU-a");
  cards[1].id = CardId("GPU-b");
  const auto stated = share_policies_on(node, cards, {.dialects = {{"qgpu", *share_policy_from("be")}}});
  return describe(stated.policies) + (stated.refused.empty() ? "" : " | " + stated.refused);
}

const std::string kNode(kSharePolicy);
const std::string kQgpuLabel(codec::kQgpuPolicy);

TEST(SharePoliciesOnANode, AreThoseOfLabelsAndTheAnnotation) {
  EXPECT_EQ(policies_on({}), "qgpu equal");
  EXPECT_EQ(policies_on({{kNode, "fixed"}}), "qgpu equal; node fixed");
  EXPECT_EQ(policies_on({{kQgpuLabel, "burst-share"}}), "qgpu burst");
  EXPECT_EQ(policies_on({}, "1=fs,GPU-a=even-4"), "qgpu equal; GPU-a even-4; GPU-b fixed");
}

TEST(SharePoliciesOnANode, NameEveryIllegalValue) {
  EXPECT_THAT(policies_on({{kNode, "fair"}}),
              HasSubstr("qgpu equal | label elasticgpu.io/share-policy: \"fair\" is not a "
                        "policy; legal are fixed (fixed-share, fs, 3)"));
  EXPECT_THAT(policies_on({{kQgpuLabel, ""}}), HasSubstr("qgpu-schedule-policy: \"\" is not a policy"));
  EXPECT_THAT(policies_on({}, "2=fixed"), HasSubstr("\"2\" is neither the UUID nor the index (0 to 1) of a card here"));
  EXPECT_THAT(policies_on({}, "fixed"), HasSubstr("card fixed: \"\" is not a policy"));
  EXPECT_THAT(policies_on({}, "0=fixed,,1=x,GPU-c=fixed"),
              ::testing::AllOf(HasSubstr("GPU-a fixed"), HasSubstr("card : \"\""), HasSubstr("card 1: \"x\""),
                               HasSubstr("\"GPU-c\" is neither")));
}

class FollowedNode : public ::testing::Test, protected ReportedNode {
 protected:
  ~FollowedNode() override { watch.request_stop(); }
  void label(const std::string& value) {
    kube.put(kPath,
             R"({"metadata":{"name":"n1","uid":"u","labels":{"elasticgpu.io/share-policy":")" + value + R"("}}})");
  }
  void follow() {
    watch = std::jthread([this](const std::stop_token& stop) { report.run_node_watch(stop); });
    ASSERT_TRUE(kube.wait_watches(1, 5s));
  }
  std::string step() {
    clock.advance(200ms);
    report.step();
    return slices.divided_by.empty() ? "" : describe(slices.divided_by.back());
  }

  plugins::FakeNodeSlices slices{plugins::some_cards(1)};
  NodeReport report{"n1", [this] {
                      auto one = world(slices);
                      one.shares.dialects["cgpu"] = *share_policy_from("fixed");
                      return one;
                    }()};
  std::jthread watch;
};

TEST_F(FollowedNode, ItsPolicyIsSetOnceAndAnIllegalOneChangesNothing) {
  label("burst");
  follow();
  EXPECT_EQ(step(), "cgpu fixed; node burst");
  step();
  EXPECT_EQ(slices.divided_by.size(), 1U) << "unchanged";
}

TEST_F(FollowedNode, WithoutTheNodeThePoliciesByDefaultApplyAfterAWhile) {
  EXPECT_EQ(step(), "");
  clock.advance(11s);
  EXPECT_EQ(step(), "cgpu fixed");
}

TEST_F(FollowedNode, AnIllegalPolicyIsAnEvent) {
  label("fair");
  follow();
  EXPECT_EQ(step(), "cgpu fixed") << "there is no earlier one";
  notices.flush();
  const auto events = kube.list("/api/v1/namespaces/default/events");
  ASSERT_TRUE(events);
  EXPECT_THAT(*events, ::testing::Contains(HasSubstr("SharePolicyRefused")));
}

}  // namespace
}  // namespace carve::node
