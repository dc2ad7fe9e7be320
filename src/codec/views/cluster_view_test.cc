#include "codec/views/cluster_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codec/views/yaml.h"

namespace carve::codec {
namespace {

using ::testing::HasSubstr;

GpuObject card(const std::string& node, int index, const std::string& uuid) {
  GpuObject gpu;
  gpu.name = node + "." + uuid;
  gpu.node = node;
  gpu.index = index;
  gpu.card.id = CardId(uuid);
  gpu.card.model = "NVIDIA T4";
  gpu.card.memory = Bytes::gib(16);
  return gpu;
}

GpuHolder pod(const std::string& uid, const std::string& part, std::uint64_t gib, std::uint32_t cores,
              Phase phase = Phase::kRun) {
  GpuHolder holder;
  holder.slice = {{OwnerKind::kPod, uid}, part, CardId("GPU-0"), Bytes::gib(gib), CoreShare(cores)};
  holder.slice.phase = phase;
  holder.space = "default";
  holder.name = uid;
  return holder;
}

TEST(ClusterView, AnInitContainersShareIsNotAddedToItsPods) {
  GpuObject gpu = card("n1", 0, "GPU-0");
  gpu.holders = {pod("a", "load", 6, 10, Phase::kInit), pod("a", "main", 4, 30), pod("b", "main", 2, 5)};
  const CardUse use = use_of(gpu);
  EXPECT_EQ(use.memory, Bytes::gib(8));
  EXPECT_EQ(use.compute, CoreShare(35));
  EXPECT_EQ(use.owners, 2U);
}

TEST(ClusterView, NodesAndCardsComeInOrder) {
  const auto text = to_json(cluster_view({card("n2", 0, "GPU-2"), card("n1", 1, "GPU-1"), card("n1", 0, "GPU-0")}, {}));
  EXPECT_LT(text.find("GPU-0"), text.find("GPU-1"));
  EXPECT_LT(text.find("GPU-1"), text.find("\"n2\""));
}

TEST(ClusterView, NothingIsFreeOnACardThatIsUnhealthyOrTaken) {
  GpuObject sick = card("n1", 0, "GPU-0");
  sick.card.health = {false, "XID 79"};
  EXPECT_THAT(to_json(cluster_view({sick}, {})),
              HasSubstr(R"("memory_bytes":{"total":17179869184,"granted":0,"free":0},"cores":{"total":100,"granted":0,)"
                        R"("free":0})"));
}

TEST(ClusterView, YamlIsTheSameDocument) {
  const auto yaml = yaml_of_json(to_json(cluster_view({card("n1", 0, "GPU-0")}, {{"default", "w", "1 card", "123"}})));
  ASSERT_TRUE(yaml) << yaml.error().what;
  EXPECT_THAT(*yaml, HasSubstr("nodes:\n  - name: \"n1\"\n    cards:\n      - uuid: \"GPU-0\"\n"));
  EXPECT_THAT(*yaml, HasSubstr("holders: []\n"));
  EXPECT_THAT(*yaml, HasSubstr("why: \"123\"\n"));
  EXPECT_FALSE(yaml_of_json("{"));
}

}  // namespace
}  // namespace carve::codec
