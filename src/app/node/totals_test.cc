#include "app/node/totals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carve::node {
namespace {

using ::testing::HasSubstr;

std::vector<Card> two_kinds() {
  Card small;
  small.memory = Bytes::mib(16'160);
  Card large;
  large.memory = Bytes::mib(143'771);
  return {small, large};
}

TEST(Totals, AreInTheUnitOfTheirName) {
  const auto cards = two_kinds();
  const auto total = [&](std::string_view name) { return *total_of(name, cards, {}); };
  EXPECT_EQ(total("elasticgpu.io/gpu"), "128") << "many pods share a card";
  EXPECT_EQ(total("elasticgpu.io/gpu-core"), "200");
  EXPECT_EQ(total("elasticgpu.io/gpu-memory"), "159931");
  EXPECT_EQ(total("nvidia.com/gpu"), "2");
  EXPECT_EQ(total("aliyun.com/gpu-count"), "2");
}

TEST(Totals, AddUpTheMemoryOfEachCardForGpushare) {  // 15 and 140, not 2 x 15
  EXPECT_EQ(*total_of("aliyun.com/gpu-mem", two_kinds(), {}), "155");
  EXPECT_EQ(*total_of("nvidia.com/gpu", two_kinds(), {.hami = true}), "128") << "many pods share a card";
  EXPECT_EQ(*total_of("aliyun.com/gpu-mem", two_kinds(), {Bytes::mib(1)}), "159931");
}

TEST(Totals, CountACardOnlyInAModeThatPermitsTheRequest) {
  auto cards = two_kinds();
  cards[0].mode = CardMode::kExclusive;
  const auto total = [&](std::string_view name) { return *total_of(name, cards, {.deepomatic_containers = 4}); };
  EXPECT_EQ(total("aliyun.com/gpu-mem"), "140");
  EXPECT_EQ(total("deepomatic.com/shared-gpu"), "4");
  EXPECT_EQ(total("nvidia.com/gpu"), "2");
  EXPECT_EQ(total("elasticgpu.io/gpu-core"), "200") << "200 of it are two whole cards";
  cards[1].mode = CardMode::kShared;
  EXPECT_EQ(total("nvidia.com/gpu"), "1");
  cards[1].mode = CardMode::kExclusive;
  EXPECT_EQ(total("aliyun.com/gpu-mem"), "0");
  EXPECT_EQ(*total_of("deepomatic.com/shared-gpu", cards, {.deepomatic_containers = 1}), "2") << "parts are cards";
}

TEST(Totals, OnRanchersSharedNodesNvidiasNameCountsParts) {
  auto cards = two_kinds();
  for (Card& card : cards) card.mode = CardMode::kShared;
  EXPECT_EQ(*total_of("nvidia.com/gpu", cards, {.rancher_containers = 5}, true), "10");
  EXPECT_EQ(*total_of("nvidia.com/gpu", cards, {.rancher_containers = 5}, false), "0") << "no pod can request them";
  EXPECT_EQ(*total_of("nvidia.com/gpu", cards, {}, true), "0") << "the setting is off";
}

TEST(Totals, RefuseUnknownNames) {
  EXPECT_EQ(total_names("elasticgpu.io/gpu,aliyun.com/gpu-mem")->size(), 2U);
  EXPECT_TRUE(total_names("")->empty());
  const auto slot = total_names("elasticgpu.io/slot");
  ASSERT_FALSE(slot);
  EXPECT_THAT(slot.error().what, HasSubstr("\"elasticgpu.io/slot\" is not a resource of Carve's totals; legal are"));
  EXPECT_FALSE(total_of("amd.com/gpu", {}, {}));
}

}  // namespace
}  // namespace carve::node
