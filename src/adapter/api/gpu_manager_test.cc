#include "adapter/api/gpu_manager.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace carve::api {
namespace {

AgentView two_cards() {
  AgentView view;
  for (int i = 0; i < 2; ++i) {
    CardView card;
    card.card.id = CardId("GPU-" + std::to_string(i));
    card.pci_bus_id = "00000000:0" + std::to_string(i) + ":00.0";
    view.cards.push_back(card);
  }
  return view;
}

SliceView slice(const std::string& name, const std::string& owner) {
  SliceView one;
  one.kind = "pod";
  one.name = name;
  one.owner = owner;
  return one;
}

TEST(GpuManagerUsage, ContainersByTheUidOfTheirPod) {
  auto view = two_cards();
  auto main = slice("ml/train/main", "u-1");
  main.cards = {{"GPU-0", Bytes::gib(4), Bytes::mib(512), {}, CoreShare(30), 12.5, 0},
                {"GPU-1", Bytes::gib(4), Bytes::max(), {}, CoreShare(30), 0, 0}};
  auto side = slice("ml/train/side", "u-1");
  side.cards = {{"GPU-1", Bytes::gib(1), Bytes(), {}, CoreShare(0), 1, 0}};
  auto claim = slice("ml/train/gpu", "u-2");
  claim.kind = "claim";
  view.slices = {main, side, claim, slice("python", "")};
  EXPECT_EQ(gpu_manager_usage(view),
            R"({"usage":{"u-1":{"stat":{)"
            R"("main":{"dev":[{"id":"00000000:00:00.0","card_idx":"0","gpu":1.25E1,"mem":5.12E2},)"
            R"({"id":"00000000:01:00.0","card_idx":"1"}]},)"
            R"("side":{"dev":[{"id":"00000000:01:00.0","card_idx":"1","gpu":1E0}]}},"project":"ml",)"
            R"("spec":{"main":{"gpu":6E-1,"mem":8.192E3},"side":{"mem":1.024E3}}}}})");
}

TEST(GpuManagerUsage, WithoutPodsItIsEmpty) {
  EXPECT_EQ(gpu_manager_usage(two_cards()), "{}");
  auto view = two_cards();
  view.slices = {slice("ml/train/main", "u-1")};
  view.slices[0].cards = {{"GPU-gone", Bytes::gib(1), Bytes(), {}, CoreShare(10), 0, 0}};
  EXPECT_EQ(gpu_manager_usage(view), R"({"usage":{"u-1":{"stat":{"main":{"dev":[]}},"project":"ml",)"
                                     R"("spec":{"main":{"gpu":1E-1,"mem":1.024E3}}}}})");
}

AgentView cards_at(const std::vector<std::pair<std::string, int>>& places) {
  AgentView view;
  for (const auto& [root, numa] : places) {
    CardView card;
    card.card.memory = Bytes(100);
    card.card.pcie_root = root;
    card.card.numa_node = numa;
    view.cards.push_back(card);
  }
  return view;
}

/// One line as JSON has it.
std::string row(const std::string& start, int used, int total, int cores, int memory) {
  return fmt::format(R"({}pids: [], usedMemory: {}, totalMemory: {}, allocatableCores: {}, allocatableMemory: {})\n)",
                     start, used, total, cores, memory);
}

TEST(GpuManagerGraph, JoinsCardsByRootComplexNumaNodeAndMachine) {
  auto view = cards_at({{"0000:17", 0}, {"0000:17", 0}, {"0000:3a", 0}, {"0000:85", 1}});
  view.cards[0].used = Bytes(7);
  view.cards[0].set_aside = Bytes(40);
  view.cards[0].guaranteed = CoreShare(30);
  view.cards[2].exclusive = true;
  view.cards[2].used = Bytes::max();
  EXPECT_EQ(gpu_manager_graph(view), R"({"graph":"ROOT:2\n)" +
                                         row("|---SYS (aval: 2, ", 7, 400, 0, 0) +
                                         row("|   |---GPU3 (", 0, 100, 100, 100) +
                                         row("|   |---CPU (aval: 1, ", 7, 300, 0, 0) +
                                         row("|   |   |---GPU2 (", 0, 100, 0, 0) +
                                         row("|   |   |---PHB (aval: 1, ", 7, 200, 0, 0) +
                                         row("|   |   |   |---GPU0 (", 7, 100, 70, 60) +
                                         row("|   |   |   |---GPU1 (", 0, 100, 100, 100) + R"("})");
}

TEST(GpuManagerGraph, ACardAloneIsBelowTheRoot) {
  EXPECT_EQ(gpu_manager_graph({}), R"({"graph":"ROOT:0\n"})");
  EXPECT_EQ(gpu_manager_graph(cards_at({{"", -1}})),
            R"({"graph":"ROOT:1\n)" + row("|---GPU0 (", 0, 100, 100, 100) + R"("})");
  const auto unknown = gpu_manager_graph(cards_at({{"", -1}, {"", -1}}));
  EXPECT_EQ(unknown.find("PHB"), std::string::npos) << "an unknown root complex joins no cards";
  EXPECT_NE(unknown.find("|---SYS (aval: 2"), std::string::npos);
}

}  // namespace
}  // namespace carve::api
