#include "codec/views/usage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carve::codec {
namespace {

using ::testing::HasSubstr;

TEST(CardQuotas, AreTheLimitsOnCardsAndOnClaimedDevices) {
  const auto quotas = parse_card_quotas(R"({"metadata": {"name": "cards", "namespace": "ml"}, "status": {
      "hard": {"requests.nvidia.com/gpu": "8", "requests.elasticgpu.io/gpu-memory": "64", "requests.cpu": "40",
               "gpu.elasticgpu.io.deviceclass.resource.k8s.io/devices": "4", "pods": "100"},
      "used": {"requests.nvidia.com/gpu": "3", "requests.cpu": "2"}}})");
  ASSERT_TRUE(quotas) << quotas.error().what;
  ASSERT_EQ(quotas->size(), 3U);
  EXPECT_EQ((*quotas)[0], (CardQuota{"ml", "cards", "requests.nvidia.com/gpu", "3", "8"}));
  EXPECT_EQ((*quotas)[1], (CardQuota{"ml", "cards", "requests.elasticgpu.io/gpu-memory", "0", "64"}));
  EXPECT_EQ((*quotas)[2].resource, "gpu.elasticgpu.io.deviceclass.resource.k8s.io/devices");
}

TEST(CardQuotas, ThoseOfCarvePlacementAreInCards) {
  EXPECT_THAT(card_quotas({{"ml", {"A100", 400}, 250}, {"ml", {"", 800}, 0}}),
              ::testing::ElementsAre(CardQuota{"ml", "carve-placement", "A100 cards", "2.5", "4"},
                                     CardQuota{"ml", "carve-placement", "cards", "0", "8"}));
}

TEST(CardQuotas, WithoutAStatusThereAreNone) {
  const auto quotas = parse_card_quotas(R"({"metadata": {"name": "new", "namespace": "ml"}, "spec": {"hard": {}}})");
  ASSERT_TRUE(quotas) << quotas.error().what;
  EXPECT_TRUE(quotas->empty());
  EXPECT_FALSE(parse_card_quotas("{}"));
  EXPECT_FALSE(parse_card_quotas("not JSON"));
}

TEST(UsageJson, HasEachNamespaceWithHoursOrAQuota) {
  Usage usage;
  usage.since = std::chrono::hours(24);
  usage.nodes = 3;
  usage.silent = 1;
  usage.hours["ml"] = {24, 12.5, 96, 48};
  usage.quotas = {{"web", "cards", "requests.nvidia.com/gpu", "0", "2"}};
  const auto text = usage_json(usage);
  EXPECT_THAT(text, HasSubstr(R"("since_seconds":86400,"nodes":3,"silent_nodes":1,"quotas_error":"")"));
  EXPECT_THAT(text, HasSubstr(R"({"name":"ml","card_hours":{"promised":2.4E1,"delivered":1.25E1},)"
                              R"("gib_hours":{"held":9.6E1,"used":4.8E1},"quotas":[]})"));
  EXPECT_THAT(text, HasSubstr(R"("quotas":[{"quota":"cards","resource":"requests.nvidia.com/gpu","used":"0",)"
                              R"("hard":"2"}])"));
}

}  // namespace
}  // namespace carve::codec
