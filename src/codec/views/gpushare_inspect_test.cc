#include "codec/views/gpushare_inspect.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace carve::codec {
namespace {

GpuObject card(const std::string& node, int index, std::uint64_t mib) {
  GpuObject gpu;
  gpu.node = node;
  gpu.index = index;
  gpu.name = node + "." + std::to_string(index);
  gpu.card.id = CardId("GPU-" + node + std::to_string(index));
  gpu.card.memory = Bytes::mib(mib);
  return gpu;
}

GpuHolder held(const std::string& namespace_name, const std::string& pod, const std::string& part, Bytes memory) {
  GpuHolder holder;
  holder.slice = {{OwnerKind::kPod, "uid-" + pod}, part, CardId("x"), memory, CoreShare(0)};
  holder.namespace_name = namespace_name;
  holder.name = pod;
  return holder;
}

// The form of the original; node-1 is that of its documentation: two cards of 16,160 MiB, with 3 GiB and 6 GiB held.
TEST(GpushareInspect, Golden) {
  auto first = card("node-1", 0, 16'160);
  first.holders = {held("default", "pod-a", "main", Bytes::gib(3))};
  auto second = card("node-1", 1, 16'160);
  second.holders = {held("default", "pod-b", "one", Bytes::gib(2)), held("default", "pod-b", "two", Bytes::gib(4))};
  const auto view = cluster_view({card("node-2", 0, 143'771), second, first}, {});
  const std::string node_1 =
      R"({"name":"node-1","totalGPU":30,"usedGPU":9,"devs":[)"
      R"({"id":0,"totalGPU":15,"usedGPU":3,"pods":[{"name":"pod-a","namespace":"default","usedGPU":3}]},)"
      R"({"id":1,"totalGPU":15,"usedGPU":6,"pods":[{"name":"pod-b","namespace":"default","usedGPU":6}]}]})";
  const std::string node_2 =
      R"({"name":"node-2","totalGPU":140,"usedGPU":0,"devs":[{"id":0,"totalGPU":140,"usedGPU":0,"pods":[]}]})";
  EXPECT_EQ(gpushare_inspect(view, Bytes::gib(1), ""), R"({"nodes":[)" + node_1 + "," + node_2 + "]}");
  EXPECT_EQ(gpushare_inspect(view, Bytes::gib(1), "node-1"), R"({"nodes":[)" + node_1 + "]}");
  EXPECT_EQ(gpushare_inspect(view, Bytes::gib(1), "node"),
            R"({"nodes":[],"error":"node node: no card managed by Carve"})");
}

TEST(GpushareInspect, FreeMemoryIsNeverOverstated) {
  auto gpu = card("n", 0, 16'160);
  gpu.holders = {held("a", "half", "main", Bytes::mib(1536))};
  const auto view = cluster_view({gpu}, {});
  EXPECT_EQ(gpushare_inspect(view, Bytes::gib(1), ""),
            R"({"nodes":[{"name":"n","totalGPU":15,"usedGPU":2,"devs":[{"id":0,"totalGPU":15,"usedGPU":2,"pods":[)"
            R"({"name":"half","namespace":"a","usedGPU":2}]}]}]})");
  EXPECT_NE(gpushare_inspect(view, Bytes::mib(1), "").find(R"("totalGPU":16160,"usedGPU":1536)"), std::string::npos);
}

TEST(GpushareInspect, AHolderIsNamedByItsPodElseByItsClaimElseByItsUid) {
  auto gpu = card("n", 0, 16'384);
  gpu.holders = {held("a", "claim", "main", Bytes::gib(1)), held("b", "claim", "x", Bytes::gib(1)),
                 held("c", "", "y", Bytes::gib(1))};
  gpu.holders[0].pods = {"ml/p", "ml/q"};
  gpu.holders[0].slice.owner.uid = "u-1";
  gpu.holders[1].slice.owner.uid = "u-2";
  gpu.holders[2].slice.owner.uid = "u-3";
  const auto nodes = gpushare_nodes(cluster_view({gpu}, {}), Bytes::gib(1), "n");
  ASSERT_EQ(nodes.size(), 1U);
  std::string names;
  for (const auto& holder : nodes[0].cards[0].holders) names += holder.namespace_name + "/" + holder.name + " ";
  EXPECT_EQ(names, "b/claim c/u-3 ml/p ") << "in this order";
}

TEST(GpushareInspect, AWholeCardCountsCompletely) {
  auto gpu = card("n", 0, 16'160);
  gpu.holders = {held("a", "b", "main", Bytes::mib(100))};
  gpu.holders[0].slice.whole = true;
  EXPECT_NE(gpushare_inspect(cluster_view({gpu}, {}), Bytes::gib(1), "").find(R"("totalGPU":15,"usedGPU":15,"devs")"),
            std::string::npos);
}

TEST(GpushareInspect, AnUnknownNodeIsQuotedUpToALimit) {
  const auto empty = cluster_view(std::vector<GpuObject>(), {});
  const std::string text = gpushare_inspect(empty, Bytes::gib(1), std::string(300, 'z'));
  EXPECT_EQ(std::count(text.begin(), text.end(), 'z'), 253) << text;
}

}  // namespace
}  // namespace carve::codec
