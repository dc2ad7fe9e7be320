#include "codec/node/node_object.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "codec/node/gpu_object.h"

namespace carve::codec {
namespace {

using testing::HasSubstr;

GpuObject some_gpu() {
  GpuObject gpu;
  gpu.name = "n1.gpu-1";
  gpu.node = "n1";
  gpu.card.id = CardId("GPU-1");
  gpu.card.model = "NVIDIA H200";
  gpu.card.memory = Bytes::gib(80);
  gpu.links = {{"GPU-2", "NVLINK", 18}};
  GpuHolder holder;
  holder.slice.owner = {OwnerKind::kClaim, "u-1"};
  holder.slice.part = "gpu";
  holder.slice.memory = Bytes::gib(4);
  holder.slice.compute = CoreShare(30);
  holder.pods = {"ml/p"};
  gpu.holders.push_back(holder);
  gpu.allocated["u-p"] = {"ml", "p", {{"main", Bytes::gib(4), CoreShare(30)}}};
  return gpu;
}

/// The object that the server would have after the two writes.
std::string stored(const GpuObject& gpu) {
  const auto cut = [](std::string patch) {
    const auto at = patch.find("\"value\":") + 8;
    return patch.substr(at, patch.size() - at - 2);
  };
  return R"({"metadata":{"name":")" + gpu.name + R"(","managedFields":[]},"status":)" +
         cut(gpu_status_patch(gpu)) + ",\"spec\":" + cut(gpu_spec_patch(gpu)) + "}";
}

TEST(GpuObject, AWrittenObjectHasTheSameDigest) {
  const auto gpu = some_gpu();
  const auto read = parse_gpu_digest(stored(gpu));
  ASSERT_TRUE(read) << read.error().what;
  EXPECT_EQ(read->spec, digest_of(gpu).spec);
  EXPECT_EQ(read->status, digest_of(gpu).status);
}

TEST(GpuObject, EveryChangeAffectsOnlyTheDigestOfItsHalf) {
  const auto gpu = some_gpu();
  auto other = gpu;
  other.card.health = {false, "XID 79"};
  EXPECT_EQ(digest_of(other).spec, digest_of(gpu).spec);
  EXPECT_NE(digest_of(other).status, digest_of(gpu).status);
  other = gpu;
  other.driver_version = "580.65.06";
  EXPECT_NE(digest_of(other).spec, digest_of(gpu).spec);
  EXPECT_EQ(digest_of(other).status, digest_of(gpu).status);
  // A manual edit.
  auto text = stored(gpu);
  text.replace(text.find("Healthy"), 7, "Perfect");
  EXPECT_NE(parse_gpu_digest(text)->status, digest_of(gpu).status);
}

TEST(GpuObject, IsReadBackAsWritten) {
  auto gpu = some_gpu();
  gpu.index = 3;
  gpu.plugins = {"dra", "slots"};
  gpu.card.vendor = "nvidia";
  gpu.card.architecture = "Hopper";
  gpu.card.compute_capability = "9.0";
  gpu.card.pcie_root = "0000:17";
  gpu.pci_bus_id = "0000:17:00.0";
  gpu.driver_version = "580.65.06";
  gpu.cuda_version = "13.0";
  gpu.links.push_back({"GPU-3", "PCIE", 1});
  gpu.holders[0].namespace_name = "ml";
  gpu.holders[0].name = "claim-1";
  gpu.card.health = {false, "XID 79"};
  gpu.card.numa_node = 1;
  gpu.holders[0].ending = true;
  auto init = gpu.holders[0];
  init.slice.phase = Phase::kInit;
  init.slice.exclusive = true;
  init.slice.dialect = "gpushare";
  init.slice.share = ShareClass::kBestEffort;
  init.slice.ceiling = CoreShare(60);
  init.slice.card = CardId("GPU-1");
  gpu.holders[0].slice.card = CardId("GPU-1");
  gpu.holders.push_back(init);
  std::size_t unreadable = 0;
  const auto read = parse_gpu_object(stored(gpu), &unreadable);
  ASSERT_TRUE(read) << read.error().what;
  EXPECT_EQ(unreadable, 0U);
  EXPECT_EQ(read->card, gpu.card);
  EXPECT_EQ(read->plugins, gpu.plugins);
  auto older = stored(gpu);
  ASSERT_NE(older.find(R"("doors":["dra","slots"])"), std::string::npos) << "for a control of an earlier build";
  older.replace(older.find("\"plugins\""), 9, "\"unknown\"");
  EXPECT_EQ(parse_gpu_object(older, &unreadable)->plugins, gpu.plugins) << "of an agent of an earlier build";
  ASSERT_EQ(read->holders.size(), 2U);
  EXPECT_EQ(read->holders[0].slice, gpu.holders[0].slice);
  EXPECT_EQ(read->holders[1].slice, init.slice);
  EXPECT_TRUE(read->holders[1].ending);
  EXPECT_EQ(read->holders[0].namespace_name + "/" + read->holders[0].name, "ml/claim-1");
  EXPECT_EQ(read->holders[0].pods, gpu.holders[0].pods);
  EXPECT_EQ(read->index, gpu.index);
  EXPECT_EQ(read->pci_bus_id + read->driver_version + read->cuda_version, "0000:17:00.0580.65.0613.0");
  ASSERT_EQ(read->links.size(), 2U);
  EXPECT_EQ(read->links[0].uuid + read->links[0].level, "GPU-2NVLINK");
  EXPECT_EQ(read->links[0].lanes, 18);
  EXPECT_EQ(read->links[1].lanes, 1);
  EXPECT_EQ(digest_of(*read).spec, digest_of(gpu).spec);
}

TEST(GpuObject, IsOwnedByItsNode) {
  GpuObject gpu;
  gpu.name = "n1.gpu-1";
  gpu.node = "n1";
  gpu.card.id = CardId("GPU-1");
  gpu.card.memory = Bytes::gib(80);
  const std::string rest = R"("spec":{"index":0,"uuid":"GPU-1","memory":85899345920,"nodeName":"n1"}})";
  EXPECT_EQ(encode_gpu(gpu, ""),
            R"({"apiVersion":"elasticgpu.io/v1alpha1","kind":"GPU","metadata":{"name":"n1.gpu-1"},)" + rest);
  EXPECT_EQ(encode_gpu(gpu, "node-uid"),
            R"({"apiVersion":"elasticgpu.io/v1alpha1","kind":"GPU","metadata":{"name":"n1.gpu-1","ownerReferences":)"
            R"([{"apiVersion":"v1","kind":"Node","name":"n1","uid":"node-uid"}]},)" + rest);
  gpu.card.minor = 0;
  gpu.card.numa_node = 0;
  EXPECT_THAT(encode_gpu(gpu, ""), HasSubstr(R"("path":"/dev/nvidia0","numaNode":0})"));
}

TEST(GpuObject, NothingIsFreeNextToAnExclusiveSlice) {
  for (const bool first : {true, false}) {
    auto gpu = some_gpu();
    gpu.holders.push_back(gpu.holders.front());
    gpu.holders[first ? 0 : 1].slice.exclusive = true;
    EXPECT_THAT(gpu_status_patch(gpu),
                HasSubstr(R"("free":{"elasticgpu.io/gpu-memory":"0","elasticgpu.io/gpu-core":"0"})"));
  }
}

TEST(GpuObject, ItsSummaryListsFourHoldersAndCountsTheRest) {
  auto gpu = some_gpu();
  gpu.card.memory = Bytes::gib(3);
  gpu.card.compute = CoreShare::whole();
  gpu.allocated.clear();
  GpuHolder holder;
  holder.slice.memory = Bytes::gib(1);
  holder.slice.compute = CoreShare(20);
  holder.slice.owner = {OwnerKind::kLocal, "u-1"};
  gpu.holders = {holder, holder, holder, holder};
  gpu.holders[1].name = "job";
  gpu.holders[2].name = "claim";
  gpu.holders[2].namespace_name = "ml";
  gpu.holders[3].slice.whole = true;
  gpu.holders[3].pods = {"ml/p"};
  EXPECT_THAT(gpu_status_patch(gpu),
              HasSubstr(R"("summary":"local u-1 1Gi/20, job 1Gi/20, ml/claim 1Gi/20, ml/p whole")"));
  EXPECT_THAT(gpu_status_patch(gpu),
              HasSubstr(R"("free":{"elasticgpu.io/gpu-memory":"0","elasticgpu.io/gpu-core":"20"})"))
      << "more is held than the card has: nothing is free";
  gpu.holders.push_back(holder);
  EXPECT_THAT(gpu_status_patch(gpu), HasSubstr(R"(ml/p whole, and 1 more")"));
  gpu.holders.front().slice.exclusive = true;
  EXPECT_THAT(gpu_status_patch(gpu),
              HasSubstr(R"("free":{"elasticgpu.io/gpu-memory":"0","elasticgpu.io/gpu-core":"0"})"));
}

TEST(GpuObject, UnreadableHoldersAreCounted) {
  auto text = stored(some_gpu());
  text.replace(text.find("\"claim\""), 7, "\"ghost\"");
  std::size_t unreadable = 0;
  const auto read = parse_gpu_object(text, &unreadable);
  ASSERT_TRUE(read);
  EXPECT_EQ(unreadable, 1U);
  EXPECT_TRUE(read->holders.empty());
  EXPECT_FALSE(parse_gpu_object(R"({"metadata":{"name":"x"},"spec":{"nodeName":"n"}})", &unreadable));
  const auto fresh =
      parse_gpu_object(R"({"metadata":{"name":"x"},"spec":{"nodeName":"n","uuid":"GPU-1","memory":5}})", &unreadable);
  ASSERT_TRUE(fresh);
  EXPECT_FALSE(fresh->card.health.ok) << "before its node has reported its health";
}

TEST(GpuObject, NumbersAreReadWithinTheirLimits) {
  const auto holders = [](const std::string& memory, const std::string& cores) {
    std::size_t unreadable = 0;
    const auto read = parse_gpu_object(
        R"({"metadata":{"name":"x"},"spec":{"nodeName":"n","uuid":"GPU-1","memory":5},"status":{"holders":[{"owner":)"
        R"({"kind":"pod","uid":"u"},"part":"c","shareClass":"burst","priorityClass":"online","memory":)" + memory +
            R"(,"cores":)" + cores + "}]}}",
        &unreadable);
    return read ? read->holders.size() + 10 * unreadable : 99;
  };
  EXPECT_EQ(holders("0", "0"), 1U);
  EXPECT_EQ(holders("9223372036854775807", "100"), 1U);
  EXPECT_EQ(holders("-1", "100"), 10U);
  EXPECT_EQ(holders("5", "-1"), 10U);
  EXPECT_EQ(holders("5", "101"), 10U);
  EXPECT_EQ(holders("\"5\"", "100"), 10U);
  const auto whole = [](const std::string& memory) {
    std::size_t unreadable = 0;
    return parse_gpu_object(
               R"({"metadata":{"name":"x"},"spec":{"nodeName":"n","uuid":"GPU-1","memory":)" + memory + "}}",
               &unreadable)
        .has_value();
  };
  EXPECT_TRUE(whole("1"));
  EXPECT_FALSE(whole("0"));
  EXPECT_FALSE(whole("-1"));
}

TEST(GpuObject, AnUnhealthyCardHasNothingFree) {
  auto gpu = some_gpu();
  EXPECT_THAT(gpu_status_patch(gpu), HasSubstr(R"("free":{"elasticgpu.io/gpu-memory":"77824",)"
                                               R"("elasticgpu.io/gpu-core":"70"})"));
  EXPECT_THAT(gpu_status_patch(gpu), HasSubstr(R"("summary":"ml/p 4Gi/30")"));
  gpu.card.health = {false, "XID 79"};
  EXPECT_THAT(gpu_status_patch(gpu), HasSubstr(R"("free":{"elasticgpu.io/gpu-memory":"0",)"
                                               R"("elasticgpu.io/gpu-core":"0"})"));
}

TEST(NodeObject, OnlyCarvesOwnPartsAreRead) {
  const auto node = parse_node_object(
      R"({"metadata":{"name":"n1","uid":"u","labels":{"a":"b","elasticgpu.io/gpu.count":"2"}},)"
      R"("status":{"capacity":{"cpu":"2","nvidia.com/gpu":"2"},"nodeInfo":)"
      R"({"containerRuntimeVersion":"containerd://2.3.7"},"conditions":[{"type":"RuntimeWithoutCDI",)"
      R"("status":"True","reason":"r","message":"m","lastTransitionTime":"t0"},7]}})");
  ASSERT_TRUE(node) << node.error().what;
  EXPECT_EQ(node->labels, (std::map<std::string, std::string>{{"elasticgpu.io/gpu.count", "2"}}));
  EXPECT_EQ(node->capacity, (std::map<std::string, std::string>{{"nvidia.com/gpu", "2"}}));
  EXPECT_EQ(node->runtime, "containerd://2.3.7");
  EXPECT_TRUE(node->conditions.at("RuntimeWithoutCDI").on);
  // A condition that stays on keeps its time; a condition that changes gets the new time.
  const NodeCondition same{"RuntimeWithoutCDI", true, "r2", "m2"};
  EXPECT_THAT(node_conditions_patch({same}, *node, "t1"),
              HasSubstr(R"("lastTransitionTime":"t0")"));
  const NodeCondition turned{"RuntimeWithoutCDI", false, "r2", "m2"};
  EXPECT_THAT(node_conditions_patch({turned}, *node, "t1"),
              HasSubstr(R"("lastTransitionTime":"t1")"));
  EXPECT_FALSE(parse_node_object("[]"));
  EXPECT_FALSE(parse_node_object("{"));
}

TEST(NodeObject, PatchesHaveChangesAndRemovals) {
  const NodeChanges changes{{"elasticgpu.io/a", "1"}, {"elasticgpu.io/b", std::nullopt}};
  const std::string both = R"({"elasticgpu.io/a":"1","elasticgpu.io/b":null})";
  EXPECT_EQ(node_labels_patch(changes), R"({"metadata":{"labels":)" + both + "}}");
  EXPECT_EQ(node_annotations_patch(changes), R"({"metadata":{"annotations":)" + both + "}}");
  EXPECT_EQ(node_annotation_patch("k", "v"), R"({"metadata":{"annotations":{"k":"v"}}})");
  EXPECT_EQ(node_totals_patch(changes), R"({"status":{"capacity":)" + both + R"(,"allocatable":)" + both + "}}");
  EXPECT_EQ(node_conditions_removal({"A", "B"}),
            R"({"status":{"conditions":[{"type":"A","$patch":"delete"},{"type":"B","$patch":"delete"}]}})");
  EXPECT_EQ(mapped_name(R"({"spec":{"extendedResourceName":"a/b"}})"), "a/b");
  EXPECT_EQ(mapped_name("{"), "");
}

TEST(NodeObject, AConditionIsGolden) {
  NodeObject node;
  node.conditions["A"] = {"A", true, "", ""};
  node.since["A"] = "";
  EXPECT_EQ(node_conditions_patch({{"A", true, "r", "m"}}, node, "t1"),
            R"({"status":{"conditions":[{"type":"A","status":"True","reason":"r","message":"m",)"
            R"("lastHeartbeatTime":"t1",)"
            R"("lastTransitionTime":"t1"}]}})")
      << "the time is unknown";
  EXPECT_THAT(node_conditions_patch({{"B", false, "r", std::string(2049, 'x')}}, node, "t1"),
              HasSubstr(R"("status":"False","reason":"r","message":")" + std::string(2048, 'x') + "\""));
}

TEST(NodeObject, ReadsItsStatusAndMetadata) {
  const auto node = parse_node_object(
      R"({"metadata":{"name":"n","uid":"u","annotations":{"elasticgpu.io/a":"1","b":"2"}},"status":{"conditions":)"
      R"([{"type":"A","status":"False","reason":"r","message":"m","lastTransitionTime":"t"}]}})");
  ASSERT_TRUE(node);
  EXPECT_EQ(node->name + "/" + node->uid, "n/u");
  EXPECT_EQ(node->annotations, (std::map<std::string, std::string>{{"elasticgpu.io/a", "1"}}));
  EXPECT_EQ(node->conditions.at("A"), (NodeCondition{"A", false, "r", "m"}));
  EXPECT_EQ(node->since.at("A"), "t");
}

TEST(NodeObject, WritesLegalLabelValues) {
  EXPECT_EQ(label_value("NVIDIA H200 (SIMULATED)"), "NVIDIA-H200-SIMULATED");
  EXPECT_EQ(label_value("580.65.06"), "580.65.06");
  EXPECT_EQ(label_value("..a--b.."), "a-b");
  EXPECT_EQ(label_value(""), "");
  EXPECT_EQ(label_value(std::string(80, 'x')).size(), 63U);
  EXPECT_EQ(label_value(std::string(62, 'x') + "--y"), std::string(62, 'x'))
      << "truncated before a dash, which must not be the last character";
  EXPECT_EQ(label_value("_a_b_"), "a_b");
}

TEST(GpuObject, ANameIsQuotedUpToALimit) {
  std::size_t unreadable = 0;
  const auto text = R"({"metadata":{"name":")" + std::string(300, 'z') + "\"}}";
  const auto what = parse_gpu_object(text, &unreadable).error().what;
  EXPECT_EQ(std::count(what.begin(), what.end(), 'z'), 253) << what;
}

TEST(GpuObject, IndexNodeAndLanesAreReadWithinTheirLimits) {
  const auto read = [](const std::string& rest) {
    std::size_t unreadable = 0;
    auto gpu = parse_gpu_object(
        R"({"metadata":{"name":"x"},"spec":{"nodeName":"n","uuid":"GPU-1","memory":5,)" + rest + "}}", &unreadable);
    EXPECT_TRUE(gpu) << rest;
    return gpu.value_or(GpuObject{});
  };
  EXPECT_EQ(read(R"("index":4096)").index, 4096);
  EXPECT_EQ(read(R"("index":4097)").index, 4096);
  EXPECT_EQ(read(R"("index":0)").index, 0);
  EXPECT_EQ(read(R"("index":-1)").index, 0);
  EXPECT_EQ(read(R"("numaNode":0)").card.numa_node, 0);
  EXPECT_EQ(read(R"("numaNode":4096)").card.numa_node, 4096);
  EXPECT_EQ(read(R"("numaNode":4097)").card.numa_node, -1);
  EXPECT_EQ(read(R"("numaNode":-1)").card.numa_node, -1);
  EXPECT_EQ(read(R"("links":[{"uuid":"GPU-2","lanes":255}])").links.at(0).lanes, 255);
  EXPECT_EQ(read(R"("links":[{"uuid":"GPU-2","lanes":256}])").links.at(0).lanes, 0);
  EXPECT_EQ(read(R"("links":[{"uuid":"GPU-2"}])").links.at(0).lanes, 0);
}

TEST(GpuObject, EveryFieldOfAHolderIsRequired) {
  const std::string whole = R"({"owner":{"kind":"pod","uid":"u"},"part":"c","shareClass":"burst",)"
                            R"("priorityClass":"online","memory":5,"cores":3})";
  const auto odd_ones = [](const std::string& holder) {
    std::size_t unreadable = 0;
    const auto gpu = parse_gpu_object(
        R"({"metadata":{"name":"x"},"spec":{"nodeName":"n","uuid":"GPU-1","memory":5},"status":{"holders":[)" +
            holder + "]}}",
        &unreadable);
    return gpu && gpu->holders.size() + unreadable == 1 ? unreadable : 99;
  };
  EXPECT_EQ(odd_ones(whole), 0U);
  for (const std::string wrong : {R"("kind":"pod")", R"("uid":"u")", R"("part":"c")", R"("shareClass":"burst")",
                                  R"("priorityClass":"online")", R"("memory":5)", R"("cores":3)"}) {
    std::string text = whole;
    text.replace(text.find(wrong), wrong.size(), R"("x":0)");
    EXPECT_EQ(odd_ones(text), 1U) << wrong;
  }
}

TEST(GpuObject, AWholeCardIsReadBackAsWholeAndExclusive) {
  auto gpu = some_gpu();
  Slice& slice = gpu.holders.front().slice;
  slice.card = gpu.card.id;
  slice.whole = slice.exclusive = true;
  std::size_t unreadable = 0;
  const auto read = parse_gpu_object(stored(gpu), &unreadable);
  ASSERT_TRUE(read) << read.error().what;
  ASSERT_EQ(read->holders.size(), 1U);
  EXPECT_EQ(read->holders.front().slice, slice);
}

}  // namespace
}  // namespace carve::codec
