#include "codec/views/elastic_status.h"

#include <gtest/gtest.h>

namespace carve::codec {
namespace {

GpuObject card(const std::string& node, int index) {
  GpuObject gpu;
  gpu.node = node;
  gpu.index = index;
  gpu.card.id = CardId("GPU-" + node + std::to_string(index));
  gpu.card.memory = Bytes::mib(16'160);
  return gpu;
}

GpuHolder held(const std::string& pod, Bytes memory, std::uint32_t compute, bool whole = false) {
  GpuHolder holder;
  holder.slice = {{OwnerKind::kPod, pod}, "main", CardId("x"), memory, CoreShare(compute)};
  holder.slice.whole = holder.slice.exclusive = whole;
  return holder;
}

TEST(ElasticStatus, FreeAndTotalOfEachCardByNode) {
  auto shared = card("n1", 0);
  shared.holders = {held("a", Bytes::gib(4), 30), held("b", Bytes::mib(10), 5)};
  auto whole = card("n1", 1);
  whole.holders = {held("c", Bytes::gib(1), 100, true)};
  const std::string text =
      R"({\"n1\":[{\"CoreAvailable\":65,\"MemoryAvailable\":12054,\"CoreTotal\":100,\"MemoryTotal\":16160},)"
      R"({\"CoreAvailable\":0,\"MemoryAvailable\":0,\"CoreTotal\":100,\"MemoryTotal\":16160}],)"
      R"(\"n2\":[{\"CoreAvailable\":100,\"MemoryAvailable\":16160,\"CoreTotal\":100,\"MemoryTotal\":16160}]})";
  EXPECT_EQ(elastic_status(cluster_view({card("n2", 0), whole, shared}, {})),
            R"({"elasticgpu.com/gpu-core":")" + text + R"(","elasticgpu.com/gpu-memory":")" + text + R"("})");
}

TEST(ElasticStatus, AnUnhealthyCardHasNothingFree) {
  auto sick = card("n1", 0);
  sick.card.health = {false, "XID 79"};
  const std::string text =
      R"({\"n1\":[{\"CoreAvailable\":0,\"MemoryAvailable\":0,\"CoreTotal\":100,\"MemoryTotal\":16160}]})";
  EXPECT_EQ(elastic_status(cluster_view({sick}, {})),
            R"({"elasticgpu.com/gpu-core":")" + text + R"(","elasticgpu.com/gpu-memory":")" + text + R"("})");
}

TEST(ElasticStatus, WithoutNodes) {
  EXPECT_EQ(elastic_status(cluster_view({}, {})),
            R"({"elasticgpu.com/gpu-core":"{}","elasticgpu.com/gpu-memory":"{}"})");
}

}  // namespace
}  // namespace carve::codec
