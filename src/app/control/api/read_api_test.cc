#include "app/control/api/read_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/control/state/policy_watcher.h"
#include "app/control/testing/objects.h"

namespace carve::control {
namespace {

using namespace testing;  // NOLINT: the objects of the tests
using ::testing::ElementsAre;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

class ReadApi : public ::testing::Test {
 protected:
  void SetUp() override {
    model.nodes().replace({node_object("n1")});
    say({});
    model.pods().replace({pod_object({.uid = "u1", .node = "n1", .record = record_text({slice("u1", "GPU-0", 4)})})});
  }
  void say(std::vector<codec::GpuHolder> holders) {
    card.holders = std::move(holders);
    model.gpus().replace({gpu_object(card)});
  }
  std::vector<std::string> holders() {
    std::vector<std::string> names;
    const auto view = view_of(model, claims);
    for (const auto& holder : view.cards.at(0).holders) names.push_back(codec::name_of(holder));
    return names;
  }
  ManualClock clock;
  Log log{[](std::string_view) {}};
  ClaimBook claims{{}, log};
  ClusterModel model{{}, clock, log};
  codec::GpuObject card = gpu("n1", "GPU-0");
};

TEST_F(ReadApi, ShowsARecordsSlicesBeforeItsNodeReportsThem) {
  EXPECT_THAT(holders(), ElementsAre("s/u1"));
  EXPECT_EQ(codec::use_of(view_of(model, claims).cards.at(0)).memory, Bytes::gib(4));
}

TEST_F(ReadApi, ShowsASliceOnceIfBothReportIt) {
  say({holder(slice("u1", "GPU-0", 4))});
  EXPECT_THAT(holders(), SizeIs(1));
  EXPECT_EQ(codec::use_of(view_of(model, claims).cards.at(0)).memory, Bytes::gib(4));
}

TEST_F(ReadApi, ShowsSlicesOfADeletedPodWhileItsNodeReportsThem) {
  say({holder(slice("gone", "GPU-0", 2))});
  EXPECT_THAT(holders(), ElementsAre("s/p", "s/u1"));
}

TEST_F(ReadApi, ShowsTheRoomOfAClaimThatNoPodUses) {
  claims.gpus().replace(
      {R"({"metadata":{"name":"e","uid":"u-e"},"spec":{"capacity":{"elasticgpu.io/gpu-memory":"2048"},)"
       R"("gpuShare":{"gpuName":"GPU-0"},"claimRef":{"namespace":"ml","name":"k","uid":"u-k"},)"
       R"("nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":[)"
       R"({"key":"kubernetes.io/hostname","operator":"In","values":["n1"]}]}]}}},"status":{"phase":"Bound"}})"});
  claims.claims().replace(
      {R"({"metadata":{"namespace":"ml","name":"k","uid":"u-k"},"spec":{"resources":{"requests":)"
       R"({"elasticgpu.io/gpu-memory":"2048"}}}})"});
  EXPECT_THAT(holders(), UnorderedElementsAre("s/u1", "claim ml/k"));
  EXPECT_EQ(codec::use_of(view_of(model, claims).cards.at(0)).memory, Bytes::gib(6));
}

/// kube-scheduler's events say it about one pod; a dashboard needs it for all pods.
TEST_F(ReadApi, SaysWhyAPodWaits) {
  const auto rules = rules_of(kPolicies[0]);
  for (const auto& [uid, gib] : {std::pair<std::string, std::string>{"a", "13"}, {"b", "3"}, {"c", "x"}})
    model.pods().change({KubeChange::Kind::kPut, pod_object({.uid = uid, .gib = gib})});
  const auto waiting = view_with_whys(model, claims, rules).waiting;
  ASSERT_THAT(waiting, SizeIs(2)) << "an invalid request does not count as waiting";
  EXPECT_EQ(waiting[0].why, "1 node: no room for 13 GiB, besteffort: 1 card: largest free slice 12 GiB < 13 GiB");
  EXPECT_EQ(waiting[1].why, "fits on n1; it waits for something else");
  EXPECT_EQ(view_of(model, claims).waiting[0].why, "");
  model.gpus().replace({});
  EXPECT_EQ(view_with_whys(model, claims, rules).waiting[0].why, "no node has cards");
}

}  // namespace
}  // namespace carve::control
