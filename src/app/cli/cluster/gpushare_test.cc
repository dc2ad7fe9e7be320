#include "app/cli/cluster/gpushare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carve::cli {
namespace {

using ::testing::HasSubstr;

codec::GpuObject card(const std::string& node, int index, std::uint64_t mib) {
  codec::GpuObject gpu;
  gpu.node = node;
  gpu.index = index;
  gpu.name = node + "." + std::to_string(index);
  gpu.card.id = CardId("GPU-" + gpu.name);
  gpu.card.memory = Bytes::mib(mib);
  return gpu;
}

codec::GpuHolder held(const std::string& pod, Bytes memory) {
  codec::GpuHolder holder;
  holder.slice = {{OwnerKind::kPod, "uid-" + pod}, "main", CardId("x"), memory, CoreShare(0)};
  holder.namespace_name = "default";
  holder.name = pod;
  return holder;
}

/// The node of gpushare's documentation: two cards of 15 GiB, of which 3 and 6 GiB are allocated.
std::vector<codec::GpuObject> documented() {
  auto first = card("node-1", 0, 16'160);
  first.holders = {held("pod-a", Bytes::gib(3))};
  auto second = card("node-1", 1, 16'160);
  second.holders = {held("pod-b", Bytes::gib(6))};
  return {first, second};
}

const std::map<std::string, std::string> kAddresses = {{"node-1", "10.0.0.1"}, {"node-2", ""}};

// Every blank of the next two outputs matters: scripts parse their columns.
TEST(Gpushare, GoldenOfTheSummary) {
  EXPECT_EQ(render_gpushare(codec::cluster_view(documented(), {}), Bytes::gib(1), kAddresses, false),
            "NAME    IPADDRESS  GPU0(Allocated/Total)  GPU1(Allocated/Total)  GPU Memory(GiB)\n"
            "node-1  10.0.0.1   3/15                   6/15                   9/30\n"
            "---------------------------------------------------\n"
            "Allocated/Total GPU Memory In Cluster:\n"
            "9/30 (30%)  \n");
}

TEST(Gpushare, DetailsAreByteForByteThoseOfTheOriginal) {
  EXPECT_EQ(render_gpushare(codec::cluster_view(documented(), {}), Bytes::gib(1), kAddresses, true),
            "\n"
            "NAME:       node-1\n"
            "IPADDRESS:  10.0.0.1\n"
            "\n"
            "NAME         NAMESPACE  GPU0(Allocated)  GPU1(Allocated)  \n"
            "pod-a        default    3                0                \n"
            "pod-b        default    0                6                \n"
            "Allocated :  9 (30%)    \n"
            "Total :      30         \n"
            "------------------------------------------------\n"
            "\n"
            "\n"
            "Allocated/Total GPU Memory In Cluster:  9/30 (30%)  \n");
}

TEST(Gpushare, SortsNodesAndShowsEachCardsSizeAndZeroForMissingCards) {
  auto cards = documented();
  cards.insert(cards.begin(), card("node-2", 0, 143'771));
  EXPECT_EQ(render_gpushare(codec::cluster_view(cards, {}), Bytes::gib(1), kAddresses, false),
            "NAME    IPADDRESS  GPU0(Allocated/Total)  GPU1(Allocated/Total)  GPU Memory(GiB)\n"
            "node-1  10.0.0.1   3/15                   6/15                   9/30\n"
            "node-2  unknown    0/140                  0/0                    0/140\n"
            "---------------------------------------------------\n"
            "Allocated/Total GPU Memory In Cluster:\n"
            "9/170 (5%)  \n");
}

TEST(Gpushare, UsesTheUnitOfTheInstallation) {
  const auto text = render_gpushare(codec::cluster_view(documented(), {}), Bytes::mib(1), kAddresses, false);
  EXPECT_THAT(text, HasSubstr("GPU Memory(MiB)\n"));
  EXPECT_THAT(text, HasSubstr("3072/16160"));
}

TEST(Gpushare, APodWithTwoCardsIsOneLine) {
  auto cards = documented();
  cards[1].holders = {held("pod-a", Bytes::gib(3))};
  const auto text = render_gpushare(codec::cluster_view(cards, {}), Bytes::gib(1), kAddresses, true);
  EXPECT_THAT(text, HasSubstr("\npod-a        default    3                3                \nAllocated :  6 (20%)"));
}

TEST(Gpushare, WithoutCardsTheShareIsZero) {
  EXPECT_THAT(render_gpushare(codec::cluster_view({}, {}), Bytes::gib(1), {}, false), HasSubstr("\n0/0 (0%)  \n"));
  EXPECT_THAT(render_gpushare(codec::cluster_view({}, {}), Bytes::gib(1), {}, true), HasSubstr("0/0 (0%)  \n"));
}

}  // namespace
}  // namespace carve::cli
