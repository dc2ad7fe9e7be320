#include "codec/views/cluster_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codec/views/explanation.h"
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
  holder.namespace_name = "default";
  holder.name = uid;
  return holder;
}

TEST(ClusterView, AnInitContainersShareIsNotAddedToThatOfItsPod) {
  GpuObject gpu = card("n1", 0, "GPU-0");
  gpu.holders = {pod("a", "load", 6, 10, Phase::kInit), pod("a", "main", 4, 30), pod("b", "main", 2, 5)};
  const CardUse use = use_of(gpu);
  EXPECT_EQ(use.memory, Bytes::gib(8));
  EXPECT_EQ(use.compute, CoreShare(35));
  EXPECT_EQ(use.owners, 2U);
}

TEST(ClusterView, NodesAndCardsAreSorted) {
  const auto text = to_json(cluster_view({card("n2", 0, "GPU-2"), card("n1", 1, "GPU-1"), card("n1", 0, "GPU-0")}, {}));
  EXPECT_LT(text.find("GPU-0"), text.find("GPU-1"));
  EXPECT_LT(text.find("GPU-1"), text.find("\"n2\""));
}

TEST(ClusterView, NothingIsFreeOnAnUnhealthyOrExclusivelyHeldCard) {
  GpuObject sick = card("n1", 0, "GPU-0");
  sick.card.health = {false, "XID 79"};
  EXPECT_THAT(to_json(cluster_view({sick}, {})),
              HasSubstr(R"("memory_bytes":{"total":17179869184,"granted":0,"free":0},"cores":{"total":100,"granted":0,)"
                        R"("free":0})"));
}

TEST(ClusterView, Golden) {
  GpuObject gpu = card("n1", 2, "GPU-0");
  gpu.card.vendor = "nvidia";
  gpu.card.numa_node = 1;
  gpu.driver_version = "580";
  gpu.holders = {pod("a", "main", 4, 30), pod("b", "main", 2, 5)};
  gpu.holders[0].pods = {"ml/p", "ml/q"};
  gpu.holders[0].ending = true;
  gpu.holders[1].slice.share = ShareClass::kFixed;
  gpu.holders[1].slice.priority = PriorityClass::kOnline;
  ClusterView view =
      cluster_view({gpu, card("n1", 3, "GPU-1")}, {{"s", "w", "1 card", "full"}, {"r", "x", "2 cards", "no"}});
  view.unread = "n9";
  EXPECT_EQ(to_json(view),
            R"({"nodes":[{"name":"n1","cards":[{"uuid":"GPU-0","index":2,"model":"NVIDIA T4",)"
            R"("vendor":"nvidia","healthy":true,)"
            R"("reason":"","closed":"","mode":"any","numa_node":1,"driver_version":"580",)"
            R"("memory_bytes":{"total":17179869184,)"
            R"("granted":6442450944,"free":10737418240},"cores":{"total":100,"granted":35,"free":65},"holders":[)"
            R"({"name":"ml/p+ml/q","kind":"pod","uid":"a","part":"main","pods":["ml/p","ml/q"],)"
            R"("memory_bytes":4294967296,)"
            R"("cores":30,"whole":false,"share":"burst","priority":"standard","dialect":"native","ending":true},)"
            R"({"name":"default/b","kind":"pod","uid":"b","part":"main","pods":[],"memory_bytes":2147483648,"cores":5,)"
            R"("whole":false,"share":"fixed","priority":"online","dialect":"native","ending":false}]},)"
            R"({"uuid":"GPU-1","index":3,"model":"NVIDIA T4","vendor":"","healthy":true,"reason":"",)"
            R"("closed":"","mode":"any","numa_node":-1,)"
            R"("driver_version":"","memory_bytes":{"total":17179869184,"granted":0,"free":17179869184},)"
            R"("cores":{"total":100,)"
            R"("granted":0,"free":100},"holders":[]}]}],"totals":{"cards":2,"memory_bytes":{"total":34359738368,)"
            R"("granted":6442450944,"free":27917287424},"cores":{"total":200,"granted":35,"free":165}},"waiting":[)"
            R"({"namespace":"r","name":"x","asks":"2 cards","why":"no"},{"namespace":"s","name":"w","asks":"1 card",)"
            R"("why":"full"}],"unread":"n9"})");
}

TEST(ClusterView, AnExclusiveSliceLeavesNothingFree) {
  GpuObject gpu = card("n1", 0, "GPU-0");
  gpu.holders = {pod("a", "main", 4, 30), pod("b", "main", 2, 5)};
  gpu.holders[0].slice.whole = gpu.holders[0].slice.exclusive = true;
  const CardUse use = use_of(gpu);
  EXPECT_TRUE(use.exclusive);
  EXPECT_EQ(use.slices, 2U);
  EXPECT_EQ(use.memory, Bytes::gib(18)) << "all of the card, because of the whole slice";
  EXPECT_THAT(to_json(cluster_view({gpu}, {})), HasSubstr(R"("free":0},"cores":{"total":100,"granted":35,"free":0})"));
}

TEST(ClusterView, AHolderIsNamedByItsPodsElseByItsNameElseByItsUid) {
  GpuHolder holder = pod("a", "main", 1, 1);
  EXPECT_EQ(name_of(holder), "default/a");
  holder.namespace_name.clear();
  EXPECT_EQ(name_of(holder), "a");
  holder.name.clear();
  EXPECT_EQ(name_of(holder), "pod a");
  holder.pods = {"s/p"};
  EXPECT_EQ(name_of(holder), "s/p");
}

TEST(Explanation, Golden) {
  Explanation said;
  said.namespace_name = "s";
  said.name = "p";
  said.state = "waits";
  said.asks = {{"c", Phase::kInit, whole_cards(2), ""}, {"d", Phase::kRun, whole_cards(1), ""}};
  said.asks[1].request.memory = MemoryAsk::of(Bytes(5));
  said.asks[1].request.whole = false;
  said.holds = {{"c", Phase::kRun, false, false, ShareClass::kBurst, PriorityClass::kStandard, "native",
                 {{CardId("GPU-1"), Bytes(7), CoreShare(8)}}}};
  said.refused = {{3, "full"}};
  said.fits = {"n1"};
  said.smaller.compute = 4;
  said.smaller.cards = 1;
  const auto text = to_json(said);
  EXPECT_THAT(text, HasSubstr(R"("asks":[{"part":"c","init":true,"cards":2,"whole":true,"cores":100,"share":"burst",)"
                              R"("priority":"standard","dialect":"native","memory_percent":100},{"part":"d",)"
                              R"("init":false,)"
                              R"("cards":1,"whole":false,"cores":100,"share":"burst","priority":"standard",)"
                              R"("dialect":"native","memory_bytes":5}],"holds":[{"part":"c","card":"GPU-1",)"
                              R"("memory_bytes":7,)"
                              R"("cores":8,"whole":false,"share":"burst","priority":"standard","dialect":"native"}])"));
  said.claims = {{"k", "gpu", "1 device", "gpu-1 on node n1", "prepared"}};
  EXPECT_THAT(to_json(said), HasSubstr(R"("claims":[{"claim":"k","request":"gpu","asks":"1 device",)"
                                       R"("device":"gpu-1 on node n1","state":"prepared"}])"));
  EXPECT_THAT(text, HasSubstr(R"("fits":["n1"],"ranked":[],"refused":[{"nodes":3,"why":"full"}])"));
  EXPECT_THAT(text, HasSubstr(R"("would_fit":{"cores":4,"cards":1})"));
  EXPECT_EQ(to_json(Explanation{}),
            R"({"namespace":"","name":"","node":"","state":"","ended":false,"wrong":"","asks":[],"holds":[],)"
            R"("claims":[],"epoch":0,"policy":"",)"
            R"("nodes":0,"fits":[],"ranked":[],"refused":[],"final":false,"would_fit":{},"scheduler_says":"",)"
            R"("unread":""})");
}

TEST(ClusterView, YamlIsTheSameDocument) {
  const auto yaml = yaml_of_json(to_json(cluster_view({card("n1", 0, "GPU-0")}, {{"default", "w", "1 card", "123"}})));
  ASSERT_TRUE(yaml) << yaml.error().what;
  EXPECT_THAT(*yaml, HasSubstr("nodes:\n  - name: \"n1\"\n    cards:\n      - uuid: \"GPU-0\"\n"));
  EXPECT_THAT(*yaml, HasSubstr("holders: []\n"));
  EXPECT_THAT(*yaml, HasSubstr("why: \"123\"\n"));
  EXPECT_FALSE(yaml_of_json("{"));
}

TEST(Explanation, ARankedNodeIsShownWithTheTermsOfItsScore) {
  Explanation said;
  RankedNode node;
  node.node = "n1";
  node.policies = "by binpack";
  node.score = 9;
  node.left = {5, 6, 7};
  node.cards = {{CardId("GPU-1"), 8, {"c", "d"}}, {CardId("GPU-2"), 4, {}, true}};
  said.ranked = {node};
  EXPECT_THAT(to_json(said),
              HasSubstr(R"("ranked":[{"node":"n1","policies":"by binpack","score":9,"node_left":6,"cards_left":5,)"
                        R"("owners":7,"cards":[{"card":"GPU-1","left":8,"gives":["c","d"],"mixed":false},)"
                        R"({"card":"GPU-2","left":4,"gives":[],"mixed":true}]}])"));
}

}  // namespace
}  // namespace carve::codec
